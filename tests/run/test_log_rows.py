"""Advice names only what helps a run that waits for images."""

import pytest

from vit_jax import data
from vit_jax.data import pipeline
from vit_jax.run import log_rows


@pytest.mark.parametrize(('cost', 'workers', 'advised'), [
    ((0.02, 0.001, 500), 0, {'num_workers=auto', '--shorter-side=256',
                             'cache_mib'}),
    ((0.02, 0.001, 500), 'auto', {'--shorter-side=256', 'cache_mib'}),
    ((0.02, 0.001, 200), 'auto', {'cache_mib'}),
    ((0.001, 0.02, 500), 'auto', {'train_ops', 'resolution'})])
def test_remedies_depend_on_the_cost_of_an_image(
    cost, workers, advised, monkeypatch):
  monkeypatch.setattr(pipeline, 'median_cost', lambda load: cost)
  monkeypatch.setattr(pipeline, 'max_workers', lambda: 3)
  config = data.parse({'resolution': 224, 'num_workers': workers})
  text = log_rows.advise_input(config, data.open_dataset(config))
  assert advised == {word for word in (
      'num_workers=auto', '--shorter-side=256', 'cache_mib', 'train_ops',
      'resolution') if word in text}


def test_a_line_has_the_mean_of_several_targets_only():
  row = {'test/r2': 0.5, 'test/r2_red': 0.4, 'test/r2_blue': 0.6}
  assert log_rows.evaluation_line(
      row, step=7, targets=('red', 'blue')) == 'step 7: test/r2 0.500'
