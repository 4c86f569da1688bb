"""Commands `predict` and `features`."""

import argparse
import csv
import json
import pathlib
import shutil

import numpy as np
from PIL import Image
import pytest

from tests import random_models
import vit_jax
from vit_jax import __main__ as main
from vit_jax import escape
from vit_jax.commands import arguments

READABLE = ['a.png', 'b.jpg', 'c.png', 'more/d.PNG']
TINY = {'width': 8, 'depth': 1, 'mlp_dim': 8, 'num_heads': 2, 'patch': 4,
        'num_classes': 2}


@pytest.fixture(scope='module', name='model')
def _model(tmp_path_factory):
  path = tmp_path_factory.mktemp('model') / 'tiny'
  random_models.make({**TINY, 'num_classes': 4}, side=8,
                     labels=('ant', 'bee', 'cat', 'dog')).save(path)
  return str(path)


@pytest.fixture(scope='module', name='photos')
def _photos(tmp_path_factory):
  """A folder with four images, a truncated one and a text."""
  folder = tmp_path_factory.mktemp('photos')
  (folder / 'more').mkdir()
  rng = np.random.default_rng(0)
  for name in READABLE:
    Image.fromarray(rng.integers(
        0, 256, (12, 10, 3), dtype=np.uint8)).save(folder / name)
  (folder / 'e.jpg').write_bytes((folder / 'b.jpg').read_bytes()[:200])
  (folder / 'notes.txt').write_text('text')
  return folder


def test_unreadable_files_are_reported_and_skipped(
    model, photos, tmp_path, capsys):
  output = tmp_path / 'p.csv'
  status = main.main(['predict', f'--model={model}', str(photos),
                      f'{photos}/none.jpg', '--batch-size=2',
                      f'--output={output}'])
  printed = capsys.readouterr().out
  assert status == 1
  assert f'no result for {photos}/none.jpg: no such file' in printed
  assert f'no result for {photos}/e.jpg' in printed
  assert '2 images without a result' in printed
  assert f'At most 2 classes are shown; {output} has all.' in printed
  assert 'notes.txt' not in printed
  rows = list(csv.DictReader(output.open()))
  assert [row['path'] for row in rows if not row['error']] == [
      str(photos / name) for name in READABLE]
  assert {row['path'] for row in rows if row['error']} == {
      f'{photos}/e.jpg', f'{photos}/none.jpg'}
  loaded = vit_jax.load(model, log=None)
  assert list(rows[0]) == [
      'path', 'decision', 'ant', 'bee', 'cat', 'dog', 'error']
  for row in rows[:4]:
    expected = loaded.predict(row['path'])
    assert row['decision'] == expected.names[0] in printed
    assert float(row[expected.names[3]]) == pytest.approx(
        expected.probabilities[3], rel=1e-4)


def test_tables_of_images_keep_their_order_and_labels(
    model, photos, tmp_path, capsys, monkeypatch):
  monkeypatch.chdir(tmp_path)
  table = tmp_path / 'table.tsv'
  table.write_text(f'where\tbreed\n{photos}/c\tdog\n{photos}/a\tant\n')
  command = ['predict', f'--model={model}', 'table.tsv']
  flags = [f'--config.data.table.{name}' for name in (
      'path=where', 'label=breed', 'suffix=.png')]
  assert main.main([*command, *flags, '--output=p.csv']) == 0
  shown = [line.split() for line in capsys.readouterr().out.splitlines()]
  assert ['image', 'label', 'class', 'probability'] in shown
  assert [row[:2] for row in shown if row[:1] in (['c.png'], ['a.png'])] == [
      ['c.png', 'dog']] * 2 + [['a.png', 'ant']] * 2
  assert main.main([*command, *flags, '--output=p.jsonl', '--top-k=1']) == 0
  assert main.main([*command, *flags, '--config.seed=1']) == 2
  table.write_text(f'path\n{photos}/a.png\n')
  assert main.main([*command, '--output=plain.csv']) == 0
  rows = list(csv.DictReader(pathlib.Path('p.csv').read_text().splitlines()))
  assert [(row['path'], row['label']) for row in rows] == [
      (str(photos / 'c.png'), 'dog'), (str(photos / 'a.png'), 'ant')]
  lines = [json.loads(line) for line in (
      pathlib.Path('p.jsonl').read_text().splitlines())]
  assert [line['label'] for line in lines] == ['dog', 'ant']
  assert [[p['name'] for p in line['predictions']] for line in lines] == [
      [row['decision']] for row in rows]
  assert pathlib.Path('plain.csv').read_text().startswith('path,decision,')


def test_a_table_with_the_columns_of_the_run_needs_no_flags(photos, tmp_path):
  table = tmp_path / 'table.csv'
  run = {'data': {'target': 'single', 'table': {
      'path': 'where', 'label': 'breed', 'folder': 'of the training'}}}

  def labels(header, *overrides):
    table.write_text(f'{header}\n{photos}/a.png,ant,bee\n')
    found, _ = arguments.find_images(argparse.Namespace(
        paths=[str(table)], overrides=overrides), run)
    return [*found.values()]

  assert labels('where,breed,other') == [[{'breed': 'ant'}]]
  assert labels('path,none,label') == [[{'label': 'bee'}]]
  assert labels('where,breed,other', 'data.table.label=other',
                'data.table.path=where') == [[{'other': 'bee'}]]


def test_several_targets_have_a_column_each(
    photos, tmp_path, capsys, monkeypatch):
  monkeypatch.chdir(tmp_path)
  random_models.make(TINY, side=8, labels=('age', 'weight'),
                     activation='none').save('model')
  (tmp_path / 'ages.jsonl').write_text(json.dumps(
      {'path': f'{photos}/a.png', 'age': 3, 'weight': 4.5}))
  assert main.main(['predict', '--model=model', 'ages.jsonl',
                    '--config.data.table.label=age,weight',
                    '--output=p.csv']) == 0
  printed = capsys.readouterr().out
  assert 'At most' not in printed
  shown = [line.split() for line in printed.splitlines()]
  assert ['image', 'label', 'age', 'label', 'weight', 'age', 'weight'] in shown
  assert ['a.png', '3', '4.5'] in [row[:3] for row in shown]
  row, = csv.DictReader(pathlib.Path('p.csv').read_text().splitlines())
  assert list(row) == [
      'path', 'label age', 'label weight', 'age', 'weight', 'error']
  assert (row['label age'], row['label weight']) == ('3', '4.5')


@pytest.mark.parametrize(('value', 'cell'), [
    ('-0.47', '-0.47'), ('+1e-3', '+1e-3'), ('-1+2', "'-1+2"),
    ('-', "'-"), ('=1', "'=1"), (-1.5, -1.5)])
def test_numbers_are_no_formulas(value, cell):
  assert escape.csv_cell(value) == cell


def test_labels_may_come_from_a_file(model, photos, tmp_path, capsys):
  labels = tmp_path / 'labels.txt'
  command = ['predict', f'--model={model}', f'{photos}/a.png',
             f'--labels={labels}']
  labels.write_text('one\ntwo\nthree\nfour\n')
  assert main.main(command) == 0
  assert 'three' in capsys.readouterr().out
  for content, message in (
      (b'one\n', 'holds 1 name (one a line), but the model has 4 classes'),
      ('Café\nb\nc\nd\n'.encode('latin-1'), 'labels.txt is not UTF-8 text')):
    labels.write_bytes(content)
    assert main.main(command) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(('layer', 'shape'), [
    ('representation', (8,)), ('patches:1', (2, 2, 8))])
def test_features_are_in_the_order_of_the_files(
    model, photos, tmp_path, layer, shape):
  assert main.main([
      'features', f'--model={model}', str(photos),
      f'--output={tmp_path}/f.npz', f'--layer={layer}',
      '--batch-size=3']) == 1  # Because of e.jpg.
  with np.load(tmp_path / 'f.npz') as file:
    paths, features = list(file['path']), file['features']
  assert paths == [str(photos / name) for name in READABLE]
  assert features.shape[1:] == shape
  np.testing.assert_allclose(
      features, vit_jax.load(model, log=None).features(paths, layer=layer),
      rtol=1e-5, atol=1e-6)


def test_hostile_names_are_shown_and_written_as_text(
    photos, tmp_path, capsys, monkeypatch):
  monkeypatch.chdir(tmp_path)
  names = ['\x1b]0;x\x07a\x9b2J.png', '=1+2\nmain.py.png']
  for name in names:
    shutil.copy(photos / 'a.png', name)
  random_models.make(TINY, side=8, labels=('\x1b[8mant', '=bee')).save('model')
  assert main.main(['predict', '--model=model', '--output=p.csv', *names]) == 0
  printed = capsys.readouterr().out
  assert set(filter(lambda c: not c.isprintable(), printed)) == {'\n'}
  for text in (r'\x1b]0;x\x07a\x9b2J.png', r'\x1b[8mant', r'=1+2\nmain.py.png'):
    assert text in printed
  with open('p.csv', newline='') as file:
    rows = list(csv.DictReader(file))
  assert [row['path'] for row in rows] == [names[0], "'=1+2\nmain.py.png"]
  assert {row['decision'] for row in rows} <= {'\x1b[8mant', "'=bee"}


@pytest.mark.parametrize(('command', 'arguments', 'message'), [
    ('predict', ['{photos}/a.png', '{photos}/*.gif'], 'no image found'),
    ('predict', ['{photos}/a.png', '--output=p.txt'],
     'must end with .csv or .jsonl'),
    ('features', ['{photos}/a.png', '--output={photos}/a.npy'],
     'must end with .npz'),
    ('features', ['{photos}/a.png', '--output={photos}/f.npz',
                  '--config.data.resolution=64'],
     "Unknown key of data 'resolution'. Known: target, table, group."),
    ('features', ['{photos}/e.jpg', '--output={photos}/f.npz'],
     'None of the images has a result.'),
])
def test_errors_leave_no_output(
    model, photos, capsys, command, arguments, message):
  before = sorted(photos.rglob('*'))
  assert main.main([command, f'--model={model}', *(
      text.format(photos=photos) for text in arguments)]) == 2
  printed = capsys.readouterr()
  assert message in printed.err
  assert (printed.out + printed.err).count('not a readable image') == (
      'None of' in message)
  assert sorted(photos.rglob('*')) == before


def test_outputs_that_are_not_finite_are_errors_of_their_images(
    tmp_path, capsys):
  made = random_models.make(TINY, side=8, mean=(0.0,) * 3, std=(1.0,) * 3)
  made.params['patches']['kernel'][:] = 1e37  # White pixels overflow.
  made.save(tmp_path / 'model')
  paths = [str(tmp_path / f'{name}.png') for name in ('black', 'white')]
  for value, path in zip((0, 255), paths):
    Image.new('L', (8, 8), value).save(path)
  for command, suffix in (('predict', 'jsonl'), ('features', 'npz')):
    output = tmp_path / f'out.{suffix}'
    assert main.main([command, f'--model={tmp_path}/model', *paths,
                      f'--output={output}']) == 1
    assert f'no result for {paths[1]}: the ' in ' '.join(
        capsys.readouterr().out.split())
  rows = [json.loads(line, parse_constant=pytest.fail) for line in (
      tmp_path / 'out.jsonl').read_text().splitlines()]
  assert [row['path'] for row in rows] == paths
  assert rows[0]['predictions'] and 'not finite' in rows[1]['error']
  with np.load(output) as file:
    assert file['path'].tolist() == paths[:1]
  with pytest.raises(ValueError, match='logits of the model are not finite'):
    vit_jax.load(tmp_path / 'model', log=None).predict(paths)
