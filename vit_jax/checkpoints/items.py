"""Reading the items of one Orbax checkpoint; a damaged one is one clear error.

Orbax says what went wrong in the words of whatever layer found it: a JSON
parser, TensorStore, an event loop. A user can do one of two things about any
of it: copy the checkpoint again, or take another.
"""

import asyncio
from collections.abc import Awaitable, Generator, Sequence
import contextlib
import json
from typing import Any

from etils import epath
import jax
import numpy as np
import orbax.checkpoint as ocp
from orbax.checkpoint import type_handlers

from vit_jax.checkpoints import errors

_MAX_CHARACTERS = 200


class DamagedError(ValueError):
  """A checkpoint cannot be read, as far as its own files go."""


@contextlib.contextmanager
def explained(
    path: epath.Path, others: Sequence[epath.Path] = (),
) -> Generator[None, None, None]:
  """Turns any failure to read a checkpoint into one that says what to do.

  Args:
    path: of the checkpoint.
    others: whole ones beside it, which could be used instead.

  Raises:
    storage.StorageError: if it lies in a bucket that does not give it.
    DamagedError: for any other exception inside, naming the checkpoint.
  """
  try:
    yield
  # Whatever Orbax raises; among them bare `Exception`.
  except Exception as error:
    errors.raise_answered(
        error, 'The checkpoint could not be read from', path)
    raise DamagedError(
        f'The checkpoint {path} is damaged, or none: {reason(error)}. Copy it '
        'again from where it was written'
        + (f', or use another of this run: {", ".join(map(str, others))}.'
           if others else '; there is no other beside it.')) from error


def read_config(path: epath.Path) -> dict[str, Any]:
  """Reads an item of plain data."""
  with ocp.Checkpointer(ocp.JsonCheckpointHandler()) as checkpointer:
    found = checkpointer.restore(path)
  if not isinstance(found, dict):
    raise ValueError(f'{path.name} is no mapping, but {type(found).__name__}')
  return found


def read_shapes(path: epath.Path) -> Any:
  """Returns a tree of what an item's arrays are, with `shape` and `dtype`."""
  # The handler, not a checkpointer: that warns of a file that items lack.
  found = _handler().metadata(path)
  return getattr(found, 'tree', found)


def read_arrays(path: epath.Path, shapes: Any) -> Any:
  """Reads an item's arrays to host memory, as NumPy arrays."""
  target = jax.tree.map(
      lambda m: ocp.RestoreArgs(restore_type=np.ndarray, dtype=m.dtype), shapes)
  with ocp.Checkpointer(_handler()) as checkpointer:
    return checkpointer.restore(
        path, args=ocp.args.PyTreeRestore(restore_args=target))


def reason(error: BaseException) -> str:
  """Returns the first line of what started an error."""
  while error.__cause__ is not None:
    error = error.__cause__
  text = (str(error) or 'no reason is given').splitlines()[0]
  if isinstance(error, json.JSONDecodeError):
    text = f'what should be JSON is not: {text}'
  return text[:_MAX_CHARACTERS].rstrip('. ')


def _handler() -> ocp.PyTreeCheckpointHandler:
  return ocp.PyTreeCheckpointHandler(
      type_handler_registry=type_handlers.create_type_handler_registry(
          (np.ndarray, _NumpyHandler()), (jax.Array, _ArrayHandler())))


async def _settled(futures: Sequence[Awaitable[list[Any]]]) -> list[Any]:
  """Waits for all, and only then raises what the first raised.

  Orbax raises at once and closes the event loop; each read that is still going
  on then prints a traceback of its own.
  """
  done = await asyncio.gather(*futures, return_exceptions=True)
  for result in done:
    if isinstance(result, BaseException):
      raise result
  return [result[0] for result in done]  # type: ignore[index]


class _NumpyHandler(type_handlers.NumpyHandler):
  """Orbax's own, that does not stop half-way."""

  async def metadata(self, infos):
    one = super().metadata
    return await _settled([one([info]) for info in infos])

  async def deserialize(self, infos, args=None):
    one = super().deserialize
    return await _settled([
        one([info], [arg]) for info, arg in zip(infos, args or [None] * len(
            infos))])


class _ArrayHandler(type_handlers.ArrayHandler):
  """Likewise; for the shapes alone, for arrays are read as NumPy's."""

  async def metadata(self, infos):
    one = super().metadata
    return await _settled([one([info]) for info in infos])
