"""Targets are standardised by the training split; other scales are noted."""

import dataclasses
import re

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


def with_labels(labels):
  return dataclasses.replace(
      DATASET, source=in_memory.Arrays(IMAGES, np.asarray(labels)))


def test_mean_and_std_ignore_missing_values():
  config = data.measured(parsed(), DATASET)
  np.testing.assert_allclose(config.target_mean, np.nanmean(LABELS, 0))
  np.testing.assert_allclose(
      config.target_std, np.nanstd(LABELS.astype(np.float64), 0))
  assert data.measured(config, DATASET) == config
  planned = data.measured(
      parsed(), dataclasses.replace(DATASET, planned=True))
  assert (planned.target_mean, planned.target_std) == ((0, 0), (1, 1))


def test_batches_hold_standardised_targets_and_nan_where_missing():
  config = data.measured(parsed(), DATASET)
  batches = list(data.eval_batches(config, DATASET, batch_size=16))
  found = np.concatenate([b['label'] for b in batches])
  want = (LABELS - np.nanmean(LABELS, 0)) / np.nanstd(LABELS, 0)
  np.testing.assert_allclose(found[:20], want, atol=1e-4)
  assert np.isnan(found[20:]).all()  # Padding.


@pytest.mark.parametrize(('section', 'labels', 'message'), [
    ({}, np.full((20, 2), 7.0), "'light' is missing or equal in all exa"),
    ({}, np.full((20, 2), np.nan), "'light' is missing or equal"),
    ({}, np.full((20, 2), np.inf), "Example 0 of lamps, split 'train' (image "
     '0): its label [inf, inf] is not finite'),
    ({}, np.ones((20, 3)), 'shape (3,), but there are 2 targets: light, dark'),
    ({'target_mean': [1], 'target_std': [1, 2]}, LABELS, '(1.0,) and (1.0'),
    ({'target_mean': [1], 'target_std': [0]}, LABELS, 'must be above 0'),
    ({'target_mean': [1], 'target_std': [1]}, LABELS, 'but there are 2 targe'),
    ({'cutmix': 1.0}, LABELS, 'data.cutmix blends labels by area'),
])
def test_invalid_targets_are_errors(section, labels, message):
  with pytest.raises(ValueError, match=re.escape(message)):
    dataset = with_labels(labels)
    config = data.measured(parsed(**section), dataset)
    data.prepare(config, dataset)


@pytest.mark.parametrize(('ours', 'trained', 'noted'), [
    (0.5, (0.485, 0.456, 0.406), True),
    ((0.485, 0.456, 0.406), (0.485, 0.456, 0.406), False),
    (0.5, (0.5, 0.5, 0.5), False),
    # Weights for another number of channels.
    ((0.1, 0.2), (0.5, 0.5, 0.5), False)])
def test_another_mean_of_pixels_is_noted(ours, trained, noted):
  config = data.DataConfig(
      source='digits', mean=ours, channels=len(ours) if ours != 0.5 else 3)
  assert data.scale_notes(config, value_scale_lib.ValueScale(mean=trained)) == (
      [f'note: data.mean is {ours}, but the weights are for {trained}']
      if noted else [])


def test_another_range_of_pixels_is_noted():
  trained = value_scale_lib.ValueScale(value_range=(0, 10000))
  config = data.DataConfig(source='digits', value_range=(0, 255))
  assert data.scale_notes(config, trained) == [
      'note: data.value_range is (0, 255), but the weights are for (0, 10000)']
  assert not data.scale_notes(config, value_scale_lib.ValueScale())
