"""Changes of colours and pixels do what they document."""

import dataclasses

import numpy as np
from PIL import Image
import pytest

from tests import operations
from vit_jax import data
from vit_jax.data import examples
from vit_jax.extras.augment import colour


@pytest.mark.parametrize('name', [
    'blur', 'color_jitter', 'grayscale', 'random_erasing', 'trivial_augment'])
def test_colour_operations_change_their_share_of_images_of_any_mode(name):
  (op,) = operations.build({'op': name})
  share = getattr(op, 'probability', 0.9)
  assert abs(len(operations.changed(op)[1]) / 200 - share) < 0.15
  operations.changed(op, 20, operations.noise().convert('L'))


def test_jitter_keeps_its_ranges():
  grey = Image.new('RGB', (4, 4), (100, 100, 100))
  op = colour.ColorJitter(
      brightness=0.5, contrast=0, saturation=0, hue=0, probability=1)
  levels = [a.mean() for a in operations.changed(op, image=grey)[1]]
  assert 49 <= min(levels) < 60 and 140 < max(levels) <= 151
  red = Image.new('RGB', (4, 4), (255, 0, 0))
  (op,) = operations.build({
      'op': 'color_jitter', 'brightness': 0, 'contrast': 0, 'saturation': 0,
      'hue': 0.5, 'probability': 1})
  hues = np.array([a[0, 0] for a in operations.changed(op, image=red)[1]])
  assert (hues.max(axis=0) == 255).all()  # All hues, at full saturation.


def test_grayscale_is_luma_and_blur_keeps_the_mean():
  (grey, blur) = operations.build(
      {'op': 'grayscale', 'probability': 1},
      {'op': 'blur', 'probability': 1, 'sigma': [2, 2]})
  image = operations.noise()
  np.testing.assert_array_equal(
      np.asarray(grey(image, operations.rng())),
      np.asarray(image.convert('L'))[..., None].repeat(3, 2))
  before, (after,) = operations.changed(blur, 1)
  assert abs(after.mean() - before.mean()) < 2
  assert after.std() < before.std() / 3


def test_random_erasing_fills_one_rectangle_of_the_documented_size():
  (op,) = operations.build({'op': 'random_erasing'})
  shares = []
  for after in operations.changed(op, image=Image.new('L', (60, 40), 0))[1]:
    rows, columns = np.nonzero(after)
    hole = after[rows.min():rows.max() + 1, columns.min():columns.max() + 1]
    assert (hole > 0).mean() > 0.9
    shares.append(hole.size / after.size)
  assert 0.01 < min(shares) < 0.06 and 0.35 < max(shares) < 0.42


@pytest.mark.parametrize(('section', 'message'), [
    ({'op': 'color_jitter', 'hue': 0.6}, 'hue must be .* at most 0.5'),
    ({'op': 'blur', 'sigma': [2, 1]}, 'sigma must be two lengths'),
    ({'op': 'random_erasing', 'area': [0, 1]}, 'area must be two fractions'),
    ({'op': 'randaugment', 'magnitude': 11}, 'at most 10, but is 11'),
    ({'op': 'randaugment', 'magnitude': 21, 'ranges': 'published'},
     'at most 20, but is 21')])
def test_invalid_settings_are_errors(section, message):
  with pytest.raises(ValueError, match=message):
    operations.build(section)


@pytest.mark.parametrize(('name', 'stays'), [
    ('random_erasing', True), ('color_jitter', True), ('randaugment', False),
    ('trivial_augment', False)])
def test_masks_stay_where_pixels_do_not_move(name, stays):
  config = data.parse({
      'source': 'shapes', 'resolution': 12, 'train_ops': [
          {'op': 'resize', 'method': 'nearest'}, {'op': name}]})
  dataset = dataclasses.replace(data.open_dataset(config), masks=True)
  if not stays:
    with pytest.raises(ValueError, match='does not apply to masks'):
      examples.LoadExample(dataset, config, train=True)
    return
  load = examples.LoadExample(dataset, config, train=True)
  masks = [load(0, operations.rng(seed))['segmentation'] for seed in range(3)]
  np.testing.assert_array_equal(masks[0], masks[1])
  np.testing.assert_array_equal(masks[0], masks[2])
