"""Finds a checkpoint to load a model from."""

from collections.abc import Callable, Mapping
import dataclasses
import functools
from typing import Any

from etils import epath

from vit_jax import schema
from vit_jax import types
from vit_jax import untrusted
from vit_jax.checkpoints import checksums as checksums_lib
from vit_jax.checkpoints import items as items_lib
from vit_jax.checkpoints import paths

_MAX_NAMES = 12  # In the error that lists a folder.


@dataclasses.dataclass(frozen=True)
class Source:
  """A checkpoint, or weights of another codebase, to load a model from.

  Attributes:
    path: folder of the checkpoint, or path or address of the weights.
    config: resolved config that wrote it; the known settings of weights.
    item: 'average' if the run averaged its parameters, else 'params'; the
      family of weights.
    load: reads the parameters as NumPy arrays; raises `items.DamagedError` if
      the checkpoint is damaged.
    shapes: tree with `shape` and `dtype` of the parameters.
    labels: class names, if known.
  """
  path: epath.PathLike
  config: dict[str, Any]
  item: str
  load: Callable[[], types.Params]
  shapes: Any = None
  labels: tuple[str, ...] = ()


def find(path: epath.PathLike, *, which: str = paths.LATEST) -> Source:
  """Finds a checkpoint to start from or to evaluate.

  Args:
    path: a workdir, a folder of checkpoints, or one checkpoint.
    which: 'latest' or 'best', if `path` is a workdir.

  Raises:
    FileNotFoundError: if there is no checkpoint.
    ValueError: for another `which`, or a folder of several runs.
    items.DamagedError: if the checkpoint is damaged.
  """
  schema.check_name(which, paths.WHICH, what='which checkpoint')
  path = paths.absolute(path)
  if not path.exists():
    raise FileNotFoundError(f'{path} does not exist.')
  for folder in (path / paths.FOLDER / which, path / which, path):
    step = paths.newest(folder)
    if step is not None:
      return _source(step)
  if paths.is_checkpoint(path):
    return _source(path)
  if stages := paths.stages(path):
    raise ValueError(
        f'{path} holds several runs. Name one of them: '
        + ', '.join(paths.display(path / stage) for stage in stages) + '.')
  names = (', '.join(sorted(p.name for p in path.iterdir())[:_MAX_NAMES])
           if path.is_dir() else 'a file')
  raise FileNotFoundError(
      f'{path} holds no {which} checkpoint: expected a workdir with '
      f'{paths.FOLDER}/{which}/STEP, or the folder of one step. '
      + 'Only runs with checkpoint.best have it. ' * (which == paths.BEST)
      + f'Found: {names or "nothing"}.')


def _source(path: epath.Path) -> Source:
  item = 'average' if (path / 'average').exists() else 'params'
  with items_lib.explain_errors(path):
    untrusted.check_folder(path)
    sums = items_lib.read_checksums(path)
    config = items_lib.read_config(path / 'config')
    checksums_lib.check_items(sums, plain={'config': config})
    return Source(
        path=path, config=config, item=item,
        load=functools.partial(_read, path, item, sums),
        shapes=items_lib.read_shapes(path / item),
        labels=items_lib.read_labels(path, sums) or _declared_labels(config))


def _declared_labels(config: Mapping[str, Any]) -> tuple[str, ...]:
  """Returns the class names that `convert` writes into the config."""
  section = config.get('preprocess')
  labels = section.get('labels') if isinstance(section, dict) else ()
  return tuple(map(str, labels)) if isinstance(labels, list) else ()


def _read(
    path: epath.Path, item: str, checksums: Mapping[str, Any],
) -> types.Params:
  with items_lib.explain_errors(path):
    params = items_lib.read_arrays(
        path / item, items_lib.read_shapes(path / item))
    checksums_lib.check_items(checksums, arrays={item: params})
  return params
