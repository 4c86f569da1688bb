"""The line about initial features is that of the evaluator `knn`."""

import pytest

from tests import pictures
from tests import toy as toy_lib
from vit_jax.extras.diagnostics import baseline


def test_the_baseline_is_the_accuracy_of_knn_on_at_most_so_many_images(
    monkeypatch):
  experiment = toy_lib.build(data={'split': 'train[:64]'}, evals={
      'test': {'split': 'test[:48]'},
      'knn': {'name': 'knn', 'train_split': 'train[:64]',
              'split': 'test[:48]'}})
  params = experiment.init_state().params
  accuracy = experiment.evaluate('knn', params).metrics['accuracy']
  assert baseline.describe(experiment, params).startswith(
      f'baseline: {100 * accuracy:.2f} % of 48 images of test[:48]')
  monkeypatch.setattr(baseline, 'MOST', 40)
  assert ('40 images of test[:48] by k-NN among 40 training images'
          in baseline.describe(experiment, params))


@pytest.mark.parametrize('changes', [
    {'evals': {}}, {'evals': {'test': {'split': 'train'}}},
    {'objective': {'loss': 'sigmoid'},
     'data': {'source': 'labels.csv', 'target': 'multi',
              'table': {'separator': ' '}}}])
def test_other_runs_have_no_baseline(changes, tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  if 'data' in changes:
    pictures.write_table(tmp_path, 'label,split', [
        f'{label},{split}' for split in ('train', 'test')
        for label in ('a b', 'b', 'a')])
  experiment = toy_lib.build(**{'evals': {'test': {}}, **changes})
  assert baseline.describe(experiment, experiment.init_state().params) == ''
