"""Configs saved by earlier versions can be read."""

import pytest

from vit_jax.checkpoints import saved_config


def test_removed_keys_are_dropped_and_others_kept():
  saved = {'model': {'products': 'auto', 'depth': 4},
           'data': {'decoder': 'auto', 'shapes': {'size': 16, 'seed': 1}},
           'batch_size': 8}
  assert saved_config.upgrade(saved) == {
      'model': {'depth': 4}, 'data': {'shapes': {'seed': 1}}, 'batch_size': 8}


def test_a_run_on_shapes_of_an_earlier_version_is_not_resumed():
  shapes = {'source': 'shapes', 'shapes': {'arrangement': 'stacked'}}
  with pytest.raises(ValueError, match=r'version 0\.1\.0'):
    saved_config.check_resumable({'data': shapes})
  saved_config.check_resumable({'data': {**shapes, 'source': 'digits'}})
