"""Parameter names of timm's models, and of others with its names."""

import dataclasses
import re

from vit_jax.weights.families.layout import Row
from vit_jax.weights.families.layout import Table
from vit_jax.weights.families.names import both
from vit_jax.weights.families.names import CONV
from vit_jax.weights.families.names import CONVS
from vit_jax.weights.families.names import DENSE
from vit_jax.weights.families.names import DENSES
from vit_jax.weights.families.names import LAYERS
from vit_jax.weights.families.names import norm
from vit_jax.weights.families.names import OUT
from vit_jax.weights.families.names import RELATIVE
from vit_jax.weights.families.names import SHARED_RELATIVE
from vit_jax.weights.families.names import WEIGHT


def _backbone_timm(
    prefix: str, ours: str, block: str, convolution: str,
) -> tuple[Row, ...]:
  theirs = f'{prefix}stages.{{stage-1}}.blocks.{block}'
  path = f'backbone/block{{stage}}/{ours}'
  names = {'1': '{}1', '2': '{}2', '3': '{}3', '_proj': 'downsample.{}'}
  return (
      *(Row(f'{path}/conv{end}/kernel',
            f'{theirs}.{name.format("conv")}.weight', convolution)
        for end, name in names.items()),
      *(row for end, name in names.items() for row in norm(
          f'{path}/norm{end}', f'{theirs}.{name.format("norm")}', **WEIGHT)))


def _difference(prefix: str) -> tuple[Row, Row]:
  """Rows of differential attention."""
  ours = f'{LAYERS}/attention/difference'
  return (Row(f'{ours}/lambdas', prefix + 'lambda_{q1|k1|q2|k2}',
              'n l e -> l n e'),
          Row(f'{ours}/norm/scale', f'{prefix}sub_norm.weight'))


_TIMM_BACKBONE = 'patch_embed.backbone.'
_TABLE = 'relative_position_bias_table'

TIMM = Table('timm', rows=(
    *both('patches', 'patch_embed.proj', kernel=CONV, **WEIGHT),
    Row('cls', 'cls_token', '1 n d -> n d'),
    Row('distill', 'dist_token', '1 n d -> n d'),
    Row('registers', 'reg_token', '1 n d -> n d'),
    Row('positions', 'pos_embed', '1 n d -> n d'),
    Row(f'{LAYERS}/attention/qkv_kernel', 'blocks.{layer}.attn.qkv.weight',
        'l (parts heads e) d -> l d parts heads e'),
    Row(f'{LAYERS}/attention/qkv_bias', 'blocks.{layer}.attn.qkv.bias',
        'l (parts heads e) -> l parts heads e'),
    Row(f'{LAYERS}/attention/qv_bias', 'blocks.{layer}.attn.{q|v}_bias',
        'n l (heads e) -> l n heads e'),
    # Three arrays instead of one.
    Row(f'{LAYERS}/attention/qkv_kernel',
        'blocks.{layer}.attn.{q|k|v}_proj.weight',
        'n l (heads e) d -> l d n heads e'),
    Row(f'{LAYERS}/attention/qv_bias', 'blocks.{layer}.attn.{q|v}_proj.bias',
        'n l (heads e) -> l n heads e'),
    *both(f'{LAYERS}/attention/out', 'blocks.{layer}.attn.proj', **OUT),
    *(row for ours, theirs in (
        ('attention/query_norm', 'attn.q_norm'),
        ('attention/key_norm', 'attn.k_norm'),
        ('attention/inner_norm', 'attn.norm'), ('attention_norm', 'norm1'),
        ('mlp_norm', 'norm2'), ('mlp/inner_norm', 'mlp.norm'))
      for row in norm(
          f'{LAYERS}/{ours}', f'blocks.{{layer}}.{theirs}', **WEIGHT)),
    *_difference('blocks.{layer}.attn.'),
    # SwiGLU: `fc1` has the gates before the hidden units, if there is one.
    *(row for ours, theirs in (
        ('hidden', 'fc1'), ('hidden', 'fc1_x'), ('gate', 'fc1_g'),
        ('out', 'fc2'))
      for row in both(
          f'{LAYERS}/mlp/{ours}', f'blocks.{{layer}}.mlp.{theirs}',
          **DENSES)),
    Row(f'{LAYERS}/attention_scale', 'blocks.{layer}.ls1.gamma'),
    Row(f'{LAYERS}/mlp_scale', 'blocks.{layer}.ls2.gamma'),
    Row(f'{LAYERS}/attention_scale', 'blocks.{layer}.gamma_1'),
    Row(f'{LAYERS}/mlp_scale', 'blocks.{layer}.gamma_2'),
    Row(f'{LAYERS}/attention/frequencies', 'rope.freqs',
        'n l h e -> l n h e'),
    # BEiT, and relative-position ViTs.
    *(Row(f'{ours}/offsets', f'{theirs}.{_TABLE}') for ours, theirs in (
        (RELATIVE, 'blocks.{layer}.attn'), (SHARED_RELATIVE, 'rel_pos_bias'),
        (RELATIVE, 'blocks.{layer}.attn.rel_pos'),
        (SHARED_RELATIVE, 'shared_rel_pos'))),
    *(row for ours, theirs, kernels in (
        (RELATIVE, 'blocks.{layer}.attn.rel_pos', DENSES),
        (SHARED_RELATIVE, 'shared_rel_pos', DENSE))
      for end, layer in (('hidden', 'fc1'), ('out', 'fc2'))
      for row in both(f'{ours}/{end}', f'{theirs}.mlp.{layer}', **kernels)),
    *norm('patch_norm', 'patch_embed.norm', **WEIGHT),
    *norm('stem_norm', 'norm_pre', **WEIGHT),
    *norm('final_norm', 'norm', **WEIGHT),
    *norm('pool_norm', 'fc_norm', **WEIGHT),
    Row('pooling/probe', 'attn_pool.latent', '1 n d -> n d'),
    Row('pooling/query/kernel', 'attn_pool.q.weight',
        '(pool_heads e) d -> d pool_heads e'),
    Row('pooling/query/bias', 'attn_pool.q.bias',
        '(pool_heads e) -> pool_heads e'),
    # `split_pairs` and `join_pairs` convert it.
    Row('pooling/key_value/kernel', 'attn_pool.kv.weight',
        '(parts pool_heads e) d -> parts d pool_heads e'),
    Row('pooling/key_value/bias', 'attn_pool.kv.bias',
        '(parts pool_heads e) -> parts pool_heads e'),
    *both('pooling/out', 'attn_pool.proj',
          kernel='d (pool_heads e) -> pool_heads e d', **WEIGHT),
    *norm('pooling/mlp_norm', 'attn_pool.norm', **WEIGHT),
    *both('pooling/mlp/hidden', 'attn_pool.mlp.fc1', **DENSE),
    *both('pooling/mlp/out', 'attn_pool.mlp.fc2', **DENSE),
    *both('representation/dense', 'pre_logits.fc', read_only=True, **DENSE),
    *both('head/dense', 'head', **DENSE),
    *both('head/distill', 'head_dist', **DENSE),
    Row('backbone/root/kernel', f'{_TIMM_BACKBONE}stem.conv.weight', CONV),
    *norm('backbone/root_norm', f'{_TIMM_BACKBONE}stem.norm', **WEIGHT),
    *_backbone_timm(_TIMM_BACKBONE, 'unit1', '0', CONV),
    *_backbone_timm(_TIMM_BACKBONE, 'units', '{unit+1}', CONVS)),
    # A root without stages.
    renames={rf'^({_TIMM_BACKBONE})(conv|norm)\.': r'\1stem.\2.'},
    ignored=(r'.*\.relative_position_index',),  # Of Microsoft's BEiT.
    unsupported={
        r'blocks\.\d+\.attn\.gate\..*': (
            'a gate of the attention, which our models lack'),
        r'blocks\.\d+\.attn\.rel_pos_[hw]': (
            'attention within windows (SAM), which our models lack'),
        r'blocks\.\d+\.proj\..*': (
            'pooling between layers (Hiera), which our models lack'),
        r'layers\.\d+\.(blocks|downsample)\..*': (
            'shifted windows (Swin), which our models lack'),
        r'.*\.running_(mean|var)': 'batch norm, which our models lack'})


# Parallel layers: one array for hidden units, queries, keys and values, which
# `split_pairs` and `join_pairs` convert.
PARALLEL = dataclasses.replace(TIMM, rows=(
    *(row for row in TIMM.rows if 'blocks.{layer}' not in row.theirs),
    *(row for ours, theirs in (
        ('attention_norm', 'in_norm'), ('attention/query_norm', 'q_norm'),
        ('attention/key_norm', 'k_norm'))
      for row in norm(
          f'{LAYERS}/{ours}', f'blocks.{{layer}}.{theirs}', **WEIGHT)),
    *both(f'{LAYERS}/mlp/hidden', 'blocks.{layer}.in_proj', **DENSES),
    Row(f'{LAYERS}/mlp/hidden/bias', 'blocks.{layer}.mlp_bias'),
    *both(f'{LAYERS}/mlp/out', 'blocks.{layer}.mlp_out_proj', **DENSES),
    *both(f'{LAYERS}/attention/out', 'blocks.{layer}.attn_out_proj', **OUT),
    # With differential attention, one array for both branches.
    *both(f'{LAYERS}/mlp/out', 'blocks.{layer}.out_proj', **DENSES),
    *_difference('blocks.{layer}.'),
    Row(f'{LAYERS}/attention_scale', 'blocks.{layer}.ls.gamma')))

# Two attentions, then two MLPs.
_PAIRED = (('norm1.', 'attns.{}.norm.'), ('attn.', 'attns.{}.attn.'),
           ('ls1.', 'attns.{}.ls.'), ('norm2.', 'ffns.{}.norm.'),
           ('mlp.', 'ffns.{}.mlp.'), ('ls2.', 'ffns.{}.ls.'))
PAIRED = dataclasses.replace(TIMM, rows=(
    *(row for row in TIMM.rows if 'blocks.{layer}' not in row.theirs),
    *(dataclasses.replace(
        row, ours=row.ours.replace(f'{LAYERS}/', f'{LAYERS}/{start}'),
        theirs=row.theirs.replace(f'.{single}', f'.{pair.format(i)}', 1))
      for i, start in enumerate(('', 'second_')) for single, pair in _PAIRED
      for row in TIMM.rows
      if row.theirs.startswith(f'blocks.{{layer}}.{single}'))))

# Keys have a bias, too. The original names are in Meta's code.
SAPIENS2 = dataclasses.replace(TIMM, rows=(
    Row(f'{LAYERS}/attention/qkv_bias', 'blocks.{layer}.attn.{q|k|v}_proj.bias',
        'n l (heads e) -> l n heads e'),
    *(row for row in TIMM.rows if '{q|v}' not in row.theirs)),
    renames={
        r'\.attn\.w([qkv])\.': r'.attn.\1_proj.',
        r'\.attn\.gamma\.weight': '.gamma_1', r'\.ffn\.w12\.': '.mlp.fc1.',
        r'\.ffn\.w3\.': '.mlp.fc2.', r'\.ln([12])\.': r'.norm\1.',
        r'^ln1\.': 'norm.', '^storage_tokens$': 'reg_token',
        r'^patch_embed\.projection\.': 'patch_embed.proj.'},
    ignored=('mask_token', r'rope\w*\..*'))

# ViT-5 stores its rotary frequencies, which its family's settings give.
VIT5 = dataclasses.replace(
    TIMM, ignored=(r'blocks\.\d+\.attn\.rope(_reg)?\.freqs',))


def timm_written(
    table: Table, *, eva: bool, beit: bool, qkv_bias: bool, separate_qkv: bool,
    separate_gate: bool, differential: bool,
) -> Table:
  """Returns a table of timm with the rows that are written for a model.

  Args:
    table: that of the model's family.
    qkv_bias: see `ViTConfig`.
    eva: whether timm builds it with its class Eva or Beit.
    beit: whether timm builds it with its class Beit.
    separate_qkv: whether queries, keys and values have one array each.
    separate_gate: whether the gate of SwiGLU has its own array.
    differential: see `ViTConfig`.
  """
  return table.without(
      '.mlp_bias' if qkv_bias else '.in_proj.bias',
      *(('_out_proj.',) if differential else ('.out_proj.',)),
      *(('.ls1.', '.ls2.') if eva else ('.gamma_',)),
      *(('rel_pos.',) if beit else (f'attn.{_TABLE}', 'rel_pos_bias.')),
      *(('attn.qkv.', 'v}_bias') if separate_qkv else ('v}_proj.',)),
      *(('.fc1.',) if separate_gate else ('.fc1_x.', '.fc1_g.')))


# timm's NaFlexVit projects flattened patches and has a grid of positions, of
# which class token and registers have none.
FLAT = 'o (side w channels) -> side w channels o'
NAFLEX = dataclasses.replace(
    TIMM, name='naflex', rows=(
        *both('patches', 'embeds.proj', kernel=FLAT, **WEIGHT),
        Row('cls', 'embeds.cls_token', '1 n d -> n d'),
        Row('registers', 'embeds.reg_token', '1 n d -> n d'),
        Row('positions', 'embeds.pos_embed', '1 rows w d -> (rows w) d'),
        Row('positions_rows', 'embeds.pos_embed_y', '1 n d -> n d'),
        Row('positions_columns', 'embeds.pos_embed_x', '1 n d -> n d'),
        *(row for row in TIMM.rows if re.fullmatch(
            r'blocks\.\{layer\}\.(norm\d|attn\.(qkv|proj|norm|[qk]_norm)|ls\d'
            r'|mlp\.(fc\d|norm))\..*|(norm(_pre)?|fc_norm|attn_pool|head)\..*',
            row.theirs))))

# C-RADIO of NVIDIA and Hugging Face: several class tokens, of which all but the
# first become registers (`split_pairs`), and no bias of the patches.
_BLOCK = 'blocks.{layer}.'
RADIO = Table('radio', rows=(
    Row('patches/kernel', 'patch_generator.embedder.weight',
        'o (channels side w) -> side w channels o'),
    Row('cls', 'patch_generator.cls_token.token'),
    Row('positions', 'patch_generator.pos_embed', '1 n d -> n d'),
    Row(f'{LAYERS}/attention_scale', f'{_BLOCK}layer_scale1.lambda1'),
    Row(f'{LAYERS}/mlp_scale', f'{_BLOCK}layer_scale2.lambda1'),
    *(row for row in TIMM.rows if row.theirs.startswith(_BLOCK))),
    ignored=(r'patch_generator\.video_embedder\..*',))

# Qwen3-ViT and DeepSeek-ViT: timm's classifiers have the encoder, without class
# token, under a prefix, and may have its projector to a language model.
_ENCODER = (r'patch_embed\.proj\..*|pos_embed|norm\..*|head\..*'
            r'|blocks\.\{layer\}\.(norm\d|attn\.(qkv|proj)|mlp\.fc\d)\..*')


def vision_encoder(
    prefix: str, absent: str, merger: str = '', block: str = '',
) -> Table:
  """Returns the names of an encoder.

  Args:
    prefix: prefix of all names except the head's.
    absent: regular expression of the rows that it lacks.
    merger: name of its projector, which is ignored if it is not given.
    block: axes of the projector's inputs.
  """
  rows = [dataclasses.replace(row, theirs=(
      '' if row.theirs.startswith('head.') else prefix) + row.theirs)
          for row in TIMM.rows if re.fullmatch(_ENCODER, row.theirs)
          and not re.fullmatch(absent, row.theirs)]
  if merger:
    merger = prefix + merger
    rows += [*norm('final_norm', f'{merger}.norm', **WEIGHT),
             *both('merger/hidden', f'{merger}.fc1', **WEIGHT,
                   kernel=f'o ({block}) -> block across d o'),
             *both('merger/out', f'{merger}.fc2', **DENSE)]
  return Table('timm', tuple(rows), ignored=(
      () if prefix else (r'(merger|aligner)\..*',)))


# ------------------------- DINO, DINOv2, MAE and other self-supervision (.pth)

# timm's names, with a few others. MAE's decoder and the projection heads (MLPs
# and prototypes) of other methods are not needed after pre-training.
META = dataclasses.replace(
    TIMM, name='meta', rows=(
        *TIMM.rows,
        Row('registers', 'register_tokens', '1 n d -> n d'),
        # SwiGLU: the gates are before the hidden units.
        *both(f'{LAYERS}/mlp/hidden', 'blocks.{layer}.mlp.w12', **DENSES),
        *both(f'{LAYERS}/mlp/out', 'blocks.{layer}.mlp.w3', **DENSES),
        # TIPS.
        *both(f'{LAYERS}/mlp/hidden', 'blocks.{layer}.mlp.c_fc', **DENSES),
        *both(f'{LAYERS}/mlp/out', 'blocks.{layer}.mlp.c_proj', **DENSES)),
    # DINOv2's training saves layers in chunks.
    renames={r'^blocks\.\d+\.(\d+\.)': r'blocks.\1'},
    ignored=(
        *TIMM.ignored, 'mask_token', 'decoder_.*',
        r'(\w*head|fc|\w*proj(ector|ection)?|pred(ictor)?|prototypes)'
        r'\.(\w+\.)+\w+', r'prototypes(\.weight)?'),
    unsupported={
        **TIMM.unsupported,
        r'storage_tokens|rope_embed\..*|.*\.qkv\.bias_mask': (
            "Meta's names of DINOv3; load it as a folder of timm or Hugging "
            'Face, such as hf://timm/vit_small_patch16_dinov3.lvd1689m')})


def tipsv2_written(*, swiglu: bool) -> Table:
  """Returns `META` with the rows that are written for a TIPSv2 model."""
  table = META.without('reg_token', '.fc', '.gamma_', 'v}_', *(
      ('.c_',) if swiglu else ('.w12.', '.w3.')))
  return dataclasses.replace(table, unused={'mask_token': (1, 0)})


# ---------------------------------------------------------------- timm's BiT

TIMM_BIT = Table('timm', rows=(
    Row('backbone/root/kernel', 'stem.conv.weight', CONV),
    *_backbone_timm('', 'unit1', '0', CONV),
    *_backbone_timm('', 'units', '{unit+1}', CONVS),
    *norm('final_norm', 'norm', **WEIGHT),
    *both('head/dense', 'head.fc', kernel='o i 1 1 -> i o', **WEIGHT)))
