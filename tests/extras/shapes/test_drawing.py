"""Drawn shapes are functions of their index."""

import numpy as np
import pytest

from vit_jax import data
from vit_jax.extras.shapes import drawing


def _open(size, **settings):
  return drawing.open_source('shapes', data.parse({
      'resolution': size, 'shapes': settings}))


def _splits(size=(32, 32), **settings):
  return _open(size, **settings).splits


def test_an_image_is_a_function_of_seed_and_index():
  first, again = _splits()['train'][7], _splits(num_examples=8)['train'][7]
  np.testing.assert_array_equal(first['image'], again['image'])
  assert first['label'] == again['label']
  for other in (_splits()['train'][8], _splits(seed=1)['train'][7]):
    assert (first['image'] != other['image']).any()


def test_masks_mark_the_strokes():
  source = _splits(ink=1.0, bright=True)['train']  # Bright strokes on dark.
  for i in range(20):
    example = source[i]
    mask = example['segmentation']
    assert mask.shape == (32, 32) and 0.02 < mask.mean() < 0.6
    grey = example['image'].mean(-1)
    assert grey[mask].min() > grey[~mask].max() - 20
    assert grey[mask].mean() > grey[~mask].mean() + 80


def test_any_size_can_be_drawn():
  for size in ((24, 48), (65, 33), (8, 8)):
    image = _splits(size)['train'][0]['image']
    assert image.shape == (*size, 3) and image.dtype == np.uint8


def test_multi_labels_name_two_strokes_a_colour_and_a_texture():
  opened = _open((8, 8))
  seen, groups = set(), ('upper ', 'lower ', ' shape', ' background')
  for i in range(1000):
    names = [opened.class_names[j] for j in opened.splits['train'].label(i)]
    assert [group in name for group, name in zip(groups, names, strict=True)]
    seen |= set(names)
  assert seen == set(opened.class_names)


def test_strokes_that_form_a_digit_are_never_stacked():
  parts = drawing.PARTS
  named = {(parts[i], parts[j]) for i, j in drawing.STACKS}
  assert len(named) > 150
  assert not named & {('ring', 'ring'), ('arc open left', 'arc open left')}


def test_single_labels_name_every_kind_and_no_two_kinds_look_alike():
  source = _splits(label='single', ink=1.0, bright=True)['train']
  sums = np.zeros((len(drawing.KINDS), 32, 32))
  counts = np.zeros(len(drawing.KINDS))
  for i in range(600):
    example = source[i]
    sums[example['label']] += example['image'].mean(-1) / 255
    counts[example['label']] += 1
  means = sums / counts[:, None, None]
  apart = np.abs(means[:, None] - means).mean((2, 3))
  assert (apart + np.eye(len(means)) > 0.02).all()


@pytest.mark.parametrize('settings', [
    {'ink': 1.5}, {'num_examples': 0}, {'seed': -1}])
def test_invalid_settings_are_errors(settings):
  with pytest.raises(ValueError, match='ink in'):
    data.parse({'shapes': settings})
