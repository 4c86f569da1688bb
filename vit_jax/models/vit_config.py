"""Config of a Vision Transformer."""

import dataclasses
from typing import Literal

import jax.numpy as jnp

from vit_jax.models import architecture
from vit_jax.models import decoder_config
from vit_jax.models import resnet_config
from vit_jax.models import rotary as rotary_lib
from vit_jax.models import vit_checks

_switch, _ANY = architecture.switch, architecture.ANY
# Formats that can store any value of a switch.
_TIMM: architecture.Exported = {'timm': _ANY}
_NPZ_TIMM: architecture.Exported = {'npz': _ANY, 'timm': _ANY}

# Of position embeddings to another grid; see `embed.resize_positions`.
Interpolation = Literal[
    'linear', 'bilinear', 'bilinear_sharp', 'cubic', 'bicubic',
    'bicubic_offset', 'linear_square', 'bilinear_square',
    'bilinear_sharp_square', 'cubic_square', 'bicubic_square']
DIMENSIONS = vit_checks.DIMENSIONS


def grid_shape(
    image_shape: tuple[int, int], patch: tuple[int, int],
) -> tuple[int, int]:
  """Returns rows and columns of patches in an image (height, width).

  Raises:
    ValueError: if the image does not divide into patches.
  """
  if any(size % p or size == 0 for size, p in zip(image_shape, patch)):
    below = [size // p * p for size, p in zip(image_shape, patch)]
    above = [-(-size // p) * p or p for size, p in zip(image_shape, patch)]
    sizes = [f'{h}x{w}' for h, w in dict.fromkeys([tuple(below), tuple(above)])
             if h and w]
    raise ValueError(
        f'An image of {image_shape[0]}x{image_shape[1]} does not divide into '
        f'patches of {patch[0]}x{patch[1]}. Nearest sizes that do: '
        f'{" and ".join(sizes)}.')
  return image_shape[0] // patch[0], image_shape[1] // patch[1]


@dataclasses.dataclass(frozen=True)
class ViTConfig:
  """Section `model` of a config with `name: 'vit'`.

  Fields that change what the parameters compute are declared with
  `architecture.switch`.

  Attributes:
    name: 'vit'.
    variant: such as 'B/16', or a name of `backbones`; sets the dimensions that
      are 0, and settings that are not given.
    width: D, the length of a token.
    depth: L, the number of layers.
    mlp_dim: hidden units of the MLP.
    num_heads: attention heads; divides `width`.
    num_kv_heads: heads of keys and values; each serves a group of consecutive
      query heads (grouped-query attention, arXiv 2305.13245); 0 for
      `num_heads`.
    patch: side of a patch, or (height, width), in pixels; with a backbone, in
      positions of its feature map.
    backbone: convolutional network of a hybrid, whose feature map replaces the
      image.
    num_classes: outputs of the head; 0 uses the classes of the dataset.
    patch_sizes: patch sizes; each training step draws one and resizes the patch
      embedding, which is stored at size `patch` (FlexiViT, arXiv 2212.08013).
      Evaluation and logged FLOPs are for `patch`.

    cls: whether there is a class token; None adds one if `pooling` uses it.
    distill_token: second class token with a head of its own (DeiT, arXiv
      2012.12877), which learns from the teacher of the objective 'distill'.
      Logits and representation are the means of both.
    registers: number of learned tokens that no output uses, after class and
      distillation token (arXiv 2309.16588). They have no position embedding.
    position: position embedding (appendix D.4): 'learned' (1-D), 'none', '2d'
      (concatenated row and column embeddings), 'factorized' (their sums, arXiv
      2307.06304), 'sincos' (fixed 2-D sine-cosine, arXiv 2104.02057), or
      relative ones, added to attention logits: 'relative'
      (an embedding per distance in the sequence, times the queries),
      'relative_2d' (a learned bias per head and offset in rows and columns, as
      in BEiT, arXiv 2106.08254), or 'relative_mlp' (a bias that an MLP computes
      from that offset, arXiv 2111.09883).
    position_at: where position embeddings are added: to the 'stem', or to the
      input of every layer, either each layer's own ('layers') or 'shared' ones.
      Relative positions are each layer's own, unless the biases of rows and
      columns are 'shared'.
    position_mlp_dim: hidden units of the MLP of 'relative_mlp'.
    position_cls: whether class and distillation token have position embeddings.
    rotary: rotation of queries and keys by patch positions, in addition to
      `position`; None for none.
    stem_norm: 'patches' normalises the patch embeddings before positions are
      added (AIMv2, arXiv 2411.14402); 'tokens' normalises the input of the
      encoder, without a bias of the patch embedding (CLIP, arXiv 2103.00020).

    axial: each layer attends within rows, then within columns, each with an MLP
      (appendix D.6). Allows patch tokens only.
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
    mlp_bias: false for an MLP without biases, whatever `proj_bias` says.
    qk_norm: norm of queries and keys over `head_dim`, which bounds attention
      logits (arXiv 2302.05442, section 2.1).
    differential: whether each head subtracts one attention from another, of
      half the channels (Differential Transformer, arXiv 2410.05258).
    layer_scale: initial value of the factor per channel of each residual branch
      (arXiv 2103.17239); None for no factors.
    layer_scale_mlp: false for factors of the attention only (Sapiens2, arXiv
      2604.21681).
    mlp: 'gelu', or 'swiglu' with a gate (arXiv 2002.05202).
    gelu: 'tanh' approximation as in the paper's code, 'exact' as in PyTorch, or
      the 'quick' approximation of CLIP.
    inner_norm: norm of the hidden units of the 'mlp', or of 'both' these and
      the attended values before their output projection (EVA-02, arXiv
      2303.11331, section 2.1; EVA-02-CLIP, arXiv 2303.15389).
    norm: 'layer', or 'rms' without centring and bias (arXiv 1910.07467).
    layer_norm_epsilon: added to the variance.
    final_norm: norm after the last layer (equation 4).

    pooling: 'cls' token, 'average' of patch tokens, 'cls_average' for both,
      concatenated (DINOv2, arXiv 2304.07193), 'cls_registers' for the mean of
      class token and registers (Pixio), or 'attention' (MAP head, arXiv
      2106.04560).
    merge: side of blocks of patches whose tokens are concatenated, padded with
      zeros, and projected by an MLP before pooling (Qwen2-VL, arXiv 2409.12191,
      section 2.1); 0 for none.
    merge_mlp_dim: hidden units of that MLP.
    merge_dim: width of its outputs.
    pool_norm: norm after pooling (timm's `fc_norm`).
    pool_norm_affine: whether `pool_norm` has parameters.
    pool_prefix: whether class token and registers are averaged or attended as
      well.
    pool_heads: heads of attention pooling; 0 for `num_heads`.
    pool_mlp_dim: hidden units of attention pooling; 0 for `mlp_dim`.
    representation_layer: dense tanh layer before the head, for pre-training
      (section 3.1) but not for fine-tuning.
    projection: width of a linear layer between the representation and the head;
      0 for none.
    cosine_head: whether the input of the head is scaled to length 1, so that
      logits are scaled cosines (CLIP, arXiv 2103.00020, section 3.1.2).
    head_bias: initial bias of the head; -10 gives a low initial sigmoid loss
      with many classes. The kernel of the head starts at zero.

    decoder: decoder of a segmentation model, whose logits are those of pixels,
      not of the image; None for none. It is the head of the model.

    dropout: after dense layers except the qkv projections, and after adding
      position embeddings (appendix B.1, table 3).
    attention_dropout: dropout rate of attention weights.
    stochastic_depth: rate at the last layer, increasing linearly from 0.

    dtype: type of activations and matrix products, including attention logits.
      Parameters, norm statistics, softmax, head and loss are always float32.
      'auto' is bfloat16 on TPUs and GPUs, and float32, which is faster there,
      on CPUs; the run keeps the dtype it starts with.
    attention: 'plain', or a fused kernel (arXiv 2205.14135), which keeps no
      attention weights in memory: 'cudnn' for bfloat16 on GPUs, 'splash' on
      TPUs; 'auto' is 'splash' on TPUs from 512 tokens. 'plain' is used
      anyway on other devices, when weights are captured, with attention
      dropout, with relative positions and with `differential`.
    remat: intermediates that the backward pass recomputes: 'none'; 'attention'
      weights, norms, GELU and dropout, about 0.5 % of the operations; 'dots'
      (all except matrix products with parameters); or 'full', about 22 %. See
      docs/performance.md.
    unroll: layers per scan iteration; `depth` unrolls all.
  """
  name: Literal['vit'] = _switch('vit', exported=_ANY)
  variant: str = ''
  width: int = _switch(0, exported=_ANY)
  depth: int = _switch(0, exported=_ANY)
  mlp_dim: int = _switch(0, exported=_ANY)
  num_heads: int = _switch(0, exported=_ANY)
  num_kv_heads: int = _switch(0)
  patch: int | tuple[int, int] = _switch(0, exported=_ANY)
  backbone: resnet_config.BackboneConfig | None = _switch(
      None, exported=_NPZ_TIMM)
  num_classes: int = 0
  patch_sizes: tuple[int, ...] = ()
  cls: bool | None = _switch(None, exported=_ANY)
  distill_token: bool = _switch(False, exported=_TIMM)
  registers: int = _switch(0, exported=_TIMM)
  position: Literal[
      'learned', 'none', '2d', 'factorized', 'sincos', 'relative',
      'relative_2d', 'relative_mlp'] = _switch('learned', exported={
          'npz': ('none',), 'timm': (
              'none', 'factorized', 'relative_2d', 'relative_mlp')})
  position_at: Literal['stem', 'layers', 'shared'] = _switch('stem')
  position_mlp_dim: int = _switch(128, exported=_TIMM)
  position_cls: bool = _switch(True, exported=_NPZ_TIMM)
  rotary: rotary_lib.RotaryConfig | None = _switch(None, exported=_TIMM)
  stem_norm: Literal['none', 'patches', 'tokens'] = _switch(
      'none', exported=_TIMM)
  axial: bool = _switch(False)
  parallel: bool = _switch(False, exported=_TIMM)
  paired: bool = _switch(False, exported=_TIMM)
  post_norm: bool = _switch(False, exported=_TIMM)
  qkv_bias: bool = _switch(True, exported=_ANY)
  key_bias: bool = _switch(True, exported=_TIMM)
  proj_bias: bool = _switch(True, exported=_TIMM)
  mlp_bias: bool = _switch(True, exported=_TIMM)
  qk_norm: bool = _switch(False, exported=_TIMM)
  differential: bool = _switch(False, exported=_TIMM)
  layer_scale: float | None = _switch(None, exported=_TIMM)
  layer_scale_mlp: bool = _switch(True, exported=_TIMM)
  mlp: Literal['gelu', 'swiglu'] = _switch('gelu', exported=_TIMM)
  gelu: Literal['tanh', 'exact', 'quick'] = _switch('tanh', exported=_ANY)
  inner_norm: Literal['none', 'mlp', 'both'] = _switch('none', exported=_TIMM)
  norm: Literal['layer', 'rms'] = _switch('layer', exported=_TIMM)
  layer_norm_epsilon: float = _switch(1e-6, exported=_ANY)
  final_norm: bool = _switch(True, exported=_NPZ_TIMM)
  pooling: Literal[
      'cls', 'average', 'cls_average', 'cls_registers', 'attention'] = _switch(
          'cls', exported={'npz': ('average', 'attention'),
                           'timm': ('average', 'attention')})
  merge: int = _switch(0, exported=_TIMM)
  merge_mlp_dim: int = _switch(0, exported=_TIMM)
  merge_dim: int = _switch(0, exported=_TIMM)
  pool_norm: bool = _switch(False, exported=_TIMM)
  pool_norm_affine: bool = _switch(True, exported=_TIMM)
  pool_prefix: bool = _switch(False, exported=_TIMM)
  pool_heads: int = _switch(0, exported=_TIMM)
  pool_mlp_dim: int = _switch(0, exported=_TIMM)
  representation_layer: bool = False
  projection: int = _switch(0)
  cosine_head: bool = _switch(False)
  head_bias: float = 0.0
  decoder: decoder_config.DecoderConfig | None = _switch(None)
  dropout: float = 0.0
  attention_dropout: float = 0.0
  stochastic_depth: float = 0.0
  dtype: Literal['auto', 'float32', 'bfloat16'] = 'float32'
  attention: Literal['plain', 'cudnn', 'splash', 'auto'] = 'plain'
  remat: Literal['none', 'attention', 'dots', 'full'] = 'attention'
  unroll: int = 1

  def __post_init__(self):
    vit_checks.check(self)

  @property
  def has_offset_bias(self) -> bool:
    """Whether `relative.RelativeBias` is added to attention logits."""
    return self.position in ('relative_2d', 'relative_mlp')

  @property
  def rotates_cls(self) -> bool:
    """Whether all layers rotate the class token by the same learned angles."""
    return self.rotary is not None and self.rotary.cls

  @property
  def has_cls(self) -> bool:
    """Whether there is a class token."""
    return self.pooling.startswith('cls') if self.cls is None else self.cls

  @property
  def num_class_tokens(self) -> int:
    """Number of tokens that may have position embeddings before patches."""
    return int(self.has_cls) + self.distill_token

  @property
  def num_prefix(self) -> int:
    """Number of tokens before the patch tokens."""
    return self.num_class_tokens + self.registers

  @property
  def num_prefix_offsets(self) -> int:
    """Number of biases of 'relative_2d' for the tokens before the patches.

    From them to patches, from patches to them, and among them (BEiT's code).
    """
    return 3 if self.num_prefix else 0

  @property
  def patch_shape(self) -> tuple[int, int]:
    """Height and width of a patch, in pixels."""
    return (self.patch, self.patch) if isinstance(self.patch, int) else (
        self.patch)

  @property
  def head_dim(self) -> int:
    """Width of a head."""
    return self.width // self.num_heads

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

  @property
  def compute_dtype(self) -> jnp.dtype:
    """`dtype` as a JAX dtype."""
    return jnp.dtype(self.dtype)

  def check_complete(self) -> None:
    """Raises a ValueError if a dimension is missing."""
    missing = [name for name in DIMENSIONS if not getattr(self, name)]
    if missing:
      raise ValueError(
          f'The model has neither a variant nor {", ".join(missing)}. Set '
          'model.variant to e.g. "B/16", or each dimension, or start from a '
          'checkpoint: --config.init.checkpoint=RUN.')

  def grid(self, image_shape: tuple[int, int]) -> tuple[int, int]:
    """Returns the rows and columns of patch tokens of an image.

    Raises a ValueError if the image (height, width) does not divide.
    """
    if self.backbone is not None:
      image_shape = self.backbone.feature_map(image_shape)
    return grid_shape(image_shape, self.patch_shape)

  @property
  def num_layers(self) -> int:
    """Number of layers whose intermediates can be captured."""
    return self.depth

  @property
  def output_width(self) -> int:
    """Width of the representation."""
    return self.merge_dim or self.width * (
        1 + (self.pooling == 'cls_average'))

  def describe(self) -> str:
    """Returns the variant, or the dimensions."""
    return self.variant or ', '.join(
        f'{name} {getattr(self, name)}' for name in DIMENSIONS)

  def without_fused_kernels(self, platform: str = '') -> 'ViTConfig':
    """Returns the config without the kernels of other platforms."""
    kernels = {'gpu': ('cudnn',), 'tpu': ('splash', 'auto')}.get(platform, ())
    return self if self.attention in kernels else dataclasses.replace(
        self, attention='plain')
