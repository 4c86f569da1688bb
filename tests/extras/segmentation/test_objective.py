"""The decoder, the loss of pixels against NumPy, and what both need."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests import random_models
from tests import toy
from tests.experiment import test_steps
from vit_jax import tree
from vit_jax.extras.segmentation import mask_reader
from vit_jax.extras.segmentation import objective as segmentation
from vit_jax.inference import load as load_lib
from vit_jax.models import factory

MODEL = {'width': 8, 'depth': 3, 'num_heads': 2, 'mlp_dim': 16, 'patch': 4}
IMAGES = jax.random.normal(jax.random.key(0), (2, 8, 12, 3))


def build(classes=5, **decoder):
  module = factory.build(
      factory.parse({**MODEL, 'decoder': decoder}), num_classes=classes)
  return module, jax.tree.map(jnp.asarray, random_models.randomize(
      module, IMAGES, scale=0.3, seed=1))


def apply(module, params, **options):
  return jax.jit(functools.partial(module.apply, **options))(
      {'params': params}, IMAGES)


@pytest.mark.parametrize(('decoder', 'shape'), [
    ({}, (8, 12)), ({'cells': 1}, (2, 3)), ({'widths': [6, 4], 'cells': 1},
                                            (8, 12)),
    ({'widths': [6], 'cells': 3, 'layers': [1, 3]}, (12, 18))])
def test_logits_have_the_resolution_of_the_decoder(decoder, shape):
  module, params = build(**decoder)
  outputs = jax.eval_shape(module.apply, {'params': params}, IMAGES)
  assert outputs['logits'].shape == (2, *shape, 5)


def test_a_linear_decoder_is_a_product_of_each_token():
  module, params = build(cells=2)
  outputs = apply(module, params)
  tokens = np.asarray(outputs['tokens'])[:, 1:].reshape(2, 2, 3, 8)
  dense = params['head']['dense']
  for row, column, i, j in ((0, 2, 1, 0), (1, 1, 0, 1)):
    np.testing.assert_allclose(
        outputs['logits'][:, 2 * row + i, 2 * column + j],
        tokens[:, row, column] @ dense['kernel'][:, i, j] + dense['bias'][i, j],
        rtol=1e-5, atol=1e-5)


def test_layers_are_those_of_the_config():
  module, params = build(cells=1, layers=[2])
  outputs = apply(module, params, capture=True)
  tokens = np.asarray(outputs['layers']['after_mlp'][1])[:, 1:]
  centred = tokens - tokens.mean(-1, keepdims=True)
  normed = centred / np.sqrt(tokens.var(-1, keepdims=True) + 1e-6)
  head = jax.tree.map(np.asarray, params['head'])
  normed = normed * head['norm_of_layer_2']['scale'] + head[
      'norm_of_layer_2']['bias']
  expected = normed @ head['dense']['kernel'][:, 0, 0] + head['dense']['bias']
  np.testing.assert_allclose(
      apply(module, params)['logits'].reshape(2, 6, 5),
      expected.reshape(2, 6, 5), rtol=1e-4, atol=1e-4)


def test_the_decoder_is_the_head_and_the_rest_is_the_plain_model():
  _, params = build(widths=[6])
  plain = factory.build(factory.parse(MODEL), num_classes=5)
  names = tree.flatten(random_models.shapes_of(plain, IMAGES))
  assert {n for n in tree.flatten(params) if not n.startswith('head/')} == {
      n for n in names if not n.startswith('head/')}
  assert not factory.inherit({}, {'name': 'vit', 'decoder': {}, 'width': 8}
                            ).get('decoder')


def test_classes_of_a_decoder_are_reordered_by_its_last_layer():
  model = random_models.make(
      {**random_models.TINY, 'depth': 1, 'num_classes': 3,
       'decoder': {'widths': (3,)}}, side=8, labels=('cat', 'dog', 'owl'))
  other = load_lib.rename(model, ('owl', 'cat', 'dog'))
  images = np.random.default_rng(0).normal(size=(2, 8, 8, 3)).astype(np.float32)
  np.testing.assert_array_equal(
      other(images)['logits'], model(images)['logits'][..., [2, 0, 1]])


OBJECTIVE = {'name': 'segmentation', 'classes': ['ground', 'shape']}
DATA = {'source': 'shapes'}


def example(seed=0):
  rng = np.random.default_rng(seed)
  logits = rng.normal(size=(3, 6, 8, 4)).astype(np.float32)
  labels = rng.integers(0, 4, (3, 6, 8)).astype(np.uint8)
  labels[rng.uniform(size=labels.shape) < 0.3] = mask_reader.IGNORED
  labels[2] = mask_reader.IGNORED
  return jnp.asarray(logits), jnp.asarray(labels)


@pytest.mark.parametrize('weights', [(), (0.5, 0.0, 2.0, 1.0)])
def test_the_loss_is_the_weighted_mean_over_pixels_with_a_class(weights):
  logits, labels = example()
  loss, metrics = jax.device_get(jax.jit(functools.partial(
      segmentation.pixel_loss, weights=weights))(logits, labels))
  logits, labels = np.asarray(logits), np.asarray(labels)
  for i in range(2):
    known = labels[i] != mask_reader.IGNORED
    scores, classes = logits[i][known].astype(np.float64), labels[i][known]
    errors = np.log(np.exp(scores).sum(-1)) - scores[
        np.arange(len(classes)), classes]
    assert loss[i] == pytest.approx(np.average(
        errors, weights=np.array(weights or [1] * 4)[classes]), rel=1e-5)
    assert metrics['pixel_accuracy'][i] == pytest.approx(
        (scores.argmax(-1) == classes).mean())
  assert loss[2] == metrics['pixel_accuracy'][2] == 0


def test_pixels_without_a_class_have_no_gradient():
  logits, labels = example()
  gradient = jax.jit(jax.grad(
      lambda x: segmentation.pixel_loss(x, labels)[0].sum()))(logits)
  assert np.isfinite(gradient).all()
  np.testing.assert_array_equal(
      np.abs(gradient).sum(-1) > 0, labels != mask_reader.IGNORED)


def test_logits_are_interpolated_to_the_mask():
  logits, _ = example()
  labels = jnp.zeros((3, 12, 16), jnp.uint8)
  pixel_loss = jax.jit(segmentation.pixel_loss)
  fine = jax.image.resize(logits, (3, 12, 16, 4), 'bilinear')
  np.testing.assert_allclose(*(
      pixel_loss(each, labels)[0] for each in (logits, fine)), rtol=1e-5)


@pytest.mark.slow  # Compiles training steps.
def test_devices_and_microbatches_do_not_change_the_steps():
  test_steps.assert_same_steps(*(toy.build(
      data=DATA | {'train_ops': [{'op': 'inception_crop'}, {'op': 'flip'}]},
      devices=devices, batch_size=16, objective=OBJECTIVE,
      accumulation=accumulation,
      optimizer={'name': 'sgd', 'learning_rate': 0.3},
      model={'pooling': 'average', 'patch': 2, 'depth': 2,
             'decoder': {'widths': [8], 'layers': [1, 2]}})
                                 for devices, accumulation in ((1, 1), (4, 2))))
