"""Shards are opened as one file, and only from their folder."""

import json

import numpy as np
import pytest

from vit_jax.weights import open_files
from vit_jax.weights import safetensors

TABLE = {'a': 'm-1-of-2.safetensors', 'b': 'm-1-of-2.safetensors',
         'c': 'm-2-of-2.safetensors'}


@pytest.fixture
def shards(tmp_path):
  def write(table):
    (tmp_path / 'm.safetensors.index.json').write_text(
        json.dumps({'weight_map': table}))
    return tmp_path

  one = np.ones(1, np.float32)
  safetensors.write(tmp_path / 'm-1-of-2.safetensors', {'a': one, 'b': 2 * one})
  safetensors.write(tmp_path / 'm-2-of-2.safetensors', {'c': 3 * one})
  return write


def test_shards_are_one_file(shards):
  opened = open_files.open_weights(shards(TABLE))
  assert {name: opened.read(name).item() for name in opened.shapes} == {
      'a': 1, 'b': 2, 'c': 3}


@pytest.mark.parametrize('name', ['none', '', '..', '/dev/zero'])
def test_a_shard_outside_of_the_folder_is_an_error(name, shards):
  with pytest.raises(ValueError, match='names the file .* is missing'):
    open_files.open_weights(shards({**TABLE, 'c': name}))
