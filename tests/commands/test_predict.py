"""`predict` and `features`: pictures in, a table or rows out."""

import csv
import errno
import json
import os

import numpy as np
from PIL import Image
from pyarrow import parquet
import pytest

import main
from tests import random_models
import vit_jax
from vit_jax.commands import arguments as arguments_lib


@pytest.fixture(scope='module', name='model')
def _model(tmp_path_factory):
  """The path of a small model whose classes have names."""
  path = tmp_path_factory.mktemp('model') / 'tiny'
  random_models.make(
      {'width': 8, 'depth': 1, 'mlp_dim': 8, 'num_heads': 2, 'patch': 4,
       'num_classes': 4},
      side=8, labels=('ant', 'bee', 'cat', 'dog')).save(path)
  return str(path)


@pytest.fixture(scope='module', name='photos')
def _photos(tmp_path_factory):
  """A folder of five pictures, one of them below, one broken, and a text."""
  folder = tmp_path_factory.mktemp('photos')
  (folder / 'more').mkdir()
  rng = np.random.default_rng(0)
  for name in ('a.png', 'b.jpg', 'c.png', 'more/d.PNG'):
    Image.fromarray(rng.integers(
        0, 256, (12, 10, 3), dtype=np.uint8)).save(folder / name)
  (folder / 'e.jpg').write_bytes((folder / 'b.jpg').read_bytes()[:200])
  (folder / 'notes.txt').write_text('no picture')
  return folder


GOOD = ['a.png', 'b.jpg', 'c.png', 'more/d.PNG']


def test_a_broken_file_is_named_and_counted_and_the_rest_goes_on(
    model, photos, tmp_path, capsys):
  output = tmp_path / 'p.csv'
  status = main.main(['predict', f'--model={model}', str(photos),
                      '--batch-size=2', f'--output={output}'])
  printed = capsys.readouterr().out
  assert status == 1
  assert f'could not read {photos}/e.jpg' in printed
  assert '1 picture could not be read' in printed
  assert 'notes.txt' not in printed
  rows = list(csv.DictReader(output.open()))
  assert [row['path'] for row in rows if not row['error']] == [
      str(photos / name) for name in GOOD]
  assert [row['path'] for row in rows if row['error']] == [
      str(photos / 'e.jpg')]
  loaded = vit_jax.load(model, log=None)
  for row in rows[:4]:
    wanted = loaded.predict(row['path'])
    assert row['name_1'] == wanted.names[0] in printed
    assert float(row['probability_4']) == pytest.approx(
        wanted.probabilities[3], rel=1e-4)


def test_names_of_any_bytes_and_paths_of_any_kind_are_shown_and_written(
    model, photos, tmp_path, capfd, monkeypatch):
  monkeypatch.chdir(tmp_path)
  monkeypatch.setenv('COLUMNS', '300')  # Paths in one line.
  odd = os.fsdecode(b'caf\xe9.png')  # Latin-1.
  (tmp_path / odd).write_bytes((photos / 'a.png').read_bytes())
  (tmp_path / os.fsdecode(b'\xe9.jpg')).write_bytes(b'no picture')
  assert main.main(['predict', f'--model={model}', odd, f'{photos}/a.png',
                    os.fsdecode(b'\xe9.jpg'), '--output=p.csv',
                    '--batch-size=3', '--json=p.json']) == 1
  printed = capfd.readouterr().out
  assert r'caf\udce9.png' in printed and f'{photos}/a.png' in printed
  assert r'could not read \udce9.jpg' in printed
  with open('p.csv', encoding='utf-8') as file:
    assert [row['path'] for row in csv.DictReader(file)] == [
        r'caf\udce9.png', f'{photos}/a.png', r'\udce9.jpg']
  # JSON has an escape for what is no text: the name itself.
  assert json.loads((tmp_path / 'p.json').read_text())[0]['path'] == odd


def test_a_defective_exif_block_is_passed_over_in_silence(
    model, tmp_path, capsys, recwarn):
  exif = Image.Exif()
  exif[0x010e] = 'a description that is cut'
  path = tmp_path / 'exif.jpg'
  Image.new('RGB', (8, 8), 'red').save(path, exif=exif.tobytes()[:-9])
  with pytest.warns(UserWarning, match='Truncated'):
    vit_jax.load(model, log=None).predict(path)
  recwarn.clear()
  assert not main.main(['predict', f'--model={model}', str(path)])
  assert not [w for w in recwarn.list if 'PIL' in w.filename]
  assert '1 picture in' in capsys.readouterr().out


def test_globs_and_files_are_taken_once_each(model, photos, tmp_path):
  output = tmp_path / 'p.jsonl'
  assert not main.main([
      'predict', f'--model={model}', f'{photos}/*.png', f'{photos}/a.png',
      '--top-k=2', f'--output={output}'])
  rows = [json.loads(line) for line in output.read_text().splitlines()]
  assert [row['path'] for row in rows] == [f'{photos}/a.png', f'{photos}/c.png']
  assert all(len(row['predictions']) == 2 for row in rows)


def test_of_a_folder_what_is_called_as_a_format_that_is_read_is_taken(
    tmp_path):
  for name in ('a.npy', 'b.PNG', 'c.tiff', 'd.mpg', 'e.psd', 'f.ico', 'g.tga',
               'h.npz'):
    (tmp_path / name).touch()
  wanted = [f'{tmp_path}/{name}' for name in ('a.npy', 'b.PNG', 'c.tiff')]
  assert arguments_lib.find([str(tmp_path)]) == wanted
  assert arguments_lib.find([f'{tmp_path}/*']) == wanted


@pytest.mark.parametrize('command', ['predict', 'features'])
def test_what_is_not_there_or_closed_is_named_and_the_rest_goes_on(
    model, photos, tmp_path, capsys, monkeypatch, command):
  folders = type(arguments_lib.epath.Path(photos))
  inside = folders.iterdir

  def closed(folder):
    if folder.name == 'more':
      raise PermissionError(errno.EACCES, 'Permission denied', str(folder))
    return inside(folder)

  monkeypatch.setattr(folders, 'iterdir', closed)
  output = 'f.npz' if command == 'features' else 'p.csv'
  arguments = [command, f'--model={model}', f'--output={tmp_path}/{output}']
  assert main.main([*arguments, f'{photos}/none.jpg', str(photos)]) == 1
  printed = capsys.readouterr().out
  assert f'could not read {photos}/none.jpg: there is no such file' in printed
  assert f'could not read {photos}/more: Permission denied' in printed
  assert f'could not read {photos}/e.jpg' in printed
  assert '3 pictures could not be read' in printed
  # With nothing else to read, it is an error.
  with pytest.raises(PermissionError):
    arguments_lib.find([f'{photos}/more'], {})


def test_links_between_folders_give_each_picture_once(tmp_path):
  photos, other = tmp_path / 'photos', tmp_path / 'other'
  for path in (photos / 'deep' / 'a.png', other / 'b.png'):
    path.parent.mkdir(parents=True)
    path.touch()
  (photos / 'again').symlink_to(photos / 'deep')  # Before it in order.
  (photos / 'deep' / 'up').symlink_to(photos)
  (photos / 'elsewhere').symlink_to(other)
  assert arguments_lib.find([str(photos)]) == [
      f'{photos}/deep/a.png', f'{photos}/elsewhere/b.png']


def test_a_file_that_is_spelt_in_several_ways_is_read_once(
    tmp_path, monkeypatch):
  (tmp_path / 'photos').mkdir()
  (tmp_path / 'linked').symlink_to(tmp_path / 'photos')
  (tmp_path / 'photos' / 'a.png').touch()
  (tmp_path / 'photos' / 'b.png').symlink_to('a.png')
  monkeypatch.chdir(tmp_path / 'photos')
  # The first spelling is kept; a link to a file has a row of its own.
  assert arguments_lib.find([
      './a.png', f'{tmp_path}/photos/a.png', '../photos/*.png',
      f'{tmp_path}/linked']) == ['a.png', '../photos/b.png']


def test_names_may_come_from_a_file(model, photos, tmp_path, capsys):
  names = tmp_path / 'names.txt'
  names.write_text('one\ntwo\nthree\nfour\n')
  main.main(['predict', f'--model={model}', f'{photos}/a.png',
             f'--labels={names}'])
  assert 'three' in capsys.readouterr().out
  names.write_text('one\n')
  main.main(['predict', f'--model={model}', f'{photos}/a.png',
             f'--labels={names}'])
  assert 'holds 1 name (one a line), but the model has 4 classes' in (
      capsys.readouterr().err)
  names.write_bytes('Café\nb\nc\nd\n'.encode('latin-1'))
  main.main(['predict', f'--model={model}', f'{photos}/a.png',
             f'--labels={names}'])
  assert 'names.txt is not text in UTF-8' in capsys.readouterr().err


@pytest.mark.parametrize(('layer', 'shape'), [
    ('representation', (8,)), ('mean', (8,)), ('tokens', (5, 8))])
@pytest.mark.parametrize('suffix', ['npz', 'parquet'])
def test_features_keep_order_and_names(
    model, photos, tmp_path, layer, shape, suffix):
  output = tmp_path / f'f.{suffix}'
  assert main.main([
      'features', f'--model={model}', str(photos), f'--output={output}',
      f'--layer={layer}', '--batch-size=3']) == 1
  if suffix == 'npz':
    with np.load(output) as file:
      paths, features = list(file['path']), file['features']
  else:
    table = parquet.read_table(output)
    assert table.schema.metadata[b'shape'].decode() == ' '.join(map(str, shape))
    paths = table['path'].to_pylist()
    features = np.stack(table['features'].to_pylist()).reshape(-1, *shape)
  assert paths == [str(photos / name) for name in GOOD]
  np.testing.assert_allclose(
      features, vit_jax.load(model, log=None).features(paths, layer=layer),
      rtol=1e-5, atol=1e-6)


def test_features_of_nothing_readable_name_the_file_and_why(
    model, photos, tmp_path, capsys):
  assert main.main([
      'features', f'--model={model}', f'{photos}/e.jpg',
      f'--output={tmp_path}/f.npz']) == 2
  said = capsys.readouterr()
  assert f'could not read {photos}/e.jpg: ' in said.out
  assert 'None of the pictures could be read' in said.err


@pytest.mark.parametrize(('command', 'arguments', 'words'), [
    ('predict', ['{photos}/none.jpg'], 'no such file'),
    ('predict', ['{photos}/*.gif'], 'no file matches it'),
    ('predict', ['{photos}/*.txt'], 'there is no picture'),
    ('predict', ['{photos}/a.png', '--output=p.txt'],
     'must end with .csv or .jsonl'),
    ('predict', ['{photos}/a.png', '--output={photos}/notes.txt'],
     'must end with'),
    ('features', ['{photos}/a.png', '--output={photos}/a.npy'],
     'must end with .npz or .parquet'),
    ('features', ['{photos}/e.jpg', '--output={photos}/f.npz'],
     'nothing to write. {photos}/e.jpg: not a readable image'),
    ('predict', ['{photos}/a.png', '{photos}/*.gif'], 'no file matches it'),
])
def test_what_cannot_be_done_is_said_and_nothing_is_written(
    model, photos, capsys, command, arguments, words):
  before = sorted(photos.rglob('*'))
  assert main.main([command, f'--model={model}', *(
      text.format(photos=photos) for text in arguments)]) == 2
  assert words.format(photos=photos) in capsys.readouterr().err
  assert sorted(photos.rglob('*')) == before
