"""Parameter names of weight families, as tables; our names are on the left."""

from collections.abc import Mapping
import dataclasses

from vit_jax.extras.zoo.families.layout import Row
from vit_jax.extras.zoo.families.layout import Table

LAYERS = 'encoder/layers'
# Relative biases of each layer and of all layers.
RELATIVE = f'{LAYERS}/attention/relative'
SHARED_RELATIVE = 'relative'

# Layouts of single arrays. Arrays of layers have the axis l, and separate
# queries, keys and values the axis n.
_LAYOUTS: Mapping[str, str] = {
    'array': '',
    'tokens': '1 n d -> n d',
    'vector': 'd -> 1 d',
    'grid': '1 rows w d -> (rows w) d',
    'matrix': 'o i -> i o',
    'conv_kernel': 'o i h w -> h w i o',
    'conv_kernels': 'l o i h w -> l h w i o',
    'jax_kernel': 'h w i o -> h w i o',  # Checks the number of axes.
    'heads_kernel': 'n l d h e -> l d n h e',
    'heads_bias': 'n l h e -> l n h e',
    'qkv_kernel': 'n l (heads e) d -> l d n heads e',
    'qkv_bias': 'n l (heads e) -> l n heads e',
    'fused_kernel': 'l (parts heads e) d -> l d parts heads e',
    'fused_bias': 'l (parts heads e) -> l parts heads e',
    'lambdas': 'n l e -> l n e',  # Of differential attention.
    # Queries, keys and values of attention pooling.
    'pool_kernel': '(pool_heads e) d -> d pool_heads e',
    'pool_bias': '(pool_heads e) -> pool_heads e',
    'pools_kernel': '(parts pool_heads e) d -> parts d pool_heads e',
    'pools_bias': '(parts pool_heads e) -> parts pool_heads e'}
# Layouts of kernels of modules, which also have a bias.
_KERNELS: Mapping[str, str] = {
    'conv': 'o i h w -> h w i o',
    'flat': 'o (side w channels) -> side w channels o',
    'dense': 'o i -> i o',
    'denses': 'l o i -> l i o',
    'out': 'l d (heads e) -> l heads e d',
    'jax': '',
    'jax_conv': 'h w i o -> h w i o',
    'jax_dense': 'i o -> i o',
    'jax_layers': 'l i o -> l i o',
    'pool_out': 'd (pool_heads e) -> pool_heads e d'}


# Ends of their names of a kernel or scale, and of a bias.
_TORCH = {'kernel': '.weight', 'scale': '.weight', 'bias': '.bias'}
_JAX = {'kernel': '/kernel', 'scale': '/scale', 'bias': '/bias'}


def rows(
    text: str, layer: str = '', model: str = '', *,
    ends: Mapping[str, str] = _TORCH,
) -> tuple[Row, ...]:
  """Returns the rows of a table of names.

  Each line has our name, theirs, and a layout: a key of `_LAYOUTS` ('array' if
  left out), of `_KERNELS` for a kernel and its bias, or 'norm' for a scale and
  its bias.

  Args:
    text: the lines. `@` stands for the start of the names of layers.
    layer: that start in their names.
    model: start of those of their names that begin with a dot or slash.
    ends: ends of their names of a kernel, scale and bias.
  """
  result: list[Row] = []
  for line in filter(str.strip, text.splitlines()):
    ours, theirs, kind, *_ = (*line.split(), 'array')
    ours = ours.replace('@', f'{LAYERS}/')
    theirs = (model + theirs if theirs[0] in './' else theirs).replace(
        '@', layer)
    if kind in _LAYOUTS:
      result.append(Row(ours, theirs, _LAYOUTS[kind]))
      continue
    end, kernel = ('scale', '') if kind == 'norm' else (
        'kernel', _KERNELS[kind])
    result += [
        Row(f'{ours}/{end}', theirs + ends[end], kernel),
        Row(f'{ours}/bias', theirs + ends['bias'])]
  return tuple(result)


# ------------------------------------------- the published JAX format (.npz)

_ATTENTION = """
    @attention/qkv_kernel @ATTENTION/{query|key|value}/kernel  heads_kernel
    @attention/qkv_bias   @ATTENTION/{query|key|value}/bias    heads_bias
    @attention/out        @ATTENTION/out         jax
    @attention_norm       @LayerNorm_0           norm
    @mlp_norm             @LayerNorm_1           norm
    """.replace('ATTENTION', 'MultiHeadDotProductAttention_0')
_MLP = """
    @mlp/hidden           @MlpBlock_0/Dense_0    jax_layers
    @mlp/out              @MlpBlock_0/Dense_1    jax
    """


def _backbone(ours: str, unit: str) -> tuple[Row, ...]:
  return tuple(row for end in ('1', '2', '3', '_proj') for row in rows(f"""
      backbone/block{{stage}}/{ours}/conv{end}/kernel  /conv{end}/kernel
      backbone/block{{stage}}/{ours}/norm{end}         /gn{end}  norm
      """, model=f'block{{stage}}/unit{unit}', ends=_JAX))


_ENCODER = 'Transformer/encoderblock'
NPZ = Table('npz', rows=(
    *rows(_ATTENTION + _MLP + """
    patches             embedding            jax_conv
    cls                 cls                  tokens
    positions           Transformer/posembed_input/pos_embedding  tokens
    final_norm          Transformer/encoder_norm  norm
    pooling/probe       /probe               tokens
    pooling/query       /MultiHeadDotProductAttention_0/query     jax
    pooling/key         /MultiHeadDotProductAttention_0/key       jax
    pooling/value       /MultiHeadDotProductAttention_0/value     jax
    pooling/out         /MultiHeadDotProductAttention_0/out       jax
    pooling/mlp_norm    /LayerNorm_0         norm
    pooling/mlp/hidden  /MlpBlock_0/Dense_0  jax
    pooling/mlp/out     /MlpBlock_0/Dense_1  jax
    representation/dense  pre_logits         jax
    head/dense          head                 jax_dense
    backbone/root_norm  gn_root              norm
    backbone/root/kernel  conv_root/kernel   jax_kernel
    """, f'{_ENCODER}_{{layer}}/', 'MAPHead_0', ends=_JAX),
    # big_vision's scanned encoder has one array for all layers.
    *(dataclasses.replace(row, read_only=True) for row in rows(
        _ATTENTION + _MLP, f'{_ENCODER}/', ends=_JAX)),
    *_backbone('unit1', '1'),
    *_backbone('units', '{unit+2}')),
    renames={
        '^pos_embedding$': 'Transformer/posembed_input/pos_embedding',
        # Flax numbers the modules of a block by type; before 2021 it numbered
        # all of them together.
        r'(encoderblock.*/)MultiHeadDotProductAttention_1': (
            r'\1MultiHeadDotProductAttention_0'),
        r'(encoderblock.*/)LayerNorm_2': r'\1LayerNorm_1',
        r'(encoderblock.*/)MlpBlock_3': r'\1MlpBlock_0'})


# big_vision's ResNet v1 is the backbone of the hybrids with a head.
RESNET_NPZ = Table('resnet', rows=tuple(
    row for row in NPZ.rows if row.ours.startswith(('backbone/', 'head/'))))


# ---------------------------------------------------------------- BiT (.npz)

_STANDARDIZED = 'standardized_conv2d/kernel'


def _unit_bit(ours: str, unit: str) -> tuple[Row, ...]:
  path = f'backbone/block{{stage}}/{ours}'
  return rows(''.join(f"""
      {path}/conv{i}/kernel  /{letter}/{_STANDARDIZED}
      {path}/norm{i}         /{letter}/group_norm  norm
      """ for i, letter in enumerate('abc', 1)) + f"""
      {path}/conv_proj/kernel  /a/proj/{_STANDARDIZED}
      """, model=f'block{{stage}}/unit{unit}',
      ends={'scale': '/gamma', 'bias': '/beta'})


BIT_NPZ = Table('bit', rows=(
    *rows(f"""
    backbone/root/kernel  root_block/{_STANDARDIZED}  jax_kernel
    final_norm/scale      group_norm/gamma
    final_norm/bias       group_norm/beta
    head/dense/bias       head/conv2d/bias
    """),
    Row('head/dense/kernel', 'head/conv2d/kernel', '1 1 i o -> i o'),
    *_unit_bit('unit1', '01'),
    *_unit_bit('units', '{unit+2:02}')),
    renames={'^root_block/conv_root/': 'root_block/standardized_conv2d/'},
    unsupported={r'block\d+/unit\d+/(conv|gn).*|norm-pre-head/.*|head/\w+': (
        "big_vision's bit_paper, which pads the first pooling differently; "
        'our models lack that')})


# ------------------------ "Implementing Vision Transformer from scratch" (.pt)

SCRATCH = Table('scratch', rows("""
    patches         embedding.patch_embeddings.projection     conv
    cls             embedding.cls_token                       tokens
    positions       embedding.position_embeddings             tokens
    @attention/qkv_kernel  @attention.qkv_projection.weight   fused_kernel
    @attention/qkv_bias    @attention.qkv_projection.bias     fused_bias
    @attention/out  @attention.output_projection              out
    @attention_norm @layernorm_1                              norm
    @mlp_norm       @layernorm_2                              norm
    @mlp/hidden     @mlp.dense_1                              denses
    @mlp/out        @mlp.dense_2                              denses
    head/dense      classifier                                dense
    """, layer='encoder.blocks.{layer}.'))
