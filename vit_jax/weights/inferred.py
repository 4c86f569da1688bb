"""Model settings that follow from the names and shapes of parameters.

Shared by the published files and those of other codebases: `params` are
parameters by our names, of which only names and shapes are used.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from vit_jax.models import factory
from vit_jax.models import model_config
from vit_jax.models import variants
from vit_jax.weights import weights as weights_lib
from vit_jax.weights.formats import layout

DEFAULT_SIZE = (224, 224)  # Pixels, where nothing determines the image size.
_LAYERS = 'encoder/layers'
_REQUIRED = ('patches/kernel', f'{_LAYERS}/attention_norm/scale',
             f'{_LAYERS}/attention/qkv_kernel', f'{_LAYERS}/mlp/hidden/kernel')


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


def variant(config: model_config.ModelConfig) -> str:
  """Returns the published variant of a model's dimensions; '' if none."""
  patch = getattr(config, 'patch', 0)
  names = (*variants.PUBLISHED, *(f'{size}/{patch}' for size in variants.SIZES
                                  if isinstance(patch, int) and patch))
  return next((
      name for name in names
      if variants.section(name)['name'] == config.name
      and _dimensions(factory.parse({'variant': name})) == _dimensions(config)
  ), '')


def _dimensions(config: Any) -> tuple[Any, ...]:
  return (*(getattr(config, name) for name in config.dimensions),
          getattr(config, 'backbone', None))


def ignored(left_out: Sequence[str]) -> tuple[str, ...]:
  """Returns a line of the summary about arrays that are not read, if any."""
  return (f'ignored: {len(left_out)} arrays that are not parameters: '
          + weights_lib.shortened(left_out),) * bool(left_out)
