"""WebDataset shards: tar files in which `KEY.jpg` lies beside `KEY.cls`.

    train-000000.tar:  n01/1.jpg  n01/1.cls  n01/2.jpg  n01/2.cls ...

A member's key is its path up to the first dot of its name, as WebDataset has
it (https://github.com/webdataset/webdataset). The label is the text of the
member `.cls` or `.txt`, or a value of `.json`. Shards are walked once, headers
and labels alone (`offsets`), and every image is then read at its offset: in any
order, and the same on every machine. Links to what lies in the same tar are
followed.
"""

from collections.abc import Iterator, Mapping, Sequence
import dataclasses
import json
import os
import tarfile
from typing import Any, BinaryIO

from etils import epath
from jaxtyping import Int64
import numpy as np

from vit_jax import schema
from vit_jax.data.sources import class_folders as image_folder
from vit_jax.data.sources import protocol
from vit_jax.data.sources import record_offsets
from vit_jax.data.sources import rows
from vit_jax.data.sources import shards

SUFFIXES = frozenset({'.tar'})

_LABELS = ('cls', 'json', 'txt')
# Longer texts beside an image are no label, and would swell the index.
_MAX_LABEL_BYTES = 2**16


@dataclasses.dataclass(frozen=True, eq=False)
class Tars:
  """Images within tar files."""
  paths: tuple[str, ...]
  keys: tuple[str, ...]  # of all rows
  file_of: Int64[np.ndarray, 'rows']
  starts: Int64[np.ndarray, 'rows']
  sizes: Int64[np.ndarray, 'rows']

  def read(self, row: int) -> bytes:
    return record_offsets.read_at(self.paths[self.file_of[row]],
                           int(self.starts[row]), int(self.sizes[row]))

  def key(self, row: int) -> str:
    return self.keys[row]


def open_tars(
    paths: Sequence[epath.Path], understood: rows.Understood, *, where: str,
) -> protocol.Opened:
  """Opens tar files; walks them where no index is kept.

  Raises:
    ValueError: if one is cut off or no tar, or images have no labels.
  """
  found = record_offsets.load_or_build(paths, _walk, kind='tar')
  counts = [len(arrays['starts']) for arrays in found]
  texts = {kind: [text for arrays, count in zip(found, counts)
                  for text in record_offsets.unpack(arrays[kind], count)]
           for kind in ('keys', *_LABELS)}
  keys = texts.pop('keys')
  if not keys:
    raise ValueError(
        f'{where} holds no images. Expected members KEY.jpg (or .png, .webp, '
        '...) and KEY.cls.')
  file_of = np.repeat(np.arange(len(paths)), counts)
  shard = _names(paths)
  reader = Tars(
      tuple(os.fspath(path) for path in paths),
      # Many a writer counts anew in each shard. Not only where two keys are
      # equal: a shard that is added would give other names to all the rest.
      tuple(f'{shard[i]}/{key}' for i, key in zip(file_of.tolist(), keys)),
      file_of,
      np.concatenate([arrays['starts'] for arrays in found]),
      np.concatenate([arrays['sizes'] for arrays in found]))
  table, columns = _labels(texts, understood, keys, where)
  of_file = shards.splits_of(paths, where=where)
  return rows.assemble(
      reader, table, columns, understood, where=where, groups=keys,
      splits=of_file and [of_file[i] for i in file_of.tolist()])


def _names(paths: Sequence[epath.Path]) -> list[str]:
  """Returns what to call each shard: its name, or its path if two have one."""
  names = [path.stem for path in paths]
  if len(set(names)) == len(names):
    return names
  texts = [os.fspath(path) for path in paths]
  root = os.path.commonpath([os.path.dirname(text) for text in texts])
  return [os.path.splitext(os.path.relpath(text, root))[0] for text in texts]


def _labels(
    texts: dict[str, list[str]], understood: rows.Understood,
    keys: Sequence[str], where: str,
) -> tuple[dict[str, list[Any]], rows.Columns]:
  """Returns the labels: of one kind of member, the first that there is."""
  config = understood.table
  has = {kind: [i for i, text in enumerate(of) if text]
         for kind, of in texts.items()}
  # A caption is no class where there are classes, though it be of more images.
  wanted = 'json' if config.labels else next(
      (kind for kind in _LABELS if has[kind]), _LABELS[0])
  if not has[wanted]:
    raise ValueError(
        f'The images of {where} have no labels. Expected a member KEY.cls, '
        f'KEY.json or KEY.txt beside each KEY.jpg; {keys[0]!r} has none.')
  if wanted != 'json':
    return ({wanted: list(texts[wanted])},
            rows.Columns(None, (wanted,), None, None))
  table: dict[str, list[Any]] = {}
  for row, text in enumerate(texts['json']):
    try:
      values = json.loads(text or '{}')
      if not isinstance(values, dict):
        values = {'label': values}
    except ValueError as error:
      raise ValueError(
          f'{keys[row]}.json of {where} is no JSON: {error}') from error
    for name in {**table, **values}:
      table.setdefault(name, [None] * row).append(values.get(name))
  for name in config.labels or ():
    schema.check_name(name, list(table), what=f'key of the JSON of {where}')
  return table, rows.choose_columns(table, understood, where=f'{where} (JSON)')


# --------------------------------------------------------------------- the walk


@dataclasses.dataclass
class _Found:
  """What a walk has found: images by key, and texts by kind and key."""
  path: epath.Path
  images: dict[str, tuple[int, int]]
  texts: dict[str, dict[str, str]]

  def add(self, name: str, place: tuple[int, int], file: BinaryIO) -> None:
    """Adds a member, if it is an image or a label."""
    key, kind = _split_name(name)
    if _is_image(kind):
      if key in self.images:
        raise ValueError(
            f'{self.path} holds two images {key!r}, the second {name!r}. A '
            'key, the name up to its first dot, is an example of one image: '
            'write the shard without the other, or under another name.')
      self.images[key] = place
    elif kind in self.texts and place[1] <= _MAX_LABEL_BYTES:
      file.seek(place[0])
      self.texts[kind][key] = _text(file.read(place[1]), self.path, name)


def _walk(path: epath.Path) -> dict[str, np.ndarray]:
  """Returns keys, offsets and sizes of a shard's images, and their labels."""
  found = _Found(path, {}, {kind: {} for kind in _LABELS})
  links: dict[str, str] = {}
  spelt: dict[str, str] = {}  # A key is of the name as it is written.
  with record_offsets.open_for_walk(path) as file:
    for member in _members(file, path):
      key, kind = _split_name(member.name)
      if not key.rpartition('/')[2]:
        continue  # A hidden file.
      if member.isfile():
        found.add(member.name, (member.offset_data, member.size), file)
      elif (member.islnk() or member.issym()) and (
          _is_image(kind) or kind in _LABELS):
        links[_plain(member.name)] = _target(member)
        spelt[_plain(member.name)] = member.name
    for name, place in _follow(links, file, path).items():
      found.add(spelt[name], place, file)
  return {'starts': np.array([o for o, _ in found.images.values()], np.int64),
          'sizes': np.array([s for _, s in found.images.values()], np.int64),
          'keys': record_offsets.pack(list(found.images)),
          **{kind: record_offsets.pack([of.get(key, '') for key in found.images])
             for kind, of in found.texts.items()}}


def _members(
    file: BinaryIO, path: epath.Path) -> Iterator[tarfile.TarInfo]:
  """Yields the headers of a tar; raises if it is damaged."""
  try:
    file.seek(0)
    with tarfile.open(fileobj=file, mode='r:') as tar:
      for member in tar:
        # They are kept for nothing: 300 MB a million.
        tar.members.clear()  # type: ignore[attr-defined]
        yield member
      _check_end(file, tar.offset, path)
  except (tarfile.ReadError, EOFError) as error:
    raise ValueError(_damaged(path, str(error))) from error


def _follow(
    links: Mapping[str, str], file: BinaryIO, path: epath.Path,
) -> dict[str, tuple[int, int]]:
  """Returns where what the links of a tar lead to lies in it.

  Raises:
    ValueError: if some lead to nothing in it.
  """
  if not links:
    return {}
  ends = {}
  for name in links:
    end, seen = links[name], {name}
    while end in links and end not in seen:
      seen.add(end)
      end = links[end]
    ends[name] = end
  wanted = set(ends.values())
  places = {name: (member.offset_data, member.size)
            for member in _members(file, path) if member.isfile()
            and (name := _plain(member.name)) in wanted}
  lost = [name for name, end in ends.items() if end not in places]
  if lost:
    raise ValueError(
        f'{len(lost):,} links in {path} lead to nothing in it, the first '
        f'{lost[0]!r} to {links[lost[0]]!r}. Write it with the files '
        'themselves: tar --dereference --hard-dereference -cf ...')
  return {name: places[end] for name, end in ends.items()}


def _target(member: tarfile.TarInfo) -> str:
  """Returns what a link leads to, as a member is called."""
  if member.islnk():  # From the top; symbolic ones from where they lie.
    return _plain(member.linkname)
  return _plain(f'{os.path.dirname(member.name)}/{member.linkname}')


def _plain(name: str) -> str:
  return os.path.normpath(name).lstrip('/')


def _is_image(kind: str) -> bool:
  return f'.{kind.rpartition(".")[2]}' in image_folder.IMAGE_SUFFIXES


def _split_name(name: str) -> tuple[str, str]:
  """Returns 'a.b/c', 'seg.jpg' of 'a.b/c.seg.jpg'."""
  folder, _, last = name.removeprefix('./').rpartition('/')
  key, _, kind = last.partition('.')
  return (f'{folder}/{key}' if folder else key), kind.lower()


def _text(content: bytes, path: epath.Path, name: str) -> str:
  try:
    return content.decode().strip().replace('\0', '')
  except UnicodeDecodeError as error:
    raise ValueError(
        f'{name} in {path} is not UTF-8 text ({error}).') from error


def _check_end(file: BinaryIO, offset: int, path: epath.Path) -> None:
  """Raises where the blocks of zeros at the end of a tar are lacking."""
  file.seek(offset)
  if file.read(tarfile.BLOCKSIZE) != bytes(tarfile.BLOCKSIZE):
    raise ValueError(_damaged(path, 'it has no end'))


def _damaged(path: epath.Path, why: str) -> str:
  return (f'{path} is cut off, or no tar ({why}). Copy it again; a compressed '
          'one must be unpacked (gunzip), for it has no random access.')
