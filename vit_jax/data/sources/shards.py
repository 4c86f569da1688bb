"""Data sets in several files: which files a name means, and their splits.

    /data/train-{000000..000146}.tar    braces: a range, or {a,b}
    /data/*.parquet                     a pattern
    hf/data/train-00000-of-00004.parquet, hf/default/test/0000.parquet

The split of a file is a word of its name, or the name of its folder. Where that
is the same of all of them, it says nothing.
"""

from collections.abc import Sequence
import os
import re

from etils import epath

from vit_jax.data.sources import class_folders as image_folder
from vit_jax.data.sources import rows
from vit_jax.data.splits import split_strings as split_strings_lib

_MAGIC = re.compile(r'[*?\[]')
_BRACES = re.compile(r'\{([^{}]*)\}')


def expand(name: str) -> list[epath.Path]:
  """Returns the files or the folder that a name means, sorted.

  Raises:
    ValueError: if some are not there.
  """
  literal = epath.Path(name).expanduser()
  if literal.exists():
    return [literal]
  if not (_MAGIC.search(name) or _BRACES.search(name)):
    raise ValueError(
        f'There is no {literal} (data.source). Expected a folder of images '
        f'({literal}/train/CLASS/*.jpg, or {literal}/CLASS/*.jpg), a table of '
        'them (.csv, .tsv, .jsonl), Parquet files, or tar shards.')
  paths = [path for one in _expand_braces(name) for path in _match(one)]
  missing = [path for path in paths if not path.exists()]
  if missing or not paths:
    shown = ', '.join(str(path) for path in missing[:3])
    raise ValueError(
        f'{len(missing)} of {len(paths)} files of {name} (data.source) are not '
        f'there: {shown}{", ..." * (len(missing) > 3)}.' if missing else
        f'No file matches {name} (data.source).')
  return sorted(set(paths))


def _expand_braces(name: str) -> list[str]:
  """Returns 'a-{08..10}' as 'a-08', 'a-09', 'a-10', and 'a-{x,y}' likewise."""
  found = _BRACES.search(name)
  if found is None:
    return [name]
  ends = re.fullmatch(r'(\d+)\.\.(\d+)', found[1])
  if ends:
    first, last = int(ends[1]), int(ends[2])
    parts = [str(i).zfill(len(ends[1])) for i in range(first, last + 1)]
  else:
    parts = found[1].split(',')
  return [whole for part in parts for whole in _expand_braces(
      name[:found.start()] + part + name[found.end():])]


def _match(name: str) -> list[epath.Path]:
  """Returns the files of a pattern, or the one file of a plain name."""
  magic = _MAGIC.search(name)
  if magic is None:
    return [epath.Path(name).expanduser()]
  root = os.path.dirname(name[:magic.start()])
  pattern = name[len(root):].lstrip('/')
  return [path for path in epath.Path(root or '.').expanduser().glob(pattern)
          if not path.name.startswith('.')]


def files_below(root: epath.Path, suffixes: frozenset[str]) -> list[epath.Path]:
  """Returns files in a folder, in its splits and in `data/` and `default/`."""
  found = [root / name for name in image_folder.names_in(root)
           if os.path.splitext(name)[1].lower() in suffixes
           and not name.startswith('.')]
  for name in image_folder.subfolders(root):
    if name in ('data', 'default') or split_strings_lib.is_split_name(name):
      found += files_below(root / name, suffixes)
  return sorted(found)


def splits_of(
    paths: Sequence[epath.Path], *, where: str) -> list[str] | None:
  """Returns the split of each file, or None where names do not tell them apart.

  Raises:
    ValueError: if some names do and others do not.
  """
  found = [_split_of(path) for path in paths]
  named = [split for split in found if split is not None]
  if len(set(found)) == 1:
    return None
  if len(named) < len(found):
    other = paths[found.index(None)]
    raise ValueError(
        f'Some files of {where} are of a split by their names '
        f'({", ".join(sorted(set(named)))}), but {other.name} is of none. '
        'Rename it, or give the files that are meant: '
        f'{other.parent}/train-*{other.suffix}')
  return named


def _split_of(path: epath.Path) -> str | None:
  words = [*re.split(r'[-_.\d]+', path.stem), path.parent.name]
  split = next((w for w in words if split_strings_lib.is_split_name(w)), None)
  return None if split is None else rows.split_name(split)
