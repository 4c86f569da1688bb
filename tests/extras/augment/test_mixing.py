"""Mixup and CutMix against their formulas."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests import in_memory
from tests import pictures
from tests import toy
from vit_jax import data
from vit_jax import losses
from vit_jax.data import dataset as dataset_lib

CLASSES = 8


def _batch():
  # All pixels of image i are i, so mixed pixels show their origin.
  image = np.tile(np.arange(8, dtype=np.uint8)[:, None, None, None],
                  (1, 10, 12, 3))
  return {'image': image, 'label': np.arange(8, dtype=np.int32),
          'mask': np.ones(8, np.float32)}


def _prepare(*, multi_label=False, distributions=False, **settings):
  config = data.parse({'value_range': [0, 1], **settings})
  return data.prepare(config, data.Metadata(
      num_classes=CLASSES, multi_label=multi_label),
      distributions=distributions)


@functools.cache
def _jitted(train, **settings):
  return jax.jit(functools.partial(_prepare(**settings), train=train))


def _run(batch, seed, *, train=True, **settings):
  result = _jitted(train, **settings)(batch, jax.random.key(seed))
  return jax.tree.map(np.asarray, result)


@pytest.mark.parametrize(('alpha', 'train'), [(0.0, True), (1.0, False)])
def test_labels_are_unchanged_without_mixing_and_in_evaluation(alpha, train):
  result = _run(_batch(), 0, train=train, mixup=alpha)
  np.testing.assert_array_equal(result['label'], np.arange(8))
  np.testing.assert_allclose(
      result['image'][:, 0, 0, 0], np.arange(8), atol=1e-5)


@pytest.mark.parametrize('settings', [
    {'mixup': 1.0}, {'cutmix': 1.0}, {'mixup': 1.0, 'cutmix': 1.0}])
def test_soft_labels_sum_to_one_and_match_the_image(settings):
  result = _run(_batch(), 0, **settings)
  np.testing.assert_allclose(result['label'].sum(-1), 1, rtol=1e-6)
  np.testing.assert_allclose(
      result['image'].mean((1, 2, 3)), result['label'] @ np.arange(8),
      rtol=1e-4, atol=1e-4)


def test_cutmix_label_weight_is_the_area_of_a_box():
  result = _run(_batch(), 0, cutmix=1.0)
  for i, image in enumerate(np.round(result['image'][..., 0])):
    rows, columns = np.nonzero(image != i)
    if len(rows):
      assert len(rows) == np.prod(np.ptp([rows, columns], axis=1) + 1)
      np.testing.assert_allclose(
          result['label'][i, i], (image == i).mean(), rtol=1e-5, atol=1e-6)


def test_mixup_weight_is_shared_by_the_batch_and_varies_between_keys():
  weights = set()
  for seed in range(8):
    diagonal = np.diag(_run(_batch(), seed, mixup=1.0)['label'])
    mixed = diagonal[diagonal < 1]
    np.testing.assert_allclose(mixed, mixed[:1].repeat(len(mixed)), rtol=1e-6)
    weights |= {round(float(weight), 5) for weight in mixed[:1]}
  assert len(weights) >= 6


def test_each_batch_gets_either_mixup_or_cutmix():
  is_whole = set()
  for seed in range(16):
    image = _run(_batch(), seed, mixup=1.0, cutmix=1.0)['image'][..., 0]
    is_whole.add(np.allclose(image, np.round(image), atol=1e-4))
  assert is_whole == {True, False}


@pytest.mark.parametrize('settings', [
    pytest.param({'mixup': 1.0}, marks=pytest.mark.slow), {'cutmix': 1.0}])
def test_k_hot_labels_are_blended_like_images(settings):
  # Image i has classes i and i + 1, the last one only class 7.
  listed = np.stack([np.arange(8), np.arange(1, 9)], 1).astype(np.int32)
  listed[7, 1] = -1
  dense = np.eye(8, CLASSES) + np.eye(8, CLASSES, k=1)
  for seed in range(3):
    result = _run({**_batch(), 'label': listed}, seed, multi_label=True,
                  **settings)
    own = _run(_batch(), seed, **settings)['label']
    np.testing.assert_allclose(result['label'], own @ dense, atol=1e-6)


@pytest.mark.parametrize('settings', [
    {'mixup': 1.0}, pytest.param({'cutmix': 1.0}, marks=pytest.mark.slow)])
def test_softmax_losses_of_k_hot_labels_are_mixed_by_the_weights_of_images(
    settings):
  listed = np.full((8, 3), -1, np.int32)
  listed[:, 0] = np.arange(8)
  listed[::2, 1:] = [[1, 3], [3, 5], [5, 7], [7, 1]]  # Three labels, then one.
  logits = np.random.default_rng(0).normal(size=(8, CLASSES))
  log_probabilities = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
  of_images = np.array([
      -log_probabilities[:, [c for c in row if c >= 0]].mean(-1)
      for row in listed])  # [image of the labels, image of the logits]
  weights = _run(_batch(), 0, **settings)['label']  # Of the mixed images.
  assert 0.02 < weights[0, 0] < 0.98
  mixed = _run({**_batch(), 'label': listed}, 0, multi_label=True,
               distributions=True, **settings)['label']
  found = losses.softmax_cross_entropy(jnp.asarray(logits), jnp.asarray(mixed))
  np.testing.assert_allclose(found, (weights * of_images.T).sum(-1), rtol=1e-5)


def test_mixup_blends_targets_and_a_blend_with_nan_is_nan():
  dataset = dataset_lib.Dataset(
      name='lamps', split='train', num_classes=2, targets=('light', 'dark'),
      source=in_memory.Arrays(*in_memory.brightness(20)))
  config = data.measured(data.parse({'resolution': 8, 'mixup': 0.5}), dataset)
  (batch,) = data.eval_batches(config, dataset, batch_size=20)
  prepare = jax.jit(data.prepare(config, dataset), static_argnames='train')
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


@pytest.mark.parametrize(('loss', 'label_sum'), [
    ('softmax', 1), pytest.param('sigmoid', 3, marks=pytest.mark.slow)])
def test_only_a_softmax_loss_mixes_distributions(tmp_path, loss, label_sum):
  table = pictures.write_table(
      tmp_path, 'label', [f'a|b|{name}' for name in 'cdef' * 2],
      name='train.csv')
  built = toy.build(
      data={'source': str(table), 'mixup': 1.0, 'target': 'multi',
            'table': {'separator': '|'}}, objective={
          'name': 'supervised', 'loss': loss}, evals={})
  batches = built.batches(start_step=0)
  label = jax.jit(built.prepare)(next(batches), jax.random.key(0))['label']
  batches.close()
  assert ((label > 0) & (label < 1)).any()
  np.testing.assert_allclose(label.sum(-1), label_sum, rtol=1e-5)
