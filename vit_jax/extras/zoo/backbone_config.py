"""Config of the backbones of today."""

from collections.abc import Mapping
import dataclasses
from typing import Any, ClassVar, Literal

import flax.linen as nn

from vit_jax import fields
from vit_jax import registry
from vit_jax import schema
from vit_jax.extras.zoo import backbone_checks
from vit_jax.extras.zoo import interpolation
from vit_jax.extras.zoo import offsets
from vit_jax.extras.zoo import rotary as rotary_lib
from vit_jax.models import factory
from vit_jax.models import model_config
from vit_jax.models import resnet
from vit_jax.models import vit

_switch = fields.switch
_Position = Literal['learned', 'none', 'factorized', 'sincos', 'relative_2d',
                    'relative_mlp']
_Pooling = Literal[
    'cls', 'average', 'cls_average', 'cls_registers', 'attention']


@dataclasses.dataclass(frozen=True)
class BackboneConfig(vit.ViTConfig):
  """Section `model` of a config with `name: 'backbone'`.

  Attributes:
    backbone: convolutional stem, as in a hybrid; no published backbone combines
      it with the other settings of this section.
    num_kv_heads: heads of keys and values; each serves a group of consecutive
      query heads (grouped-query attention, arXiv 2305.13245); 0 for
      `num_heads`.
    distill_token: second class token with a head of its own (DeiT, arXiv
      2012.12877), which learns from the teacher of the objective 'distill'.
      Logits and representation are the means of both.
    registers: number of learned tokens that no output uses, after class and
      distillation token (arXiv 2309.16588). They have no position embedding.
    position: also 'factorized' (sums of row and column embeddings, arXiv
      2307.06304), or relative ones, added to attention logits: 'relative_2d'
      (a learned bias per head and offset in rows and columns, as in BEiT, arXiv
      2106.08254), or 'relative_mlp' (a bias that an MLP computes from that
      offset, arXiv 2111.09883).
    position_at: whether relative biases are each layer's own ('stem') or
      'shared'.
    position_mlp_dim: hidden units of the MLP of 'relative_mlp'.
    position_cls: whether class and distillation token have position embeddings.
    rotary: rotation of queries and keys by patch positions, in addition to
      `position`; None for none.
    stem_norm: 'patches' normalises the patch embeddings before positions are
      added (AIMv2, arXiv 2411.14402); 'tokens' normalises the input of the
      encoder, without a bias of the patch embedding (CLIP, arXiv 2103.00020).
    parallel: attention and MLP of a layer share one norm and one input (arXiv
      2302.05442, section 2.1).
    paired: whether each layer has two attentions that are added, then two such
      MLPs (arXiv 2203.09795, section 3).
    post_norm: whether the norms of a layer are after attention and MLP, at the
      end of the residual branches (arXiv 2111.09883, section 3.2).
    qkv_bias: whether queries, keys and values have biases.
    key_bias: false for queries and values only, since a bias of the keys
      changes no attention weight (BEiT, arXiv 2106.08254).
    proj_bias: whether the output projection of attention and the MLP have
      biases.
    qk_norm: norm of queries and keys over `head_dim`, which bounds attention
      logits (arXiv 2302.05442, section 2.1).
    differential: whether each head subtracts one attention from another, of
      half the channels (Differential Transformer, arXiv 2410.05258).
    layer_scale: initial value of the factor per channel of each residual branch
      (arXiv 2103.17239); None for no factors.
    layer_scale_mlp: false for factors of the attention only (Sapiens2, arXiv
      2604.21681).
    mlp: 'gelu', or 'swiglu' with a gate (arXiv 2002.05202).
    gelu: also the 'quick' approximation of CLIP.
    inner_norm: norm of the hidden units of the 'mlp', or of 'both' these and
      the attended values before their output projection (EVA-02, arXiv
      2303.11331, section 2.1; EVA-02-CLIP, arXiv 2303.15389).
    norm: 'layer', or 'rms' without centring and bias (arXiv 1910.07467).
    pooling: also 'cls_average' for class token and average, concatenated
      (DINOv2, arXiv 2304.07193), or 'cls_registers' for the mean of class token
      and registers (Pixio).
    pool_prefix: whether class token and registers are averaged or attended as
      well.
    pool_heads: heads of attention pooling; 0 for `num_heads`.
    pool_mlp_dim: hidden units of attention pooling; 0 for `mlp_dim`.
    projection: width of a linear layer between the representation and the head;
      0 for none.
    cosine_head: whether the input of the head is scaled to length 1, so that
      logits are scaled cosines (CLIP, arXiv 2103.00020, section 3.1.2).
  """
  name: Literal['backbone'] = _switch('backbone')  # type: ignore[assignment]
  width: int = _switch(0)
  depth: int = _switch(0)
  mlp_dim: int = _switch(0)
  num_heads: int = _switch(0)
  num_kv_heads: int = _switch(0)
  patch: int | tuple[int, int] = _switch(0)
  backbone: resnet.StemConfig | None = _switch(None)
  cls: bool | None = _switch(None)
  distill_token: bool = _switch(False)  # type: ignore[misc]
  registers: int = _switch(0)
  position: _Position = _switch('learned')  # type: ignore[assignment]
  position_at: Literal['stem', 'shared'] = _switch('stem')
  position_mlp_dim: int = _switch(128)
  position_cls: bool = _switch(True)
  rotary: rotary_lib.RotaryConfig | None = _switch(None)
  stem_norm: Literal['none', 'patches', 'tokens'] = _switch('none')
  parallel: bool = _switch(False)
  paired: bool = _switch(False)
  post_norm: bool = _switch(False)
  qkv_bias: bool = _switch(True)
  key_bias: bool = _switch(True)
  proj_bias: bool = _switch(True)
  qk_norm: bool = _switch(False)
  differential: bool = _switch(False)
  layer_scale: float | None = _switch(None)
  layer_scale_mlp: bool = _switch(True)
  mlp: Literal['gelu', 'swiglu'] = _switch('gelu')
  gelu: Literal['tanh', 'exact', 'quick'] = _switch('tanh')  # type: ignore[assignment]
  inner_norm: Literal['none', 'mlp', 'both'] = _switch('none')
  norm: Literal['layer', 'rms'] = _switch('layer')
  layer_norm_epsilon: float = _switch(1e-6)
  final_norm: bool = _switch(True)
  pooling: _Pooling = _switch('cls')  # type: ignore[assignment]
  pool_norm: bool = _switch(False)
  pool_prefix: bool = _switch(False)
  pool_heads: int = _switch(0)
  pool_mlp_dim: int = _switch(0)
  projection: int = _switch(0)
  cosine_head: bool = _switch(False)

  position_params: ClassVar[tuple[str, ...]] = (
      'positions', 'positions_rows', 'positions_columns', 'offsets')

  def __post_init__(self):
    super().__post_init__()
    backbone_checks.check(self)

  @property
  def has_offset_bias(self) -> bool:
    """Whether `relative.RelativeBias` is added to attention logits."""
    return self.position in ('relative_2d', 'relative_mlp')

  @property
  def num_class_tokens(self) -> int:
    """Number of tokens that may have position embeddings before patches."""
    return int(self.has_cls) + self.distill_token

  num_prefix = property(lambda self: self.num_class_tokens + self.registers)
  output_width = property(lambda self: self.width * (
      1 + (self.pooling == 'cls_average')))
  takes_any_grid = property(lambda self: not self.has_offset_bias)
  takes_any_tokens = property(lambda self: (
      self.takes_any_grid and self.rotary is None))
  has_patches = property(lambda self: self.backbone is None)  # type: ignore[assignment]

  @property
  def num_prefix_offsets(self) -> int:
    """Number of biases of 'relative_2d' for the tokens before the patches.

    From them to patches, from patches to them, and among them (BEiT's code).
    """
    return 3 if self.num_prefix else 0

  @property
  def projections(self) -> dict[str, int]:
    """Number of heads by the letters of the projections in one array."""
    if self.num_kv_heads in (0, self.num_heads):
      return {'qkv': self.num_heads}
    return {'q': self.num_heads, 'kv': self.num_kv_heads}

  @property
  def branches(self) -> tuple[str, ...]:
    """Starts of the names of a layer's attentions and MLPs."""
    return ('', 'second_') if self.paired else ('',)

  def grid(self, image_shape: tuple[int, int]) -> tuple[int, int]:
    return super().grid(image_shape if self.backbone is None else (
        self.backbone.feature_map(image_shape)))

  def image_size(self, grid: tuple[int, int]) -> tuple[int, int]:
    stride = self.backbone.stride if self.backbone else 1
    height, width = super().image_size(grid)
    return height * stride, width * stride

  def build(
      self, *, grid: tuple[int, int] | None = None,
      patch: tuple[int, int] | None = None,
  ) -> nn.Module:
    """Returns the module.

    Args:
      grid: rows and columns of the positions, if images may have another size.
      patch: size of the patches, if it is not that of the patch filters.
    """
    # By name, since that module imports this one.
    module = registry.load('vit_jax.extras.zoo.backbone:Backbone')
    return module(self, grid, patch)

  def _resized(self, name: str, array: Any, **options: Any) -> Any:
    if name == 'offsets':
      return offsets.resize_offsets(
          array, old_grid=options['old_grid'], new_grid=options['new_grid'])
    if name != 'positions':
      return interpolation.resize_lines(name, array, **options)
    return super()._resized(name, array, **options)


def general(config: model_config.ModelConfig) -> Any:
  """Returns the record of any ViT as a `BackboneConfig`; others unchanged."""
  if not isinstance(config, vit.ViTConfig) or isinstance(
      config, BackboneConfig):
    return config
  return schema.parse(
      BackboneConfig, {**_section(config), 'name': 'backbone'}, where='model')


def simplest(config: model_config.ModelConfig) -> model_config.ModelConfig:
  """Returns the record of the simplest model with these settings."""
  if not isinstance(config, BackboneConfig):
    return config
  return factory.parse({**_section(config), 'name': 'vit'})


def _section(config: model_config.ModelConfig) -> Mapping[str, Any]:
  section = schema.to_plain(config)
  return {key: value for key, value in section.items() if key != 'axial'}
