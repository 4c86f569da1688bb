"""Names of arrays that several families share; our names are on the left."""

from collections.abc import Mapping
import functools
from typing import Any

from vit_jax.weights.formats import published_names
from vit_jax.weights.formats.layout import Table

LAYERS = published_names.LAYERS
# Relative biases of each layer and of all layers.
RELATIVE = f'{LAYERS}/attention/relative'
SHARED_RELATIVE = 'relative'

# Layouts of single arrays. Arrays of layers have the axis l, and separate
# queries, keys and values the axis n.
_LAYOUTS: Mapping[str, str] = {
    **published_names.LAYOUTS,
    'vector': 'd -> 1 d',
    'grid': '1 rows w d -> (rows w) d',
    'matrix': 'o i -> i o',
    'conv_kernel': 'o i h w -> h w i o',
    'conv_kernels': 'l o i h w -> l h w i o',
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
    **published_names.KERNELS,
    'conv': 'o i h w -> h w i o',
    'flat': 'o (side w channels) -> side w channels o',
    'dense': 'o i -> i o',
    'denses': 'l o i -> l i o',
    'out': 'l d (heads e) -> l heads e d',
    'pool_out': 'd (pool_heads e) -> pool_heads e d'}
# Ends of their names of a kernel or scale, and of a bias.
_TORCH = {'kernel': '.weight', 'scale': '.weight', 'bias': '.bias'}

rows = functools.partial(
    published_names.rows, ends=_TORCH, layouts=_LAYOUTS, kernels=_KERNELS)

# ------------------------------------------------- Transformers of Hugging Face

# Rows of ViT and DINOv2 that belong to no layer.
STEM = """
    patches      .embeddings.patch_embeddings.projection  conv
    cls          .embeddings.cls_token                    tokens
    positions    .embeddings.position_embeddings          tokens
    final_norm   .layernorm                               norm
    head/dense   classifier                               dense
    """
QKV = """
    @attention/qkv_kernel  @attention.{q|k|v}_proj.weight  qkv_kernel
    @attention/qkv_bias    @attention.{q|k|v}_proj.bias    qkv_bias
    """
QV = """
    @attention/qkv_kernel  @attention.{q|k|v}_proj.weight  qkv_kernel
    @attention/qv_bias     @attention.{q|v}_proj.bias      qkv_bias
    """
MLP = """
    @mlp/hidden      @mlp.fc1           denses
    @mlp/out         @mlp.fc2           denses
    """
LAYER = """
    @attention/out   @attention.o_proj  out
    @attention_norm  @layernorm_before  norm
    @mlp_norm        @layernorm_after   norm
    """ + MLP
SCALES = """
    @attention_scale  @layer_scale1.lambda1
    @mlp_scale        @layer_scale2.lambda1
    """
BEFORE_5: Mapping[str, Any] = {  # Names of transformers before version 5.
    r'\.encoder\.layer\.': '.layers.',
    r'\.attention\.attention\.(query|key|value)\.': (
        lambda found: f'.attention.{found[1][0]}_proj.'),
    r'\.attention\.output\.dense\.': '.attention.o_proj.',
    r'(\d)\.intermediate\.dense\.': r'\1.mlp.fc1.',
    r'(\d)\.output\.dense\.': r'\1.mlp.fc2.'}

# Names of the image tower of a model of images and texts.
TOWER_LAYER = 'vision_model.encoder.layers.{layer}.'


def tower(name: str, more: str) -> Table:
  return Table(name, rows(
      QKV.replace('@attention.', '@self_attn.') + MLP + """
      patches          .embeddings.patch_embedding            conv
      positions        .embeddings.position_embedding.weight
      @attention/out   @self_attn.out_proj                    out
      @attention_norm  @layer_norm1                           norm
      @mlp_norm        @layer_norm2                           norm
      final_norm       .post_layernorm                        norm
      head/dense       classifier                             dense
      """ + more, TOWER_LAYER, 'vision_model'),
      # Transformers 5 writes the image tower alone without a prefix.
      renames={
          r'^(embeddings|encoder|pre_layrnorm|post_layernorm|head)\.': (
              r'vision_model.\1.')},
      ignored=(r'text_model\..*', r'text_projection\..*', 'logit_scale',
               'logit_bias', r'.*\.position_ids'))
