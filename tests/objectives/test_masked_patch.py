"""Masked patch prediction against NumPy."""

import functools

import einops
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests import random_models
from vit_jax import objectives
from vit_jax import tree
from vit_jax.data import value_scale as value_scale_lib
from vit_jax.models import factory
from vit_jax.objectives import masked_patch
from vit_jax.objectives import patch_targets

MEAN, STD = (0.5, 0.4, 0.3), (0.5, 0.25, 0.2)
BYTES = np.random.default_rng(0).integers(0, 256, (3, 8, 12, 3))
IMAGES = jnp.asarray((BYTES / 255 - MEAN) / STD, jnp.float32)
BATCH = {'image': jnp.asarray(BYTES / 255, jnp.float32)}
SECTION = {'width': 16, 'depth': 1, 'num_heads': 2, 'mlp_dim': 32}
KEY = jax.random.key(3)
COLORS = jax.jit(patch_targets.colors, static_argnums=1)


def build(target, *, patch=4, corrupted=0.5, shares=(0.8, 0.1, 0.1), **section):
  """Returns objective, model and random parameters."""
  config = objectives.parse({
      'name': 'masked_patch', 'target': target, 'corrupted': corrupted,
      'shares': shares})
  model = config.build_model(
      factory.parse({**SECTION, 'patch': patch, **section}),
      image_shape=IMAGES.shape[1:], num_classes=5)
  objective = config.build(objectives.Context(
      model, value_scale=value_scale_lib.ValueScale(MEAN, STD)))
  params = random_models.randomize(model, IMAGES, scale=0.3, seed=4)
  return objective, model, params


def measure(objective, params, batch, key, *, train=True):
  return jax.jit(functools.partial(objective, train=train))(params, batch, key)


def predict(model, params, images, sources=None):
  return jax.jit(model.apply)({'params': params}, images, sources=sources)


def numpy_patches(images, patch):
  """Returns the patches of an image as a list, row by row."""
  return [[image[i:i + patch, j:j + patch]
           for i in range(0, image.shape[0], patch)
           for j in range(0, image.shape[1], patch)]
          for image in np.asarray(images, np.float64)]


def numpy_color(pixels):
  """Returns the class of the mean of bytes: 3 bits each of red, green, blue."""
  number = 0
  for channel in range(pixels.shape[-1]):
    total, count = int(pixels[..., channel].sum()), pixels[..., 0].size
    number = number * 8 + min(total * 8 // (255 * count), 7)
  return number


@pytest.mark.parametrize('rate, patches, want', [
    (0.5, 196, (78, 10, 10)), (0.15, 196, (23, 3, 3)), (0.5, 64, (26, 3, 3)),
    (0.5, 16, (6, 1, 1)), (0.15, 7, (1, 0, 0)), (1.0, 10, (8, 1, 1))])
def test_counts_are_the_shares_to_the_nearest_whole_patch(rate, patches, want):
  config = masked_patch.MaskedPatchConfig(corrupted=rate)
  assert masked_patch.counts(config, patches) == want


@pytest.mark.parametrize('rate', [0.5, 0.15])
def test_every_image_has_exact_fractions_at_random_patches(rate):
  config = masked_patch.MaskedPatchConfig(corrupted=rate)
  masked, swapped, kept = masked_patch.counts(config, 49)
  drawn = jax.device_get(config.corrupt(KEY, batch_size=64, patches=49))
  indices, sources = drawn['indices'], drawn['sources']
  own = np.arange(49)
  for chosen, source in zip(indices, sources):
    assert len(set(chosen)) == len(chosen) == masked + swapped + kept
    untouched = np.setdiff1d(own, chosen)
    np.testing.assert_array_equal(source[untouched], untouched)
    assert (source == 49).sum() == masked
    # A swapped patch never gets its own embedding.
    assert ((source != own) & (source != 49)).sum() == swapped
    assert (source[chosen] == chosen).sum() == kept
  assert len({tuple(sorted(chosen)) for chosen in indices}) == 64


def test_sources_select_the_embeddings():
  _, model, params = build('mean_color', position='none', pooling='average')
  sources = jnp.array([[0, 6, 1, 3, 4, 5], [6, 6, 2, 0, 4, 4],
                       [0, 1, 2, 3, 4, 5]])
  plain = jax.device_get(predict(model, params, IMAGES)['embedded'])
  got = jax.device_get(predict(model, params, IMAGES, sources)['embedded'])
  for image, row in enumerate(sources.tolist()):
    for place, source in enumerate(row):
      want = (params['masked_patch']['mask'] if source == 6
              else plain[image, source])
      np.testing.assert_allclose(got[image, place], want, rtol=1e-6)


@pytest.mark.parametrize('height, width', [(4, 4), (16, 8), (14, 14), (3, 10)])
def test_colors_are_the_means_of_bytes_by_area(height, width):
  pixels = np.random.default_rng(1).integers(0, 256, (5, height, width, 3))
  # The extremes, and a mean that lies on a border of two levels exactly.
  pixels[0], pixels[1] = 0, 255
  pixels[2] = np.where(np.indices((height, width)).sum(0) % 2, 255, 0)[
      ..., None]
  for side in (1, 4):
    # Parts of enlarged pixels are whole pixels.
    parts = einops.rearrange(
        pixels.repeat(side, axis=1).repeat(side, axis=2),
        'n (i h) (j w) c -> n (i j) (h w) c', i=side, j=side)
    np.testing.assert_array_equal(
        COLORS(jnp.asarray(pixels[None] / 255, jnp.float32), side)[0],
        [[numpy_color(part) for part in row] for row in parts])


def numpy_loss(target, predictions, corruption, patch):
  """Returns loss and accuracy of each image, patch by patch."""
  losses, hits = [], []
  in_range = numpy_patches(IMAGES, patch)
  for image, patches in enumerate(numpy_patches(BYTES, patch)):
    of_image, right = [], []
    for i, place in enumerate(corruption['indices'][image].tolist()):
      given = np.asarray(predictions[image, i], np.float64)
      if target == 'patch':
        of_image.append(((given - in_range[image][place].ravel())**2).mean())
        continue
      side = {'mean_color': 1, 'downsampled': 4}[target]
      block = patch // side
      for k, logits in enumerate(given.reshape(side * side, 512)):
        a, b = k // side * block, k % side * block
        color = numpy_color(patches[place][a:a + block, b:b + block])
        of_image.append(np.log(np.exp(logits).sum()) - logits[color])
        right.append(logits.argmax() == color)
    losses.append(np.mean(of_image))
    hits.append(np.mean(right) if right else None)
  return losses, hits


@pytest.mark.parametrize('target, section', [
    ('mean_color', {}), ('downsampled', {}),
    ('patch', {'pooling': 'average'}),
    ('mean_color', {
        'name': 'ablation', 'axial': True, 'pooling': 'average'})], ids=str)
def test_loss_equals_a_loop_over_corrupted_patches(target, section):
  objective, model, params = build(target, **section)
  corruption = objective.draw(IMAGES, KEY)
  outputs = predict(model, params, IMAGES, corruption['sources'])
  assert outputs['predictions'].shape[:2] == (3, 6)  # Every patch, in order.
  predictions = np.stack([row[at] for row, at in zip(*jax.device_get(
      (outputs['predictions'], corruption['indices'])))])
  loss, measures = measure(objective, params, BATCH, KEY, train=False)
  want, accuracy = numpy_loss(target, predictions, corruption, 4)
  np.testing.assert_allclose(loss, want, rtol=1e-4)
  assert tuple(measures) == tuple(objective.metrics)
  if target != 'patch':
    np.testing.assert_allclose(measures['color_accuracy'], accuracy, rtol=1e-6)


@pytest.mark.parametrize('target', ['mean_color', 'patch'])
def test_gradients_reach_the_mask_and_the_encoder_but_not_the_head(target):
  objective, _, params = build(target)
  grads = tree.flatten(jax.jit(jax.grad(
      lambda p: objective(p, BATCH, KEY)[0].mean()))(params))
  norms = {name: float(jnp.abs(leaf).max()) for name, leaf in grads.items()}
  assert norms['masked_patch/mask'] > 1e-6
  assert norms['patches/kernel'] > 1e-6
  assert norms['encoder/layers/attention/qkv_kernel'] > 1e-6
  assert norms['head/dense/kernel'] == norms['head/dense/bias'] == 0
