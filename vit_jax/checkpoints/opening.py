"""From a path to the arrays of one file of weights, told by content."""

from collections.abc import Callable, Mapping
import pathlib

from vit_jax.checkpoints import config_json
from vit_jax.interop import files
from vit_jax.interop import npz
from vit_jax.interop import pytorch
from vit_jax.interop import safetensors

_OPEN: Mapping[str, Callable[[pathlib.Path], files.ArrayFile]] = {
    'npz': npz.open_file, 'safetensors': safetensors.open_file,
    'pytorch': pytorch.open_file}


def open_weights(path: pathlib.Path) -> files.ArrayFile:
  """Opens a file of weights, or the one in a folder.

  Raises:
    ValueError: if it is of no format that is known.
  """
  if path.is_dir():
    return _open_folder(path)
  found = files.sniff(path)
  if found is None:
    size = path.stat().st_size
    with path.open('rb') as file:
      start = file.read(16)
    raise ValueError(
        f'{path} is no file of weights: {size:,} bytes, beginning {start!r}. '
        'Expected an .npz, a .safetensors or a state dict of PyTorch (whole: '
        'a truncated file may look like nothing at all).')
  return _OPEN[found](path)


def _open_folder(folder: pathlib.Path) -> files.ArrayFile:
  index = sorted(folder.glob('*.safetensors.index.json'))
  if index:
    return _open_shards(index[0])
  by_format: dict[str, list[pathlib.Path]] = {}
  for path in sorted(folder.iterdir()):
    if path.is_file() and (found := files.sniff(path)):
      by_format.setdefault(found, []).append(path)
  # The safest first, where a folder holds the same weights twice.
  found = next((f for f in ('safetensors', 'npz', 'pytorch') if f in by_format),
               None)
  if found is None:
    held = sorted(p.name for p in folder.iterdir())
    raise ValueError(
        f'{folder} holds neither weights nor a checkpoint of ours. Found: '
        f'{", ".join(held[:12]) or "nothing"}.')
  candidates = by_format[found]
  usual = [p for p in candidates if p.stem in ('model', 'pytorch_model')]
  if len(candidates) > 1 and len(usual) != 1:
    raise ValueError(
        f'{folder} holds several files of weights: '
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
    # A name in a downloaded index must not lead out of its folder.
    path = index.parent / pathlib.PurePath(str(name)).name
    if not path.exists():
      raise ValueError(f'{index} names {name}, but it is not there.')
    shards[name] = safetensors.open_file(path)
  headers: dict[str, files.Header] = {}
  for name, shard in table.items():
    if name not in shards[shard].headers:
      raise ValueError(f'{index}: {shard} was to hold {name}, but does not.')
    headers[name] = shards[shard].headers[name]
  return files.ArrayFile(
      path=str(index), format='safetensors', headers=headers,
      load=lambda name: shards[table[name]].load(name))
