"""The published sizes: shapes and parameter counts, without any arithmetic."""

import re

import jax
import jax.numpy as jnp
import pytest

from vit_jax import models
from vit_jax import tree
from vit_jax.models import variants

# Parameters with 1,000 classes at 224x224. Ti to H are the published figures
# (timm's model cards, and the checkpoints of the paper); nobody published g and
# G with 1,000 classes: theirs come from `formula` below, which is tested
# against the published ones.
PARAMETERS = {
    'Ti/16': 5_717_416,
    'S/16': 22_050_664,
    'B/32': 88_224_232,
    'B/16': 86_567_656,
    'L/16': 304_326_632,
    'H/14': 632_045_800,
    'g/14': 1_012_611_432,
    'G/14': 1_844_440_680,
}


def abstract(section, *, image=(224, 224, 3), num_classes=1000):
  model = models.build(models.parse(section), num_classes=num_classes)
  images = jax.ShapeDtypeStruct((2, *image), jnp.float32)
  params = jax.eval_shape(
      lambda: models.init(model, jax.random.key(0), images))
  outputs = jax.eval_shape(
      lambda p, x: model.apply({'params': p}, x), params, images)
  return params, outputs


def formula(*, width, depth, mlp_dim, patch, size=224, classes=1000):
  """Table 1 of the paper, written out."""
  tokens = 1 + (size // patch) ** 2
  embedding = (3 * patch**2 + 1) * width + width + tokens * width
  attention = 4 * (width + 1) * width
  mlp = (width + 1) * mlp_dim + (mlp_dim + 1) * width
  norm = 2 * width
  layer = attention + mlp + 2 * norm
  return embedding + depth * layer + norm + (width + 1) * classes


def test_every_size_has_a_golden_parameter_count():
  assert {name.split('/')[0] for name in PARAMETERS} == set(variants.SIZES)


@pytest.mark.parametrize('variant', PARAMETERS)
def test_parameter_count_is_the_published_one(variant):
  params, _ = abstract({'variant': variant})
  assert tree.num_elements(params) == PARAMETERS[variant]


@pytest.mark.parametrize('variant', PARAMETERS)
def test_golden_count_is_that_of_the_formula(variant):
  size, patch = variants.parse_variant(variant)
  assert PARAMETERS[variant] == formula(
      width=size.width, depth=size.depth, mlp_dim=size.mlp_dim, patch=patch)


@pytest.mark.parametrize('size', variants.SIZES)
@pytest.mark.parametrize('patch', [8, 14, 32])
def test_shapes_of_every_variant(size, patch):
  params, outputs = abstract({'variant': f'{size}/{patch}'})
  row = variants.SIZES[size]
  width, depth, heads = row.width, row.depth, row.num_heads
  tokens = 1 + (224 // patch) ** 2
  assert {name: leaf.shape for name, leaf in outputs.items()} == {
      'embedded': (2, tokens, width), 'tokens': (2, tokens, width),
      'pooled': (2, width), 'representation': (2, width), 'logits': (2, 1000)}
  shapes = {name.removesuffix('/value'): leaf.shape
            for name, leaf in tree.flatten(params).items()}
  layer = 'encoder/layers/'
  assert shapes == {
      'patches/kernel': (patch, patch, 3, width), 'patches/bias': (width,),
      'cls': (1, width), 'positions': (tokens, width),
      layer + 'attention_norm/scale': (depth, width),
      layer + 'attention_norm/bias': (depth, width),
      layer + 'attention/qkv_kernel': (
          depth, width, 3, heads, width // heads),
      layer + 'attention/qkv_bias': (depth, 3, heads, width // heads),
      layer + 'attention/out/kernel': (depth, heads, width // heads, width),
      layer + 'attention/out/bias': (depth, width),
      layer + 'mlp_norm/scale': (depth, width),
      layer + 'mlp_norm/bias': (depth, width),
      layer + 'mlp/hidden/kernel': (depth, width, row.mlp_dim),
      layer + 'mlp/hidden/bias': (depth, row.mlp_dim),
      layer + 'mlp/out/kernel': (depth, row.mlp_dim, width),
      layer + 'mlp/out/bias': (depth, width),
      'final_norm/scale': (width,), 'final_norm/bias': (width,),
      'head/dense/kernel': (width, 1000), 'head/dense/bias': (1000,)}
  assert all(leaf.dtype == jnp.float32 for leaf in jax.tree.leaves(params))


def test_dimensions_given_beside_a_variant_win():
  config = models.parse({'variant': 'B/16', 'depth': 3, 'patch': [8, 4]})
  assert (config.width, config.depth, config.patch_shape) == (768, 3, (8, 4))


def test_classes_of_the_config_win_over_those_offered():
  _, outputs = abstract({'variant': 'Ti/16', 'num_classes': 7})
  assert outputs['logits'].shape == (2, 7)


@pytest.mark.parametrize('variant', ['B', 'B16', 'B/', '/16', 'B/0', 'B/16x'])
def test_malformed_variant_is_told_the_form_and_the_sizes(variant):
  with pytest.raises(ValueError, match=re.escape(
      f'A variant is written SIZE/PATCH, for example "B/16", but is '
      f'{variant!r}. Sizes: Ti, S, B, L, H, g, G.')):
    variants.parse_variant(variant)


def test_unknown_size_is_told_the_known_ones():
  with pytest.raises(ValueError, match="model size.*'X'") as caught:
    models.parse({'variant': 'X/16'})
  assert 'Ti, S, B, L, H, g, G' in str(caught.value)


def test_missing_dimensions_are_named():
  with pytest.raises(ValueError, match=re.escape(
      'neither a variant nor depth, num_heads. Set model.variant')):
    models.parse({'width': 8, 'mlp_dim': 8, 'patch': 4})


@pytest.mark.parametrize('section, words', [
    ({'dropout': 1.0}, 'dropout is a probability in [0, 1), but is 1.0.'),
    ({'stochastic_depth': -0.1},
     'stochastic_depth is a probability in [0, 1), but is -0.1.'),
    ({'depth': -1}, 'depth cannot be negative, but is -1.'),
    ({'patch': [16, -1]}, 'patch cannot be negative'),
    ({'unroll': 0}, 'unroll must be at least 1, but is 0.'),
    ({'width': 100, 'num_heads': 3}, 'width 100 does not divide into 3 heads.'),
    ({'dropuot': 0.1}, 'dropout'),
])
def test_impossible_settings_are_named(section, words):
  with pytest.raises(ValueError, match=re.escape(words)):
    models.parse({'variant': 'B/16', **section})


def test_width_that_the_variants_heads_do_not_divide_is_an_error():
  with pytest.raises(ValueError, match='width 100 does not divide into 12'):
    models.parse({'variant': 'B/16', 'width': 100})
