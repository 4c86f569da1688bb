"""Only near-duplicates have similar hashes, and the index finds all of them."""

import io

import numpy as np
from PIL import Image
from PIL import ImageEnhance
import pytest
import scipy.fft

from tests import pictures
from vit_jax.extras.curation import hash_index
from vit_jax.extras.curation import similarity


def _bits(*images, windows=(similarity.WHOLE,)):
  return similarity.fingerprints(
      np.stack([similarity.thumbnail(image) for image in images]), windows)


def _apart(one, other):
  return int(np.bitwise_count(one ^ other))


def test_bits_are_signs_of_the_cosine_transform():
  thumbnail = similarity.thumbnail(pictures.picture(0))
  grey = thumbnail @ np.array([0.299, 0.587, 0.114])
  transformed = scipy.fft.dctn(grey)
  bits = int(similarity.fingerprints(thumbnail[None])[0, 0])
  order = sorted((i + j, max(i, j), i, j)
                 for i in range(12) for j in range(12) if i + j)[:64]
  expected = [transformed[i, j] > 0 for *_, i, j in order]
  assert [bool(bits >> k & 1) for k in range(64)] == expected


@pytest.mark.parametrize('change', [
    lambda image: Image.open(io.BytesIO(
        pictures.encode(image, 'JPEG', quality=40))),
    lambda image: image.resize((24, 24), Image.Resampling.BILINEAR),
    lambda image: image.resize((200, 150), Image.Resampling.BICUBIC),
    lambda image: ImageEnhance.Brightness(image).enhance(0.7),
    lambda image: ImageEnhance.Contrast(image).enhance(0.7),
    lambda image: image.convert('L'),
], ids=['jpeg', 'smaller', 'larger', 'darker', 'paler', 'grey'])
def test_edited_copies_are_near_and_other_images_are_not(change):
  image, other = pictures.picture(1), pictures.picture(2)
  original, copy, others = _bits(image, change(image), other)[:, 0]
  assert _apart(original, copy) <= 7
  assert _apart(original, others) > 14


def test_mirrored_equals_the_hash_of_the_mirrored_image():
  image = pictures.picture(3)
  flipped = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
  original, expected = _bits(image, flipped)[:, 0]
  assert _apart(similarity.mirrored(original[None])[0], expected) <= 1


def test_crops_are_near_one_of_the_windows():
  image = pictures.picture(4, side=400)
  windows = _bits(image, windows=similarity.crops())[0]
  for left, top, side in ((0, 0, 380), (17, 31, 360), (40, 20, 344)):
    crop = image.crop((left, top, left + side, top + side))
    bits = _bits(crop)[0, 0]
    assert min(_apart(bits, window) for window in windows) <= 7
  assert _apart(bits, windows[0]) > 7


def test_flat_images_match_only_identical_images():
  white, same, cream = (Image.new('RGB', (9, 9), colour) for colour in (
      'white', 'white', (250, 250, 240)))
  first, second, third = _bits(white, same, cream)[:, 0]
  assert first == second
  assert _apart(first, third) > 7


def _near(count, seed):
  """Returns clusters of fingerprints that differ in a few bits."""
  rng = np.random.default_rng(seed)
  centres = np.random.default_rng(0).integers(0, 2**64, 5, dtype=np.uint64)
  bits = centres[rng.integers(0, 5, count)]
  for _ in range(9):
    bits = bits ^ (np.uint64(1) << rng.integers(0, 64, count).astype(np.uint64))
  return bits


@pytest.mark.parametrize('distance', [0, 3, 7, 11])
def test_exactly_the_pairs_within_the_distance_are_found_once(distance):
  tests, queries = _near(150, 1), _near(150, 2)
  queries[:5] = tests[:5]
  index = hash_index.Index(tests, max_distance=distance)
  found = index.match(queries)
  apart = np.bitwise_count(queries[:, None] ^ index.bits)
  expected = set(zip(*np.nonzero(apart <= distance)))
  got = list(zip(found.query, found.entry))
  assert len(got) == len(set(got))
  assert set(got) == expected and len(expected) >= 5
  assert (apart[found.query, found.entry] == found.distance).all()
  order = list(zip(found.query, found.distance))
  assert order == sorted(order)


def test_repeated_fingerprints_are_compared_once():
  index = hash_index.Index(np.full(1000, 5, np.uint64))
  assert len(index.match(np.array([5], np.uint64)).query) == 1
  assert index.first[0] == 0


def test_truncated_buckets_are_found_by_other_bands():
  # All share band 0, bits 0, 4, 8, ...; they differ in band 1.
  spread = sum(((np.arange(256, dtype=np.uint64) >> np.uint64(i))
                & np.uint64(1)) << np.uint64(4 * i + 1) for i in range(8))
  index = hash_index.Index(
      spread.astype(np.uint64), max_distance=0, max_bucket=16)
  assert len(index.match(index.bits).query) == 256
