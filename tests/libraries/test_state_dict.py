"""State dicts of the tutorial "Implementing Vision Transformer from scratch".
"""

import functools

import pytest

import vit_jax

torch = pytest.importorskip('torch', reason='torch is not installed')
timm = pytest.importorskip('timm', reason='timm is not installed')

# Names of timm, and those of the tutorial.
NAMES = {
    'patch_embed.proj': 'embedding.patch_embeddings.projection',
    'cls_token': 'embedding.cls_token',
    'pos_embed': 'embedding.position_embeddings', 'head.': 'classifier.',
    'blocks.': 'encoder.blocks.', 'norm1': 'layernorm_1',
    'norm2': 'layernorm_2', 'attn.qkv': 'attention.qkv_projection',
    'attn.proj': 'attention.output_projection', 'mlp.fc1': 'mlp.dense_1',
    'mlp.fc2': 'mlp.dense_2'}


def renamed(name):
  for theirs, tutorials in NAMES.items():
    name = name.replace(theirs, tutorials)
  return name


def test_a_tutorial_model_computes_the_same_logits(torch_models, tmp_path):
  # It has no final norm, a tanh GELU and the epsilon of torch.
  theirs = torch_models.perturbed(timm.create_model(
      'vit_tiny_patch16_224', img_size=32, patch_size=8, embed_dim=24, depth=2,
      num_heads=2, num_classes=5, act_layer='gelu_tanh', final_norm=False,
      norm_layer=functools.partial(torch.nn.LayerNorm, eps=1e-5)))
  torch.save({renamed(n): array for n, array in theirs.state_dict().items()},
             tmp_path / 'x.pth')
  ours = vit_jax.load(tmp_path / 'x.pth', log=None, num_heads=2)
  images = torch_models.images()
  torch_models.assert_close(
      ours(images)['logits'], torch_models.logits(theirs, images))
