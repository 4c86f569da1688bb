"""Opens a file of weights, or the one in a folder, by its content."""

from collections.abc import Callable, Mapping
import pathlib
import re

from vit_jax.weights import files
from vit_jax.weights import npz
from vit_jax.weights import pytorch
from vit_jax.weights import safetensors
from vit_jax.weights.configs import config_json

_OPEN: Mapping[str, Callable[[pathlib.Path], files.ArrayFile]] = {
    'npz': npz.open_file, 'safetensors': safetensors.open_file,
    'pytorch': pytorch.open_file}


def open_weights(path: pathlib.Path) -> files.ArrayFile:
  """Opens a file of weights, or the one in a folder.

  Raises:
    ValueError: if the format is unknown, or a folder has several files.
  """
  if path.is_dir():
    return _open_folder(path)
  if path.exists() and not path.is_file():
    raise ValueError(  # Reading a pipe might block.
        f'{path} is neither a file nor a folder.')
  found = files.sniff(path)
  if found is None:
    size = path.stat().st_size
    with path.open('rb') as file:
      start = file.read(16)
    raise ValueError(
        f'{path} is not a file of weights, or truncated: {size:,} bytes that '
        f'begin with {start!r}. Expected .npz, .safetensors or a PyTorch state '
        'dict.')
  return _OPEN[found](path)


def _open_folder(folder: pathlib.Path) -> files.ArrayFile:
  index = sorted(folder.glob('*.safetensors.index.json'))
  if index:
    return _open_shards(index[0])
  by_format: dict[str, list[pathlib.Path]] = {}
  for path in sorted(folder.iterdir()):
    if path.is_file() and (found := files.sniff(path)):
      by_format.setdefault(found, []).append(path)
  # A folder may hold the same weights in several formats: the safest first.
  found = next((f for f in ('safetensors', 'npz', 'pytorch') if f in by_format),
               None)
  if found is None:
    held = sorted(p.name for p in folder.iterdir())
    raise ValueError(
        f'{folder} contains neither weights nor a checkpoint of vit_jax. '
        f'Found: {", ".join(held[:12]) or "nothing"}.')
  candidates = by_format[found]
  usual = [p for p in candidates if p.stem in ('model', 'pytorch_model')]
  if len(candidates) > 1 and len(usual) != 1:
    raise ValueError(
        f'{folder} contains several files of weights: '
        f'{", ".join(p.name for p in candidates)}. Name one of them.')
  return _OPEN[found]((usual or candidates)[0])


def _open_shards(index: pathlib.Path) -> files.ArrayFile:
  try:
    table = config_json.read_json(index).get('weight_map')
  except ValueError as error:
    raise ValueError(f'{index}: {error}') from error
  if not isinstance(table, dict) or not table or not all(
      isinstance(name, str) for name in table.values()):
    raise ValueError(f'{index} has no weight_map from names to files.')
  shards = {}
  for name in sorted(set(table.values())):
    # A downloaded index must not name files outside of its folder.
    path = index.parent / pathlib.PurePath(name).name
    if not path.is_file():
      raise ValueError(
          f'{index} names the file {name!r}, which is missing.')
    shards[name] = safetensors.open_file(path)
  _check_all_named(index, table, shards)
  headers: dict[str, files.Header] = {}
  for name, shard in table.items():
    if name not in shards[shard].headers:
      raise ValueError(f'{index}: {shard} does not contain {name}.')
    headers[name] = shards[shard].headers[name]
  return files.ArrayFile(
      path=str(index), format='safetensors', headers=headers,
      load=lambda name: shards[table[name]].load(name))


def _check_all_named(
    index: pathlib.Path, table: Mapping[str, str],
    shards: Mapping[str, files.ArrayFile],
) -> None:
  """Raises if the index omits an array or a shard, which would be lost.

  Raises:
    ValueError: naming the arrays or shards.
  """
  for name, shard in shards.items():
    extra = [array for array in shard.headers if table.get(array) != name]
    if extra:
      raise ValueError(
          f'{index} omits arrays of {name}: {", ".join(extra[:4])}'
          + (f' and {len(extra) - 4} more' if len(extra) > 4 else '')
          + '. Copy or download all files again.')
    # model-00002-of-00003.safetensors.
    number = re.fullmatch(r'(.*-)(\d+)(-of-)(\d+)(\.\w+)', name)
    if not number:
      continue
    start, digits, of, count, end = number.groups()
    lacking = [sibling for n in range(1, min(int(count), 10_000) + 1)
               if (sibling := f'{start}{n:0{len(digits)}}{of}{count}{end}')
               not in shards]
    if lacking:
      raise ValueError(
          f'{index} names {name}, but not {", ".join(lacking[:4])}. Copy or '
          'download it again.')
