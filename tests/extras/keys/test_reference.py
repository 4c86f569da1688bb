"""Keys of configs: shown by --help, and suggested for misspelt flags."""

import pytest

from tests import toy
from vit_jax import __main__ as main
from vit_jax.experiment import config as config_lib
from vit_jax.extras.keys import reference


def test_keys_of_a_config_can_be_set_to_the_values_that_are_shown():
  config = config_lib.resolve({
      'total': {'epochs': 2}, 'batch_size': 8,
      'model': {'variant': 'Ti/4', 'pooling': 'average'},
      'data': {'source': 'digits', 'resolution': 8},
      'optimizer': {'name': 'adam', 'learning_rate': 1e-3,
                    'schedule': {'name': 'cosine'}},
      'evals': {'val': {'split': 'test'}}})
  shown = {key.name: key for key in reference.keys_of(config)}
  assert shown['model.width'].value == '192'
  assert shown['optimizer.schedule.name'].value == 'cosine'
  assert shown['evals.val.split'].value == 'test'
  assert shown['total'].value == '{"epochs": 2}'
  assert shown['optimizer.beta1'].description.startswith('decay of the first')
  plain = config_lib.to_plain(config)
  assert config_lib.resolve_with(plain, [
      f'{name}={key.value}' for name, key in shown.items()
      if key.value not in ('null', "''")]) == config


def test_help_lists_the_keys_of_a_config(tmp_path, capsys):
  config = toy.write(tmp_path / 'config.py', **toy.config())
  with pytest.raises(SystemExit):
    main.main(['train', '--config', str(config), '--help', '--config.seed=3'])
  out = capsys.readouterr().out
  assert '--epochs' in out and f'keys of {config}' in out
  assert '  --config.seed=3  (integer)\n      seed of initial' in out


@pytest.mark.parametrize(('argv', 'words'), [
    (['--config=c.py', '--workdir=x', '--learning-rate=1'],
     'Did you mean --lr or --config.optimizer.learning_rate?'),
    (['evaluate', '--workdir=x', '--batch_size=1'],
     'Did you mean --config.batch_size?')])
def test_a_misspelt_flag_suggests_keys_of_the_config(argv, words, capsys):
  assert main.main(argv) == 2
  assert words in capsys.readouterr().err
