"""A run decides with the thresholds that `roc` chose for it."""

import numpy as np
import pytest

import vit_jax
from vit_jax.inference import thresholds

NAMES = 'bee', 'ant', 'cat'
ROC = {'name': 'roc', 'threshold_split': 'train[:9%]'}


@pytest.mark.parametrize(('names', 'settings', 'metrics', 'expected'), [
    (NAMES, {'evals': {'r': ROC}}, {
        'r/threshold_ant': 0.3, 'r/threshold_bee': 0.1, 'r/threshold_cat': 0.7},
     (0.1, 0.3, 0.7)),
    (NAMES, {'evals': {'r': ROC}}, {}, (0.5,) * 3),
    (NAMES, {'evals': {'r': {'name': 'roc'}}, 'label_kind': 'single'},
     {'r/threshold_ant': 0.5}, ()),
    (NAMES, {'evals': {'r': ROC}, 'label_kind': 'single'},
     {f'r/threshold_{name}': 0.3 for name in NAMES}, ()),
    (NAMES[:2], {
        'evals': {'r': ROC}, 'loss': 'softmax', 'label_kind': 'single'},
     {'r/threshold': 0.3}, (np.nan, 0.3)),
    (NAMES[:2], {
        'evals': {'r': {**ROC, 'positive': 'bee'}}, 'loss': 'softmax',
        'label_kind': 'single'}, {'r/threshold': 0.3}, (0.3, np.nan)),
    (NAMES, {'loss': 'softmax'}, {}, ()),
])
def test_thresholds_are_those_of_the_run(
    write, names, settings, metrics, expected):
  model = vit_jax.load(write(names, metrics, **settings), log=None)
  np.testing.assert_array_equal(model.thresholds, expected)


def test_the_best_checkpoint_has_the_thresholds_of_its_own_evaluation(write):
  of_best, of_last = ({f'r/threshold_{name}': value for name in NAMES}
                      for value in (0.2, 0.8))
  write(NAMES, {}, evals={'r': ROC}, which='best', step=3)
  path = write(NAMES, of_last, evals={'r': ROC}, best_step=3,
               best_evals=of_best)
  for which, expected in (('best', 0.2), ('latest', 0.8)):
    model = vit_jax.load(path, which=which, log=None)
    assert model.thresholds == (expected,) * 3


@pytest.mark.parametrize(('progress', 'expected'), [
    ({'eval_steps': {'r': 5, 'x': 3}, 'evaluated': 3}, 0.2),
    ({'eval_steps': {'r': 3, 'x': 5}}, 0.5), ({'evaluated': 3}, 0.5)])
def test_thresholds_of_another_step_are_not_used(write, progress, expected):
  path, lines = write(
      NAMES, {f'r/threshold_{name}': 0.2 for name in NAMES},
      evals={'r': ROC}, **progress), []
  model = vit_jax.load(path, log=lines.append)
  assert model.thresholds == (expected,) * 3
  command = f'  python main.py evaluate --workdir={path}/checkpoints/latest/5 '
  assert (f'{command}--evaluators=r --store-thresholds' in lines) == (
      expected == 0.5)


def test_the_stored_file_replaces_thresholds_of_the_run(write):
  path = write(NAMES, {f'r/threshold_{name}': 0.7 for name in NAMES},
               evals={'r': ROC})
  thresholds.store(vit_jax.load(path, log=None), (0.1, 0.2, 0.3))
  assert vit_jax.load(path, log=None).thresholds == (0.1, 0.2, 0.3)
