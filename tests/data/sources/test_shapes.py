"""The drawn data set: pure, disjoint splits, honest labels."""

import numpy as np
import pytest

from vit_jax.data.sources import shape_kinds
from vit_jax.data.sources import shape_looks
from vit_jax.data.sources import shapes


def _splits(size=(32, 32), **settings):
  return shapes.splits(shapes.ShapesConfig(**settings), size=size)


def _k_hot(source, count, num_classes):
  """Returns the labels of the first `count` drawings as 0 and 1."""
  labels = np.zeros((count, num_classes))
  for i in range(count):
    labels[i, source.label(i)] = 1
  return labels


def test_an_image_is_a_function_of_seed_and_index():
  first, again = _splits()['train'][7], _splits(num_examples=8)['train'][7]
  np.testing.assert_array_equal(first['image'], again['image'])
  np.testing.assert_array_equal(first['label'], again['label'])
  for other in (_splits()['train'][8], _splits(seed=1)['train'][7]):
    assert (first['image'] != other['image']).any()


def test_train_and_test_share_no_drawing():
  both = _splits(num_examples=10**9, num_test_examples=10)
  keys = {both['test'].key(i) for i in range(10)}
  assert len(keys) == 10
  assert both['train'].key(10**9 - 1) not in keys
  assert both['train'].offset + len(both['train']) <= both['test'].offset


def test_multi_labels_name_kinds_a_colour_and_a_background():
  source = _splits()['train']
  labels = _k_hot(source, 200, len(shapes.CLASS_NAMES))
  kinds, colours, textures = np.split(labels, np.cumsum(
      [len(shape_kinds.KINDS), len(shape_looks.COLOURS)]), axis=1)
  assert set(kinds.sum(1)) <= {1, 2, 3} and kinds.sum(1).max() > 1
  assert (colours.sum(1) == 1).all() and (textures.sum(1) == 1).all()


def test_single_label_is_the_main_shape_of_the_multi_label():
  multi, single = _splits()['train'], _splits(label='single')['train']
  for i in range(30):
    assert single[i]['label'] in multi[i]['label']


def test_all_classes_occur():
  source = _splits()['train']
  assert _k_hot(source, 1000, len(shapes.CLASS_NAMES)).any(0).all()


def test_stacks_are_labelled_with_both_strokes_and_leave_plain_digits_out():
  source = _splits(arrangement='stacked')['train']
  labels = _k_hot(source, 1000, len(shapes.STACKED_CLASS_NAMES))
  num_parts = len(shape_kinds.PARTS)
  upper, lower, colours, textures = np.split(labels, np.cumsum(
      [num_parts, num_parts, len(shape_looks.COLOURS)]), axis=1)
  for group in (upper, lower, colours, textures):
    assert (group.sum(1) == 1).all() and (group.sum(0) > 0).all()
  seen = {(shape_kinds.PARTS[u], shape_kinds.PARTS[v])
          for u, v in zip(upper.argmax(1), lower.argmax(1))}
  assert len(seen) > 150 and seen <= set(shape_kinds.STACKS)
  for look_alike in (('ring', 'ring'), ('arc open left', 'arc open left')):
    assert look_alike not in shape_kinds.STACKS


@pytest.mark.parametrize('settings,words', [
    ({'ink': 1.5}, 'share'),
    ({'arrangement': 'stacked', 'label': 'single'}, 'no single label'),
    ({'num_examples': 0}, 'must be positive'),
    ({'max_others': -1}, 'max_others'), ({'seed': -1}, 'seed')])
def test_wrong_settings_are_named(settings, words):
  with pytest.raises(ValueError, match=words):
    shapes.ShapesConfig(**settings)
