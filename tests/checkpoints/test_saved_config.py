"""Configs saved by earlier versions can be read."""

import pytest

from vit_jax.checkpoints import saved_config


def test_removed_keys_are_dropped_and_others_kept():
  saved = {'model': {'products': 'auto', 'depth': 4},
           'data': {'decoder': 'auto', 'shapes': {'size': 16, 'seed': 1}},
           'batch_size': 8}
  assert saved_config.upgrade(saved) == {
      'model': {'depth': 4}, 'batch_size': 8,
      # Earlier versions held out images regardless of their class.
      'data': {'shapes': {'seed': 1}, 'holdout': 'hash'}}


@pytest.mark.parametrize('source', ['shapes', '/data/train-*.parquet'])
def test_an_earlier_run_on_data_that_changed_is_not_resumed(source):
  data = {'source': source, 'decoder': 'auto'}
  with pytest.raises(ValueError, match=r'version 0\.1\.0'):
    saved_config.check_resumable({'data': data})
  saved_config.check_resumable({'data': {**data, 'source': 'digits'}})
  saved_config.check_resumable({'data': {'source': source}})
