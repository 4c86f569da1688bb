"""Values of 12 bits in files of 16 bits are noted."""

import dataclasses
import re

import numpy as np
from PIL import Image
import pytest

from tests import hostile
from tests import in_memory
from tests import leaves
from tests import pictures
from vit_jax import data
from vit_jax import registry
from vit_jax.run import bit_depth

UINT16 = {'channels': 1, 'dtype': 'uint16'}
WIDE = {**UINT16, 'value_range': [0, 65535]}


@pytest.mark.skipif(
    not leaves.has(registry.DECODER), reason='It decodes 16 bits.')
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
  note = bit_depth.note(config, in_memory.Arrays(files, [0, 1]))
  assert re.search(words, note) if words else not note


@pytest.mark.parametrize(('name', 'noted'), [
    ('digits', False), ('cifar10:3.0.2', False), ('vtab/dtd', False),
    *[('photos:1.0.0', True), ('./photos', True)]
    * leaves.has(registry.DECODER)])
def test_published_datasets_are_not_read(name, noted, capsys):
  config = data.parse({'source': 'digits', **WIDE})
  dataset = dataclasses.replace(data.open_dataset(config), name=name)
  bit_depth.print_note(config, dataset)
  assert bool(capsys.readouterr().out) == noted


def test_dark_8_bit_images_are_not_noted():
  dark = pictures.encode(Image.new('L', (4, 4), 3))
  assert not bit_depth.note(
      data.parse({'source': 'x'}), in_memory.Arrays([dark, b'junk'], [0, 1]))
