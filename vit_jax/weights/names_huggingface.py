"""Parameter names of Hugging Face's models, in the files that it writes.

The same file holds other models, such as a text tower, which are ignored.
"""

from typing import Any

from vit_jax.weights.layout import Row
from vit_jax.weights.layout import Table
from vit_jax.weights.names import both
from vit_jax.weights.names import CONV
from vit_jax.weights.names import DENSE
from vit_jax.weights.names import DENSES
from vit_jax.weights.names import DISTILLED
from vit_jax.weights.names import LAYERS
from vit_jax.weights.names import norm
from vit_jax.weights.names import OUT
from vit_jax.weights.names import WEIGHT


def _attention(qkv: str, out: str) -> tuple[Row, ...]:
  """Rows of separate queries, keys and values, and of their output."""
  return (
      Row(f'{LAYERS}/attention/qkv_kernel', f'{qkv}.weight',
          'n l (heads e) d -> l d n heads e'),
      Row(f'{LAYERS}/attention/qkv_bias', f'{qkv}.bias',
          'n l (heads e) -> l n heads e'),
      *both(f'{LAYERS}/attention/out', out, **OUT))


def _norms(*pairs: tuple[str, str]) -> tuple[Row, ...]:
  return tuple(row for ours, theirs in pairs
               for row in norm(ours, theirs, **WEIGHT))


def _scales(layer: str) -> tuple[Row, ...]:
  return (Row(f'{LAYERS}/attention_scale', f'{layer}.layer_scale1.lambda1'),
          Row(f'{LAYERS}/mlp_scale', f'{layer}.layer_scale2.lambda1'))


def _mlp(layer: str, **theirs: str) -> tuple[Row, ...]:
  return tuple(row for ours, name in theirs.items() for row in both(
      f'{LAYERS}/mlp/{ours}', f'{layer}.mlp.{name}', **DENSES))


# ----------------------------------------------------------------- ViT, DeiT

_VIT_LAYER = 'vit.layers.{layer}'

HUGGINGFACE = Table('huggingface', rows=(
    *both('patches', 'vit.embeddings.patch_embeddings.projection',
          kernel=CONV, **WEIGHT),
    Row('cls', 'vit.embeddings.cls_token', '1 n d -> n d'),
    Row('positions', 'vit.embeddings.position_embeddings', '1 n d -> n d'),
    *_attention(f'{_VIT_LAYER}.attention.{{q|k|v}}_proj',
                f'{_VIT_LAYER}.attention.o_proj'),
    *_norms((f'{LAYERS}/attention_norm', f'{_VIT_LAYER}.layernorm_before'),
            (f'{LAYERS}/mlp_norm', f'{_VIT_LAYER}.layernorm_after'),
            ('final_norm', 'vit.layernorm')),
    *_mlp(_VIT_LAYER, hidden='fc1', out='fc2'),
    *both('representation/dense', 'vit.pooler.dense', **DENSE),
    *both('head/dense', 'classifier', **DENSE)),
    renames={
        # A model without a head, and DeiT.
        r'^(deit\.)?(embeddings|encoder|layers|layernorm|pooler)\.': r'vit.\2.',
        # Before transformers 5.
        r'^vit\.encoder\.layer\.': 'vit.layers.',
        r'\.attention\.attention\.(query|key|value)\.': (
            lambda found: f'.attention.{found[1][0]}_proj.'),
        r'\.attention\.output\.dense\.': '.attention.o_proj.',
        r'(\d)\.intermediate\.dense\.': r'\1.mlp.fc1.',
        r'(\d)\.output\.dense\.': r'\1.mlp.fc2.'},
    unsupported={
        r'.*distillation_token|(cls|distillation)_classifier\..*': DISTILLED,
        r'.*mask_token': 'a mask token, which our models lack'})

# -------------------------------------------------------------------- DINOv2



def _dinov2(name: str, *rows: Row) -> Table:
  layer = f'{name}.encoder.layer.{{layer}}'
  return Table(name, rows=(
      *both('patches', f'{name}.embeddings.patch_embeddings.projection',
            kernel=CONV, **WEIGHT),
      Row('cls', f'{name}.embeddings.cls_token', '1 n d -> n d'),
      Row('positions', f'{name}.embeddings.position_embeddings',
          '1 n d -> n d'),
      *_attention(f'{layer}.attention.attention.{{query|key|value}}',
                  f'{layer}.attention.output.dense'),
      *_norms((f'{LAYERS}/attention_norm', f'{layer}.norm1'),
              (f'{LAYERS}/mlp_norm', f'{layer}.norm2'),
              ('final_norm', f'{name}.layernorm')),
      *_scales(layer),
      *_mlp(layer, hidden='fc1', out='fc2'),
      # SwiGLU: the gates are before the hidden units.
      *_mlp(layer, hidden='weights_in', out='weights_out'),
      *both('head/dense', 'classifier', **DENSE),
      *rows),
      # A model without a head.
      renames={r'^(embeddings|encoder|layernorm)\.': rf'{name}.\1.'},
      unused={f'{name}.embeddings.mask_token': (1, 0)})


DINOV2 = _dinov2('dinov2')
DINOV2_REGISTERS = _dinov2('dinov2_with_registers', Row(
    'registers', 'dinov2_with_registers.embeddings.register_tokens',
    '1 n d -> n d'))

# -------------------------------------------------------------------- DINOv3

_DINOV3_LAYER = 'layer.{layer}'

DINOV3 = Table('dinov3', rows=(
    *both('patches', 'embeddings.patch_embeddings', kernel=CONV, **WEIGHT),
    Row('cls', 'embeddings.cls_token', '1 n d -> n d'),
    Row('registers', 'embeddings.register_tokens', '1 n d -> n d'),
    Row(f'{LAYERS}/attention/qv_bias',
        f'{_DINOV3_LAYER}.attention.{{q|v}}_proj.bias',
        'n l (heads e) -> l n heads e'),
    Row(f'{LAYERS}/attention/qkv_kernel',
        f'{_DINOV3_LAYER}.attention.{{q|k|v}}_proj.weight',
        'n l (heads e) d -> l d n heads e'),
    *both(f'{LAYERS}/attention/out', f'{_DINOV3_LAYER}.attention.o_proj',
          **OUT),
    *_norms((f'{LAYERS}/attention_norm', f'{_DINOV3_LAYER}.norm1'),
            (f'{LAYERS}/mlp_norm', f'{_DINOV3_LAYER}.norm2'),
            ('final_norm', 'norm')),
    *_scales(_DINOV3_LAYER),
    *_mlp(_DINOV3_LAYER, hidden='up_proj', gate='gate_proj', out='down_proj')),
    renames={r'^model\.layer\.': 'layer.'},
    unused={'embeddings.mask_token': (1, 1, 0)},
    unsupported={r'.*\.k_proj\.bias': (
        'a bias of the keys, which DINOv3 has not, and no output uses')})

# -------------------------------------------------- image towers: CLIP, SigLIP

_TOWER_LAYER = 'vision_model.encoder.layers.{layer}'


def _tower(name: str, *rows: Row, **unused: Any) -> Table:
  """Names of the image tower of a model of images and texts."""
  return Table(name, rows=(
      *both('patches', 'vision_model.embeddings.patch_embedding', kernel=CONV,
            **WEIGHT),
      Row('positions', 'vision_model.embeddings.position_embedding.weight'),
      *_attention(f'{_TOWER_LAYER}.self_attn.{{q|k|v}}_proj',
                  f'{_TOWER_LAYER}.self_attn.out_proj'),
      *_norms((f'{LAYERS}/attention_norm', f'{_TOWER_LAYER}.layer_norm1'),
              (f'{LAYERS}/mlp_norm', f'{_TOWER_LAYER}.layer_norm2'),
              ('final_norm', 'vision_model.post_layernorm')),
      *_mlp(_TOWER_LAYER, hidden='fc1', out='fc2'),
      *both('head/dense', 'classifier', **DENSE),
      *rows),
      # Transformers 5 writes the image tower alone without a prefix.
      renames={
          r'^(embeddings|encoder|pre_layrnorm|post_layernorm|head)\.': (
              r'vision_model.\1.')},
      ignored=(r'text_model\..*', r'text_projection\..*', 'logit_scale',
               'logit_bias', r'.*\.position_ids'),
      **unused)


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

CLIP = _tower(
    'clip',
    Row('cls', 'vision_model.embeddings.class_embedding', 'd -> 1 d'),
    *norm('stem_norm', 'vision_model.pre_layrnorm', **WEIGHT),
    Row('head/dense/kernel', 'visual_projection.weight', 'o i -> i o'))
