"""Data sets in several files: path patterns, and the split of each file.

    /data/train-{000000..000146}.tar    a range in braces, or {a,b}
    /data/*.parquet                     a glob pattern
    hf/data/train-00000-of-00004.parquet, hf/default/test/0000.parquet

The split is a word of the file's name, or the name of its folder.
"""

from collections.abc import Sequence
import os
import re

from etils import epath

from vit_jax.data.sources import image_files
from vit_jax.data.sources import table_source
from vit_jax.data.splits import split_strings as split_strings_lib

_GLOB = re.compile(r'[*?\[]')
_BRACES = re.compile(r'\{([^{}]*)\}')


def expand(name: str) -> list[epath.Path]:
  """Returns the folder, or the sorted files, that a path or pattern denotes.

  Raises:
    ValueError: if some do not exist.
  """
  literal = epath.Path(name).expanduser()
  if literal.exists():
    return [literal]
  if not (_GLOB.search(name) or _BRACES.search(name)):
    raise ValueError(
        f'{literal} (data.source) does not exist. Expected a folder of images '
        f'({literal}/train/CLASS/*.jpg, or {literal}/CLASS/*.jpg), a table of '
        'them (.csv, .tsv, .jsonl), Parquet files, or WebDataset tars.')
  paths = [path for one in expand_braces(name) for path in _glob(one)]
  if not paths:
    raise ValueError(f'No file matches {name} (data.source).')
  missing = [path for path in paths if not path.exists()]
  if missing:
    shown = ', '.join(str(path) for path in missing[:3])
    raise ValueError(
        f'{len(missing)} of {len(paths)} files of {name} (data.source) do not '
        f'exist: {shown}{", ..." * (len(missing) > 3)}.')
  return sorted(set(paths))


def expand_braces(name: str) -> list[str]:
  """Expands 'a-{08..10}' to 'a-08', 'a-09', 'a-10', and 'a-{x,y}' likewise."""
  found = _BRACES.search(name)
  if found is None:
    return [name]
  ends = re.fullmatch(r'(\d+)\.\.(\d+)', found[1])
  if ends:
    numbers = range(int(ends[1]), int(ends[2]) + 1)
    items = [str(i).zfill(len(ends[1])) for i in numbers]
  else:
    items = found[1].split(',')
  return [whole for item in items for whole in expand_braces(
      name[:found.start()] + item + name[found.end():])]


def _glob(name: str) -> list[epath.Path]:
  magic = _GLOB.search(name)
  if magic is None:
    return [epath.Path(name).expanduser()]
  root = os.path.dirname(name[:magic.start()])
  pattern = name[len(root):].lstrip('/')
  return [path for path in epath.Path(root or '.').expanduser().glob(pattern)
          if not path.name.startswith('.')]


def files_below(root: epath.Path, suffix: str) -> list[epath.Path]:
  """Returns files in a folder, its split folders, `data/` and `default/`."""
  found = [root / name for name in image_files.names_in(root)
           if name.lower().endswith(suffix) and not name.startswith('.')]
  for name in image_files.subfolders(root):
    if name in ('data', 'default') or split_strings_lib.is_split_name(name):
      found += files_below(root / name, suffix)
  return sorted(found)


def relative_names(paths: Sequence[epath.Path]) -> list[str]:
  """Returns paths relative to their common folder: keys survive a move."""
  root = os.path.commonpath([os.fspath(path.parent) for path in paths])
  return [os.path.relpath(path, root) for path in paths]


def splits_of(
    paths: Sequence[epath.Path], *, where: str) -> list[str] | None:
  """Returns the split of each file; None if all names say the same.

  Raises:
    ValueError: if only some names contain a split.
  """
  found = [_split_of(path) for path in paths]
  if len(set(found)) == 1:
    return None
  named = [split for split in found if split is not None]
  if len(named) < len(found):
    other = paths[found.index(None)]
    raise ValueError(
        f'Some file names of {where} contain a split '
        f'({", ".join(sorted(set(named)))}), but {other.name} does not. '
        'Rename it, or give the files to use: '
        f'{other.parent}/train-*{other.suffix}')
  return named


def _split_of(path: epath.Path) -> str | None:
  words = [*re.split(r'[-_.\d]+', path.stem), path.parent.name]
  split = next((w for w in words if split_strings_lib.is_split_name(w)), None)
  return None if split is None else table_source.split_name(split)
