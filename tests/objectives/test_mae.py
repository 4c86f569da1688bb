"""Masked autoencoders against NumPy."""


import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests import random_models
from vit_jax import objectives
from vit_jax import tree
from vit_jax.data import value_scale as value_scale_lib
from vit_jax.models import factory
from vit_jax.objectives import mae

MEAN, STD = (0.5, 0.4, 0.3), (0.5, 0.25, 0.2)
# Six patches, 4 x 4. A constant patch has no deviation.
IMAGES = np.random.default_rng(0).normal(size=(3, 8, 12, 3)).astype(np.float32)
IMAGES[0, :4, :4] = 0.25
ARRAY = jnp.asarray(IMAGES)
PIXELS = jnp.asarray(IMAGES * STD + MEAN, jnp.float32)
BATCH = {'image': PIXELS}
KEY = jax.random.key(3)
SECTION = {'width': 16, 'depth': 1, 'num_heads': 2, 'mlp_dim': 32, 'patch': 4}
TINY = {'decoder_width': 8, 'decoder_depth': 1, 'decoder_heads': 2}


def build(model=(), **section):
  """Returns objective, model and random parameters; four masked patches."""
  config = objectives.parse({'name': 'mae', 'masked': 2 / 3, **TINY, **section})
  module = config.build_model(
      factory.parse({**SECTION, **dict(model)}),
      image_shape=IMAGES.shape[1:], num_classes=5)
  params = random_models.randomize(module, ARRAY, scale=0.3, seed=4)
  objective = config.build(objectives.Context(
      module, value_scale=value_scale_lib.ValueScale(MEAN, STD)))
  return objective, module, params


def predict(model, params, drawn, images=IMAGES):
  """Returns the outputs, with predictions of every patch in order."""
  return jax.device_get(jax.jit(model.apply)(
      {'params': params}, jnp.asarray(images), sources=drawn['sources'],
      visible=drawn['visible'], indices=None))


def patch_at(images, image, place):
  row, column = divmod(place, 3)
  return images[image, 4 * row:4 * row + 4, 4 * column:4 * column + 4]


def test_every_image_has_a_random_quarter_of_visible_patches():
  config = mae.MaeConfig()
  drawn = jax.device_get(config.corrupt(KEY, batch_size=64, patches=49))
  assert drawn['visible'].shape == (64, 12)  # 49 - round(36.75)
  for visible, masked, sources in zip(
      drawn['visible'], drawn['indices'], drawn['sources']):
    assert sorted([*visible, *masked]) == list(range(49))
    # Visible patches are the encoder's outputs, in order; 12 is the mask.
    np.testing.assert_array_equal(sources[visible], np.arange(12))
    assert (sources[masked] == 12).all()
  # Every position is equally likely: 15.7 of 64, standard deviation 3.4.
  counts = np.bincount(drawn['visible'].ravel(), minlength=49)
  assert counts.min() >= 4
  assert counts.max() <= 28
  again = config.corrupt(KEY, batch_size=64, patches=49)
  jax.tree.map(np.testing.assert_array_equal, drawn, jax.device_get(again))


@pytest.mark.parametrize('target', ['normalized', 'patch'])
def test_loss_equals_a_loop_over_masked_patches(target, settings=()):
  objective, model, params = build(target=target, model=settings)
  drawn = objective.draw(ARRAY, KEY)
  predictions = predict(model, params, drawn)['predictions']
  # Masks are drawn, unless the batch has them.
  batch, key = ((BATCH, KEY) if target == 'patch' else
                (BATCH | drawn, jax.random.key(9)))
  loss, measures = jax.jit(objective)(params, batch, key)
  want = []
  for image in range(3):
    errors = []
    for place in drawn['indices'][image].tolist():
      pixels = patch_at(IMAGES, image, place).astype(np.float64).ravel()
      if target == 'normalized':
        pixels = (pixels - pixels.mean()) / np.sqrt(pixels.var(ddof=1) + 1e-6)
      errors.append((predictions[image, place] - pixels) ** 2)
    assert len(errors) == 4
    want.append(np.mean(errors))
  np.testing.assert_allclose(loss, want, rtol=1e-4)
  assert measures == {}


def test_the_encoder_sees_visible_patches_only():
  objective, model, params = build(model={'pooling': 'average'})
  drawn = objective.draw(ARRAY, KEY)
  plain = predict(model, params, drawn)
  assert plain['tokens'].shape == (3, 2, 16)
  for name in ('indices', 'visible'):
    images = IMAGES.copy()
    for image, places in enumerate(drawn[name].tolist()):
      for place in places:
        patch_at(images, image, place)[...] += np.linspace(0, 1, 3)
    changed = np.abs(predict(model, params, drawn, images)['predictions']
                     - plain['predictions']).max(axis=(1, 2))
    assert (changed > 1e-3).all() if name == 'visible' else not changed.any()


def test_visible_tokens_keep_their_positions(settings=(), prefix=0):
  """Without attention between patches, tokens are those of the whole image."""
  objective, model, params = build(
      model={'pooling': 'average', **dict(settings)})
  params['encoder']['layers']['attention']['out']['kernel'][...] = 0
  drawn = objective.draw(ARRAY, KEY)
  got = predict(model, params, drawn)['tokens']
  tokens = jax.jit(model.apply)({'params': params}, ARRAY)['tokens']
  want = np.take_along_axis(
      np.asarray(tokens[:, prefix:]), np.asarray(drawn['visible'])[..., None],
      axis=1)
  np.testing.assert_allclose(got[:, prefix:], want, rtol=1e-4, atol=1e-5)


def test_gradients_reach_the_class_token_but_not_the_head():
  objective, _, params = build()
  grads = tree.flatten(jax.jit(jax.grad(
      lambda p: objective(p, BATCH, KEY)[0].mean()))(params))
  for name, grad in grads.items():
    assert (np.abs(grad).max() > 1e-7) == (not name.startswith('head/')), name
