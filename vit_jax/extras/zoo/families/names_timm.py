"""Parameter names of timm's models, and of others with its names."""

import dataclasses
import re

from vit_jax.extras.zoo.families.names import LAYERS
from vit_jax.extras.zoo.families.names import rows
from vit_jax.weights.formats.layout import Row
from vit_jax.weights.formats.layout import Table

BLOCK = 'blocks.{layer}.'


def _backbone(prefix: str) -> tuple[Row, ...]:
  """Rows of the units of a ResNet: the first of a stage, and the others."""
  units = (('unit1', '0', 'conv_kernel'),
           ('units', '{unit+1}', 'conv_kernels'))
  return tuple(
      row for ours, block, kernel in units
      for end, conv, norm in (
          *((f'{i}', f'conv{i}', f'norm{i}') for i in (1, 2, 3)),
          ('_proj', 'downsample.conv', 'downsample.norm'))
      for row in rows(f"""
        backbone/block{{stage}}/{ours}/conv{end}/kernel .{conv}.weight {kernel}
        backbone/block{{stage}}/{ours}/norm{end}        .{norm}        norm
          """, model=f'{prefix}stages.{{stage-1}}.blocks.{block}'))


_TIMM_BACKBONE = 'patch_embed.backbone.'

TIMM = Table('timm', rows=(
    *rows("""
    patches                 patch_embed.proj            conv
    cls                     cls_token                   tokens
    distill                 dist_token                  tokens
    registers               reg_token                   tokens
    positions               pos_embed                   tokens
    @attention/qkv_kernel   @attn.qkv.weight            fused_kernel
    @attention/qkv_bias     @attn.qkv.bias              fused_bias
    @attention/qv_bias      @attn.{q|v}_bias            qkv_bias
    @attention/qkv_kernel   @attn.{q|k|v}_proj.weight   qkv_kernel
    @attention/qv_bias      @attn.{q|v}_proj.bias       qkv_bias
    @attention/out          @attn.proj                  out
    @attention/query_norm   @attn.q_norm                norm
    @attention/key_norm     @attn.k_norm                norm
    @attention/inner_norm   @attn.norm                  norm
    @attention_norm         @norm1                      norm
    @mlp_norm               @norm2                      norm
    @mlp/inner_norm         @mlp.norm                   norm
    @mlp/hidden             @mlp.fc1                    denses
    @mlp/hidden             @mlp.fc1_x                  denses
    @mlp/gate               @mlp.fc1_g                  denses
    @mlp/out                @mlp.fc2                    denses
    @attention_scale        @ls1.gamma
    @mlp_scale              @ls2.gamma
    @attention_scale        @gamma_1
    @mlp_scale              @gamma_2
    @attention/difference/norm/scale  @attn.sub_norm.weight
    @attention/difference/lambdas     @attn.lambda_{q1|k1|q2|k2}  lambdas
    @attention/relative/offsets  @attn.relative_position_bias_table
    relative/offsets        rel_pos_bias.relative_position_bias_table
    @attention/relative/offsets  @attn.rel_pos.relative_position_bias_table
    relative/offsets        shared_rel_pos.relative_position_bias_table
    @attention/relative/hidden  @attn.rel_pos.mlp.fc1   denses
    @attention/relative/out     @attn.rel_pos.mlp.fc2   denses
    relative/hidden         shared_rel_pos.mlp.fc1      dense
    relative/out            shared_rel_pos.mlp.fc2      dense
    patch_norm              patch_embed.norm            norm
    stem_norm               norm_pre                    norm
    final_norm              norm                        norm
    pool_norm               fc_norm                     norm
    pooling/probe           attn_pool.latent            tokens
    pooling/query/kernel    attn_pool.q.weight          pool_kernel
    pooling/query/bias      attn_pool.q.bias            pool_bias
    pooling/key_value/kernel  attn_pool.kv.weight       pools_kernel
    pooling/key_value/bias  attn_pool.kv.bias           pools_bias
    pooling/out             attn_pool.proj              pool_out
    pooling/mlp_norm        attn_pool.norm              norm
    pooling/mlp/hidden      attn_pool.mlp.fc1           dense
    pooling/mlp/out         attn_pool.mlp.fc2           dense
    head/dense              head                        dense
    head/distill            head_dist                   dense
    backbone/root/kernel    .stem.conv.weight           conv_kernel
    backbone/root_norm      .stem.norm                  norm
    """, layer=BLOCK, model=_TIMM_BACKBONE[:-1]),
    Row(f'{LAYERS}/attention/frequencies', 'rope.freqs', 'n l h e -> l n h e'),
    *(dataclasses.replace(row, read_only=True) for row in rows(
        'representation/dense pre_logits.fc dense')),
    *_backbone(_TIMM_BACKBONE)),
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
    *(row for row in TIMM.rows if BLOCK not in row.theirs),
    *rows("""
    @attention_norm          @in_norm        norm
    @attention/query_norm    @q_norm         norm
    @attention/key_norm      @k_norm         norm
    @mlp/hidden              @in_proj        denses
    @mlp/hidden/bias         @mlp_bias
    @mlp/out                 @mlp_out_proj   denses
    @attention/out           @attn_out_proj  out
    @mlp/out                 @out_proj       denses
    @attention/difference/norm/scale  @sub_norm.weight
    @attention/difference/lambdas     @lambda_{q1|k1|q2|k2}  lambdas
    @attention_scale         @ls.gamma
    """, layer=BLOCK)))

# Two attentions, then two MLPs.
_PAIRED = (('norm1.', 'attns.{}.norm.'), ('attn.', 'attns.{}.attn.'),
           ('ls1.', 'attns.{}.ls.'), ('norm2.', 'ffns.{}.norm.'),
           ('mlp.', 'ffns.{}.mlp.'), ('ls2.', 'ffns.{}.ls.'))
PAIRED = dataclasses.replace(TIMM, rows=(
    *(row for row in TIMM.rows if BLOCK not in row.theirs),
    *(dataclasses.replace(
        row, ours=row.ours.replace(f'{LAYERS}/', f'{LAYERS}/{start}'),
        theirs=row.theirs.replace(f'.{single}', f'.{pair.format(i)}', 1))
      for i, start in enumerate(('', 'second_')) for single, pair in _PAIRED
      for row in TIMM.rows if row.theirs.startswith(BLOCK + single))))

# Keys have a bias, too. The original names are in Meta's code.
SAPIENS2 = dataclasses.replace(TIMM, rows=(
    *rows('@attention/qkv_bias @attn.{q|k|v}_proj.bias qkv_bias', BLOCK),
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


# timm's NaFlexVit projects flattened patches and has a grid of positions, of
# which class token and registers have none.
NAFLEX = dataclasses.replace(
    TIMM, name='naflex', rows=(
        *rows("""
        patches            .proj         flat
        cls                .cls_token    tokens
        registers          .reg_token    tokens
        positions          .pos_embed    grid
        positions_rows     .pos_embed_y  tokens
        positions_columns  .pos_embed_x  tokens
        """, model='embeds'),
        *(row for row in TIMM.rows if re.fullmatch(
            r'blocks\.\{layer\}\.(norm\d|attn\.(qkv|proj|norm|[qk]_norm)|ls\d'
            r'|mlp\.(fc\d|norm))\..*|(norm(_pre)?|fc_norm|attn_pool|head)\..*',
            row.theirs))))

# C-RADIO of NVIDIA and Hugging Face: several class tokens, of which all but the
# first become registers (`split_pairs`), and no bias of the patches.
RADIO = Table('radio', rows=(
    Row('patches/kernel', 'patch_generator.embedder.weight',
        'o (channels side w) -> side w channels o'),
    *rows("""
    cls               patch_generator.cls_token.token
    positions         patch_generator.pos_embed  tokens
    @attention_scale  @layer_scale1.lambda1
    @mlp_scale        @layer_scale2.lambda1
    """, layer=BLOCK),
    *(row for row in TIMM.rows if row.theirs.startswith(BLOCK))),
    ignored=(r'patch_generator\.video_embedder\..*',))

# ------------------------- DINO, DINOv2, MAE and other self-supervision (.pth)

# timm's names, with a few others. MAE's decoder and the projection heads (MLPs
# and prototypes) of other methods are not needed after pre-training.
META = dataclasses.replace(
    TIMM, name='meta', rows=(
        *TIMM.rows,
        # Gates are before the hidden units in `w12`; `c_` is TIPS.
        *rows("""
        registers    register_tokens  tokens
        @mlp/hidden  @mlp.w12         denses
        @mlp/out     @mlp.w3          denses
        @mlp/hidden  @mlp.c_fc        denses
        @mlp/out     @mlp.c_proj      denses
        """, layer=BLOCK)),
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


# ---------------------------------------------------------------- timm's BiT

TIMM_BIT = Table('timm', rows=(
    *rows("""
    backbone/root/kernel  stem.conv.weight  conv_kernel
    final_norm            norm              norm
    head/dense/bias       head.fc.bias
    """),
    Row('head/dense/kernel', 'head.fc.weight', 'o i 1 1 -> i o'),
    *_backbone('')))
