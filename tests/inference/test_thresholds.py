"""A model decides with the thresholds that are stored with it."""

import csv
import math

import numpy as np
from PIL import Image
import pytest

import vit_jax
from vit_jax import __main__ as main
from vit_jax import atomic_files
from vit_jax.inference import predictions
from vit_jax.inference import thresholds as thresholds_lib

NAMES = 'bee', 'ant', 'cat'


@pytest.mark.parametrize(('thresholds', 'decided'), [
    ((0.6, 0.2, 0.5), [[1], [0, 1], []]),
    ((np.nan, 0.2), [[1], [1], [0]]), ((0.6, np.nan), [[1], [0], [1]])])
def test_a_class_is_predicted_from_its_threshold_on(thresholds, decided):
  probabilities = np.array([[0.5, 0.2, 0.1], [0.6, 0.3, 0.4], [0.4, 0.1, 0.4]])
  found = predictions.decide(
      probabilities[:, :len(thresholds)], thresholds)
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
  thresholds_lib.store(weights, (math.nan, 0.25))
  np.testing.assert_array_equal(
      vit_jax.load(path, log=None).thresholds, (np.nan, 0.25))


def test_predictions_name_all_classes_that_reach_their_threshold(
    write, tmp_path, monkeypatch, capsys):
  monkeypatch.chdir(tmp_path)
  Image.new('RGB', (8, 8), 'teal').save('a.png')
  low, high = {}, {}
  path = write(NAMES, {})
  thresholds_lib.store(vit_jax.load(path, log=None), (0.0, 1.0, 0.0))
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
