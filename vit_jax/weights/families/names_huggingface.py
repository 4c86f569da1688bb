"""Parameter names of Hugging Face's models, in the files that it writes.

The same file holds other models, such as a text tower, which are ignored.
"""

from collections.abc import Mapping
import dataclasses
from typing import Any

from vit_jax.weights.families.layout import Row
from vit_jax.weights.families.layout import Table
from vit_jax.weights.families.names import both
from vit_jax.weights.families.names import CONV
from vit_jax.weights.families.names import DENSE
from vit_jax.weights.families.names import DENSES
from vit_jax.weights.families.names import LAYERS
from vit_jax.weights.families.names import norm
from vit_jax.weights.families.names import OUT
from vit_jax.weights.families.names import RELATIVE
from vit_jax.weights.families.names import SHARED_RELATIVE
from vit_jax.weights.families.names import WEIGHT
from vit_jax.weights.families.names_timm import FLAT


def _stem(name: str) -> tuple[Row, ...]:
  """Rows of ViT and DINOv2 that belong to no layer."""
  return (
      *both('patches', f'{name}.embeddings.patch_embeddings.projection',
            kernel=CONV, **WEIGHT),
      Row('cls', f'{name}.embeddings.cls_token', '1 n d -> n d'),
      Row('positions', f'{name}.embeddings.position_embeddings',
          '1 n d -> n d'),
      *norm('final_norm', f'{name}.layernorm', **WEIGHT),
      *both('head/dense', 'classifier', **DENSE))


def _layers(
    layer: str, *, qkv: str, out: str, norms: tuple[str, str],
    mlp: Mapping[str, str], bias: str = 'qkv_bias', mlp_name: str = 'mlp',
) -> tuple[Row, ...]:
  """Rows of all layers; `mlp` has the names for ours."""
  biases = qkv if bias == 'qkv_bias' else qkv.replace('|k|', '|')
  return (
      Row(f'{LAYERS}/attention/qkv_kernel', f'{layer}.{qkv}.weight',
          'n l (heads e) d -> l d n heads e'),
      Row(f'{LAYERS}/attention/{bias}', f'{layer}.{biases}.bias',
          'n l (heads e) -> l n heads e'),
      *both(f'{LAYERS}/attention/out', f'{layer}.{out}', **OUT),
      *norm(f'{LAYERS}/attention_norm', f'{layer}.{norms[0]}', **WEIGHT),
      *norm(f'{LAYERS}/mlp_norm', f'{layer}.{norms[1]}', **WEIGHT),
      *(row for theirs, ours in mlp.items() for row in both(
          f'{LAYERS}/mlp/{ours}', f'{layer}.{mlp_name}.{theirs}', **DENSES)))


def _layer_scales(layer: str) -> tuple[Row, Row]:
  return (Row(f'{LAYERS}/attention_scale', f'{layer}.layer_scale1.lambda1'),
          Row(f'{LAYERS}/mlp_scale', f'{layer}.layer_scale2.lambda1'))


_MLP = {'fc1': 'hidden', 'fc2': 'out'}
_BEFORE_5: Mapping[str, Any] = {  # Names of transformers before version 5.
    r'\.encoder\.layer\.': '.layers.',
    r'\.attention\.attention\.(query|key|value)\.': (
        lambda found: f'.attention.{found[1][0]}_proj.'),
    r'\.attention\.output\.dense\.': '.attention.o_proj.',
    r'(\d)\.intermediate\.dense\.': r'\1.mlp.fc1.',
    r'(\d)\.output\.dense\.': r'\1.mlp.fc2.'}

# ----------------------------------------- ViT, DeiT, I-JEPA, MSN, Pixio

HUGGINGFACE = Table('huggingface', rows=(
    *_stem('vit'),
    *_layers('vit.layers.{layer}', qkv='attention.{q|k|v}_proj',
             out='attention.o_proj', mlp=_MLP,
             norms=('layernorm_before', 'layernorm_after')),
    *both('representation/dense', 'vit.pooler.dense', **DENSE),
    Row('distill', 'vit.embeddings.distillation_token', '1 n d -> n d'),
    *both('head/distill', 'distillation_classifier', **DENSE)),
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

_TABLE = 'relative_position_bias_table'
BEIT = Table('beit', rows=(
    *_stem('beit'),
    *_layers('beit.layers.{layer}', qkv='attention.{q|k|v}_proj',
             bias='qv_bias', out='attention.o_proj', mlp=_MLP,
             norms=('layernorm_before', 'layernorm_after')),
    Row(f'{LAYERS}/attention_scale', 'beit.layers.{layer}.lambda_1'),
    Row(f'{LAYERS}/mlp_scale', 'beit.layers.{layer}.lambda_2'),
    Row(f'{RELATIVE}/offsets',
        f'beit.layers.{{layer}}.relative_position_bias.{_TABLE}'),
    Row(f'{SHARED_RELATIVE}/offsets', f'beit.shared_position_bias.{_TABLE}'),
    *norm('pool_norm', 'beit.pooler.layernorm', **WEIGHT)),
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


def _dinov2(name: str, *rows: Row) -> Table:
  return Table(name, rows=(
      *_stem(name), *rows, *_layer_scales(f'{name}.encoder.layer.{{layer}}'),
      *_layers(f'{name}.encoder.layer.{{layer}}',
               qkv='attention.attention.{query|key|value}',
               out='attention.output.dense', norms=('norm1', 'norm2'),
               # SwiGLU: the gates are before the hidden units.
               mlp={**_MLP, 'weights_in': 'hidden', 'weights_out': 'out'})),
      # A model without a head.
      renames={r'^(embeddings|encoder|layernorm)\.': rf'{name}.\1.'},
      unused={f'{name}.embeddings.mask_token': (1, 0)})


DINOV2 = _dinov2('dinov2')
DINOV2_REGISTERS = _dinov2('dinov2_with_registers', Row(
    'registers', 'dinov2_with_registers.embeddings.register_tokens',
    '1 n d -> n d'))

DINOV3 = Table('dinov3', rows=(
    *both('patches', 'embeddings.patch_embeddings', kernel=CONV, **WEIGHT),
    Row('cls', 'embeddings.cls_token', '1 n d -> n d'),
    Row('registers', 'embeddings.register_tokens', '1 n d -> n d'),
    *_layer_scales('layer.{layer}'),
    *_layers('layer.{layer}', qkv='attention.{q|k|v}_proj', bias='qv_bias',
             out='attention.o_proj', norms=('norm1', 'norm2'), mlp={
                 'up_proj': 'hidden', 'gate_proj': 'gate',
                 'down_proj': 'out'}),
    *norm('final_norm', 'norm', **WEIGHT)),
    renames={r'^model\.layer\.': 'layer.'},
    unused={'embeddings.mask_token': (1, 1, 0)},
    unsupported={r'.*\.k_proj\.bias': (
        'a bias of the keys, which DINOv3 has not, and no output uses')})

# ------------------------------------------- image towers: CLIP, SigLIP, AIMv2


def _tower(name: str, *rows: Row) -> Table:
  """Names of the image tower of a model of images and texts."""
  return Table(name, rows=(
      *both('patches', 'vision_model.embeddings.patch_embedding', kernel=CONV,
            **WEIGHT),
      Row('positions', 'vision_model.embeddings.position_embedding.weight'),
      *_layers('vision_model.encoder.layers.{layer}',
               qkv='self_attn.{q|k|v}_proj', out='self_attn.out_proj',
               norms=('layer_norm1', 'layer_norm2'), mlp=_MLP),
      *norm('final_norm', 'vision_model.post_layernorm', **WEIGHT),
      *both('head/dense', 'classifier', **DENSE),
      *rows),
      # Transformers 5 writes the image tower alone without a prefix.
      renames={
          r'^(embeddings\.|encoder\.|pre_layrnorm\.|post_layernorm\.|head\.'
          '|class_pos_emb$)': r'vision_model.\1'},
      ignored=(r'text_model\..*', r'text_projection\..*', 'logit_scale',
               'logit_bias', r'.*\.position_ids'))


_POOLING = 'vision_model.head'

SIGLIP = _tower(
    'siglip',
    Row('pooling/probe', f'{_POOLING}.probe', '1 n d -> n d'),
    # `split_pairs` and `join_pairs` convert these.
    Row('pooling/query_key_value/kernel',
        f'{_POOLING}.attention.in_proj_weight',
        '(parts pool_heads e) d -> parts d pool_heads e'),
    Row('pooling/query_key_value/bias', f'{_POOLING}.attention.in_proj_bias',
        '(parts pool_heads e) -> parts pool_heads e'),
    *both('pooling/out', f'{_POOLING}.attention.out_proj',
          kernel='d (pool_heads e) -> pool_heads e d', **WEIGHT),
    *norm('pooling/mlp_norm', f'{_POOLING}.layernorm', **WEIGHT),
    *both('pooling/mlp/hidden', f'{_POOLING}.mlp.fc1', **DENSE),
    *both('pooling/mlp/out', f'{_POOLING}.mlp.fc2', **DENSE))

# Patches of images of any aspect ratio are flat (NaFlex).
SIGLIP2 = dataclasses.replace(SIGLIP, name='siglip2', rows=tuple(
    dataclasses.replace(row, layout=FLAT) if row.layout == CONV else row
    for row in SIGLIP.rows))

CLIP = _tower(
    'clip',
    Row('cls', 'vision_model.embeddings.class_embedding', 'd -> 1 d'),
    Row('cls_angles', 'vision_model.class_pos_emb'),  # MLCD.
    *norm('stem_norm', 'vision_model.pre_layrnorm', **WEIGHT),
    Row('head/dense/kernel', 'visual_projection.weight', 'o i -> i o'))

AIMV2 = Table('aimv2', rows=(
    *both('patches', 'vision_model.embeddings.patch_embed', kernel=CONV,
          **WEIGHT),
    Row('positions', 'vision_model.embeddings.position_embedding.weight'),
    Row('patch_norm/scale', 'vision_model.embeddings.rms_norm.weight'),
    *_layers('vision_model.encoder.layers.{layer}', mlp_name='ffn',
             qkv='attention.{q|k|v}_proj', out='attention.out_proj',
             norms=('rms_norm1', 'rms_norm2'), mlp={
                 'up_proj': 'hidden', 'gate_proj': 'gate',
                 'down_proj': 'out'}),
    Row('final_norm/scale', 'vision_model.rms_norm.weight')),
    renames={r'^(embeddings|encoder|rms_norm|head)\.': r'vision_model.\1.'},
    ignored=CLIP.ignored,
    unsupported={r'(vision_model\.)?head\..*|visual_projection\..*': (
        'attention pooling without a query projection and an MLP, which our '
        'models lack')})
