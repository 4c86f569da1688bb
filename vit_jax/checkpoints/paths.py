"""Locations of checkpoints.

    WORKDIR/checkpoints/latest/1200/   a complete checkpoint

Orbax writes under a temporary name and renames the complete folder.
"""

import os
import typing

from etils import epath
import orbax.checkpoint as ocp

from vit_jax import atomic_files
from vit_jax import registry
from vit_jax import schema
from vit_jax import types
from vit_jax.exceptions import NotFoundError
from vit_jax.exceptions import UserError

FOLDER = 'checkpoints'
LATEST, BEST = typing.get_args(types.Which)
AUTO = 'auto'  # The best one if there is one, else the latest.
WHICH = (AUTO, LATEST, BEST)
PARAMS = ('params', 'average')  # Items that hold parameters.
METADATA = '_CHECKPOINT_METADATA'  # Written by Orbax.
_MAX_NAMES = 12  # In the error that lists a folder.


def find(path: epath.PathLike, *, which: str = LATEST) -> epath.Path:
  """Returns the folder of the checkpoint to start from or to evaluate.

  Args:
    path: a workdir, also of a single stage, a folder of checkpoints, or one
      checkpoint.
    which: 'latest', 'best' or 'auto', if `path` is a workdir.

  Raises:
    FileNotFoundError: if there is no checkpoint.
    UserError: for another `which`, or a folder of several runs.
  """
  schema.check_name(which, WHICH, what='which checkpoint')
  path = epath.Path(atomic_files.absolute(path))
  if not path.exists():
    raise NotFoundError(f'{path} does not exist.{registry.nearest_file(path)}')
  names = (BEST, LATEST) if which == AUTO else (which,)
  for folder in (*(path / parent / name for name in names
                   for parent in (FOLDER, '')), path):
    step = newest(folder)
    if step is not None:
      return step
  if is_checkpoint(path):
    return path
  runs = stages(path)
  if len(runs) == 1:
    return find(path / runs[0], which=which)
  if runs:
    raise UserError(
        f'{path} holds several runs. Name one of them: '
        + ', '.join(display(path / run) for run in runs) + '.')
  content = (', '.join(sorted(p.name for p in path.iterdir())[:_MAX_NAMES])
             if path.is_dir() else 'a file')
  raise NotFoundError(
      f'{path} holds no {names[-1]} checkpoint: expected a workdir with '
      f'{FOLDER}/{names[-1]}/STEP, or the folder of one step. '
      + 'Only runs with checkpoint.best have it. ' * (which == BEST)
      + f'Found: {content or "nothing"}.')


def is_run(path: epath.Path) -> bool:
  """Whether a path is a workdir, with or without stages, or a checkpoint."""
  return path.is_dir() and (
      any((path / name).is_dir() for name in (FOLDER, LATEST, BEST))
      or is_checkpoint(path) or newest(path) is not None or bool(stages(path)))


def is_checkpoint(path: epath.Path) -> bool:
  """Whether a folder is a completely written checkpoint of this codebase."""
  return (path.is_dir() and ocp.utils.is_checkpoint_finalized(path)
          # Unlike other folders that are named by a number.
          and any(item.name in (*PARAMS, METADATA) for item in path.iterdir()))


def display(path: epath.PathLike) -> str:
  """Returns a path, relative to the working directory if it is inside.

  Notebooks and model cards are shared and should not reveal a home directory.
  """
  text, here = os.fspath(path), os.path.join(os.getcwd(), '')
  return text.removeprefix(here) or text


def check_writable(path: epath.PathLike) -> None:
  """Raises a UserError for a path at which Orbax would lose a checkpoint.

  It takes the path for a pattern when it writes, and TensorStore takes a
  backslash for a slash.
  """
  text = atomic_files.absolute(path)
  if found := [character for character in '[]*?\\' if character in text]:
    raise UserError(
        f'Checkpoints cannot be written to {text}: the library that writes '
        f'them takes {" ".join(found)} for a pattern. Use a path without '
        'these characters.')


def others(path: epath.Path) -> list[epath.Path]:
  """Returns the other checkpoints of the same run."""
  folders = [path.parent]
  if path.parent.name in (LATEST, BEST):
    folders = [path.parent.parent / name for name in (LATEST, BEST)]
  return [step for folder in folders for step in steps(folder) if step != path]


def stages(path: epath.Path) -> list[str]:
  """Returns the names of the runs in a folder, such as stages."""
  if not path.is_dir():
    return []
  return sorted(run.name for run in path.iterdir() if (run / FOLDER).is_dir())


def newest(folder: epath.Path) -> epath.Path | None:
  """Returns the checkpoint with the largest step, or None."""
  found = steps(folder)
  return found[-1] if found else None


def steps(folder: epath.Path) -> list[epath.Path]:
  """Returns the checkpoints of a folder in the order of their steps."""
  if not folder.is_dir():
    return []
  found = [path for path in folder.iterdir()
           if path.name.isdigit() and is_checkpoint(path)]
  return sorted(found, key=lambda path: int(path.name))
