"""Image operations do what they document."""

import numpy as np
from PIL import Image
import pytest

from tests import operations
from vit_jax.data.images import inception_crop
from vit_jax.data.images import ops as ops_lib


@pytest.mark.parametrize('name', ['resize', 'inception_crop', 'central_crop'])
def test_operations_without_a_size_use_the_resolution(name):
  (op,) = operations.build({'op': name})
  assert op(operations.noise(), operations.rng()).size == (32, 24)


@pytest.mark.parametrize(('height', 'width', 'rounding', 'expected', 'start'), [
    # 248 * 333 / 250 = 330.3; 248 * 499 / 333 = 371.6; margins 147 / 2 = 73.5.
    (333, 250, 'tensorflow', (330, 248), (53, 12)),
    (499, 333, 'tensorflow', (372, 248), (74, 12)),
    (499, 333, 'torchvision', (371, 248), (74, 12)),
    (500, 334, 'tensorflow', (371, 248), (73, 12)),
    (500, 334, 'torchvision', (371, 248), (74, 12))])
def test_sizes_and_offsets_are_rounded_as_in_each_library(
    height, width, rounding, expected, start):
  resize, crop = operations.build(
      {'op': 'resize', 'shorter': 248, 'rounding': rounding},
      {'op': 'central_crop', 'size': 224, 'rounding': rounding})
  assert resize.target(height, width) == expected
  assert resize.target(width, height) == expected[::-1]
  rows = np.arange(expected[0], dtype=np.int32)[:, None]
  columns = np.arange(expected[1], dtype=np.int32)
  cropped = np.asarray(crop(
      Image.fromarray(1000 * rows + columns), operations.rng()))
  assert cropped[0, 0] == 1000 * start[0] + start[1]


def test_a_covering_resize_reaches_both_sides():
  (op,) = operations.build({'op': 'resize', 'cover': (24, 32)})
  assert op(operations.noise(40, 60), operations.rng()).size == (36, 24)
  assert op(operations.noise(60, 40), operations.rng()).size == (32, 48)


@pytest.mark.parametrize('size', [(24, 32), (60, 90), (13, 61)])
def test_bilinear_without_antialiasing_is_that_of_tensorflow(size):
  pixels = np.asarray(operations.noise(40, 60), np.float64)
  weights = []
  for new, old in zip(size, (40, 60)):
    at = np.clip((np.arange(new) + 0.5) * old / new - 0.5, 0, old - 1)
    weights.append(np.maximum(0, 1 - np.abs(at[:, None] - np.arange(old))))
  expected = np.einsum('ir,jc,rcx->ijx', *weights, pixels)
  (op,) = operations.build({'op': 'resize', 'size': size, 'antialias': False})
  found = np.asarray(op(operations.noise(40, 60), operations.rng()))
  # TensorFlow's pipelines truncate; sums may round across an integer.
  assert np.abs(found - (expected - 0.5)).max() <= 0.5 + 1e-3


def test_area_is_the_mean_over_the_exact_rectangle():
  pixels = np.asarray(operations.noise(6, 9), np.float64)
  (op,) = operations.build({'op': 'resize', 'size': (4, 6), 'method': 'area'})
  # Every pixel of a grid of 12 x 18 has one source and one target pixel.
  fine = pixels.repeat(2, 0).repeat(2, 1)
  expected = fine.reshape(4, 3, 6, 3, 3).mean((1, 3))
  np.testing.assert_array_equal(
      np.asarray(op(operations.noise(6, 9), operations.rng())),
      np.floor(expected + 1e-6))


@pytest.mark.parametrize('sampler,area,below_a_fifth', [
    ('tf', 0.343, 0.345), ('torch', 0.42, 0.206)])
def test_crops_have_the_distribution_of_their_library(
    sampler, area, below_a_fifth):
  op = inception_crop.InceptionCrop(
      size=8, sampler=sampler, aspect=(0.75, 1.33))
  rng = operations.rng()
  left, top, width, height = np.array(
      [op.window(500, 375, rng) for _ in range(20_000)]).T
  assert min(left.min(), top.min()) == 0
  assert (left + width <= 500).all() and (top + height <= 375).all()
  assert (abs(np.log(width / height)) < np.log(1.4)).all()
  share = width * height / (500 * 375)
  assert 0.04 < share.min() < 0.06 and share.max() > 0.9
  assert share.mean() == pytest.approx(area, abs=0.006)
  assert (share < 0.2).mean() == pytest.approx(below_a_fifth, abs=0.012)


@pytest.mark.parametrize('size', [(1, 1), (2, 3), (1000, 10), (1, 60_000)])
def test_crops_of_tf_lie_in_small_and_long_images(size):
  op = inception_crop.InceptionCrop(size=8, sampler='tf')
  for seed in range(20):
    left, top, width, height = op.window(*size, operations.rng(seed))
    assert left >= 0 and 0 < width <= size[0] - left
    assert top >= 0 and 0 < height <= size[1] - top


@pytest.mark.parametrize(('sampler', 'box'), [
    ('tf', (0, 0, 1000, 10)), ('torch', (493, 0, 13, 10))])
def test_the_whole_image_or_its_centre_is_taken_if_no_crop_fits(sampler, box):
  op = inception_crop.InceptionCrop(size=8, sampler=sampler, area=(0.9, 1.0))
  assert op.window(1000, 10, operations.rng()) == box


def test_flip_mirrors_half_of_the_images():
  pixels = np.arange(6, dtype=np.uint8).reshape(1, 6)
  _, mirrored = operations.changed(
      ops_lib.Flip(), image=Image.fromarray(pixels))
  assert 70 < len(mirrored) < 130
  assert all((image == pixels[:, ::-1]).all() for image in mirrored)


def test_pad_crop_shifts_and_fills_with_zeros():
  image = Image.new('L', (16, 16), 255)
  crop = ops_lib.PadCrop(padding=4)
  means = [np.asarray(crop(image, operations.rng(i))).mean() for i in range(50)]
  assert min(means) >= 255 * (12 / 16) ** 2 and len(set(means)) > 5
