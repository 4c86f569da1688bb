"""Files that vit_jax wrote contain their settings, and must match them."""

import dataclasses
import json
import pathlib

import jax
import numpy as np
import pytest

from tests import random_models
from tests.extras.zoo import zoo_models
from vit_jax.extras.zoo import foreign
from vit_jax.extras.zoo import safetensors
from vit_jax.extras.zoo.configs import resize_and_crop
from vit_jax.weights import declared

PREPROCESS = resize_and_crop.parse({
    'resolution': 32, 'mean': (0.1, 0.2, 0.3), 'crop': 0.9,
    'keep_aspect': True, 'labels': tuple('abcde')})


def load(path, family, text, overrides=(), **settings):
  """Writes weights with metadata, and loads them."""
  if family == 'npz':
    zoo_models.write(path, family, **settings)
    pathlib.Path(declared.json_path(str(path))).write_text(text)
  else:
    safetensors.write(path, zoo_models.arrays(family, **settings),
                      metadata={'vit_jax': text})
  return foreign.load(path, dict(overrides))


def metadata(*, change=(), **settings):
  data = declared.metadata(dataclasses.replace(
      random_models.make_tiny(), config=random_models.config_of(**settings),
      preprocess=PREPROCESS))
  data['model'] |= dict(change)
  return data


def test_json_of_another_npz_file_is_an_error(tmp_path):
  model = random_models.make_tiny()
  model.save(tmp_path / 'x.npz', form='npz')
  model.with_params(jax.tree.map(np.negative, model.params)).save(
      tmp_path / 'y.npz', form='npz')
  (tmp_path / 'y.npz').replace(tmp_path / 'x.npz')
  with pytest.raises(ValueError, match='x.json was written for other weights'):
    foreign.load(tmp_path / 'x.npz')
  (tmp_path / 'y.json').replace(tmp_path / 'x.json')
  assert foreign.load(tmp_path / 'x.npz').preprocess == model.preprocess


def test_a_config_beside_our_metadata_is_not_read(tmp_path):
  model = random_models.make({**random_models.TINY, 'gelu': 'exact'}, side=32)
  model.save(tmp_path / 'x', form='timm')
  file = tmp_path / 'x/config.json'
  file.write_text(file.read_text().replace('32', '64'))
  assert foreign.load(tmp_path / 'x').preprocess == model.preprocess


def test_checksums_of_earlier_metadata_are_accepted(tmp_path):
  text = json.dumps({**metadata(), 'files': {'config.json': '0'}})
  assert load(tmp_path / 'x', 'timm', text).preprocess == PREPROCESS


def test_unrelated_json_next_to_an_npz_is_ignored(tmp_path):
  loaded = load(tmp_path / 'x.npz', 'npz', '{"epochs": 3}', gelu='exact')
  assert loaded.config.gelu == 'tanh'
  assert 'x.json beside it is not that of vit_jax' in loaded.notes[0]


def test_overrides_take_precedence_over_metadata(tmp_path):
  arguments = (tmp_path / 'x', 'timm', json.dumps(
      metadata(variant='Ti/16', num_classes=5)))
  settings = {'width': 192, 'depth': 12, 'mlp_dim': 768, 'num_heads': 3,
              'patch': 16}
  assert load(*arguments, **settings).config.variant == 'Ti/16'
  loaded = load(*arguments, {'num_heads': 6, 'mean': 0.5}, **settings)
  assert (loaded.config.num_heads, loaded.config.variant) == (6, '')
  assert loaded.preprocess.mean == (0.5,) * 3
  assert loaded.preprocess.ops == PREPROCESS.ops
