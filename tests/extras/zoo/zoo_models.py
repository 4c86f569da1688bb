"""Files of other codebases, with random weights."""

from tests import random_models
from vit_jax.extras.zoo import save as save_lib
from vit_jax.extras.zoo.families import families


def arrays(family, resolution=(32, 32), **settings):
  """Returns the arrays of a tiny model under a family's names."""
  return save_lib.to_arrays(
      families.FAMILIES[family], random_models.params(
          random_models.config_of(**settings), resolution))


# Files config.json for `arrays('huggingface')` and `arrays('timm')`.
HUGGINGFACE_CONFIG = {
    'model_type': 'vit', 'architectures': ['ViTForImageClassification'],
    'hidden_size': 12, 'num_hidden_layers': 2, 'num_attention_heads': 3,
    'intermediate_size': 20, 'image_size': 32, 'patch_size': 8,
    'qkv_bias': True, 'hidden_act': 'gelu_new', 'layer_norm_eps': 1e-7,
    'id2label': {str(i): f'class {i}' for i in range(5)}}
TIMM_CONFIG = {
    'architecture': 'vit_tiny_patch16_224', 'num_classes': 5,
    'num_features': 12, 'global_pool': 'token', 'model_args': {
        'img_size': 32, 'embed_dim': 12, 'depth': 2, 'num_heads': 3,
        'mlp_ratio': 20.5 / 12, 'patch_size': 8, 'act_layer': 'gelu_tanh'},
    'pretrained_cfg': {'mean': [0.1, 0.2, 0.3], 'input_size': [3, 32, 32]}}
