"""Opens a file of weights, or the one in a folder, by its content."""

import contextlib
import os
import pathlib

from etils import epath

from vit_jax import atomic_files
from vit_jax import untrusted
from vit_jax.exceptions import UserError
from vit_jax.extras.zoo import pytorch
from vit_jax.extras.zoo import safetensors
from vit_jax.weights import download
from vit_jax.weights.formats import array_file
from vit_jax.weights.formats import npz

# Modules that read files, by format; the safest format first.
FORMATS = {'safetensors': safetensors, 'npz': npz, 'pytorch': pytorch}
_INDEX = '.index.json'  # Names the shards of weights, by array.
_SHARDS = {f'.safetensors{_INDEX}': 'safetensors', f'.bin{_INDEX}': 'pytorch'}


def open_weights(path: pathlib.Path) -> array_file.ArrayFile:
  """Opens a file of weights, an index of shards, or the one in a folder.

  Raises:
    UserError: if the format is unknown, or a folder has several files.
  """
  if path.is_dir():
    return _open_folder(path)
  if path.name.endswith(_INDEX):
    return _open_shards(path)
  return FORMATS[format_of(path)].open_file(path)


def check_complete(path: pathlib.Path) -> None:
  """Raises a UserError if a file is of no format, or truncated."""
  form = format_of(path)
  # Headers of the others declare the length of the file.
  check = FORMATS[form].open_file if form != 'pytorch' else (
      pytorch.check_complete)
  check(path)


def format_of(path: pathlib.Path) -> str:
  """Returns the format of a file by its content.

  Raises:
    UserError: if it is not a file of weights.
  """
  with path.open('rb') as file:
    start = file.read(30)
    # torch.save writes ARCHIVE/data.pkl or ARCHIVE/.format_version first; its
    # name is at byte 30, so that a truncated file is recognised as well.
    member = file.read(min(int.from_bytes(start[26:28], 'little'), 4096))
  if start[:4] in (b'PK\x03\x04', b'PK\x05\x06'):
    return 'pytorch' if member.endswith(
        (b'/data.pkl', b'/.format_version', b'/version')) else 'npz'
  size = path.stat().st_size
  if start[8:9] == b'{' and int.from_bytes(start[:8], 'little') < max(
      size, 100_000_000):
    return 'safetensors'
  # A pickle of protocol 2 that begins with the magic number of old torch.save.
  if start[:2] == b'\x80\x02':
    return 'pytorch'
  raise UserError(
      f'{path} is not a file of weights, or truncated: {size:,} bytes that '
      f'begin with {start[:16]!r}. Expected .npz, .safetensors or a PyTorch '
      'state dict.')


def local(path: epath.PathLike) -> pathlib.Path:
  """Returns a local folder or file with the content of `path`."""
  path = epath.Path(path)
  if not atomic_files.is_remote(path):
    return pathlib.Path(path)
  with download.explained(os.fspath(path)):
    # `is_dir` would be False, and a file left out, if a bucket fails.
    files = {file: stat for file in path.iterdir()
             if not (stat := file.stat()).is_directory}
  # A changed folder is another one.
  target = download.cache_folder(os.fspath(path) + repr(sorted(
      (file.name, stat.length, stat.mtime) for file, stat in files.items())))
  for file in files:
    if not (target / file.name).exists():
      download.download(os.fspath(file), target / file.name)
      if file.suffix in ('.npz', '.safetensors'):
        download.check(target / file.name, url=os.fspath(file))
  return target


def _open_folder(folder: pathlib.Path) -> array_file.ArrayFile:
  held = sorted(folder.iterdir())
  formats = {}
  for path in filter(pathlib.Path.is_file, held):
    with contextlib.suppress(UserError):  # It holds no weights.
      formats[path] = format_of(path)
  indices = {path: form for path in held for end, form in _SHARDS.items()
             if path.name.endswith(end)}
  # A folder may hold the same weights in several formats.
  for form in FORMATS:
    # An index stands for the shards beside it.
    found = [path for path in held if indices.get(path) == form] or [
        path for path in held if formats.get(path) == form]
    usual = [path for path in found if pathlib.PurePath(
        path.name.removesuffix(_INDEX)).stem in ('model', 'pytorch_model')]
    if len(found) > 1 and len(usual) != 1:
      raise UserError(
          f'{folder} contains several files of weights: '
          f'{", ".join(path.name for path in found)}. Name one of them.')
    if found:
      return open_weights((usual or found)[0])
  raise UserError(
      f'{folder} contains neither weights nor a checkpoint of vit_jax. '
      f'Found: {", ".join(path.name for path in held[:12]) or "nothing"}.')


def _open_shards(index: pathlib.Path) -> array_file.ArrayFile:
  """Opens the files that an index maps array names to."""
  table = untrusted.read_json(index).get('weight_map')
  if not isinstance(table, dict) or not table or not all(
      isinstance(name, str) for name in table.values()):
    raise UserError(f'{index} has no weight_map from names to files.')
  shards = []
  for name in sorted(set(table.values())):
    # A downloaded index must not name files outside of its folder.
    path = index.parent / pathlib.PurePath(name).name
    if not path.is_file() or path.name.endswith(_INDEX):
      raise UserError(f'{index} names the file {name!r}, which is missing.')
    shards.append(open_weights(path))
  # Missing or unexpected arrays are found when compared with the model.
  of_name = {name: shard for shard in shards for name in shard.shapes}
  tied = {name: kept for shard in shards for name, kept in shard.tied.items()
          if name not in of_name}
  return array_file.ArrayFile(
      path=str(index), format=shards[0].format,
      shapes={name: shard.shapes[name] for name, shard in of_name.items()},
      load=lambda name: of_name[tied.get(name, name)].load(name), tied=tied)
