"""Parameter names of weight families, as tables; our names are on the left."""

import dataclasses
from typing import Any

from vit_jax.weights.families.layout import Row
from vit_jax.weights.families.layout import Table


def both(
    ours: str, theirs: str, *, kernel: str = '', bias: str = '',
    suffixes: tuple[str, str] = ('kernel', 'bias'), read_only: bool = False,
    our_suffixes: tuple[str, str] = ('kernel', 'bias'),
) -> tuple[Row, Row]:
  """Rows of a kernel (or scale) and its bias, whose names end in `suffixes`."""
  separator = '.' if '.' in theirs or suffixes[0] == 'weight' else '/'
  return tuple(  # type: ignore[return-value]
      Row(f'{ours}/{our}', f'{theirs}{separator}{their}', pattern, read_only)
      for our, their, pattern in zip(our_suffixes, suffixes, (kernel, bias)))


def norm(ours: str, theirs: str, **options: Any) -> tuple[Row, Row]:
  return both(ours, theirs, our_suffixes=('scale', 'bias'), **options)


LAYERS = 'encoder/layers'
# Relative biases of each layer and of all layers.
RELATIVE = f'{LAYERS}/attention/relative'
SHARED_RELATIVE = 'relative'
WEIGHT: dict[str, Any] = {'suffixes': ('weight', 'bias')}
DENSE: dict[str, Any] = {**WEIGHT, 'kernel': 'o i -> i o'}
DENSES: dict[str, Any] = {**WEIGHT, 'kernel': 'l o i -> l i o'}
OUT: dict[str, Any] = {**WEIGHT, 'kernel': 'l d (heads e) -> l heads e d'}
CONV = 'o i h w -> h w i o'
CONVS = 'l o i h w -> l h w i o'


# ------------------------------------------- the published JAX format (.npz)

_SCALE: dict[str, Any] = {'suffixes': ('scale', 'bias')}


def _npz_layers(theirs: str) -> tuple[Row, ...]:
  attention = f'{theirs}/MultiHeadDotProductAttention_0'
  return (
      Row(f'{LAYERS}/attention/qkv_kernel',
          f'{attention}/{{query|key|value}}/kernel', 'n l d h e -> l d n h e'),
      Row(f'{LAYERS}/attention/qkv_bias',
          f'{attention}/{{query|key|value}}/bias', 'n l h e -> l n h e'),
      *both(f'{LAYERS}/attention/out', f'{attention}/out'),
      *norm(f'{LAYERS}/attention_norm', f'{theirs}/LayerNorm_0', **_SCALE),
      *norm(f'{LAYERS}/mlp_norm', f'{theirs}/LayerNorm_1', **_SCALE),
      *both(f'{LAYERS}/mlp/hidden', f'{theirs}/MlpBlock_0/Dense_0',
            kernel='l i o -> l i o'),
      *both(f'{LAYERS}/mlp/out', f'{theirs}/MlpBlock_0/Dense_1'))


def _backbone_npz(ours: str, unit: str) -> tuple[Row, ...]:
  theirs = f'block{{stage}}/unit{unit}'
  path = f'backbone/block{{stage}}/{ours}'
  convolutions = [Row(f'{path}/{name}/kernel', f'{theirs}/{name}/kernel')
                  for name in ('conv1', 'conv2', 'conv3', 'conv_proj')]
  norms = [row for name in ('1', '2', '3', '_proj') for row in norm(
      f'{path}/norm{name}', f'{theirs}/gn{name}', **_SCALE)]
  return (*convolutions, *norms)


NPZ = Table('npz', rows=(
    *both('patches', 'embedding', kernel='h w i o -> h w i o'),
    Row('cls', 'cls', '1 n d -> n d'),
    Row('positions', 'Transformer/posembed_input/pos_embedding',
        '1 n d -> n d'),
    *_npz_layers('Transformer/encoderblock_{layer}'),
    # big_vision's scanned encoder has one array for all layers.
    *(dataclasses.replace(row, read_only=True)
      for row in _npz_layers('Transformer/encoderblock')),
    *norm('final_norm', 'Transformer/encoder_norm', **_SCALE),
    Row('pooling/probe', 'MAPHead_0/probe', '1 n d -> n d'),
    *(row for name in ('query', 'key', 'value', 'out') for row in both(
        f'pooling/{name}',
        f'MAPHead_0/MultiHeadDotProductAttention_0/{name}')),
    *norm('pooling/mlp_norm', 'MAPHead_0/LayerNorm_0', **_SCALE),
    *both('pooling/mlp/hidden', 'MAPHead_0/MlpBlock_0/Dense_0'),
    *both('pooling/mlp/out', 'MAPHead_0/MlpBlock_0/Dense_1'),
    *both('representation/dense', 'pre_logits'),
    *both('head/dense', 'head', kernel='i o -> i o'),
    Row('backbone/root/kernel', 'conv_root/kernel', 'h w i o -> h w i o'),
    *norm('backbone/root_norm', 'gn_root', **_SCALE),
    *_backbone_npz('unit1', '1'),
    *_backbone_npz('units', '{unit+2}')),
    renames={
        '^pos_embedding$': 'Transformer/posembed_input/pos_embedding',
        # Flax numbers the modules of a block by type; before 2021 it numbered
        # all of them together.
        r'(encoderblock.*/)MultiHeadDotProductAttention_1': (
            r'\1MultiHeadDotProductAttention_0'),
        r'(encoderblock.*/)LayerNorm_2': r'\1LayerNorm_1',
        r'(encoderblock.*/)MlpBlock_3': r'\1MlpBlock_0'})


# TIPS in Scenic. Its second class token becomes a register (`split_pairs`).
_TIPS_BLOCK = 'transformer/encoderblock_{layer}'
TIPS = Table('tips', rows=(
    *both('patches', 'ToTokenSequence_0/embedding',
          kernel='h w i o -> h w i o'),
    Row('cls', 'ToTokenSequence_0/cls', '1 n d -> n d'),
    Row('positions', 'ToTokenSequence_0/posembed_input',
        '1 rows w d -> (rows w) d'),
    *_npz_layers(_TIPS_BLOCK),
    *(row for i, ours in enumerate(('gate', 'hidden', 'out')) for row in both(
        f'{LAYERS}/mlp/{ours}', f'{_TIPS_BLOCK}/FFNSwiGluFused_0/Dense_{i}')),
    *norm('final_norm', 'encoder_norm', **_SCALE)))


# big_vision's ResNet v1 is the backbone of the hybrids with a head.
RESNET_NPZ = Table('resnet', rows=tuple(
    row for row in NPZ.rows if row.ours.startswith(('backbone/', 'head/'))))


# ---------------------------------------------------------------- BiT (.npz)

_GAMMA: dict[str, Any] = {'suffixes': ('gamma', 'beta')}
_STANDARDIZED = 'standardized_conv2d/kernel'


def _unit_bit(ours: str, unit: str) -> tuple[Row, ...]:
  theirs = f'block{{stage}}/unit{unit}'
  path = f'backbone/block{{stage}}/{ours}'
  return (
      *(Row(f'{path}/conv{i}/kernel', f'{theirs}/{letter}/{_STANDARDIZED}')
        for i, letter in enumerate('abc', 1)),
      *(row for i, letter in enumerate('abc', 1) for row in norm(
          f'{path}/norm{i}', f'{theirs}/{letter}/group_norm', **_GAMMA)),
      Row(f'{path}/conv_proj/kernel', f'{theirs}/a/proj/{_STANDARDIZED}'))


BIT_NPZ = Table('bit', rows=(
    Row('backbone/root/kernel', f'root_block/{_STANDARDIZED}',
        'h w i o -> h w i o'),
    *_unit_bit('unit1', '01'),
    *_unit_bit('units', '{unit+2:02}'),
    *norm('final_norm', 'group_norm', **_GAMMA),
    *both('head/dense', 'head/conv2d', kernel='1 1 i o -> i o')),
    renames={'^root_block/conv_root/': 'root_block/standardized_conv2d/'},
    unsupported={r'block\d+/unit\d+/(conv|gn).*|norm-pre-head/.*|head/\w+': (
        "big_vision's bit_paper, which pads the first pooling differently; "
        'our models lack that')})


# ------------------------ "Implementing Vision Transformer from scratch" (.pt)

_SCRATCH_BLOCK = 'encoder.blocks.{layer}'

SCRATCH = Table('scratch', rows=(
    *both('patches', 'embedding.patch_embeddings.projection', kernel=CONV,
          **WEIGHT),
    Row('cls', 'embedding.cls_token', '1 n d -> n d'),
    Row('positions', 'embedding.position_embeddings', '1 n d -> n d'),
    Row(f'{LAYERS}/attention/qkv_kernel',
        f'{_SCRATCH_BLOCK}.attention.qkv_projection.weight',
        'l (parts heads e) d -> l d parts heads e'),
    Row(f'{LAYERS}/attention/qkv_bias',
        f'{_SCRATCH_BLOCK}.attention.qkv_projection.bias',
        'l (parts heads e) -> l parts heads e'),
    *both(f'{LAYERS}/attention/out',
          f'{_SCRATCH_BLOCK}.attention.output_projection', **OUT),
    *norm(f'{LAYERS}/attention_norm', f'{_SCRATCH_BLOCK}.layernorm_1',
          **WEIGHT),
    *norm(f'{LAYERS}/mlp_norm', f'{_SCRATCH_BLOCK}.layernorm_2', **WEIGHT),
    *both(f'{LAYERS}/mlp/hidden', f'{_SCRATCH_BLOCK}.mlp.dense_1', **DENSES),
    *both(f'{LAYERS}/mlp/out', f'{_SCRATCH_BLOCK}.mlp.dense_2', **DENSES),
    *both('head/dense', 'classifier', **DENSE)))
