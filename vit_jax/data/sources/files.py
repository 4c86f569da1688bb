"""Files of a dataset: listing of folders, path patterns, splits in file names.

    /data/train-{000000..000146}.tar    a range in braces, or {a,b}
    /data/*.parquet                     a glob pattern
    hf/data/train-00000-of-00004.parquet, hf/default/test/0000.parquet

The split is the first word of the file's name, or the name of its folder.
"""

import collections
from collections.abc import Iterable, Mapping, Sequence
import os
import re
from typing import Any

from etils import epath
import numpy as np
import pyarrow as pa

from vit_jax import atomic_files
from vit_jax import registry
from vit_jax.data import known_datasets
from vit_jax.data.sources import columns as columns_lib
from vit_jax.data.splits import split_strings
from vit_jax.exceptions import UserError

TABLE_SUFFIXES = frozenset({'.csv', '.tsv', '.jsonl', '.ndjson'})
IMAGE_SUFFIXES = frozenset({
    '.jpg', '.jpeg', '.jpe', '.jfif', '.png', '.apng', '.webp', '.bmp', '.dib',
    '.gif', '.ppm', '.pgm', '.pbm', '.pnm', '.tif', '.tiff', '.npy'})

# Files and folders of systems and network drives, in lower case. Others, such
# as .AppleDouble, .Trash-1000, .snapshot (NetApp, Isilon), .recycle (Samba) and
# .@__thumb (QNAP), are hidden by their dot.
_SYSTEM_NAMES = frozenset({
    # github.com/github/gitignore: Global/Windows.gitignore, macOS.gitignore.
    '$recycle.bin', 'system volume information', 'thumbs.db', 'ehthumbs.db',
    'ehthumbs_vista.db', 'desktop.ini', 'network trash folder',
    'temporary items', 'icon\r',
    '__macosx',  # Resource forks in archives that macOS writes.
    'lost+found',  # e2fsck(8)
    # Synology DSM: thumbnails, Recycle Bin and Snapshot Replication.
    '@eadir', '#recycle', '#snapshot', '@sharesnap', '@tmp',
    # QNAP QTS: Network Recycle Bin, snapshots, transcoded media.
    '@recycle', '@recently-snapshot', '@transcode',
    '~snapshot',  # NetApp ONTAP: snapshots of SMB shares.
    '__pycache__'})
_GLOB = re.compile(r'[*?\[]')
_BRACES = re.compile(r'\{([^{}]*)\}')


def read(root: str, paths: pa.Array, row: int) -> bytes:
  """Returns a file, whose path is relative to the root or absolute."""
  return epath.Path(join(root, str(paths[row]))).read_bytes()


def join(root: epath.PathLike, path: str) -> str:
  """Returns a path from a root; addresses and absolute paths stay."""
  if not atomic_files.is_remote(path):
    path = os.path.join(root, path)
  # The file of a local '../images/1.jpg' does not depend on links of the root.
  return path if atomic_files.is_remote(path) else os.path.normpath(path)


def check_address(name: str, *, where: str) -> None:
  """Raises a UserError for an address with an unsupported scheme."""
  scheme, _ = atomic_files.split_address(name)
  if scheme and scheme not in atomic_files.SCHEMES:
    raise UserError(
        f'Cannot read {name} ({where}): only local paths and '
        f'{", ".join(f"{known}://" for known in atomic_files.SCHEMES)} are '
        'supported. Download it first.')


def is_image(value: Any) -> bool:
  """Whether a value looks like the path of an image."""
  return isinstance(value, str) and (
      os.path.splitext(value.strip())[1].lower() in IMAGE_SUFFIXES)


def shorten(items: Iterable[Any], most: int = 3) -> str:
  """Returns the first items as text: 'a, b, c, ...'."""
  texts = list(map(str, items))
  return ', '.join(texts[:most]) + ', ...' * (len(texts) > most)


# --------------------------------------------------------------------- folders


def names_in(path: epath.Path) -> list[str]:
  """Returns the names in a folder; a million files take a second."""
  return [entry.name for entry in _scan(path)]


def subfolders(path: epath.Path) -> list[str]:
  """Returns the names of the visible subfolders, sorted."""
  return [name for name, is_folder in _entries(path) if is_folder]


def list_files(
    root: epath.Path, folder: str = '',
) -> tuple[list[str], collections.Counter[str]]:
  """Returns the images below a folder, and the number of other files.

  Paths are relative to the root. Other files are counted by suffix, or as
  'without suffix'.
  """
  paths: list[str] = []
  others: collections.Counter[str] = collections.Counter()
  for name, is_folder in _entries(root / folder):
    path = os.path.join(folder, name)
    if is_folder:
      images, below = list_files(root, path)
      paths += images
      others += below
    elif is_image(name):
      paths.append(path)
    else:
      others[suffix_of(name)] += 1
  return paths, others


def suffix_of(name: str) -> str:
  """Returns the suffix of a file in lower case, or 'without suffix'."""
  return os.path.splitext(name)[1].lower() or 'without suffix'


def describe(others: Mapping[str, int]) -> str:
  """Returns '12 .heic, 1 without suffix'."""
  return shorten((f'{others[kind]:,} {kind}' for kind in sorted(
      others, key=lambda kind: (-others[kind], kind))), 4)


def has_images(path: epath.Path) -> bool:
  """Whether there is an image below a folder; stops at the first."""
  return any(map(is_image, filter(_is_visible, names_in(path)))) or any(
      has_images(path / name) for name in subfolders(path))


def files_with(root: epath.Path, suffixes: Iterable[str]) -> list[epath.Path]:
  """Returns the visible files of a folder with one of the suffixes, sorted."""
  return sorted(root / name for name in names_in(root)
                if os.path.splitext(name)[1].lower() in suffixes
                and not name.startswith('.'))


def files_below(root: epath.Path, suffix: str) -> list[epath.Path]:
  """Returns files in a folder, its split folders, `data/` and `default/`."""
  found = files_with(root, {suffix})
  for name in subfolders(root):
    if name in ('data', 'default', *split_strings.NAMES):
      found += files_below(root / name, suffix)
  return sorted(found)


def _entries(path: epath.Path) -> list[tuple[str, bool]]:
  """Returns the visible names in a folder, sorted, and which are folders."""
  # The kind of an image file is not looked up, which is slow in buckets.
  return sorted((entry.name, not is_image(entry.name) and entry.is_dir())
                for entry in _scan(path) if _is_visible(entry.name))


def _scan(path: epath.Path) -> Iterable[Any]:
  return path.iterdir() if atomic_files.is_remote(path) else os.scandir(path)


def _is_visible(name: str) -> bool:
  return not name.startswith('.') and name.lower() not in _SYSTEM_NAMES


# ---------------------------------------------------------------------- splits


def splits_of_folders(
    paths: Sequence[str], *, where: str) -> columns_lib.Column | None:
  """Returns the top folder of each path if `train` is one of them."""
  tops = [path.partition('/')[0] for path in paths]
  found = [top if top in split_strings.NAMES else None for top in tops]
  return check_splits(found, paths, [1] * len(paths), where) if (
      'train' in found) else None


def check_splits(
    found: Sequence[str | None], paths: Sequence[os.PathLike | str],
    counts: Sequence[int], where: str,
) -> columns_lib.Column | None:
  """Returns the split found in each path, `counts` times.

  None if they do not differ.

  Raises:
    UserError: if only some paths name a split.
  """
  names = {name for name in found if name is not None}
  if names and None in found:
    raise UserError(
        f'Some paths of {where} name a split ({", ".join(sorted(names))}), but '
        f'{found.count(None):,} do not: {paths[found.index(None)]}. Move or '
        "rename them, or name those to use: --config.data.source='FOLDER/"
        "train-*'")
  return columns_lib.of_codes(
      found, np.repeat(np.arange(len(found)), counts)) if (
          len(names) > 1) else None


# -------------------------------------------------------------------- patterns


def expand(name: str) -> list[epath.Path]:
  """Returns the folder, or the sorted files, that a path or pattern denotes.

  Local paths are absolute, so that keys do not depend on how `name` is written.

  Raises:
    UserError: if some do not exist.
  """
  check_address(name, where='data.source')
  name = atomic_files.absolute(name)
  literal = epath.Path(name)
  paths = [literal] if literal.exists() else [
      path for one in expand_braces(name) for path in _glob(one)]
  missing = [path for path in paths if not path.exists()]
  if missing == [literal]:
    raise UserError(
        f'{literal} does not exist.{registry.nearest_file(name)} '
        f'Expected a folder of images ({literal}/train/CLASS/*.jpg, or '
        f'{literal}/CLASS/*.jpg), a table of them (.csv, .tsv, .jsonl), '
        'Parquet files, or WebDataset tars.')
  if missing or not paths:
    raise UserError(
        f'{len(missing)} of {len(paths)} files of {name} do not exist: '
        f'{shorten(missing)}.' if paths else f'No file matches {name}.')
  return sorted(set(paths))


def expand_braces(name: str) -> list[str]:
  """Expands 'a-{08..10}' to 'a-08', 'a-09', 'a-10', and 'a-{x,y}' likewise."""
  found = _BRACES.search(name)
  if found is None:
    return [name]
  items = found[1].split(',')
  if ends := re.fullmatch(r'(\d+)\.\.(\d+)', found[1]):
    items = [str(i).zfill(len(ends[1]))
             for i in range(int(ends[1]), int(ends[2]) + 1)]
  return [whole for item in items for whole in expand_braces(
      name[:found.start()] + item + name[found.end():])]


def _glob(name: str) -> list[epath.Path]:
  magic = _GLOB.search(name)
  if magic is None:
    return [epath.Path(name)]
  root = os.path.dirname(name[:magic.start()])
  pattern = name[len(root):].lstrip('/')
  return [path for path in epath.Path(root).glob(pattern)
          if is_visible(os.fspath(path), name)]


def is_visible(path: str, pattern: str) -> bool:
  """Whether a match of a pattern has no hidden or system file in its place.

  Names that the pattern spells out, such as those before `*`, do not count.
  """
  return all(_is_visible(part) or part in pattern.split('/')
             for part in path.split('/'))


def relative_names(paths: Sequence[epath.Path]) -> list[str]:
  """Returns paths relative to their common folder: keys survive a move."""
  root = os.path.commonpath([os.fspath(path.parent) for path in paths])
  return [os.path.relpath(path, root) for path in paths]


def is_path(name: str) -> bool:
  """Whether a name denotes the user's files, not a known dataset."""
  suffix = os.path.splitext(name)[1].lower()
  return (
      name.startswith(('/', './', '../', '~')) or name == '.'
      or atomic_files.is_remote(name)
      or suffix in {'.parquet', '.tar', *TABLE_SUFFIXES,
                    *IMAGE_SUFFIXES}
      or (not known_datasets.is_known(name) and os.path.isdir(name)))


def identity(name: str) -> str:
  """Returns a dataset's name or, for local files, their path without links."""
  name = name.rstrip('/') or name
  return os.path.realpath(os.path.expanduser(name)) if is_path(name) and (
      not atomic_files.is_remote(name)) else name


def relative_path(path: str, root: str) -> str:
  """Returns a path relative to the root; absolute if it lies elsewhere."""
  inside = path.removeprefix(root.rstrip('/') + '/')
  return inside if inside == path else os.path.normpath(inside)
