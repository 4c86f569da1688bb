"""Writes and reads items of an Orbax checkpoint.

A damaged checkpoint raises one clear error.
"""

from collections.abc import Mapping
import contextlib
import json
import logging
from typing import Any

from etils import epath
import jax
import numpy as np
import orbax.checkpoint as ocp

from vit_jax import atomic_files
from vit_jax import exceptions
from vit_jax import types
from vit_jax.checkpoints import checksums
from vit_jax.checkpoints import paths

# The manager raises errors of background threads at its next call. Orbax also
# logs them in each thread, with pages of tracebacks.
logging.getLogger('absl').addFilter(
    lambda record: not (record.exc_info and 'orbax' in record.pathname))

# Asyncio logs the same errors of the other arrays of a failed save.
logging.getLogger('asyncio').addFilter(
    lambda record: 'OCDBT' not in record.getMessage())

CHECKSUMS, EXAMPLES = 'checksums', 'examples'


class DamagedError(ValueError):
  """The files of a checkpoint cannot be read, or have changed."""


def explain_errors(path: epath.Path) -> contextlib.AbstractContextManager[None]:
  """Replaces errors of reading a checkpoint with a `DamagedError`.

  Errors of memory, of the operating system and of a bucket's service are kept,
  because the files may be intact.
  """
  def rewrite(error: Exception) -> Exception | None:
    if not isinstance(error, checksums.ChangedError) and (
        atomic_files.is_remote(path) or _is_of_system(error)):
      return None
    return DamagedError(
        f'The checkpoint {path} is damaged or incomplete: {reason(error)}. '
        f'Copy it again from its origin{_advice(path)}')

  return exceptions.replaced_by(rewrite)


def _advice(path: epath.Path) -> str:
  others = paths.others(path)
  if not others:
    return '; the run has no other checkpoint.'
  # Without its latest checkpoint, a run would start again and delete `best`.
  resumes = path.parent.name != paths.BEST and any(
      other.parent == path.parent for other in others)
  remedy = ('A run of several processes resumes from the previous one once '
            'this folder is deleted.' if resumes else
            '--config.init.checkpoint starts a new run from it, in another '
            '--workdir.')
  return (f', or use another one of this run: {", ".join(map(str, others))}. '
          + remedy)


def _is_of_system(error: Exception) -> bool:
  return isinstance(error, (MemoryError, jax.errors.JaxRuntimeError)) or any(
      isinstance(link, OSError) and not isinstance(link, FileNotFoundError)
      for link in exceptions.causes(error))


def composite(
    arrays: Mapping[str, Any], plain: Mapping[str, Any],
) -> ocp.args.Composite:
  """Returns the items to save, with their checksums."""
  sums = {**{item: checksums.of_arrays(x) for item, x in arrays.items()},
          **{item: checksums.of_json(x) for item, x in plain.items()}}
  return ocp.args.Composite(
      **{item: ocp.args.StandardSave(x) for item, x in arrays.items()},
      **{item: ocp.args.JsonSave(x)
         for item, x in {**plain, CHECKSUMS: sums}.items()})


def write(
    path: epath.PathLike, arrays: Mapping[str, Any], plain: Mapping[str, Any],
) -> None:
  """Writes one checkpoint, see `composite`."""
  with ocp.Checkpointer(ocp.CompositeCheckpointHandler()) as checkpointer:
    checkpointer.save(path, args=composite(arrays, plain))


def read_checksums(path: epath.Path) -> dict[str, Any]:
  """Returns the checksums of a checkpoint.

  Raises:
    checksums.ChangedError: if an item that was saved is missing.
  """
  # Unlike `exists`, listing a folder raises operating system errors.
  present = {item.name for item in path.iterdir()}
  sums = read_config(path / CHECKSUMS) if CHECKSUMS in present else {}
  for name in (paths.METADATA, CHECKSUMS, *sums):
    if name not in present:
      raise checksums.ChangedError(f'it lacks {name}')
    if isinstance(sums.get(name), dict) and '_METADATA' not in {
        file.name for file in (path / name).iterdir()}:
      raise checksums.ChangedError(f'it lacks {name}/_METADATA')
  return sums


def read_config(path: epath.Path) -> dict[str, Any]:
  """Reads a JSON item."""
  with ocp.Checkpointer(ocp.JsonCheckpointHandler()) as checkpointer:
    return dict(checkpointer.restore(path))


def read_labels(path: epath.Path, sums: Mapping[str, Any]) -> tuple[str, ...]:
  """Returns the class names in a checkpoint with these checksums, if any."""
  found = read_optional(path, 'labels', sums)
  return tuple(map(str, found.get('names', ())))


def read_optional(
    path: epath.Path, item: str, sums: Mapping[str, Any]) -> dict[str, Any]:
  """Returns a JSON item of a checkpoint with these checksums; {} if missing."""
  if item not in sums:
    return {}
  found = read_config(path / item)
  checksums.check(sums, {item: found})
  return found


def read_examples(path: epath.Path) -> dict[str, Any]:
  """Returns the examples that a checkpoint was trained on; {} if unknown.

  Raises:
    DamagedError: if the checkpoint is damaged.
  """
  with explain_errors(path):
    return read_optional(path, EXAMPLES, read_checksums(path))


def read_shapes(path: epath.Path) -> Any:
  """Returns a tree with `shape` and `dtype` of an item's arrays."""
  # A checkpointer would warn about a file that single items do not have.
  found = ocp.PyTreeCheckpointHandler().metadata(path)
  return getattr(found, 'tree', found)


def read_arrays(path: epath.Path, shapes: Any) -> Any:
  """Reads an item's arrays as NumPy arrays."""
  target = jax.tree.map(
      lambda m: ocp.RestoreArgs(restore_type=np.ndarray, dtype=m.dtype), shapes)
  with ocp.Checkpointer(ocp.PyTreeCheckpointHandler()) as checkpointer:
    return checkpointer.restore(
        path, args=ocp.args.PyTreeRestore(restore_args=target))


def params_item(path: epath.Path) -> str:
  """Returns the item of the parameters to use: their average, if any."""
  return 'average' if (path / 'average').exists() else 'params'


def read_params(path: epath.Path) -> types.Params:
  """Reads the parameters of a checkpoint, see `params_item`, as NumPy arrays.

  Raises:
    DamagedError: if the checkpoint is damaged.
  """
  item = params_item(path)
  with explain_errors(path):
    sums = read_checksums(path)
    params = read_arrays(path / item, read_shapes(path / item))
    checksums.check(sums, {item: params})
  return params


def reason(error: BaseException) -> str:
  """Returns the first line of the original error."""
  *_, first = exceptions.causes(error)
  text = exceptions.first_line(first)
  return (f'invalid JSON: {text}' if isinstance(first, json.JSONDecodeError)
          else text)
