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


@pytest.mark.parametrize(('argv', 'meant'), [
    ('train --learning-rate', '--lr or --config.optimizer.learning_rate'),
    ('evaluate --num_threads', '--config.data.num_threads'),
    ('train --vesion', '--version'), ('train --device', ''),
    ('predict --learning-rate', ''), ('evaluate --model', ''),
    *[('data check --holdout', '--config.data.holdout')] * (
        'data' in leaves.COMMANDS),
    *((f'train --{flag}', f'--config.{key}') for flag, key in {
        'beta1': 'optimizer.beta1', 'momentum': 'optimizer.momentum',
        'nesterov': 'optimizer.nesterov', 'mask-ratio': 'objective.masked',
        'label-smoothing': 'objective.label_smoothing',
        'model': 'model.variant', 'patch-size': 'model.patch',
        'shots': 'evals.NAME.shots'}.items())])
def test_an_unknown_flag_suggests_flags_and_keys(argv, meant, capsys):
  assert main.main([*f'{argv}=1'.split()]) == 2
  _, _, hint = capsys.readouterr().err.partition(' Did you mean ')
  assert hint.partition('?')[0] == meant
