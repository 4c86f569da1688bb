"""Images that keep their aspect ratio are processed in groups of one grid."""

import jax
import numpy as np
import pytest

from tests import random_models
import vit_jax
from vit_jax.data import preprocessing
from vit_jax.inference import model as model_lib

PATCHES = {'op': 'resize_to_patches', 'patch': 8, 'max_patches': 16}


@pytest.fixture(scope='module')
def model():
  created = vit_jax.create(**{
      **random_models.TINY, 'pooling': 'average'}, resolution=32)
  rng = np.random.default_rng(0)
  params = jax.tree.map(
      lambda array: rng.normal(0, 0.5, array.shape).astype(np.float32),
      created.params)
  return created.with_params(params, preprocess=preprocessing.parse({
      'resolution': 32, 'ops': [PATCHES]}), positions='cubic')


@pytest.fixture(scope='module')
def pictures():
  rng = np.random.default_rng(0)
  sizes = [(30, 30), (20, 50), (31, 31), (50, 20), (20, 50), (64, 64), (9, 90)]
  return [rng.integers(0, 256, (*size, 3), np.uint8) for size in sizes]


@pytest.mark.parametrize('batch_size', [1, 3, 32])
@pytest.mark.parametrize('layer', ['representation', 'mean', 'mean:1'])
def test_groups_change_neither_features_nor_their_order(
    layer, batch_size, model, pictures):
  found = model.features(pictures, layer=layer, batch_size=batch_size)
  alone = [model.features(picture, layer=layer) for picture in pictures]
  np.testing.assert_allclose(found, alone, rtol=1e-5, atol=1e-6)


def test_the_grid_of_an_image_is_that_of_its_aspect_ratio(model, pictures):
  wide = model_lib.images_lib.read(pictures[1], model.preprocess)
  assert wide.shape == (16, 40, 3)
  np.testing.assert_allclose(
      model(wide[None])['logits'][0], model.features(
          pictures[1], layer='logits'), rtol=1e-5, atol=1e-6)


def test_an_unreadable_image_is_left_out_of_its_group(model, pictures):
  failed = []
  images = [*pictures[:2], 'missing.png', *pictures[2:]]
  (sources, outputs), = model.outputs(
      images, on_error=lambda image, _: failed.append(image))
  assert failed == ['missing.png'] and len(sources) == len(pictures)
  np.testing.assert_allclose(
      outputs['logits'], model.features(pictures, layer='logits'), rtol=1e-5)


@pytest.mark.parametrize('call', [
    lambda model, images: model.features(images, layer='patches'),
    lambda model, images: model.features(images, layer='tokens:1'),
    lambda model, images: model.rollout(images),
    lambda model, images: list(model.outputs(images, names=('layers',)))])
def test_what_needs_one_grid_is_an_error_that_says_how(call, model, pictures):
  with pytest.raises(ValueError, match='needs images of one size, but the mod'):
    call(model, pictures)


def test_another_resolution_has_as_many_patches(model):
  assert model.preprocess.resized((64, 32)).sections == [
      {**PATCHES, 'max_patches': 32, 'method': 'bilinear'}]
