"""Files of unknown origin: only regular ones are opened."""

import os
from unittest import mock

from etils import epath
import pytest

from tests import pictures
from tests import random_models
from vit_jax import data
from vit_jax import untrusted
from vit_jax.data import preprocessing
from vit_jax.data.sources import columns as columns_lib
from vit_jax.data.sources import open_source
from vit_jax.inference import images as images_lib
from vit_jax.inference import load as load_lib
from vit_jax.run import workdir as workdir_lib
from vit_jax.weights.formats import npz


def _data(name):
  return lambda path: open_source.open_path(str(path / name), columns_lib.AUTO)


def _tfds(path):
  (path / 'dataset_info.json').write_text('{}')
  return _data('')(path)


def _weights(path):
  npz.write(path / 'x.npz', random_models.arrays('npz'))
  return load_lib.load(path)


# A pipe of that name, and a function that opens its folder.
OPENED = {
    'labels.csv': _data(''), 'x.jsonl': _data('x.jsonl'),
    'x.parquet': _data(''), 'x-00.tar': _data('x-{00..00}.tar'),
    'dataset_info.json': _data(''), 'features.json': _tfds,
    'weights.npz': lambda path: load_lib.load(path / 'weights.npz'),
    'config.json': _weights,
    'checkpoints/latest/0/_CHECKPOINT_METADATA': load_lib.load,
    'a.png': lambda path: images_lib.read(
        path / 'a.png', preprocessing.parse({'resolution': 8}))}


@pytest.mark.parametrize('name', OPENED)
def test_a_pipe_is_an_error_that_names_it(name, tmp_path):
  path = tmp_path / name
  path.parent.mkdir(parents=True, exist_ok=True)
  os.mkfifo(path)
  with pytest.raises(ValueError, match=f'{path.name} is a pipe'):
    OPENED[name](tmp_path)


@pytest.mark.parametrize(('content', 'words'), [
    ('{', 'x.json is not JSON: '), ('[]', 'must be a JSON object, but is list'),
    ('[' * 10**5, 'nested too deeply'),
    ('{"a": 1, "a": 2}', "it has the key 'a' twice: 1 and 2")])
def test_json_files_hold_one_object_without_repeated_keys(
    content, words, tmp_path):
  (tmp_path / 'x.json').write_text(content)
  with pytest.raises(ValueError, match=words):
    untrusted.read_json(tmp_path / 'x.json')


@pytest.mark.parametrize('content', ['{', None])
def test_a_damaged_summary_counts_as_missing(content, tmp_path):
  if content:
    (tmp_path / 'summary.json').write_text(content)
  assert not workdir_lib.read(epath.Path(tmp_path) / 'summary.json')


def test_a_summary_that_cannot_be_read_does_not_count_as_missing(
    tmp_path, monkeypatch):
  (tmp_path / 'summary.json').write_text('{"steps": 1}')
  monkeypatch.setattr(untrusted, 'read_bytes', mock.Mock(
      side_effect=OSError(5, 'Input/output error')))
  with pytest.raises(OSError, match='Input/output error'):
    workdir_lib.read(epath.Path(tmp_path) / 'summary.json')


def test_an_image_that_is_not_a_file_is_unreadable(tmp_path):
  for i in range(12):
    pictures.save(
        tmp_path / ('train', 'test')[i > 9] / 'ab'[i % 2] / f'{i:02}.png',
        pictures.picture(i, side=8))
  os.mkfifo(tmp_path / 'train/a/pipe.png')
  os.mkdir(tmp_path / 'train/b/folder.png')
  (tmp_path / 'train/b/zero.png').symlink_to('/dev/zero')
  config = data.parse({
      'source': str(tmp_path), 'resolution': 8, 'unreadable': 'skip',
      'max_unreadable': 1.0})
  counter = data.UnreadableCounter(max_share=1.0)
  batches = data.train_batches(
      config, data.open_dataset(config), seed=0, batch_size=5,
      unreadable=counter)
  for _ in range(6):
    next(batches)
  batches.close()
  errors = ' '.join(one.error for one in counter.log.found.values())
  for kind in ('pipe.png is a pipe', 'folder.png is a folder',
               'zero.png is a device'):
    assert kind in errors
