"""Targets are standardised by the training split; other scales are noted."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest

from tests import in_memory
from vit_jax import data
from vit_jax.data import dataset as dataset_lib
from vit_jax.data import value_scale as value_scale_lib

IMAGES, LABELS = in_memory.brightness(20)
SOURCE = in_memory.Arrays(IMAGES, LABELS)
DATASET = dataset_lib.Dataset(
    name='lamps', split='train', source=SOURCE, num_classes=2,
    targets=('light', 'dark'))


def parsed(**section):
  return data.parse({'resolution': 8, **section})


def test_mean_and_std_ignore_missing_values():
  config = data.measured(parsed(), DATASET)
  np.testing.assert_allclose(config.target_mean, np.nanmean(LABELS, 0))
  np.testing.assert_allclose(
      config.target_std, np.nanstd(LABELS.astype(np.float64), 0))
  assert data.measured(config, DATASET) == config
  planned = data.measured(parsed(), dataclasses.replace(DATASET, planned=True))
  assert (planned.target_mean, planned.target_std) == ((0, 0), (1, 1))


def test_batches_hold_standardised_targets_and_nan_where_missing():
  config = data.measured(parsed(), DATASET)
  batches = list(data.eval_batches(config, DATASET, batch_size=16))
  found = np.concatenate([b['label'] for b in batches])
  want = (LABELS - np.nanmean(LABELS, 0)) / np.nanstd(LABELS, 0)
  np.testing.assert_allclose(found[:20], want, atol=1e-4)
  assert np.isnan(found[20:]).all()  # Padding.


OTHER = (0.485, 0.456, 0.406)


@pytest.mark.parametrize(('ours', 'trained', 'note'), [
    ({'mean': 0.5}, {'mean': OTHER}, f'data.mean is 0.5, {{}} {OTHER}'),
    ({'mean': OTHER}, {'mean': OTHER}, ''),
    ({'mean': 0.5}, {'mean': (0.5, 0.5, 0.5)}, ''),
    # Weights for another number of channels.
    ({'mean': (0.1, 0.2), 'channels': 2}, {'mean': (0.5, 0.5, 0.5)}, ''),
    ({'value_range': (0, 255)}, {'value_range': (0, 10000)},
     'data.value_range is (0, 255), {} (0, 10000)'),
    ({'value_range': (0, 255)}, {}, '')])
def test_another_scale_of_pixels_is_noted(ours, trained, note):
  assert data.scale_notes(
      data.DataConfig(source='digits', **ours),
      value_scale_lib.ValueScale(**trained)) == (
          [f'note: {note}'.format('but the weights are for')] if note else [])


def test_pixels_are_normalised_per_channel():
  image = np.random.default_rng(0).integers(
      0, 256, (2, 4, 5, 3), dtype=np.uint8)
  mean, std = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
  scale = value_scale_lib.ValueScale(mean, std)
  result = scale.normalize(scale.to_unit(jnp.asarray(image)))
  assert result.dtype == jnp.float32
  np.testing.assert_allclose(
      result, (image / 255 - np.array(mean)) / np.array(std), rtol=1e-5,
      atol=1e-6)
