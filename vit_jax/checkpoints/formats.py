"""Weights of other codebases into our models and out again, strictly.

    file ─▶ headers ─▶ family ─▶ arrays ─▶ model section ─▶ compared with it

The content says what a file is, never its name. What names and shapes do not
tell comes from a config.json, else from the table of sizes; what is given by
hand wins. Then the model is built, and every parameter must be there, in its
shape, and nothing else: or there is an error, and no result.
"""

from collections.abc import Callable, Mapping, Sequence
import dataclasses
import json
import math
import os
import pathlib
from typing import Any

import flax.linen as nn
import jax
import numpy as np

from vit_jax import models
from vit_jax import records
from vit_jax import tree
from vit_jax.interop import files
from vit_jax.interop import layout
from vit_jax.interop import names as names_lib
from vit_jax.interop import npz
from vit_jax.interop import preprocess as preprocess_lib
from vit_jax.interop import pytorch
from vit_jax.interop import safetensors
from vit_jax.models import variants
from vit_jax.models import vit_config

_OPEN: Mapping[str, Callable[[pathlib.Path], files.ArrayFile]] = {
    'npz': npz.open_file, 'safetensors': safetensors.open_file,
    'pytorch': pytorch.open_file}
_MAX_LINES = 24
DEFAULT_SIDE = 224  # Pixels, where nothing says for what size a model is.


@dataclasses.dataclass(frozen=True)
class Loaded:
  """A model read from a file of another codebase.

  Attributes:
    config: of the model.
    params: nested dict of NumPy arrays.
    resolution: height and width that its positions are for.
    preprocess: what images go through.
    positions: how its origin resizes position embeddings.
    family: what the file was recognised as.
    statement: lines on what was found and inferred.
    report: a line for each parameter, and one for each array left out.
  """
  config: models.ModelConfig
  params: Any
  resolution: tuple[int, int]
  preprocess: preprocess_lib.Preprocess
  positions: str
  family: str
  statement: tuple[str, ...]
  report: tuple[str, ...]


@dataclasses.dataclass
class _Hints:
  """What a config.json beside the weights says."""
  section: dict[str, Any] = dataclasses.field(default_factory=dict)
  preprocess: dict[str, Any] = dataclasses.field(default_factory=dict)
  source: str = ''


def read(
    path: str | os.PathLike, overrides: Mapping[str, Any] | None = None,
) -> Loaded:
  """Reads the weights of another codebase.

  Args:
    path: a file, or a folder of one with its config.json.
    overrides: keys of the section `model` and of `Preprocess`; they win over
      what is inferred.

  Raises:
    ValueError: if the file is damaged, of no family that is known, or does not
      hold exactly the parameters of the model.
  """
  given = dict(overrides or {})
  preprocess = {name: given.pop(name) for name in preprocess_lib.NAMES
                if name in given}
  if isinstance(preprocess.get('resolution'), int):
    preprocess['resolution'] = (preprocess['resolution'],) * 2
  opened = open_weights(pathlib.Path(path))
  family, prefix, matches, left_out = _recognised(opened)
  matches, unused = _without_pooler(family, matches)
  left_out += [prefix + name for name in unused]
  hints = _read_hints(pathlib.Path(path), opened, matches)
  heads = _heads(opened, matches, prefix, {**hints.section, **given})
  params = _params(opened, matches, prefix, heads)
  resolution = (preprocess.get('resolution') or
                hints.preprocess.get('resolution'))
  section, grid = infer(
      params, family, hints={**hints.section, **given},
      resolution=resolution and tuple(resolution))
  params = _complete(params, section)
  config = models.parse({**section, **given})
  resolution = _resolution(config, grid) if grid else (
      resolution or (DEFAULT_SIDE,) * 2)
  check(config, params, resolution, source=opened.path,
        theirs={match.ours: match.theirs[0] for match in matches})
  done = {**hints.preprocess, 'resolution': tuple(resolution), **preprocess}
  return Loaded(
      config=config, params=tree.unflatten(params),
      resolution=tuple(resolution),  # type: ignore[arg-type]
      preprocess=preprocess_lib.parse(done), positions=family.positions,
      family=family.name,
      statement=_statement(
          opened, family, prefix, config, params, tuple(resolution), hints,
          given, stated={**hints.preprocess, **preprocess}),
      report=_report(opened, matches, params, left_out))


# -------------------------------------------------------------------- opening


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
  table = _read_json(index).get('weight_map')
  if not isinstance(table, dict):
    raise ValueError(f'{index} has no weight_map.')
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


def _recognised(
    opened: files.ArrayFile,
) -> tuple[names_lib.Family, str, list[layout.Match], list[str]]:
  """Returns family, prefix, parameters, and the names that are left out."""
  found = names_lib.recognise(list(opened.headers))
  if found is None:
    known = ', '.join(f.label for f in names_lib.FAMILIES.values())
    raise ValueError(
        f'{opened.path} holds {len(opened.headers)} arrays, but not those of a '
        f'family that is known ({known}). The first: '
        f'{", ".join(list(opened.headers)[:8])}.')
  family, prefix = found
  inside = [n.removeprefix(prefix) for n in opened.headers
            if n.startswith(prefix)]
  outside = [n for n in opened.headers if not n.startswith(prefix)]
  matches, ignored, problems = layout.matches(family.table, inside)
  if problems:
    raise ValueError(
        f'{opened.path} was taken for {family.label}, but:\n'
        + _lines(problems))
  for match in matches:
    for name in match.theirs:
      header = opened.headers[prefix + name]
      if not files.is_parameter(header):
        raise ValueError(
            f'{opened.path}: {prefix + name} has dtype {header.dtype}, but a '
            'parameter must be float32, float16, bfloat16 or float64.')
  return family, prefix, matches, [prefix + n for n in ignored] + outside


def _without_pooler(
    family: names_lib.Family, matches: list[layout.Match],
) -> tuple[list[layout.Match], list[str]]:
  """Leaves out the pooler that a classifier of Hugging Face carries along.

  Its head reads the class token; the tanh layer beside it is never used.
  """
  unused = [m for m in matches if m.ours.startswith('representation/')]
  has_head = any(m.ours.startswith('head/') for m in matches)
  if family.name != 'huggingface' or not has_head:
    return matches, []
  return ([m for m in matches if m not in unused],
          [name for m in unused for name in m.theirs])


def _params(
    opened: files.ArrayFile, matches: Sequence[layout.Match], prefix: str,
    heads: int,
) -> dict[str, np.ndarray]:
  params, problems = {}, []
  for match in matches:
    arrays = [opened.read(prefix + name) for name in match.theirs]
    parts = 2 if '/key_value/' in match.ours else 3
    try:
      params[match.ours] = layout.to_ours(
          arrays, match, parts=parts, heads=heads)
    except ValueError as error:
      problems.append(str(error))
  if problems:
    raise ValueError(
        f'{opened.path} does not hold what its names promise:\n'
        + _lines(problems))
  params = names_lib.split_pairs(params)
  _fold_register_positions(params)
  return params


def _fold_register_positions(params: dict[str, np.ndarray]) -> None:
  """Adds the positions of registers, where timm has them, to the registers.

  Both are learned and the same for each image: one array is enough.
  """
  if not {'registers', 'positions'} <= set(params):
    return
  registers, positions = params['registers'], params['positions']
  start, count = int('cls' in params), len(registers)
  if (_square(len(positions) - start - count)
      and not _square(len(positions) - start)):
    theirs = positions[start:start + count]
    if theirs.any():
      params['registers'] = registers + theirs
    params['positions'] = np.concatenate(
        [positions[:start], positions[start + count:]])


# ---------------------------------------------------------------- inference


def infer(
    params: Mapping[str, Any], family: names_lib.Family, *,
    hints: Mapping[str, Any], resolution: tuple[int, int] | None,
) -> tuple[dict[str, Any], tuple[int, int] | None]:
  """Returns the section `model` that parameters of ours belong to.

  Args:
    params: arrays or shapes, by our names.
    family: where they come from: says what shapes do not.
    hints: keys of the section that are known.
    resolution: height and width of images, if known.

  Returns:
    The section, and the rows and columns of its positions, if it has any.

  Raises:
    ValueError: if something cannot be told.
  """
  section: dict[str, Any] = {'name': 'vit', **family.settings}
  backbone = _backbone(params, family)
  if backbone:
    section['backbone'] = backbone
  head = params.get('head/dense/kernel')
  section['num_classes'] = 0 if head is None else int(head.shape[-1])
  if section['name'] == 'resnet':
    section['variant'] = _resnet_variant(backbone)
    return {**section, **hints}, None
  layers = 'encoder/layers'
  needed = ('patches/kernel', f'{layers}/attention_norm/scale',
            f'{layers}/attention/qkv_kernel', f'{layers}/mlp/hidden/kernel')
  missing = [name for name in needed if name not in params]
  if missing:
    raise ValueError(
        f'The weights hold no {", ".join(missing)}: expected '
        + ', '.join(layout.name_there(family.table, name) for name in missing))
  patch = params['patches/kernel'].shape
  has_cls, average = 'cls' in params, 'pool_norm/scale' in params
  pooling = hints.get('pooling') or (
      'attention' if 'pooling/probe' in params
      else 'average' if average or not has_cls else 'cls')
  section |= {
      'width': int(patch[-1]),
      'depth': int(params[needed[1]].shape[0]),
      'num_heads': int(params[needed[2]].shape[-2]),
      'mlp_dim': int(params[needed[3]].shape[-1]),
      'patch': int(patch[0]) if patch[0] == patch[1] else (
          int(patch[0]), int(patch[1])),
      'qkv_bias': f'{layers}/attention/qkv_bias' in params,
      'final_norm': 'final_norm/scale' in params,
      'pool_norm': average,
      'pooling': pooling,
      'representation_layer': 'representation/dense/kernel' in params}
  if has_cls != (pooling == 'cls'):
    section['cls'] = has_cls
  if 'registers' in params:
    section['registers'] = int(params['registers'].shape[0])
  if f'{layers}/attention_scale' in params:
    section['layer_scale'] = 1e-5  # Where it starts; it has long moved on.
  grid = _grid(params, section, hints, resolution)
  section['variant'] = _vit_variant(section, hints)
  return {**section, **hints}, grid


def _backbone(
    params: Mapping[str, Any], family: names_lib.Family,
) -> dict[str, Any] | None:
  root = params.get('backbone/root/kernel')
  if root is None:
    return None
  depths: list[int] = []
  while f'backbone/block{len(depths) + 1}/unit1/conv1/kernel' in params:
    units = params.get(f'backbone/block{len(depths) + 1}/units/conv1/kernel')
    depths.append(1 + (0 if units is None else int(units.shape[0])))
  return {'depths': tuple(depths), 'width': int(root.shape[-1]),
          **family.backbone}


def _grid(
    params: Mapping[str, Any], section: dict[str, Any],
    hints: Mapping[str, Any], resolution: tuple[int, int] | None,
) -> tuple[int, int] | None:
  """Returns rows and columns of the positions; notes whose they are."""
  if 'positions' not in params:
    section['position'] = 'none'
    return None
  count = int(params['positions'].shape[0])
  has_cls = 'cls' in params
  if resolution is not None:
    stride = _stride(section)
    grid = tuple(-(-side // s) for side, s in zip(resolution, stride))
    area = grid[0] * grid[1]
    if count - area in ((0, 1) if has_cls else (0,)):
      section['position_cls'] = not has_cls or count > area
      return grid  # type: ignore[return-value]
  prefixes = [p for p in ((1, 0) if has_cls else (0,))
              if 'position_cls' not in hints or p == hints['position_cls']]
  for prefix in prefixes:
    if _square(count - prefix):
      section['position_cls'] = bool(prefix) or not has_cls
      side = math.isqrt(count - prefix)
      return side, side
  raise ValueError(
      f'{count} position embeddings'
      + (' with a class token' if has_cls else '')
      + ' make no square grid'
      + (f', nor that of an image of {resolution[0]}x{resolution[1]}'
         if resolution else '')
      + '. Say for which images they are: resolution=(height, width).')


def _square(number: int) -> bool:
  return number > 0 and math.isqrt(number) ** 2 == number


def _stride(section: Mapping[str, Any]) -> tuple[int, int]:
  """Returns the height and width of a token, in pixels."""
  patch = section['patch']
  sides = (patch, patch) if isinstance(patch, int) else tuple(patch)
  depths = (section.get('backbone') or {}).get('depths')
  stride = 1 if depths is None else 4 * 2 ** max(len(depths) - 1, 0)
  return sides[0] * stride, sides[1] * stride


def _resolution(
    config: models.ModelConfig, grid: tuple[int, int],
) -> tuple[int, int]:
  stride = _stride(records.to_plain(config))
  return grid[0] * stride[0], grid[1] * stride[1]


def _vit_variant(section: Mapping[str, Any], hints: Mapping[str, Any]) -> str:
  """Returns the row of the size table that a model is; '' if none.

  Raises:
    ValueError: if it is a row that lacks its last layers, and nobody says that
      it is to be so.
  """
  backbone = section.get('backbone')
  names = [n for n in variants.PUBLISHED if n not in variants.RESNETS]
  if not backbone and isinstance(section['patch'], int):
    names += [f'{size}/{section["patch"]}' for size in variants.SIZES]
  for name in names:
    size, patch = variants.parse_variant(name)
    row = dataclasses.asdict(size) | {'patch': patch}
    depths = variants.backbone(name).get('depths')
    if any(section[key] != row[key] for key in (
        'width', 'mlp_dim', 'num_heads', 'patch')):
      continue
    if tuple((backbone or {}).get('depths', ('none',))) != tuple(
        ('none',) if depths is None else depths):
      continue
    if section['depth'] == size.depth:
      return name
    if section['depth'] < size.depth and 'depth' not in hints:
      raise ValueError(
          f'The weights have the dimensions of {name}, but {section["depth"]} '
          f'layers where it has {size.depth}: expected '
          f'{size.depth - section["depth"]} more, found nothing. If the model '
          f'is to be so, load it with depth={section["depth"]}.')
  return ''


def _resnet_variant(backbone: Mapping[str, Any] | None) -> str:
  for name in variants.RESNETS:
    row = variants.backbone(name)
    if backbone and (tuple(row['depths']), row['width']) == (
        tuple(backbone['depths']), backbone['width']):
      return name
  return ''


def _heads(
    opened: files.ArrayFile, matches: Sequence[layout.Match], prefix: str,
    known: Mapping[str, Any],
) -> int:
  """Returns the number of heads, where arrays do not keep them apart; else 0.

  Raises:
    ValueError: if neither a config nor the table of sizes tells it.
  """
  by_ours = {match.ours: match for match in matches}
  qkv = by_ours.get('encoder/layers/attention/qkv_kernel')
  if qkv is None or not any(
      group in qkv.layout for group in ('(heads e)', '(parts heads e)')):
    return 0
  width = opened.headers[prefix + qkv.theirs[0]].shape[-1]
  if known.get('num_heads'):
    heads = int(known['num_heads'])
    if width % heads:
      raise ValueError(
          f'{opened.path}: a width of {width} does not divide into {heads} '
          'heads.')
    return heads
  hidden = by_ours.get('encoder/layers/mlp/hidden/bias')
  mlp_dim = hidden and opened.headers[prefix + hidden.theirs[0]].shape[-1]
  for size in variants.SIZES.values():
    if (size.width, size.mlp_dim) == (width, mlp_dim):
      return size.num_heads
  raise ValueError(
      f'{opened.path}: the arrays do not tell how many heads a width of '
      f'{width} is divided into, there is no config.json that does, and the '
      'size is in no table. Say it: num_heads=N.')


def _complete(
    params: Mapping[str, np.ndarray], section: Mapping[str, Any],
) -> dict[str, np.ndarray]:
  """Adds the head of no classes, where weights have none."""
  params = dict(params)
  if section['num_classes'] == 0 and 'head/dense/kernel' not in params:
    norm = 'final_norm/scale'
    width = section.get('width') or params[norm].shape[0]
    params |= {'head/dense/kernel': np.zeros((width, 0), np.float32),
               'head/dense/bias': np.zeros((0,), np.float32)}
  return params


def check(
    config: models.ModelConfig, params: Mapping[str, Any],
    resolution: Sequence[int], *, source: str,
    theirs: Mapping[str, str] | None = None,
) -> None:
  """Raises if parameters, by our names, are not exactly the model's.

  Raises:
    ValueError: with expected and found shapes side by side.
  """
  expected = abstract_params(config, resolution)
  difference = tree.differences(expected, tree.unflatten(params))
  if difference:
    names = theirs or {}
    lines = []
    for line in difference:
      name = line.split(':')[0]
      lines.append(f'{names[name]} -> {line}' if name in names else line)
    raise ValueError(
        f'{source} does not fit the model:\n' + _lines(lines)
        + '\nIf the model was inferred wrongly, say what it is: '
        'load(path, depth=..., num_classes=..., pooling=...).')


def abstract_params(
    config: models.ModelConfig, resolution: Sequence[int],
) -> Any:
  """Returns the shapes of a model's parameters, as a nested dict."""
  model = models.build(config, num_classes=config.num_classes)
  images = jax.ShapeDtypeStruct((1, *resolution, 3), 'float32')
  return nn.unbox(jax.eval_shape(
      lambda: models.init(model, jax.random.key(0), images)))


# ------------------------------------------------------------------ config.json


def _read_hints(
    path: pathlib.Path, opened: files.ArrayFile,
    matches: Sequence[layout.Match],
) -> _Hints:
  folder = path if path.is_dir() else path.parent
  file = folder / 'config.json'
  if not file.is_file():
    return _Hints()
  config = _read_json(file)
  hints = _hints_of(config)
  if hints is None or (path.is_file() and not _same_width(
      config, opened, matches)):
    return _Hints()
  hints.source = str(file)
  preprocessor = folder / 'preprocessor_config.json'
  if preprocessor.is_file():
    hints.preprocess |= preprocess_lib.from_huggingface(
        _read_json(preprocessor))
  return hints


def _hints_of(config: Mapping[str, Any]) -> _Hints | None:
  if 'architecture' in config or 'pretrained_cfg' in config:
    return _timm_hints(config)
  if 'hidden_size' in config:
    return _huggingface_hints(config)
  return None


def _same_width(
    config: Mapping[str, Any], opened: files.ArrayFile,
    matches: Sequence[layout.Match],
) -> bool:
  """Whether the config beside a bare file can be of that file."""
  width = config.get('hidden_size') or config.get('num_features')
  norm = next((m for m in matches if m.ours.endswith('attention_norm/scale')),
              None)
  if norm is None or width is None:
    return norm is None
  return any(header.shape[-1:] == (width,) for name, header in
             opened.headers.items() if name.endswith(norm.theirs[0]))


_HF_GELU = {'gelu': 'exact', 'gelu_python': 'exact', 'gelu_new': 'tanh',
            'gelu_pytorch_tanh': 'tanh', 'gelu_fast': 'tanh'}


def _huggingface_hints(config: Mapping[str, Any]) -> _Hints:
  """Reads Hugging Face's config, and the page's, which has its first names."""
  names = {'width': 'hidden_size', 'depth': 'num_hidden_layers',
           'num_heads': 'num_attention_heads', 'mlp_dim': 'intermediate_size',
           'layer_norm_epsilon': 'layer_norm_eps'}
  section = {ours: config[name] for ours, name in names.items()
             if name in config}
  act = config.get('hidden_act')
  if act is not None:
    section['gelu'] = _HF_GELU[records.check_name(
        act, list(_HF_GELU), what='hidden_act in config.json')]
  result = _Hints(section=section)
  size = config.get('image_size')
  if isinstance(size, (int, list, tuple)):
    result.preprocess['resolution'] = (
        (size, size) if isinstance(size, int) else tuple(size))
  labels = config.get('id2label')
  if isinstance(labels, Mapping):
    text = [str(labels[k]) for k in sorted(labels, key=int)]
    if text != [f'LABEL_{i}' for i in range(len(text))]:
      result.preprocess['labels'] = tuple(text)
  return result


def _timm_hints(config: Mapping[str, Any]) -> _Hints:
  names = {'embed_dim': 'width', 'depth': 'depth', 'num_heads': 'num_heads'}
  given = config.get('model_args') or {}
  section = {ours: given[name] for name, ours in names.items() if name in given}
  pool = config.get('global_pool') or given.get('global_pool')
  pools = {'token': 'cls', 'avg': 'average', 'map': 'attention'}
  if pool in pools and 'resnet' not in str(config.get('architecture')):
    section['pooling'] = pools[pool]
  act = given.get('act_layer')
  if isinstance(act, str):
    section['gelu'] = {'gelu': 'exact', 'gelu_tanh': 'tanh'}[records.check_name(
        act, ['gelu', 'gelu_tanh'], what='act_layer in config.json')]
  result = _Hints(section=section, preprocess=preprocess_lib.from_timm(config))
  size = given.get('img_size')
  if size:
    result.preprocess['resolution'] = (
        (size, size) if isinstance(size, int) else tuple(size))
  return result


def _read_json(path: pathlib.Path) -> dict[str, Any]:
  try:
    found = json.loads(path.read_text())
  except ValueError as error:
    raise ValueError(f'{path} is not JSON: {error}') from error
  if not isinstance(found, dict):
    raise ValueError(f'{path} holds {type(found).__name__}, not an object.')
  return found


# ------------------------------------------------------------------- reporting


def _statement(
    opened: files.ArrayFile, family: names_lib.Family, prefix: str,
    config: models.ModelConfig, params: Mapping[str, Any],
    resolution: tuple[int, ...], hints: _Hints, given: Mapping[str, Any],
    stated: Mapping[str, Any],
) -> tuple[str, ...]:
  size = f'{resolution[0]}x{resolution[1]}'
  lines = [
      f'{opened.path}: {family.label} ({opened.format}'
      + (f', under {prefix}' if prefix else '') + '), '
      f'{tree.num_elements(dict(params)):,} parameters']
  what = (f'{config.variant or "no published size"}, '
          f'{config.num_classes} classes')
  if isinstance(config, vit_config.ViTConfig):
    patch = 'x'.join(map(str, config.patch_shape))
    what += (
        f', width {config.width}, depth {config.depth}, mlp_dim '
        f'{config.mlp_dim}, {config.num_heads} heads, patch {patch}, images '
        f'{size}, pooling {config.pooling}, gelu {config.gelu}, epsilon '
        f'{config.layer_norm_epsilon:g}')
  lines.append(f'  inferred: {what}')
  if hints.source:
    lines.append(f'  with {hints.source}: ' + ', '.join(
        f'{k}={v}' for k, v in hints.section.items()))
  if given:
    lines.append('  given: ' + ', '.join(f'{k}={v}' for k, v in given.items()))
  if not {'mean', 'std'} & set(stated):
    lines.append(
        '  assumed: images in [-1, 1] (mean 0.5, std 0.5), for the file does '
        'not say; DeiT has another mean and std')
  return tuple(lines)


def _report(
    opened: files.ArrayFile, matches: Sequence[layout.Match],
    params: Mapping[str, Any], left_out: Sequence[str],
) -> tuple[str, ...]:
  lines = []
  for match in matches:
    first = match.theirs[0]
    count = f' (and {len(match.theirs) - 1} more)' if match.theirs[1:] else ''
    shape = getattr(params.get(match.ours), 'shape', None)
    lines.append(f'  loaded  {first}{count} -> {match.ours}'
                 + (f' {shape}' if shape else ''))
  lines += [f'  ignored {name} {opened.headers[name].shape}'
            for name in left_out]
  read = sum(len(match.theirs) for match in matches)
  lines.append(f'  {read} arrays make {len(params)} parameters, '
               f'{len(left_out)} ignored')
  return tuple(lines)


def _lines(problems: Sequence[str]) -> str:
  shown = [f'  {line}' for line in problems[:_MAX_LINES]]
  if len(problems) > _MAX_LINES:
    shown.append(f'  ... and {len(problems) - _MAX_LINES} more')
  return '\n'.join(shown)
