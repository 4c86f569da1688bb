"""The scale of pixels is measured on training images."""

import dataclasses

import numpy as np
import pytest

from tests import hostile
from tests import in_memory
from vit_jax import data
from vit_jax.data import dataset as dataset_lib

RNG = np.random.default_rng(0)


def dataset_of(images):
  return dataset_lib.Dataset(
      name='deep', split='train', num_classes=2,
      source=in_memory.Arrays(images, [0, 1] * 3))


def test_multichannel_batches_are_scaled_on_the_device():
  config = data.parse({
      'channels': 13, 'dtype': 'uint16', 'value_range': [0, 10_000],
      'resolution': 8, 'mean': 'measured', 'std': 'measured'})
  dataset = dataset_of([
      hostile.npy(RNG.integers(c, 10_000, (8, 8, 13), np.uint16))
      for c in range(6)])
  with pytest.raises(ValueError, match='data.mean is not measured yet'):
    _ = config.value_scale
  config = data.measured(config, dataset)
  (batch,) = data.eval_batches(config, dataset, batch_size=6)
  assert batch['image'].dtype == np.uint16
  prepared = data.prepare(config, dataset)(batch, None, train=False)['image']
  reflectances = batch['image'] / 10_000
  np.testing.assert_allclose(
      config.mean, reflectances.mean((0, 1, 2)), rtol=1e-3)
  np.testing.assert_allclose(
      prepared, reflectances, atol=1e-6)


def test_measuring_follows_the_policy_for_training_images():
  dataset = dataset_of([b'broken', *RNG.integers(
      0, 255, (5, 2, 2, 3), np.uint8)])
  config = data.parse({
      'resolution': 2, 'mean': 'measured', 'std': 'measured',
      'unreadable': 'skip'})
  assert len(data.measured(config, dataset).mean) == 3
  config = dataclasses.replace(config, unreadable='error')
  with pytest.raises(ValueError, match='images with --config.data.unreadable'):
    data.measured(config, dataset)


def test_a_constant_channel_cannot_be_measured():
  config = data.parse({'resolution': 2, 'mean': 'measured', 'std': 'measured'})
  with pytest.raises(ValueError, match='channel 0 is 0 in all of 6 images'):
    data.measured(config, dataset_of(np.zeros((6, 2, 2, 3), np.uint8)))
