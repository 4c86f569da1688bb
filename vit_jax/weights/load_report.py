"""What is said of weights that were read: found, inferred, left out."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from vit_jax import models
from vit_jax import tree
from vit_jax.models import vit_config
from vit_jax.weights import files
from vit_jax.weights import layout

_MAX_LINES = 24
_MAX_NAMES = 4
# What a model may have otherwise than the plain ViT, and how that is said.
_PARTS: Mapping[str, Mapping[Any, str]] = {
    'final_norm': {False: 'no final norm'},
    'position': {
        'none': 'no position embedding', '2d': '2-D position embedding',
        'relative': 'relative position embedding',
        'sincos': 'sine-cosine position embedding'},
    'position_cls': {False: 'no position of the class token'},
    'qkv_bias': {False: 'qkv without bias'},
    'pool_norm': {True: 'a norm after pooling'},
    'representation_layer': {True: 'a representation layer'},
    'axial': {True: 'axial attention'},
    'parallel': {True: 'parallel layers'},
    'qk_norm': {True: 'norms of queries and keys'},
    'norm': {'rms': 'norms of the root mean square'}}


def model_line(
    config: models.ModelConfig, resolution: Sequence[int],
) -> str:
  """Returns what a model is, with whatever it has not as the plain ViT."""
  what = (f'{config.variant or "no published size"}, '
          f'{config.num_classes} classes')
  if isinstance(config, vit_config.ViTConfig):
    patch = 'x'.join(map(str, config.patch_shape))
    what += (
        f', width {config.width}, depth {config.depth}, mlp_dim '
        f'{config.mlp_dim}, {config.num_heads} heads, patch {patch}, images '
        f'{resolution[0]}x{resolution[1]}, pooling {config.pooling}, gelu '
        f'{config.gelu}, epsilon {config.layer_norm_epsilon:g}')
  return ', '.join([what, *_parts(config)])


def _parts(config: models.ModelConfig) -> Iterator[str]:
  if isinstance(config, vit_config.ViTConfig):
    for name, said in _PARTS.items():
      if name == 'position_cls' and not config.has_cls:
        continue
      if text := said.get(getattr(config, name)):
        yield text
    if config.has_cls != (config.pooling == 'cls'):
      yield 'a class token that is not pooled'
    if config.registers:
      yield f'{config.registers} registers'
    if config.layer_scale is not None:
      yield 'layer scale'
  if config.backbone is not None:
    depths = ', '.join(map(str, config.backbone.depths))
    yield (f'backbone of ({depths}) units' if depths else
           'backbone of a root alone') + f', width {config.backbone.width}'


def arrays_lines(
    headers: Mapping[str, files.Header], parameters: Sequence[str],
    left_out: Sequence[str],
) -> list[str]:
  """Returns lines on arrays that were left out, or made smaller.

  Args:
    headers: of the file.
    parameters: names in the file of what was read.
    left_out: names in the file of what was not.
  """
  lines = []
  if left_out:
    shown = ', '.join(left_out[:_MAX_NAMES])
    more = ', ...' if len(left_out) > _MAX_NAMES else ''
    lines.append(f'left out: {len(left_out)} arrays that are no parameters of '
                 f'the model: {shown}{more}')
  wide = [name for name in parameters if headers[name].dtype == 'float64']
  if wide:
    lines.append(f'narrowed: {len(wide)} of {len(parameters)} arrays, from '
                 'float64 to float32')
  return lines


def report(
    headers: Mapping[str, files.Header], matches: Sequence[layout.Match],
    params: Mapping[str, Any], left_out: Sequence[str],
) -> tuple[str, ...]:
  """Returns a line for each parameter, and one for each array left out."""
  lines = []
  for match in matches:
    first = match.theirs[0]
    count = f' (and {len(match.theirs) - 1} more)' if match.theirs[1:] else ''
    shape = getattr(params.get(match.ours), 'shape', None)
    lines.append(f'  loaded  {first}{count} -> {match.ours}'
                 + (f' {shape}' if shape else ''))
  lines += [f'  ignored {name} {headers[name].shape}' for name in left_out]
  read = sum(len(match.theirs) for match in matches)
  lines.append(f'  {read} arrays make {len(params)} parameters, '
               f'{len(left_out)} ignored')
  return tuple(lines)


def count(params: Mapping[str, Any]) -> str:
  """Returns the number of values in parameters, in words."""
  return f'{tree.num_elements(dict(params)):,} parameters'


def indented(problems: Sequence[str]) -> str:
  """Returns lines as a message shows them, of many only the first."""
  shown = [f'  {line}' for line in problems[:_MAX_LINES]]
  if len(problems) > _MAX_LINES:
    shown.append(f'  ... and {len(problems) - _MAX_LINES} more')
  return '\n'.join(shown)
