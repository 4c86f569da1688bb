"""Files .pt of "Implementing Vision Transformer from scratch"."""

from vit_jax.extras.zoo.families import names
from vit_jax.extras.zoo.families import records
from vit_jax.weights.formats import layout

_NAMES = layout.Table('scratch', names.rows("""
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

LINEAGE = records.Lineage(arrays=(records.Family(
    'scratch', '"Implementing Vision Transformer from scratch"', _NAMES,
    settings={**records.TANH, 'layer_norm_epsilon': 1e-5,
              'final_norm': False}),))
