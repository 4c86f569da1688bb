"""Parameter names of Hugging Face's models, in the files that it writes.

The same file holds other models, such as a text tower, which are ignored.
"""

from collections.abc import Mapping
import dataclasses
from typing import Any

from vit_jax.extras.zoo.families.names import rows
from vit_jax.weights.formats.layout import Table

# Rows of ViT and DINOv2 that belong to no layer.
_STEM = """
    patches      .embeddings.patch_embeddings.projection  conv
    cls          .embeddings.cls_token                    tokens
    positions    .embeddings.position_embeddings          tokens
    final_norm   .layernorm                               norm
    head/dense   classifier                               dense
    """
_QKV = """
    @attention/qkv_kernel  @attention.{q|k|v}_proj.weight  qkv_kernel
    @attention/qkv_bias    @attention.{q|k|v}_proj.bias    qkv_bias
    """
_QV = """
    @attention/qkv_kernel  @attention.{q|k|v}_proj.weight  qkv_kernel
    @attention/qv_bias     @attention.{q|v}_proj.bias      qkv_bias
    """
_MLP = """
    @mlp/hidden      @mlp.fc1           denses
    @mlp/out         @mlp.fc2           denses
    """
_LAYER = """
    @attention/out   @attention.o_proj  out
    @attention_norm  @layernorm_before  norm
    @mlp_norm        @layernorm_after   norm
    """ + _MLP
_SCALES = """
    @attention_scale  @layer_scale1.lambda1
    @mlp_scale        @layer_scale2.lambda1
    """
_BEFORE_5: Mapping[str, Any] = {  # Names of transformers before version 5.
    r'\.encoder\.layer\.': '.layers.',
    r'\.attention\.attention\.(query|key|value)\.': (
        lambda found: f'.attention.{found[1][0]}_proj.'),
    r'\.attention\.output\.dense\.': '.attention.o_proj.',
    r'(\d)\.intermediate\.dense\.': r'\1.mlp.fc1.',
    r'(\d)\.output\.dense\.': r'\1.mlp.fc2.'}

# ----------------------------------------- ViT, DeiT, I-JEPA, MSN, Pixio

HUGGINGFACE = Table('huggingface', rows(
    _STEM + _QKV + _LAYER + """
    representation/dense  .pooler.dense                   dense
    distill               .embeddings.distillation_token  tokens
    head/distill          distillation_classifier         dense
    """, 'vit.layers.{layer}.', 'vit'),
    renames={
        '^cls_classifier': 'classifier',
        # A model without a head, DeiT, I-JEPA and Pixio.
        (r'^((deit|ijepa|pixio)\.)?'
         r'(embeddings|encoder|layers|layernorm|pooler)\.'): r'vit.\3.',
        **_BEFORE_5,
        r'(\d)\.norm1\.': r'\1.layernorm_before.',
        r'(\d)\.norm2\.': r'\1.layernorm_after.'},
    unsupported={r'.*mask_token': 'a mask token, which our models lack'})

# ----------------------------------------------------------- BEiT, data2vec

BEIT = Table('beit', rows(
    _STEM + _QV + _LAYER + """
    @attention_scale  @lambda_1
    @mlp_scale        @lambda_2
    @attention/relative/offsets @relative_position_bias.{table}
    relative/offsets  .shared_position_bias.{table}
    pool_norm         .pooler.layernorm  norm
    """.replace('{table}', 'relative_position_bias_table'),
    'beit.layers.{layer}.', 'beit'),
    renames={
        # A model without a head, and data2vec.
        r'^(data2vec_vision\.)?(embeddings|encoder|layer(s|norm)|pooler)\.': (
            r'beit.\2.'),
        **_BEFORE_5,
        r'\.attention\.attention\.relative_': '.relative_',
        r'\.encoder\.relative_position': '.shared_position'},
    # Masked patches are only for pre-training.
    ignored=(r'.*\.mask_token', r'lm_head\..*', r'.*\.relative_position_index'),
)

# ------------------------------------------------------------ DINOv2, DINOv3


def _dinov2(name: str, more: str = '') -> Table:
  # SwiGLU: the gates are before the hidden units, in `weights_in`.
  return Table(name, rows(
      _STEM + more + _SCALES + """
      @attention/qkv_kernel  @attention.{qkv}.weight        qkv_kernel
      @attention/qkv_bias    @attention.{qkv}.bias          qkv_bias
      @attention/out         @attention.output.dense        out
      @attention_norm        @norm1                         norm
      @mlp_norm              @norm2                         norm
      @mlp/hidden            @mlp.weights_in                denses
      @mlp/out               @mlp.weights_out               denses
      """.replace('{qkv}', 'attention.{query|key|value}') + _MLP,
      f'{name}.encoder.layer.{{layer}}.', name),
      # A model without a head.
      renames={r'^(embeddings|encoder|layernorm)\.': rf'{name}.\1.'},
      unused={f'{name}.embeddings.mask_token': (1, 0)})


DINOV2 = _dinov2('dinov2')
DINOV2_REGISTERS = _dinov2(
    'dinov2_with_registers', 'registers .embeddings.register_tokens tokens')

DINOV3 = Table('dinov3', rows(
    _QV + _SCALES + """
    patches          embeddings.patch_embeddings  conv
    cls              embeddings.cls_token         tokens
    registers        embeddings.register_tokens   tokens
    @attention/out   @attention.o_proj            out
    @attention_norm  @norm1                       norm
    @mlp_norm        @norm2                       norm
    @mlp/hidden      @mlp.up_proj                 denses
    @mlp/gate        @mlp.gate_proj               denses
    @mlp/out         @mlp.down_proj               denses
    final_norm       norm                         norm
    """, 'layer.{layer}.'),
    renames={r'^model\.layer\.': 'layer.'},
    unused={'embeddings.mask_token': (1, 1, 0)},
    unsupported={r'.*\.k_proj\.bias': (
        'a bias of the keys, which DINOv3 has not, and no output uses')})

# ------------------------------------------- image towers: CLIP, SigLIP, AIMv2

# Names of the image tower of a model of images and texts.
_TOWER_LAYER = 'vision_model.encoder.layers.{layer}.'


def _tower(name: str, more: str) -> Table:
  return Table(name, rows(
      _QKV.replace('@attention.', '@self_attn.') + _MLP + """
      patches          .embeddings.patch_embedding            conv
      positions        .embeddings.position_embedding.weight
      @attention/out   @self_attn.out_proj                    out
      @attention_norm  @layer_norm1                           norm
      @mlp_norm        @layer_norm2                           norm
      final_norm       .post_layernorm                        norm
      head/dense       classifier                             dense
      """ + more, _TOWER_LAYER, 'vision_model'),
      # Transformers 5 writes the image tower alone without a prefix.
      renames={
          r'^(embeddings|encoder|pre_layrnorm|post_layernorm|head)\.': (
              r'vision_model.\1.')},
      ignored=(r'text_model\..*', r'text_projection\..*', 'logit_scale',
               'logit_bias', r'.*\.position_ids'))


# `split_pairs` and `join_pairs` convert queries, keys and values.
SIGLIP = _tower('siglip', """
    pooling/probe       .head.probe               tokens
    pooling/query_key_value/kernel  .head.attention.in_proj_weight  pools_kernel
    pooling/query_key_value/bias    .head.attention.in_proj_bias    pools_bias
    pooling/out         .head.attention.out_proj  pool_out
    pooling/mlp_norm    .head.layernorm           norm
    pooling/mlp/hidden  .head.mlp.fc1             dense
    pooling/mlp/out     .head.mlp.fc2             dense
    """)

# Patches of images of any aspect ratio are flat (NaFlex).
SIGLIP2 = dataclasses.replace(SIGLIP, name='siglip2', rows=(
    *rows('patches .embeddings.patch_embedding flat', model='vision_model'),
    *(row for row in SIGLIP.rows if not row.ours.startswith('patches/'))))

CLIP = _tower('clip', """
    cls                .embeddings.class_embedding  vector
    stem_norm          .pre_layrnorm                norm
    head/dense/kernel  visual_projection.weight     matrix
    """)

AIMV2 = Table('aimv2', rows(
    _QKV + """
    patches                .embeddings.patch_embed                conv
    positions              .embeddings.position_embedding.weight
    patch_norm/scale       .embeddings.rms_norm.weight
    @attention/out         @attention.out_proj                    out
    @attention_norm        @rms_norm1                             norm
    @mlp_norm              @rms_norm2                             norm
    @mlp/hidden            @ffn.up_proj                           denses
    @mlp/gate              @ffn.gate_proj                         denses
    @mlp/out               @ffn.down_proj                         denses
    final_norm/scale       .rms_norm.weight
    """, _TOWER_LAYER, 'vision_model'),
    renames={r'^(embeddings|encoder|rms_norm|head)\.': r'vision_model.\1.'},
    ignored=CLIP.ignored,
    unsupported={r'(vision_model\.)?head\..*|visual_projection\..*': (
        'attention pooling without a query projection and an MLP, which our '
        'models lack')})
