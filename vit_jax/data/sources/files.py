"""Files of a dataset: listing of folders, path patterns, splits in file names.

    /data/train-{000000..000146}.tar    a range in braces, or {a,b}
    /data/*.parquet                     a glob pattern
    hf/data/train-00000-of-00004.parquet, hf/default/test/0000.parquet

The split is a word of the file's name, or the name of its folder.
"""

import collections
from collections.abc import Iterable, Sequence
import os
import pathlib
import re
from typing import Any, Literal

from etils import epath

from vit_jax import atomic_files
from vit_jax import spelling
from vit_jax.data import known_datasets
from vit_jax.data import links
from vit_jax.data.splits import split_strings

TABLE_SUFFIXES = frozenset({'.csv', '.tsv', '.jsonl', '.ndjson'})
IMAGE_SUFFIXES = frozenset({
    '.jpg', '.jpeg', '.jpe', '.jfif', '.png', '.apng', '.webp', '.bmp', '.dib',
    '.gif', '.ppm', '.pgm', '.pbm', '.pnm', '.tif', '.tiff', '.npy'})

_ARCHIVE_SUFFIXES = frozenset({
    '.zip', '.tar', '.tgz', '.gz', '.bz2', '.xz', '.7z', '.rar'})
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
_Kind = Literal['file', 'folder', 'broken link']
_GLOB = re.compile(r'[*?\[]')
_BRACES = re.compile(r'\{([^{}]*)\}')


def read(root: str, paths: Sequence[str], row: int) -> bytes:
  """Returns a file, whose path is relative to the root or absolute."""
  path = paths[row]
  return epath.Path(
      path if atomic_files.is_remote(path) else epath.Path(root) / path
  ).read_bytes()


def check_address(name: str, *, where: str) -> None:
  """Raises a ValueError for an address with an unsupported scheme."""
  scheme, _ = atomic_files.split_address(name)
  if scheme and scheme not in atomic_files.SCHEMES:
    raise ValueError(
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
  if atomic_files.is_remote(path):
    return [entry.name for entry in path.iterdir()]
  return os.listdir(path)


def subfolders(
    path: epath.Path, linked: set[str] | None = None) -> list[str]:
  """Returns the names of the visible subfolders, sorted.

  `linked` collects the folder if it holds links.
  """
  return [name for name, kind in _entries(path, linked) if kind == 'folder']


def broken_links(path: epath.Path) -> list[str]:
  """Returns links in a folder, such as to a folder that is not mounted."""
  return [name for name, kind in _entries(path) if kind == 'broken link']


def list_images(
    root: epath.Path, folder: str = '', linked: set[str] | None = None,
) -> list[str]:
  """Returns the paths, relative to the root, of images below a folder.

  `linked` collects the folders that hold links.
  """
  return list_files(root, folder, linked)[0]


def list_files(
    root: epath.Path, folder: str = '', linked: set[str] | None = None,
) -> tuple[list[str], collections.Counter[str]]:
  """Returns the images as `list_images`, and the number of other files.

  These are counted by suffix, or as 'without suffix' or 'broken link'.
  """
  paths: list[str] = []
  others: collections.Counter[str] = collections.Counter()
  for name, kind in _entries(root / folder, linked):
    path = os.path.join(folder, name)
    if kind == 'folder':
      images, below = list_files(root, path, linked)
      paths += images
      others += below
    elif is_image(name):
      paths.append(path)
    else:
      others[kind if kind == 'broken link' else suffix_of(name)] += 1
  return paths, others


def suffix_of(name: str) -> str:
  """Returns the suffix of a file in lower case, or 'without suffix'."""
  return os.path.splitext(name)[1].lower() or 'without suffix'


def describe_others(others: collections.Counter[str]) -> str:
  """Returns '12 .heic, 1 without suffix'; '' if there are none."""
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


def advise_unpacking(root: epath.Path) -> str:
  """Returns a sentence that names the archives in a folder; '' without.

  Those of its subfolders count as well.
  """
  found = [os.path.join(name, path.name) for name in ('', *subfolders(root))
           for path in files_with(root / name, _ARCHIVE_SUFFIXES)]
  return f' Unpack {shorten(found)} first: archives are not read.' if (
      found) else ''


def files_below(root: epath.Path, suffix: str) -> list[epath.Path]:
  """Returns files in a folder, its split folders, `data/` and `default/`."""
  found = files_with(root, {suffix})
  for name in subfolders(root):
    if name in ('data', 'default') or split_strings.find_split(name):
      found += files_below(root / name, suffix)
  return sorted(found)


def _entries(
    path: epath.Path, linked: set[str] | None = None,
) -> list[tuple[str, _Kind]]:
  """Returns the visible names in a folder, and their kinds, sorted.

  Omits system folders, and links to a parent folder, which are cycles.
  """
  if atomic_files.is_remote(path):
    entries: list[Any] = list(path.iterdir())
  else:  # Fast for a million files.
    entries = list(os.scandir(path))
    if linked is not None and any(
        map(os.DirEntry.is_symlink, entries)):
      linked.add(os.fspath(path))
  # The kind of each image file is not looked up: that is slow in buckets.
  found = [(entry.name, 'file' if is_image(entry.name) else _kind(entry))
           for entry in entries if _is_visible(entry.name)]
  return sorted(
      (name, kind) for name, kind in found
      if not (kind == 'folder' and _is_parent(os.path.join(path, name))))


def _kind(entry: Any) -> _Kind:
  if isinstance(entry, os.DirEntry) and entry.is_symlink():
    # `entry.is_dir` may raise for a broken link.
    return 'folder' if os.path.isdir(entry) else (
        'file' if os.path.exists(entry) else 'broken link')
  return 'folder' if entry.is_dir() else 'file'


def _is_visible(name: str) -> bool:
  return not name.startswith('.') and name.lower() not in _SYSTEM_NAMES


def _is_parent(path: str) -> bool:
  """Whether a folder is a link to one of its parents."""
  return os.path.islink(path) and any(
      os.path.samefile(path, parent)
      for parent in pathlib.Path(path).absolute().parents)


# -------------------------------------------------------------------- patterns


def expand(name: str) -> list[epath.Path]:
  """Returns the folder, or the sorted files, that a path or pattern denotes.

  Local paths are absolute, so that keys do not depend on how `name` is written.

  Raises:
    ValueError: if some do not exist.
  """
  check_address(name, where='data.source')
  if not atomic_files.is_remote(name):
    name = os.path.abspath(os.path.expanduser(name))
  literal = epath.Path(name)
  if literal.exists():
    return [literal]
  if not (_GLOB.search(name) or _BRACES.search(name)):
    raise ValueError(
        f'{literal} does not exist.{spelling.hint(name)} '
        f'Expected a folder of images ({literal}/train/CLASS/*.jpg, or '
        f'{literal}/CLASS/*.jpg), a table of them (.csv, .tsv, .jsonl), '
        'Parquet files, or WebDataset tars.')
  paths = [path for one in expand_braces(name) for path in _glob(one)]
  missing = [path for path in paths if not path.exists()]
  if not paths or missing:
    raise ValueError(
        f'{len(missing)} of {len(paths)} files of {name} do not '
        f'exist: {shorten(missing)}.' if paths else
        f'No file matches {name}.')
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


def splits_of(
    paths: Sequence[epath.Path], *, where: str) -> list[str] | None:
  """Returns the split of each file; None if they do not differ.

  Raises:
    ValueError: if only some names contain a split.
  """
  found = splits_in_names(paths)
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
  links.check_files(paths, named, where=where)
  return named


def splits_in_names(paths: Sequence[epath.Path]) -> list[str | None]:
  """Returns the split that each file's or its folder's name contains.

  A single folder may be the dataset's own (`my_test`): its whole name counts.
  """
  folders = {path.parent.name for path in paths}
  if len(folders) == 1:
    folders = set(filter(split_strings.is_split_name, folders))
  return [split_strings.find_split(path.stem) or (
      split_strings.find_split(path.parent.name)
      if path.parent.name in folders else None) for path in paths]


def is_path(name: str) -> bool:
  """Whether a name denotes the user's files, not a known dataset."""
  suffix = os.path.splitext(name)[1].lower()
  return (
      name.startswith(('/', './', '../', '~')) or name == '.'
      or atomic_files.is_remote(name)
      or suffix in {'.parquet', '.tar', *TABLE_SUFFIXES,
                    *IMAGE_SUFFIXES}
      or (not known_datasets.is_known(name) and epath.Path(name).is_dir()))


def identity(name: str) -> str:
  """Returns a dataset's name or, for local files, their path without links."""
  name = name.rstrip('/') or name
  return os.path.realpath(os.path.expanduser(name)) if is_path(name) and (
      not atomic_files.is_remote(name)) else name


def relative_path(path: str, root: str) -> str:
  """Returns a path relative to the root; absolute if it lies elsewhere."""
  prefix = root.rstrip('/') + '/'
  if not path.startswith(prefix):
    return path
  inside = path.removeprefix(prefix)
  return os.path.relpath(path, root) if '..' in inside else inside
