"""State dicts of the tutorial "Implementing Vision Transformer from scratch".
"""

import numpy as np
import pytest

import vit_jax

torch = pytest.importorskip('torch', reason='torch is not installed')

WIDTH, DEPTH, HEADS, PATCH, SIDE = 24, 2, 2, 8, 32


def tutorial_model():
  """Returns a model without final norm, with tanh GELU and torch's epsilon."""
  nn = torch.nn

  class Attention(nn.Module):

    def __init__(self):
      super().__init__()
      self.qkv_projection = nn.Linear(WIDTH, 3 * WIDTH)
      self.output_projection = nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
      query, key, value = (
          part.unflatten(-1, (HEADS, -1)).transpose(1, 2)
          for part in self.qkv_projection(x).chunk(3, dim=-1))
      logits = query @ key.transpose(-1, -2) / (WIDTH // HEADS) ** 0.5
      mixed = logits.softmax(-1) @ value
      return self.output_projection(mixed.transpose(1, 2).flatten(2))

  class Mlp(nn.Module):

    def __init__(self):
      super().__init__()
      self.dense_1 = nn.Linear(WIDTH, 2 * WIDTH)
      self.dense_2 = nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x):
      x = self.dense_1(x)
      gelu = 0.5 * x * (1 + torch.tanh(
          (2 / torch.pi) ** 0.5 * (x + 0.044715 * x ** 3)))
      return self.dense_2(gelu)

  class Block(nn.Module):

    def __init__(self):
      super().__init__()
      self.attention, self.mlp = Attention(), Mlp()
      self.layernorm_1, self.layernorm_2 = (
          nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH))

    def forward(self, x):
      x = x + self.attention(self.layernorm_1(x))
      return x + self.mlp(self.layernorm_2(x))

  class Model(nn.Module):

    def __init__(self):
      super().__init__()
      patches = nn.Module()
      patches.projection = nn.Conv2d(3, WIDTH, PATCH, PATCH)
      self.embedding = nn.Module()
      self.embedding.patch_embeddings = patches
      self.embedding.cls_token = nn.Parameter(torch.zeros(1, 1, WIDTH))
      self.embedding.position_embeddings = nn.Parameter(
          torch.zeros(1, (SIDE // PATCH) ** 2 + 1, WIDTH))
      self.encoder = nn.Module()
      self.encoder.blocks = nn.ModuleList(Block() for _ in range(DEPTH))
      self.classifier = nn.Linear(WIDTH, 5)

    def forward(self, images):
      x = self.embedding.patch_embeddings.projection(images)
      x = x.flatten(2).transpose(1, 2)
      cls = self.embedding.cls_token.expand(len(x), -1, -1)
      x = torch.cat([cls, x], dim=1) + self.embedding.position_embeddings
      for block in self.encoder.blocks:
        x = block(x)
      return self.classifier(x[:, 0])

  return Model()


@pytest.mark.parametrize('wrap', [
    dict, lambda weights: {'model': weights, 'step': 3},
    lambda weights: {f'module.{n}': a for n, a in weights.items()}],
    ids=['bare', 'nested', 'data parallel'])
def test_a_tutorial_model_computes_the_same_logits(
    wrap, torch_models, tmp_path):
  theirs = torch_models.perturbed(tutorial_model())
  torch.save(wrap(theirs.state_dict()), tmp_path / 'x.pth')
  ours = vit_jax.load(tmp_path / 'x.pth', log=None, num_heads=HEADS)
  assert (ours.config.final_norm, ours.config.gelu,
          ours.config.layer_norm_epsilon) == (False, 'tanh', 1e-5)
  images = torch_models.images(SIDE, SIDE)
  np.testing.assert_allclose(
      ours(images)['logits'], torch_models.logits(theirs, images),
      rtol=1e-4, atol=1e-5)


def test_other_state_dicts_and_pickled_modules_are_refused(tmp_path):
  torch.save({'model': {'fc.weight': torch.ones(2)}}, tmp_path / 'x.pth')
  with pytest.raises(ValueError, match='known family.*fc.weight'):
    vit_jax.load(tmp_path / 'x.pth')
  torch.save(torch.nn.Linear(2, 2), tmp_path / 'y.pth')
  with pytest.raises(ValueError, match='weights_only'):
    vit_jax.load(tmp_path / 'y.pth')
