"""Keys of configs: shown by --help, and suggested for misspelt flags."""

import pytest

from tests import leaves
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


@pytest.mark.parametrize(('command', 'flag', 'meant'), [
    ('train', '--learning-rate', '--lr or --config.optimizer.learning_rate'),
    ('train', '--vesion', '--version'),
    ('train', '--beta1', '--config.optimizer.beta1'),
    ('train', '--momentum', '--config.optimizer.momentum'),
    ('train', '--nesterov', '--config.optimizer.nesterov'),
    ('train', '--mask-ratio', '--config.objective.masked'),
    ('train', '--label-smoothing', '--config.objective.label_smoothing'),
    ('train', '--model', '--config.model.variant'),
    ('train', '--patch-size', '--config.model.patch'),
    ('train', '--shots', '--config.evals.NAME.shots'),
    ('train', '--device', ''), ('evaluate', '--model', ''),
    ('evaluate', '--batch_size',
     '--config.batch_size or --config.evals.NAME.batch_size'),
    ('predict', '--learning-rate', ''), ('predict', '--data', ''),
    *[('data check', '--holdout', '--config.data.holdout')] * (
        'data' in leaves.COMMANDS)])
def test_a_misspelt_flag_suggests_flags_and_keys_of_the_command(
    command, flag, meant, capsys):
  assert main.main([*command.split(), f'{flag}=1']) == 2
  assert capsys.readouterr().err.partition(' Did you mean ')[2].partition(
      '?')[0] == meant
