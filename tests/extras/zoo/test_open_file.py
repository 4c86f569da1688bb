"""Shards are opened as one file, and only from their folder."""

import json

import numpy as np
import pytest

from vit_jax.extras.zoo import open_file
from vit_jax.extras.zoo import safetensors

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
  opened = open_file.open_weights(shards(TABLE))
  assert {name: opened.read(name).item() for name in opened.shapes} == {
      'a': 1, 'b': 2, 'c': 3}


def test_names_of_tied_arrays_in_shards_are_known(shards, tmp_path):
  safetensors.write(tmp_path / 'm-2-of-2.safetensors', {
      'c': np.full(1, 3, np.float32)}, metadata={'d': 'c', 'a': 'c'})
  opened = open_file.open_weights(shards(TABLE))
  assert opened.tied == {'d': 'c'}
  assert [opened.read(name).item() for name in 'ad'] == [1, 3]


@pytest.mark.parametrize('name', ['none', '', '..', '/dev/zero'])
def test_a_shard_outside_of_the_folder_is_an_error(name, shards):
  with pytest.raises(ValueError, match='names the file .* is missing'):
    open_file.open_weights(shards({**TABLE, 'c': name}))


def test_an_index_may_be_named_itself(shards):
  folder = shards(TABLE)
  opened = open_file.open_weights(folder / 'm.safetensors.index.json')
  assert set(opened.shapes) == set(TABLE)


def test_two_indices_need_a_choice_unless_one_has_the_usual_name(shards):
  folder = shards(TABLE)
  text = (folder / 'm.safetensors.index.json').read_text()
  (folder / 'n.safetensors.index.json').write_text(text)
  with pytest.raises(ValueError, match='several .*m.safetensors.index.json, n'):
    open_file.open_weights(folder)
  (folder / 'model.safetensors.index.json').write_text(text)
  assert open_file.open_weights(folder).path == str(
      folder / 'model.safetensors.index.json')


def test_shards_of_pytorch_are_one_file(tmp_path):
  torch = pytest.importorskip('torch', reason='torch is not installed')
  table = {name: file.replace('safetensors', 'bin')
           for name, file in TABLE.items()}
  for file in set(table.values()):
    torch.save({name: torch.full((1,), float(ord(name))) for name in table
                if table[name] == file}, tmp_path / file)
  (tmp_path / 'pytorch_model.bin.index.json').write_text(
      json.dumps({'weight_map': table}))
  opened = open_file.open_weights(tmp_path)
  assert opened.format == 'pytorch'
  assert {name: opened.read(name).item() for name in opened.shapes} == {
      name: ord(name) for name in 'abc'}
  # The same weights in a safe format come first.
  safetensors.write(tmp_path / 'model.safetensors', {'d': np.ones(1)})
  assert set(open_file.open_weights(tmp_path).shapes) == {'d'}
