"""docs/config.md describes every key, and a config lists its values."""

from vit_jax.experiment import config as config_lib
from vit_jax.experiment import reference


def test_the_page_is_current_and_describes_every_key():
  page = reference.PATH.read_text()
  assert page == reference.markdown(), (
      'Run `python -m vit_jax.experiment.reference`.')
  rows = [line for line in page.splitlines() if line.startswith('| `')]
  assert len(rows) > 200
  assert [row for row in rows if row.endswith('|  |')] == []


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
  assert shown['optimizer.beta1'].description.startswith('decay of the mean')
  plain = config_lib.to_plain(config)
  assert config_lib.resolve_with(plain, [
      f'{name}={key.value}' for name, key in shown.items()
      if key.value not in ('null', "''")]) == config
