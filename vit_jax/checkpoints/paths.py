"""Which checkpoints there are, by the names of their folders.

    1200/            whole
    1200.replaced/   whole too: stands in until what takes its place is whole
    1200.damaged/    could not be read: put aside for a person, and never read

What Orbax is still writing has a name of its own, and is none of these.
"""

from collections.abc import Sequence
import os

from etils import epath
import orbax.checkpoint as ocp

LATEST, BEST = 'latest', 'best'
DAMAGED, REPLACED = '.damaged', '.replaced'
# What tells a checkpoint from any folder that is called by a number.
_MARKS = ('params', 'average', '_CHECKPOINT_METADATA')


def is_checkpoint(path: epath.Path) -> bool:
  """Whether a folder is one checkpoint of ours: whole, or once written whole.

  Such as Orbax is still writing has another name.
  """
  return (path.is_dir() and ocp.utils.is_checkpoint_finalized(path)
          and any((path / name).exists() for name in _MARKS))


def shown(path: epath.PathLike) -> str:
  """Returns a path for a person: from here, where it is below.

  Notebooks and model cards are shared; whose home it was, they need not say.
  """
  text, here = os.fspath(path), os.path.join(os.getcwd(), '')
  return text.removeprefix(here) or text


def others(path: epath.Path) -> list[epath.Path]:
  """Returns the checkpoints of the same run beside one."""
  beside = [path.parent]
  if path.parent.name in (LATEST, BEST):
    beside = [path.parent.parent / name for name in (LATEST, BEST)]
  return [step for folder in beside for step in _steps(folder)
          if step != path]


def newest(folder: epath.Path) -> epath.Path | None:
  """Returns the last step's; one that is being replaced for want of another."""
  found = _steps(folder) or _steps(folder, REPLACED)
  return found[-1] if found else None


def replace(folder: epath.Path, steps: Sequence[int]) -> None:
  """Frees the names of checkpoints that others are to take.

  They stand in until `sweep` finds another.
  """
  for step in steps:
    path = folder / str(step)
    aside = path.with_name(path.name + REPLACED)
    if aside.exists():  # The start before was killed when this was replaced.
      aside.rmtree()
    path.rename(aside)


def sweep(folder: epath.Path) -> None:
  """Removes what was replaced, if there is a whole one instead."""
  if _steps(folder):
    for path in _steps(folder, REPLACED):
      path.rmtree()


def _steps(folder: epath.Path, suffix: str = '') -> list[epath.Path]:
  """Returns the checkpoints of a folder, in the order of their steps."""
  if not folder.is_dir():
    return []
  found = [path for path in folder.iterdir()
           if path.name.removesuffix(suffix).isdigit()
           and path.name.endswith(suffix) and is_checkpoint(path)]
  return sorted(found, key=lambda p: int(p.name.removesuffix(suffix)))
