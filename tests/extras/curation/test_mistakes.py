"""Predictions are compared with the labels of folders and tables."""

import csv
import dataclasses
import json
import pathlib

import numpy as np
from PIL import Image
import pytest

from tests import random_models
from vit_jax import __main__ as main
from vit_jax.extras.curation import mistakes

TINY = {'width': 8, 'depth': 1, 'mlp_dim': 8, 'num_heads': 2, 'patch': 4}
NAMES = ('ant', 'bee', 'cat')


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
  """The current folder, with a model and ten images in each class folder."""
  monkeypatch.chdir(tmp_path)
  monkeypatch.setenv('COLUMNS', '1000')
  rng = np.random.default_rng(0)
  for i in range(30):
    path = tmp_path / 'images' / 'test' / NAMES[i % 3] / f'{i}.png'
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(rng.integers(0, 256, (8, 8, 3), dtype=np.uint8)).save(path)
  random_models.make({**TINY, 'num_classes': 3}, side=8, labels=NAMES).save(
      'model')
  return tmp_path


def predict(*flags, model='model'):
  return main.main(['predict', f'--model={model}', *flags])


def rows_of(path):
  return list(csv.DictReader(pathlib.Path(path).read_text().splitlines()))


@pytest.mark.parametrize('given', ['images', *(pytest.param(
    path, marks=pytest.mark.slow) for path in ('.', './images/test'))])
def test_class_folders_are_labels_and_mistakes_are_listed_by_confidence(
    given, capsys):
  assert predict(given, '--output=p.csv', '--mistakes=m.csv') == 0
  printed = capsys.readouterr().out
  rows = rows_of('p.csv')
  assert list(rows[0]) == [
      'path', 'label', 'correct', 'decision', *NAMES, 'error']
  for row in rows:
    assert row['label'] == pathlib.Path(row['path']).parent.name
    assert row['correct'] == str(row['label'] == row['decision'])
  wrong = [row for row in rows if row['label'] != row['decision']]
  assert 0 < len(wrong) < 30
  accuracy = 100 * (1 - len(wrong) / 30)
  assert f'accuracy {accuracy:.2f} % of 30 labels\n' in printed
  listed = rows_of('m.csv')
  assert {row['path'] for row in listed} == {row['path'] for row in wrong}
  confidence = [float(row['confidence']) for row in listed]
  assert confidence == sorted(confidence, reverse=True)
  assert f'wrote m.csv: {len(wrong)} mistakes' in printed


def test_a_table_may_have_labels_that_are_no_classes(capsys):
  pathlib.Path('t.csv').write_text(
      'path,label\nimages/test/ant/0.png, ant \nimages/test/bee/1.png,dog\n')
  assert predict('t.csv', '--output=p.jsonl') == 0
  assert 'of 1 label; 1 without a label that is a class of the model: dog' in (
      capsys.readouterr().out)
  first, second = map(
      json.loads, pathlib.Path('p.jsonl').read_text().splitlines())
  assert first['correct'] == (first['decision'] == ['ant'])
  assert first['path'] == 'images/test/ant/0.png'  # As in the table.
  assert second['correct'] is None and second['label'] == 'dog'
  pathlib.Path('t.csv').write_text('path,label\nimages/test/bee/1.png,dog\n')
  assert predict('t.csv') == 0
  assert 'no label is a class of the model' in capsys.readouterr().out


def test_rows_of_an_image_are_joined_if_training_joined_them():
  model = dataclasses.replace(
      random_models.make({**TINY, 'num_classes': 3}, side=8, labels=NAMES),
      run={'data': {'target': 'multi'}})
  rows = [{'label': 'ant'}, {'label': ' bee'}, {'label': 'ant'}]
  assert mistakes.with_folders({'a.png': rows}, [], model) == {
      'a.png': [{'label': 'ant|bee'}]}


def test_several_labels_are_compared_as_a_set(capsys):
  random_models.make({**TINY, 'num_classes': 3}, side=8, labels=NAMES,
                     activation='sigmoid').save('several')
  assert predict('images', '--output=p.jsonl', model='several') == 0
  rows = list(map(json.loads, pathlib.Path('p.jsonl').read_text().splitlines()))
  pathlib.Path('t.csv').write_text('path,label\n' + ''.join(
      f'{row["path"]},{"|".join(reversed(row["decision"])) or "ant"}\n'
      for row in rows))
  capsys.readouterr()
  assert predict('t.csv', model='several') == 0
  right = sum(bool(row['decision']) for row in rows)
  assert right and f'right in {right / .3:.2f} % of 30 images' in (
      capsys.readouterr().out)
  pathlib.Path('t.csv').write_text(f'path,{",".join(NAMES)}\n' + ''.join(
      ','.join([row['path'], *(str(int(name in row['decision']))
                               for name in NAMES)]) + '\n'
      for row in [*rows[1:], {**rows[0], 'decision': ['bee', 'ant', 'cat']}]))
  assert predict('t.csv', '--mistakes=m.csv', '--config.data.target=multi',
                 f'--config.data.table.label={",".join(NAMES)}',
                 model='several') == 0
  assert 'of 30 images' in capsys.readouterr().out
  [listed] = rows_of('m.csv')
  assert listed['label'] == 'ant|bee|cat'
  # That the least probable label is absent; those that are right do not count.
  assert float(listed['confidence']) == pytest.approx(
      1 - rows[0]['predictions'][-1]['probability'])


def test_outputs_are_replaced_on_request_only(capsys):
  assert predict('images', '--output=p.csv', '--mistakes=p.csv') == 2
  assert 'are the same file, p.csv' in capsys.readouterr().err
  flags = ['images', '--output=p.csv', '--mistakes=m.csv']
  for name in ('p.csv', 'm.csv'):
    pathlib.Path(name).write_text('old')
    assert predict(*flags) == 2
    assert f'{name} exists already. Add --overwrite' in capsys.readouterr().err
    assert pathlib.Path(name).read_text() == 'old'
    pathlib.Path(name).unlink()
  pathlib.Path('p.csv').write_text('old')
  assert predict(*flags, '--overwrite') == 0
  assert len(rows_of('p.csv')) == 30 and rows_of('m.csv')
  pathlib.Path('broken.png').write_text('no image')
  before = pathlib.Path('p.csv').read_text()
  assert predict('broken.png', '--output=p.csv', '--overwrite') == 2
  assert pathlib.Path('p.csv').read_text() == before
  pathlib.Path('f.npz').write_text('old')
  features = ['features', '--model=model', 'images', '--output=f.npz']
  assert main.main(features) == 2
  assert main.main([*features, '--overwrite']) == 0
  with np.load('f.npz') as file:
    assert len(file['path']) == 30
  pathlib.Path('folder.csv').mkdir()
  assert predict('images', '--output=folder.csv', '--overwrite') == 2


@pytest.mark.parametrize('path', ['images/test/ant', 'images/test/ant/0.png'])
def test_a_list_of_mistakes_needs_labels(path, capsys):
  assert predict(path, '--mistakes=m.csv') == 2
  assert 'images, which have 0 columns of labels. Give a folder' in (
      capsys.readouterr().err)
  assert predict(path) == 0
  assert 'accuracy' not in capsys.readouterr().out
