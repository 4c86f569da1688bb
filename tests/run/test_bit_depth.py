"""Unreadable images are found before training."""

import dataclasses
import re

import numpy as np
from PIL import Image
import pytest

from tests import hostile
from tests import in_memory
from tests import pictures
from vit_jax import data
from vit_jax.run import start_check


@pytest.fixture(name='root')
def _root(tmp_path):
  for split in ('train', 'test'):
    for name in 'ab':
      for i in range(10):
        pictures.save(tmp_path / f'{split}/{name}/{i}.png', pictures.picture(i))
  return tmp_path


def _check(root, **settings):
  config = data.parse({'source': str(root), **settings})
  return start_check.check(config, [
      data.open_dataset(config, split=split) for split in ('train', 'test')])


@pytest.mark.parametrize('split', ['train', 'test'])
def test_a_truncated_image_ends_a_run_at_the_start_or_is_skipped(root, split):
  file = root / split / 'b/3.png'
  file.write_bytes(file.read_bytes()[:-200])  # The header remains valid.
  with pytest.raises(
      ValueError, match=r'1 of 20 images cannot be read\n.*b/3\.png.*truncated'
      r'(?s:.*)--config\.data\.unreadable=skip'):
    _check(root)
  found = [one.key for scan in _check(root, unreadable='skip')
           for one in scan.unreadable]
  assert found == [f'{split}/b/3.png']
  with pytest.raises(ValueError, match='cannot be read'):
    _check(root, unreadable='skip', max_unreadable=0.0)


def test_the_policy_of_each_split_applies(root):
  (root / 'test/b/3.png').write_bytes(b'')
  _check(root, unreadable='error', eval_unreadable='skip')
  with pytest.raises(ValueError, match='with --config.data.eval_unreadable=sk'):
    _check(root, unreadable='skip', eval_unreadable='error')


def test_the_time_is_limited(root, monkeypatch):
  monkeypatch.setattr(start_check, '_CHUNK', 3)
  for scan in _check(root, check_secs=1e-9):
    assert (scan.checked, scan.total) == (3, 20)


@pytest.mark.parametrize(('name', 'checked'), [
    ('digits', False), ('cifar10:3.0.2', False), ('vtab/dtd', False),
    ('photos:1.0.0', True), ('./photos', True)])
def test_all_but_published_datasets_are_checked(name, checked):
  config = data.parse({'source': 'digits', 'check_secs': 1e-9})
  dataset = dataclasses.replace(data.open_dataset(config), name=name)
  assert bool(start_check.check(config, [dataset])) == checked


UINT16 = {'channels': 1, 'dtype': 'uint16'}
WIDE = {**UINT16, 'value_range': [0, 65535]}


@pytest.mark.parametrize(('largest', 'encode', 'settings', 'words'), [
    (4095, pictures.encode, {}, 'at most 4,095.*upper 8 of 16 bits'),
    (4095, pictures.encode, WIDE, 'at most 4,095.*value_range ends at 65535'),
    (4095, hostile.npy, WIDE, "2 sampled images.*'.0,4095.'"),
    (4096, pictures.encode, {}, None), (4096, pictures.encode, WIDE, None),
    (4095, pictures.encode, {**UINT16, 'value_range': [0, 4095]}, None)])
def test_12_bit_values_in_16_bit_files_are_noted(
    largest, encode, settings, words):
  config = data.parse({'source': 'x', **settings})
  files = [encode(pixels if encode is hostile.npy else Image.fromarray(pixels))
           for pixels in np.uint16([[[0, 9], [1, 3]], [[0, 9], [1, largest]]])]
  note = start_check.depth_note(config, in_memory.Arrays(files, [0, 1]))
  assert re.search(words, note) if words else not note


def test_dark_8_bit_images_are_not_noted():
  dark = pictures.encode(Image.new('L', (4, 4), 3))
  assert not start_check.depth_note(
      data.parse({'source': 'x'}), in_memory.Arrays([dark, b'junk'], [0, 1]))
