"""timm's own models, and its names, which other families have, too."""

from collections.abc import Iterator
import dataclasses

from vit_jax.extras.zoo.families import names
from vit_jax.extras.zoo.families import records
from vit_jax.weights.formats import layout

BLOCK = 'blocks.{layer}.'


def _backbone(prefix: str) -> tuple[layout.Row, ...]:
  """Rows of the units of a ResNet: the first of a stage, and the others."""
  units = (('unit1', '0', 'conv_kernel'), ('units', '{unit+1}', 'conv_kernels'))
  return tuple(
      row for ours, block, kernel in units
      for end, conv, norm in (
          *((f'{i}', f'conv{i}', f'norm{i}') for i in (1, 2, 3)),
          ('_proj', 'downsample.conv', 'downsample.norm'))
      for row in names.rows(f"""
        backbone/block{{stage}}/{ours}/conv{end}/kernel .{conv}.weight {kernel}
        backbone/block{{stage}}/{ours}/norm{end}        .{norm}        norm
          """, model=f'{prefix}stages.{{stage-1}}.blocks.{block}'))


_TIMM_BACKBONE = 'patch_embed.backbone.'

TIMM = layout.Table('timm', rows=(
    *names.rows("""
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
    layout.Row(f'{names.LAYERS}/attention/frequencies', 'rope.freqs',
               'n l h e -> l n h e'),
    *(dataclasses.replace(row, read_only=True) for row in names.rows(
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
# `joint` converts.
PARALLEL = dataclasses.replace(TIMM, rows=(
    *(row for row in TIMM.rows if BLOCK not in row.theirs),
    *names.rows("""
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
        row, ours=row.ours.replace(
            f'{names.LAYERS}/', f'{names.LAYERS}/{start}'),
        theirs=row.theirs.replace(f'.{single}', f'.{pair.format(i)}', 1))
      for i, start in enumerate(('', 'second_')) for single, pair in _PAIRED
      for row in TIMM.rows if row.theirs.startswith(BLOCK + single))))

BIT = layout.Table('timm', rows=(
    *names.rows("""
    backbone/root/kernel  stem.conv.weight  conv_kernel
    final_norm            norm              norm
    head/dense/bias       head.fc.bias
    """),
    layout.Row('head/dense/kernel', 'head.fc.weight', 'o i 1 1 -> i o'),
    *_backbone('')))

_RELPOS = {'position': 'relative_mlp', 'layer_scale': 1e-6, 'qkv_bias': False}
_BACKBONE = {'group_norm_epsilon': 1e-5, 'std_epsilon': 0.0,
             'variance_epsilon': 1e-8}
_INNER = ('proj_bias', 'inner_norm')


def _backbones() -> Iterator[records.Backbones]:
  """Yields models that only timm has."""
  for word, size in (('small', records.S), ('medium', records.MEDIUM)):
    yield records.Backbones('vit_srelpos_{}_patch16_{}', {word: size}, (224,), {
        **_RELPOS, 'position_at': 'shared', 'position_mlp_dim': size.width})
  yield records.Backbones(
      'vit_relpos_{}_patch16_{}', {
          'small': records.S, 'medium': records.MEDIUM, 'base': records.B},
      (224,), {**_RELPOS, **records.POOL_NORM})
  yield records.Backbones(
      'vit_relpos_{}_patch16_clsgap_{}', {'base': records.B}, (224,),
      {**_RELPOS, **records.POOL_NORM, 'cls': True})
  yield records.Backbones(
      'vit_relpos_{}_patch16_cls_{}', {'medium': records.MEDIUM}, (224,),
      {**_RELPOS, 'position_mlp_dim': 256})
  yield records.Backbones(
      'vit_relpos_{}_patch16_rpn_{}', {'medium': records.MEDIUM}, (224,),
      {**_RELPOS, 'layer_scale': None})
  yield records.Backbones(
      'vit_relpos_{}_patch32_plus_rpn_{}', {
          'base': records.Size(896, 12, 3584, 14)}, (256,),
      {'position': 'relative_mlp'})
  yield records.Backbones(
      'vit_{}_patch16_rpn_{}', {'base': records.B}, (224,),
      {'pooling': 'average', 'qkv_bias': False})
  yield records.Backbones(
      'vit_{}_patch16_rope_reg1_gap_{}', {
          'medium': records.MEDIUM, 'base': records.B}, (256,), {
              **records.SCALED, **records.POOL_NORM, 'key_bias': False,
              'registers': 1})
  yield records.Backbones(
      'vit_{}_patch16_reg4_gap_{}', {'medium': records.MEDIUM}, (256,),
      {**records.SCALED, **records.POOL_NORM, 'registers': 4})
  yield records.Backbones(
      'vit_{}_patch16_reg1_gap_{}', {
          'dwee': records.Size(256, 14, 1280, 4),
          'dpwee': records.Size(256, 16, 1280, 4),
          'dlittle': records.Size(320, 14, 1792, 5)}, (256,),
      {**records.SCALED, **records.POOL_NORM, 'registers': 1})
  yield records.Backbones(
      'vit_{}_patch16_reg4_map_{}', {
          'so150m': records.Size(896, 18, 2304, 14)}, (256,),
      {**records.MAP, 'registers': 4})


LINEAGE = records.Lineage(
    arrays=(
        records.Family(
            'timm', 'timm ViT', TIMM, settings=records.EXACT,
            backbone=_BACKBONE, positions='cubic', ambiguous=True,
            embeds_registers=True, undeclared=(
                "no config.json: read as timm's. Backbones of DINO, iBOT, MAE "
                "and I-JEPA have the same names, but ImageNet's mean and std, "
                'and other positions at another size (docs/models.md)')),
        records.Family(
            'timm_parallel', 'timm ViT with parallel layers', PARALLEL,
            settings={**records.EXACT, 'parallel': True}, positions='cubic'),
        records.Family(
            'timm_paired', 'timm ViT with pairs of layers', PAIRED,
            settings=records.EXACT, positions='cubic'),
        records.Family(
            'timm_bit', 'timm BiT', BIT, settings={'name': 'resnet'},
            backbone={**_BACKBONE, 'preactivation': True})),
    backbones=tuple(_backbones()),
    words=(r'\d+', 'miil', '36x1', '18x2', 'gap', 'map', r'reg\d', 'plus',
           'rpn', 'xp'),
    vit=(
        r'vit_SIZE_patch\d+WORDS', r'vit_SIZE_r\d*_s\d+(_p8)?(_\d+)?',
        'test_vit[2-4]?', 'test_vit_relpos',
        r'vit_s?relpos_SIZE_patch\d+(_plus)?(_cls|_clsgap|_rpn)?_\d+'),
    eva=(r'vit_SIZE_patch\d+_rope_reg\d_gap_\d+',),
    implied=(
        ('vit_base_patch16_gap_224', {'num_heads': 16}),
        ('test_vit2?', {'num_heads': 2}),
        ('test_vit_relpos|test_vit[34]', {'num_heads': 3}),
        ('test_vit3', {'pool_prefix': True}),
        ('.*relpos.*', {'pooling': 'average'}),
        ('vit_relpos_.*_cls_.*', {'pooling': 'cls'}),
        ('.*_rpn_.*', {'post_norm': True}),
        (r'vit_.*_plus_((clip|rpn)_)?\d+', {'num_heads': 14}),
        ('.*_xp_.*|vit_d?pwee_.*', {'parallel': True, 'position_cls': False}),
        (r'vit_d(little|p?wee)_.*', {'differential': True}),
        ('.*_18x2_.*', {'paired': True}),
        (r'vit_(?!so150m).*_reg\d.*', {'position_cls': False}),
        ('vit_intern300m_.*', {'final_norm': False}),
        (r'.*_rope_reg\d_gap_\d+', {
            'rotary': {'reference': 16}, 'position': 'none'})),
    architectures=(
        records.Architecture('vit_base_patch16_224'),
        records.Architecture('vit_base_patch16_rpn_224'),
        records.Architecture('vit_small_patch16_18x2_224'),
        # No argument removes the layer scale.
        records.Architecture('vit_dpwee_patch16_reg1_gap_256', fixed=(
            *_INNER, 'layer_scale')),
        records.Architecture('vit_dwee_patch16_reg1_gap_256'),
        records.Architecture('vit_base_patch16_xp_224', fixed=_INNER),
        *(records.Architecture(name, settings={'backbone': {'depths': depths}})
          for name, depths in (
              ('vit_tiny_r_s16_p8_224', ()),
              ('vit_small_r26_s32_224', (2, 2, 2, 2)),
              ('vit_base_r50_s16_224', (3, 4, 9)),
              ('vit_large_r50_s32_224', (3, 4, 6, 3)))),
        records.Architecture('vit_relpos_base_patch16_rpn_224', 'relpos',
                             settings={'pool_norm': True, 'final_norm': False}),
        records.Architecture('vit_relpos_base_patch16_224', 'relpos')))
