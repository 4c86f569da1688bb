"""A model decides with thresholds: stored ones, or those that `roc` chose."""

import csv

import numpy as np
from PIL import Image
import pytest

import vit_jax
from vit_jax import __main__ as main
from vit_jax import atomic_files
from vit_jax.extras.diagnostics import thresholds as thresholds_lib

NAMES = 'bee', 'ant', 'cat'
ROC = {'name': 'roc', 'threshold_split': 'train[:9%]'}


@pytest.mark.parametrize(('thresholds', 'decided'), [
    ((0.6, 0.2, 0.5), [[1], [0, 1], []]),
    ((np.nan, 0.2), [[1], [1], [0]]), ((0.6, np.nan), [[1], [0], [1]])])
def test_a_class_is_predicted_from_its_threshold_on(thresholds, decided):
  probabilities = np.array([[0.5, 0.2, 0.1], [0.6, 0.3, 0.4], [0.4, 0.1, 0.4]])
  found = thresholds_lib.decide(probabilities[:, :len(thresholds)], thresholds)
  assert [indices.tolist() for indices in found] == decided


@pytest.mark.parametrize(('content', 'expected'), [
    ({'bee': 0.1, 'ant': 0.2, 'cat': 0.3}, (0.1, 0.2, 0.3)),
    ({'ant': 0.2}, 'for each of the classes bee, ant, cat'),
    ({'bee': 0.1, 'ant': 0.2, 'dog': 0.3}, 'must hold a number'),
    ({'bee': 0.1, 'ant': 0.2, 'cat': '0.3'}, 'must hold a number')])
def test_the_stored_file_has_a_threshold_for_each_class(
    write, content, expected):
  path = write(NAMES, {})
  assert vit_jax.load(path, log=None).thresholds == (0.5,) * 3
  file = f'{path}/checkpoints/latest/5/{thresholds_lib.FILE}'
  atomic_files.write_json(
      file, {'activation': 'sigmoid', 'thresholds': content})
  if isinstance(expected, str):
    with pytest.raises(ValueError, match=f'{file} .*{expected}'):
      vit_jax.load(path, log=None)
  else:
    assert vit_jax.load(path, log=None).thresholds == expected


def test_one_of_two_classes_has_a_stored_threshold(write):
  path = write(NAMES[:2], {}, loss='softmax', label_kind='single')
  weights = vit_jax.load(path, log=None)
  assert weights.thresholds == ()
  thresholds_lib.store(weights, {'ant': 0.25})
  np.testing.assert_array_equal(
      vit_jax.load(path, log=None).thresholds, (np.nan, 0.25))


def test_predictions_name_all_classes_that_reach_their_threshold(
    write, tmp_path, monkeypatch, capsys):
  monkeypatch.chdir(tmp_path)
  Image.new('RGB', (8, 8), 'teal').save('a.png')
  low, high = {}, {}
  path = write(NAMES, {})
  thresholds_lib.store(vit_jax.load(path, log=None), dict(
      zip(NAMES, (0.0, 1.0, 0.0))))
  for file, labels in ((low, NAMES), (high, NAMES[::-1])):
    (tmp_path / 'names.txt').write_text('\n'.join(labels))
    assert main.main(['predict', f'--model={path}', 'a.png',
                      '--output=p.csv', '--labels=names.txt']) == 0
    file |= next(csv.DictReader((tmp_path / 'p.csv').open()))
    assert file['decision'] in capsys.readouterr().out
    (tmp_path / 'p.csv').unlink()
  assert low['decision'] == 'bee|cat'
  assert high['decision'] == 'cat|bee'
  # Not of probabilities of another kind.
  model = vit_jax.load(path, log=None)
  assert len(model.predict('a.png', activation='softmax').decision) == 1
  assert not vit_jax.load(path, log=None, activation='softmax').thresholds


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
  thresholds_lib.store(vit_jax.load(path, log=None), dict(
      zip(NAMES, (0.1, 0.2, 0.3))))
  assert vit_jax.load(path, log=None).thresholds == (0.1, 0.2, 0.3)
