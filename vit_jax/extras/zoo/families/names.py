"""Parameter names of weight families, as tables; our names are on the left."""

from collections.abc import Mapping
import functools

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
