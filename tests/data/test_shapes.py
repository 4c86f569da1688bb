"""The drawn data set: pure, disjoint splits, honest labels, visible shapes."""

import numpy as np
import pytest

from vit_jax.data import shapes


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


@pytest.mark.parametrize('size', [(32, 32), (24, 48), (65, 33), (8, 8)])
def test_any_size_can_be_drawn(size):
  example = _splits(size=size)['train'][0]
  assert example['image'].shape == (*size, 3)
  assert example['image'].dtype == np.uint8


def test_multi_labels_name_kinds_a_colour_and_a_background():
  source = _splits()['train']
  labels = _k_hot(source, 200, len(shapes.CLASS_NAMES))
  kinds, colours, textures = np.split(
      labels, np.cumsum([len(shapes.KINDS), len(shapes.COLOURS)]), axis=1)
  assert set(kinds.sum(1)) <= {1, 2, 3} and kinds.sum(1).max() > 1
  assert (colours.sum(1) == 1).all() and (textures.sum(1) == 1).all()


def test_single_label_is_the_main_shape_of_the_multi_label():
  multi, single = _splits()['train'], _splits(label='single')['train']
  for i in range(30):
    assert single[i]['label'] in multi[i]['label']


def test_all_classes_occur():
  source = _splits()['train']
  assert _k_hot(source, 1000, len(shapes.CLASS_NAMES)).any(0).all()


def test_every_kind_shows_and_no_two_look_alike():
  # All draws in the middle of their range: each kind as it is meant.
  def middle(low, high):
    return (low + high) / 2
  masks = {}
  for kind in shapes.KINDS:
    mask = shapes._mask(kind, (48, 48), middle, scale=0.8, spread=0)
    assert 0.01 < mask.mean() < 0.6, kind
    masks[kind] = mask
  names = [k for k in shapes.KINDS if k not in shapes.RANDOM]
  for i, a in enumerate(names):
    for b in names[:i]:
      assert np.abs(masks[a] - masks[b]).mean() > 0.01, (a, b)


def test_the_main_shape_stands_out_from_its_ground():
  source = _splits(max_others=0)['train']
  spread = [np.ptp(source[i]['image'].astype(float).mean(-1))
            for i in range(200)]
  assert min(spread) > 30


def test_stacks_are_labelled_with_both_strokes_and_leave_plain_digits_out():
  source = _splits(arrangement='stacked')['train']
  labels = _k_hot(source, 1000, len(shapes.STACKED_CLASS_NAMES))
  num_parts = len(shapes.PARTS)
  upper, lower, colours, textures = np.split(labels, np.cumsum(
      [num_parts, num_parts, len(shapes.COLOURS)]), axis=1)
  for group in (upper, lower, colours, textures):
    assert (group.sum(1) == 1).all() and (group.sum(0) > 0).all()
  seen = {(shapes.PARTS[u], shapes.PARTS[v])
          for u, v in zip(upper.argmax(1), lower.argmax(1))}
  assert len(seen) > 150 and seen <= set(shapes.STACKS)
  for look_alike in (('ring', 'ring'), ('arc open left', 'arc open left')):
    assert look_alike not in shapes.STACKS


@pytest.mark.parametrize('arrangement', ['scattered', 'stacked'])
def test_bright_shapes_are_brighter_than_their_ground(arrangement):
  source = _splits(arrangement=arrangement, bright=True, ink=1.0)['train']
  for i in range(100):
    image = source[i]['image'].astype(float)
    edge = np.median(np.concatenate([image[0], image[-1]]))
    assert image.max() - edge > edge - image.min()


@pytest.mark.parametrize('settings,words', [
    ({'ink': 1.5}, 'share'),
    ({'arrangement': 'stacked', 'label': 'single'}, 'no single label'),
    ({'num_examples': 0}, 'must be positive'),
    ({'max_others': -1}, 'max_others'), ({'seed': -1}, 'seed')])
def test_wrong_settings_are_named(settings, words):
  with pytest.raises(ValueError, match=words):
    shapes.ShapesConfig(**settings)
