"""Ablations of the paper: positions (D.4) and axial attention (D.6)."""

import dataclasses
from typing import Any, ClassVar, Literal

import einops
import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int
import numpy as np

from vit_jax import fields
from vit_jax.exceptions import UserError
from vit_jax.models import attention as attention_lib
from vit_jax.models import layers
from vit_jax.models import positions as positions_lib
from vit_jax.models import vit

_Position = Literal['learned', 'none', '2d', 'factorized', 'sincos', 'relative']
_LINES = ('positions_rows', 'positions_columns')


@dataclasses.dataclass(frozen=True)
class AblationConfig(vit.ViTConfig):
  """Section `model` of a config with `name: 'ablation'`.

  Attributes:
    position: position embedding: also '2d' (concatenated row and column
      embeddings), 'factorized' (their sums, arXiv 2307.06304), or 'relative'
      (an embedding per distance in the sequence, times the queries, added to
      attention logits).
    position_at: where position embeddings are added: to the 'stem', or to the
      input of every layer, either each layer's own ('layers') or 'shared' ones.
    axial: each layer attends within rows, then within columns, each with an MLP
      (appendix D.6). Allows patch tokens only.
  """
  name: Literal['ablation'] = fields.switch('ablation')  # type: ignore[assignment]
  position: _Position = fields.switch('learned')  # type: ignore[assignment]
  position_at: Literal['stem', 'layers', 'shared'] = fields.switch('stem')
  axial: bool = fields.switch(False)  # type: ignore[misc]

  position_params: ClassVar[tuple[str, ...]] = (
      'positions', *_LINES, 'distances')

  def __post_init__(self):
    super().__post_init__()
    if self.axial and self.has_cls:
      raise UserError(
          'Axial attention supports no class token. Set pooling to '
          "'average' or 'attention', and cls to false.")
    if self.position_at != 'stem' and self.position in ('none', 'relative'):
      raise UserError(
          f'position {self.position!r} adds nothing to the tokens, so '
          f'position_at cannot be {self.position_at!r}. Leave it out.')
    if self.position == '2d' and self.width % 2:
      raise UserError(
          f"position '2d' needs an even width, but it is {self.width}.")

  takes_any_tokens = property(lambda self: (
      self.takes_any_grid and not self.axial))
  takes_any_grid = property(lambda self: (
      self.position_at == 'stem' and self.position != 'relative'))

  def build(self, *, grid: tuple[int, int] | None = None) -> nn.Module:
    return Ablation(self, grid)

  def _resized(self, name: str, array: Any, **options: Any) -> Any:
    if name == 'distances':
      (rows, columns), new = options['old_grid'], options['new_grid']
      raise UserError(
          f'{name}: relative positions are distances in a sequence of patches '
          f'of a grid of {rows}x{columns}, and cannot be interpolated to '
          f'{new[0]}x{new[1]}. Keep the resolution of the checkpoint.')
    return resize_lines(name, array, **options) if name in _LINES else (
        super()._resized(name, array, **options))


def resize_lines(
    name: str, array: Float[Any, '*layers old_positions width'], *,
    old_grid: tuple[int, int], new_grid: tuple[int, int],
    method: positions_lib.Interpolation,
) -> Float[Any, '*layers new_positions width']:
  """Interpolates embeddings of rows or columns along their axis."""
  axis = _LINES.index(name)
  return positions_lib.resize_positions(
      array, old_grid=(old_grid[axis], 1), new_grid=(new_grid[axis], 1),
      method=method)


def embeddings(
    param: Any, config: Any, grid: tuple[int, int], *,
    num_prefix: int | None = None,
) -> Float[jax.Array, 'tokens width'] | None:
  """Returns the position embeddings of class token and patches, if any.

  `param` is `self.param` of the module that owns learned embeddings.
  """
  (rows, columns), width, learned = grid, config.width, positions_lib.learned
  prefix = config.num_prefix if num_prefix is None else num_prefix
  if config.position not in ('2d', 'factorized'):
    return positions_lib.embeddings(
        param, config.position, grid, width, num_prefix=prefix)
  each = width // 2 if config.position == '2d' else width
  of_row = jnp.repeat(learned(param, _LINES[0], rows, each), columns, axis=0)
  of_column = jnp.tile(learned(param, _LINES[1], columns, each), (rows, 1))
  patches = jnp.concatenate([of_row, of_column], axis=1) if (
      config.position == '2d') else of_row + of_column
  return jnp.concatenate(
      [learned(param, 'positions_cls', prefix, width), patches]
      if prefix else [patches])


class RelativeAttention(vit.SelfAttention):
  """Attention with logits of the distances p_q - p_k (appendix D.4)."""
  config: AblationConfig

  def attend(
      self, query: jax.Array, key: jax.Array, value: jax.Array,
  ) -> tuple[jax.Array, jax.Array | None]:
    c = self.config
    if c.position != 'relative':
      return super().attend(query, key, value)
    _, length, heads, head_dim = query.shape
    distances = self.param(
        'distances', layers.named(
            nn.initializers.normal(0.02), None, 'heads', 'head_dim'),
        (2 * length - 1, heads, head_dim))
    logits = jnp.einsum(
        'bqnh,dnh->bnqd', query * head_dim ** -0.5,
        distances.astype(query.dtype), preferred_element_type=jnp.float32)
    # Distances are -(length - 1) ... length - 1.
    token = np.arange(length)
    index = token[:, None] - token[None, :] + length - 1
    return attention_lib.dot_product_attention(
        query, key, value,
        bias=jnp.take_along_axis(logits, index[None, None], axis=-1),
        drop=layers.Dropout(
            c.attention_dropout, deterministic=not self.train))


class Block(vit.Block):
  """A layer that adds `positions`, or its own, to its input.

  `within` restricts attention to the tokens of a row or column.
  """
  config: AblationConfig
  grid: tuple[int, int] = (0, 0)
  within: Literal['grid', 'row', 'column'] = 'grid'

  @nn.compact
  def __call__(  # type: ignore[override]
      self, tokens: vit.Tokens, layer: Int[Array, ''],
      positions: Float[Array, '...'] | None,
  ) -> tuple[vit.Tokens, dict[str, Any]]:
    if self.config.position_at == 'layers' and self.within != 'column':
      positions = embeddings(self.param, self.config, self.grid)
    if positions is not None:
      tokens += positions.astype(tokens.dtype)
    return super().__call__(tokens, layer)

  def attend(self, tokens: vit.Tokens) -> tuple[vit.Tokens, jax.Array | None]:
    attention = RelativeAttention(
        self.config, self.train, self.capture, name='attention')
    if self.within == 'grid':
      return attention(tokens)
    rows, columns = self.grid
    split, merge = {
        'row': ('b (r c) d -> (b r) c d', '(b r) c d -> b (r c) d'),
        'column': ('b (r c) d -> (b c) r d', '(b c) r d -> b (r c) d'),
    }[self.within]
    attended, weights = attention(
        einops.rearrange(tokens, split, r=rows, c=columns))
    if weights is not None:
      weights = weights.reshape(tokens.shape[0], -1, *weights.shape[1:])
    return einops.rearrange(attended, merge, r=rows, c=columns), weights


class AxialBlock(nn.Module):
  """Attention within rows, then columns, each with an MLP (appendix D.6)."""
  config: AblationConfig
  train: bool
  capture: vit.Capture
  grid: tuple[int, int]

  @nn.compact
  def __call__(
      self, tokens: vit.Tokens, layer: Int[Array, ''],
      positions: Float[Array, '...'] | None,
  ) -> tuple[vit.Tokens, dict[str, Any]]:
    settings = self.config, self.train, self.capture, self.grid
    tokens, rows = Block(*settings, within='row', name='row')(
        tokens, layer, positions)
    tokens, columns = Block(*settings, within='column', name='column')(
        tokens, layer, None)
    return tokens, {'row': rows, 'column': columns} if self.capture else {}


class Encoder(vit.Encoder):
  """`depth` blocks, which may add the shared `positions`.

  Axial blocks have their intermediates under `row` and `column`, with attention
  [depth, batch, rows, heads, columns, columns] and [depth, batch, columns,
  heads, rows, rows].
  """
  config: AblationConfig
  grid: tuple[int, int] = (0, 0)

  def block(self) -> tuple[Any, tuple[Any, ...]]:
    return AxialBlock if self.config.axial else Block, (
        self.config, self.train, self.capture, self.grid)


class Ablation(vit.ViT):
  """ViT with another position embedding or axial attention."""
  config: AblationConfig

  def position_embeddings(self, grid: tuple[int, int]) -> jax.Array | None:
    return embeddings(self.param, self.config, grid) if (
        self.config.position_at == 'stem') else None

  def encode(
      self, tokens: vit.Tokens, grid: tuple[int, int], *, train: bool,
      capture: vit.Capture,
  ) -> tuple[vit.Tokens, dict[str, Any]]:
    c = self.config
    shared = embeddings(self.param, c, grid) if (
        c.position_at == 'shared') else None
    return Encoder(c, train, capture, grid, name='encoder')(tokens, shared)
