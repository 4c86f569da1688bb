"""Names of the arrays in published .npz files; our names are on the left.

The files of the paper's code, AugReg and big_vision, and of BiT.
"""

from collections.abc import Mapping
import dataclasses
from typing import Any

from vit_jax.models import variants
from vit_jax.weights.formats.layout import Row
from vit_jax.weights.formats.layout import Table

LAYERS = 'encoder/layers'

# Layouts of single arrays. Arrays of layers have the axis l, and separate
# queries, keys and values the axis n.
LAYOUTS: Mapping[str, str] = {
    'array': '',
    'tokens': '1 n d -> n d',
    'jax_kernel': 'h w i o -> h w i o',  # Checks the number of axes.
    'heads_kernel': 'n l d h e -> l d n h e',
    'heads_bias': 'n l h e -> l n h e'}
# Layouts of kernels of modules, which also have a bias.
KERNELS: Mapping[str, str] = {
    'jax': '',
    'jax_conv': 'h w i o -> h w i o',
    'jax_dense': 'i o -> i o',
    'jax_layers': 'l i o -> l i o'}
# Ends of their names of a kernel or scale, and of a bias.
JAX = {'kernel': '/kernel', 'scale': '/scale', 'bias': '/bias'}


def rows(
    text: str, layer: str = '', model: str = '', *,
    ends: Mapping[str, str] = JAX, layouts: Mapping[str, str] = LAYOUTS,
    kernels: Mapping[str, str] = KERNELS,
) -> tuple[Row, ...]:
  """Returns the rows of a table of names.

  Each line has our name, theirs, and a layout: a key of `layouts` ('array' if
  left out), of `kernels` for a kernel and its bias, or 'norm' for a scale and
  its bias.

  Args:
    text: the lines. `@` stands for the start of the names of layers.
    layer: that start in their names.
    model: start of those of their names that begin with a dot or slash.
    ends: ends of their names of a kernel, scale and bias.
    layouts: layouts of single arrays.
    kernels: layouts of kernels.
  """
  result: list[Row] = []
  for line in filter(str.strip, text.splitlines()):
    ours, theirs, kind, *_ = (*line.split(), 'array')
    ours = ours.replace('@', f'{LAYERS}/')
    theirs = (model + theirs if theirs[0] in './' else theirs).replace(
        '@', layer)
    if kind in layouts:
      result.append(Row(ours, theirs, layouts[kind]))
      continue
    end, kernel = ('scale', '') if kind == 'norm' else ('kernel', kernels[kind])
    result += [
        Row(f'{ours}/{end}', theirs + ends[end], kernel),
        Row(f'{ours}/bias', theirs + ends['bias'])]
  return tuple(result)


ATTENTION = """
    @attention/qkv_kernel @ATTENTION/{query|key|value}/kernel  heads_kernel
    @attention/qkv_bias   @ATTENTION/{query|key|value}/bias    heads_bias
    @attention/out        @ATTENTION/out         jax
    @attention_norm       @LayerNorm_0           norm
    @mlp_norm             @LayerNorm_1           norm
    """.replace('ATTENTION', 'MultiHeadDotProductAttention_0')
MLP = """
    @mlp/hidden           @MlpBlock_0/Dense_0    jax_layers
    @mlp/out              @MlpBlock_0/Dense_1    jax
    """


def _backbone(ours: str, unit: str) -> tuple[Row, ...]:
  return tuple(row for end in ('1', '2', '3', '_proj') for row in rows(f"""
      backbone/block{{stage}}/{ours}/conv{end}/kernel  /conv{end}/kernel
      backbone/block{{stage}}/{ours}/norm{end}         /gn{end}  norm
      """, model=f'block{{stage}}/unit{unit}'))


_ENCODER = 'Transformer/encoderblock'
NPZ = Table('npz', rows=(
    *rows(ATTENTION + MLP + """
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
    """, f'{_ENCODER}_{{layer}}/', 'MAPHead_0'),
    # big_vision's scanned encoder has one array for all layers.
    *(dataclasses.replace(row, read_only=True) for row in rows(
        ATTENTION + MLP, f'{_ENCODER}/')),
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

# ------------------------------------------------------------------- families


@dataclasses.dataclass(frozen=True)
class Family:
  """Published files with the same names.

  Attributes:
    name: name in the `kind` of weights.
    label: name in messages.
    table: names of the arrays for our parameters.
    prefix: prefix of every parameter name in files that we write.
    settings: keys of the section `model` that names and shapes do not
      determine.
    backbone: such keys of the section `model.backbone`.
  """
  name: str
  label: str
  table: Table
  prefix: str = ''
  settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)
  backbone: Mapping[str, Any] = dataclasses.field(default_factory=dict)


_RESNET = {'name': 'resnet'}
FAMILIES: tuple[Family, ...] = (
    Family('resnet', "big_vision's ResNet", RESNET_NPZ, settings=_RESNET),
    Family('npz', 'published JAX ViT', NPZ, settings={
        'gelu': 'tanh', 'layer_norm_epsilon': 1e-6}),
    Family('bit', 'published BiT', BIT_NPZ, prefix='resnet/', settings=_RESNET,
           backbone=variants.BIT))
