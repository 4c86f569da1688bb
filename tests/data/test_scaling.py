"""Targets are standardised by the training split; other scales are noted."""

import dataclasses
import re

import jax
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


def test_mixup_blends_targets_and_a_blend_with_nan_is_nan():
  config = data.measured(parsed(mixup=0.5), DATASET)
  (batch,) = data.eval_batches(config, DATASET, batch_size=20)
  prepare = data.prepare(config, DATASET)
  mixed = prepare(batch, jax.random.key(1), train=True)
  label = batch['label']
  partner = np.roll(label, 1, axis=0)
  # The weight of the mixture, from the first target.
  share = np.nanmean((mixed['label'] - partner)[:, 0] / (label - partner)[:, 0])
  assert 0 < share < 1
  np.testing.assert_allclose(
      mixed['label'], share * label + (1 - share) * partner, atol=1e-3)
  assert np.isnan(mixed['label'][0, 1]) and np.isnan(mixed['label'][1, 1])
  untouched = prepare(batch, None, train=False)
  np.testing.assert_array_equal(untouched['label'], label)


@pytest.mark.parametrize(('section', 'labels', 'message'), [
    ({}, np.full((20, 2), 7.0), "'light' is missing or equal in all exa"),
    ({}, np.full((20, 2), np.nan), "'light' is missing or equal"),
    ({}, np.full((20, 2), np.inf), "Example 0 of lamps, split 'train' (image "
     '0): its label [inf, inf] is not finite'),
    ({}, np.ones((20, 3)), 'shape (3,), but there are 2 targets: light, dark'),
    ({'target_mean': [1], 'target_std': [1, 2]}, LABELS, '(1.0,) and (1.0'),
    ({'target_mean': [1], 'target_std': [0]}, LABELS, 'target_std positive'),
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


def dataset_of(images):
  return dataset_lib.Dataset(
      name='deep', split='train', num_classes=2,
      source=in_memory.Arrays(images, [0, 1] * 3))


def test_measuring_follows_the_policy_for_training_images():
  dataset = dataset_of([b'broken', *np.random.default_rng(0).integers(
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
