"""Feature layers of a model, by name.

    representation  [width]                 input of the head
    pooled          [width]                 before the tanh layer, if any
    logits          [classes]
    cls             [width]                 class token
    mean            [width]                 mean of the patch tokens
    tokens          [tokens, width]         all tokens after the final norm
    patches         [rows, columns, width]  those of the patches

'patches:6' are the patches after layer 6 of 1 ... depth, before the final norm;
likewise for `cls`, `mean` and `tokens`.
"""

from collections.abc import Mapping
from typing import Any

from jaxtyping import Array, Float
import numpy as np

from vit_jax import schema
from vit_jax.exceptions import UserError

FEATURES = ('representation', 'pooled', 'logits')
TOKEN_FEATURES = ('cls', 'mean', 'tokens', 'patches')


def output(layer: str, config: Any, *, what: str = 'layer') -> str:
  """Returns the name of the model output that contains a feature layer.

  Args:
    layer: its name.
    config: the typed section `model`.
    what: name of the setting, for messages.

  Raises:
    UserError: if the model has no such layer.
  """
  kind, colon, number = layer.partition(':')
  schema.check_name(kind, (*FEATURES, *TOKEN_FEATURES), what=what)
  tokens = kind in TOKEN_FEATURES
  if tokens or kind == 'pooled':
    check_has_tokens(config, kind, instead=f"{what}='representation'")
  if kind == 'cls' and not config.has_cls:
    raise UserError(f"The model has no class token. Use {what}='mean'.")
  if not colon:
    return 'tokens' if tokens else layer
  depth = config.num_layers
  if not tokens or number not in map(str, range(1, depth + 1)):
    raise UserError(
        f'{what} is {layer!r}, but a number from 1 to {depth} may follow '
        f'{", ".join(TOKEN_FEATURES)} only, such as patches:{depth}.')
  return f'layers/{number}'


def check_has_tokens(config: Any, what: str, *, instead: str) -> None:
  """Raises a `UserError` if the model is not a Transformer."""
  if not config.num_layers:
    raise UserError(
        f'A {config.name} has no tokens, and so no {what}. Use {instead}.')


def select(outputs: Mapping[str, Any], name: str) -> Any:
  """Returns the output called `name`, from `output`, of a captured model."""
  name, _, layer = name.partition('/')
  values = outputs[name]
  if not layer:
    return values
  # An axial layer ends with attention within columns.
  return values.get('column', values)['after_mlp'][int(layer) - 1]


def extract(
    values: Float[Array, 'batch ...'] | Float[np.ndarray, 'batch ...'],
    layer: str, config: Any, *, grid: tuple[int, int],
) -> Any:
  """Returns a feature layer, as float32 [batch, ...], from its output.

  Args:
    values: the output called `output(layer, config)`.
    layer: name of the layer.
    config: the typed section `model`.
    grid: rows and columns of the patches.
  """
  kind = layer.partition(':')[0]
  values = values.astype(np.float32)  # Before a mean in bfloat16.
  if kind == 'cls':
    return values[:, 0]
  if kind == 'tokens' or kind not in TOKEN_FEATURES:
    return values
  values = values[:, config.num_prefix:]
  return values.mean(1) if kind == 'mean' else values.reshape(
      len(values), *grid, -1)
