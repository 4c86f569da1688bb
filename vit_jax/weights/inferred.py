"""Settings and load report of weights without a config of ours.

Shared by the published files and those of other codebases: `params` are
parameters by our names, of which only names and shapes are used.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
import dataclasses
import math
import pathlib
import re
from typing import Any

from vit_jax.data import preprocessing
from vit_jax.models import model_config
from vit_jax.models import variants
from vit_jax.weights import check
from vit_jax.weights import declared as declared_lib
from vit_jax.weights import overrides as overrides_lib
from vit_jax.weights import published_sizes
from vit_jax.weights import weights as weights_lib
from vit_jax.weights.formats import array_file
from vit_jax.weights.formats import layout

DEFAULT_SIZE = (224, 224)  # Pixels, where nothing determines the image size.
# Optimizer state repeats the names of the parameters. Flax's optimizer target
# is the parameters themselves.
_OPTIMIZER = re.compile(
    r'(.*[/.])?(opt|optim|optimizer|opt_state|optimizer_state)[/.]'
    r'(?!target/).*')
# The first kernel of a ViT or ResNet.
_STEMS = ('patches/kernel', 'backbone/root/kernel')
_LAYERS = 'encoder/layers'
_REQUIRED = ('patches/kernel', f'{_LAYERS}/attention_norm/scale',
             f'{_LAYERS}/attention/qkv_kernel', f'{_LAYERS}/mlp/hidden/kernel')


# ---------------------------------------------------------------------- names


def prefixes(table: layout.Table, names: Sequence[str]) -> list[str]:
  """Returns prefixes of a model's first kernel, except in optimizer state."""
  stem = dataclasses.replace(table, rows=tuple(
      row for row in table.rows if row.ours in _STEMS))
  found: dict[str, None] = {}
  for name in names:
    ends = (0, *(m.end() for m in re.finditer('[/.]', name)))
    prefix = next((name[:end] for end in ends
                   if layout.find_row(stem, name[end:])), None)
    if prefix is not None and not _OPTIMIZER.fullmatch(prefix):
      found[prefix] = None
  return list(found)


def names_under(
    prefix: str, names: Iterable[str], others: Iterable[str],
) -> list[str]:
  """Returns names below a prefix, without optimizer state and other models.

  `others` are prefixes of all models.
  """
  copies = tuple(p for p in others if p != prefix and p.startswith(prefix))
  inside = (name.removeprefix(prefix) for name in names
            if name.startswith(prefix) and not name.startswith(copies))
  return [name for name in inside if not _OPTIMIZER.fullmatch(name)]


def several_models(path: str, models: Mapping[str, str]) -> ValueError:
  """Returns the error for a file with models of these labels, by prefix."""
  listed = ' and '.join(f'{p!r} ({label})' for p, label in models.items())
  return ValueError(
      f'{path} holds more than one model, under the prefixes {listed}. Choose '
      'one: ' + ' or '.join(f'prefix={p!r}' for p in models) + ' in load(...), '
      '--set prefix=... in commands. For a run, write it to a file of its own '
      'by `convert` first.')


# ------------------------------------------------------------------- settings


def known_settings(
    declared: declared_lib.Declared, given: overrides_lib.Overrides,
) -> dict[str, Any]:
  """Returns the declared settings of the model, and those of the caller.

  Adds the origin of the heads to `declared`.

  Raises:
    ValueError: if the caller's variant has other heads than declared.
  """
  known = dict(declared.model)
  if 'variant' in given.model:
    if 'num_heads' not in given.model:
      check.check_num_heads(given.model['variant'], known.get('num_heads', 0))
    known |= published_sizes.dimensions(given.model['variant'])
    known['name'] = variants.section(given.model['variant'])['name']
    declared.origins['num_heads'] = weights_lib.GIVEN
  return known | dict(given.model)


def check_kind(known: Mapping[str, Any], name: str) -> None:
  """Raises a ValueError if arrays of a 'vit' or 'resnet' are to be another."""
  if (known.get('name', name) == 'resnet') != (name == 'resnet'):
    raise ValueError(
        f'name: expected {known["name"]!r}, found the arrays of a {name}.')


def encoder(params: Mapping[str, Any], table: layout.Table) -> dict[str, Any]:
  """Returns the dimensions of a ViT, except the number of heads.

  Raises:
    ValueError: if an array that every model has is missing.
  """
  missing = [name for name in _REQUIRED if name not in params]
  if missing:
    raise ValueError('The weights have no ' + ', '.join(
        row.theirs for row in table.rows if row.ours in missing) + '.')
  kernel, norm, _, hidden = (params[name].shape for name in _REQUIRED)
  patch = tuple(map(int, kernel[:2]))
  return {
      'width': int(kernel[-1]), 'depth': int(norm[0]),
      'mlp_dim': int(hidden[-1]),
      'patch': patch[0] if patch[0] == patch[1] else patch,
      'representation_layer': 'representation/dense/kernel' in params}


def heads(params: Mapping[str, Any]) -> int:
  """Returns the number of heads of arrays with an axis for them."""
  return int(params[f'{_LAYERS}/attention/qkv_kernel'].shape[-2])


def num_classes(params: Mapping[str, Any]) -> int:
  """Returns the number of outputs of the head; 0 without a head."""
  head = params.get('head/dense/kernel')
  return 0 if head is None else int(head.shape[-1])


def stem(
    params: Mapping[str, Any], settings: Mapping[str, Any],
    known: Mapping[str, Any],
) -> dict[str, Any]:
  """Returns the section `backbone` of a model with a ResNet, or {}.

  Args:
    params: the parameters.
    settings: keys that names and shapes do not determine.
    known: declared keys of section `model`, which take precedence.
  """
  root = params.get('backbone/root/kernel')
  if root is None or known.get('backbone', {}) is None:
    return {}
  depths: list[int] = []
  while f'backbone/block{len(depths) + 1}/unit1/conv1/kernel' in params:
    units = params.get(f'backbone/block{len(depths) + 1}/units/conv1/kernel')
    depths.append(1 + (0 if units is None else len(units)))
  return {'backbone': {'depths': tuple(depths), 'width': int(root.shape[-1]),
                       **settings, **known.get('backbone', {})}}


def with_variant(
    config: model_config.ModelConfig, variant: str | None,
) -> model_config.ModelConfig:
  """Returns the config with the variant of its dimensions; None to find it."""
  if variant is None:
    variant = published_sizes.variant(config)
  elif variant and not published_sizes.has_dimensions(config, variant):
    variant = ''
  return dataclasses.replace(config, variant=variant)


# ------------------------------------------------------------------ positions


def position_grid(
    config: Any, count: int, *, num_prefix: int,
    embeds_prefix: bool | None,
    declared: tuple[int, int] | None, stored: tuple[int, int] | None,
    requested: tuple[int, int] | None, offsets: bool = False,
) -> tuple[tuple[int, int], int]:
  """Returns the grid of position embeddings, and the embeddings before it.

  Args:
    config: the ViT.
    count: number of position embeddings, or of offsets.
    num_prefix: position embeddings of tokens before the patches, if there are
      any.
    embeds_prefix: whether there are any; None if unknown.
    declared: image size of the position embeddings, if a config declares it.
    stored: image size of the weights, which the embeddings may belong to; if
      not, the grid is square if it can be.
    requested: image size of the caller, which decides in other cases. It is not
      first: 576 embeddings are 24 x 24, but also fit images of 288 x 512.
    offsets: whether there is one for each offset in rows and columns.

  Raises:
    ValueError: if no grid fits, or two do.
  """
  prefixes = dict.fromkeys(
      prefix for prefix, possible in (
          (num_prefix, embeds_prefix is not False),
          (0, not embeds_prefix)) if possible)
  registers = getattr(config, 'registers', 0)
  tokens = (f'(class tokens: {config.num_prefix - registers}, registers: '
            f'{registers})')

  def fit(resolution: tuple[int, int]) -> tuple[tuple[int, int], int] | None:
    try:
      rows, columns = config.grid(resolution)
    except ValueError:
      return None
    prefix = count - ((2 * rows - 1) * (2 * columns - 1) if offsets
                      else rows * columns)
    return ((rows, columns), prefix) if prefix in prefixes else None

  for resolution in filter(None, (declared, stored)):
    if found := fit(resolution):
      return found
  if declared:
    raise ValueError(
        f'{count} position embeddings {tokens} do not belong to images of '
        f'{declared[0]}x{declared[1]}.')
  squares = {prefix: math.isqrt(count - prefix) for prefix in prefixes
             if count > prefix
             and math.isqrt(count - prefix) ** 2 == count - prefix}
  if len(squares) != 1:
    if requested and (found := fit(requested)):
      return found
    grids = ' or '.join(f'{n}x{n}' for n in squares.values()) or 'not square'
    raise ValueError(
        f'The grid of {count} position embeddings {tokens} is {grids}. Set the '
        'image size that they are for: resolution=(height, width).')
  (prefix, side), = squares.items()
  side = (side + 1) // 2 if offsets else side
  return (side, side), prefix


# ----------------------------------------------------- preprocessing, report


def preprocess(
    config: model_config.ModelConfig, resolution: tuple[int, int],
    declared: declared_lib.Declared, given: overrides_lib.Overrides,
) -> preprocessing.Preprocess:
  """Returns the declared preprocessing with the caller's changes."""
  result = preprocessing.parse(
      {'resolution': resolution, **declared.preprocess})
  if not declared.ours:
    result = result.resized(resolution)
    if not config.num_classes:
      result = dataclasses.replace(result, labels=())
  result = preprocessing.override(result, given.preprocess)
  check.check_preprocess(config, result)
  return result


def notes(
    opened: array_file.ArrayFile, *, declared: declared_lib.Declared,
    given: overrides_lib.Overrides, size: tuple[int, int],
    left_out: Sequence[str], more: Iterable[str] = (),
) -> Iterator[str]:
  """Yields lines about sizes, overrides and arrays that are not read.

  Args:
    opened: the file.
    declared: what it declares.
    given: what the caller sets.
    size: size of images.
    left_out: names of arrays that are not read.
    more: further lines.
  """
  yield from declared.notes
  stored = declared.preprocess.get('resolution')
  if stored not in (None, size) and 'resolution' not in given.preprocess:
    yield (f'the declared image size is {stored}, but images are resized to '
           f'{size}, the size of the position embeddings; for the declared '
           f'size, set resolution={stored}')
  if opened.format == 'npz' and not declared.source:
    # Our own .npz files cannot be distinguished from published ones.
    file = pathlib.Path(declared_lib.json_path(opened.path))
    yield (f'{file.name} beside it is not that of vit_jax' if file.exists() else
           f'no {file.name} beside it, which vit_jax writes'
           ) + ': settings that are assumed may be wrong'
  yield from more
  if values := {**given.model, **given.preprocess}:
    yield weights_lib.listed(values.items(), start='overrides: ')
  if left_out:
    yield (f'ignored: {len(left_out)} arrays that are not parameters: '
           + weights_lib.shortened(left_out))


def report(
    opened: array_file.ArrayFile, *, matches: Iterable[layout.Match],
    params: Mapping[str, Any], left_out: Iterable[str],
) -> Iterator[str]:
  """Yields a line for each parameter, and for each array that is ignored."""
  for match in matches:
    more = f' (and {len(match.theirs) - 1} more)' * (len(match.theirs) > 1)
    shape = getattr(params.get(match.ours), 'shape', '')
    yield f'  loaded  {match.theirs[0]}{more} -> {match.ours} {shape}'.rstrip()
  for name in left_out:
    yield f'  ignored {name} {opened.shapes[name]}'
