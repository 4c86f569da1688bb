"""Names that look the same: Unicode normalisation, upper and lower case."""

import pytest

from tests import own_data
from vit_jax import __main__ as main
from vit_jax import spelling
from vit_jax.checkpoints import paths
from vit_jax.data.sources import files
from vit_jax.inference import image_files
from vit_jax.weights import download

COMPOSED, DECOMPOSED = 'caf\u00e9', 'cafe\u0301'


@pytest.mark.parametrize(('written', 'existing'), [
    (f'{COMPOSED}{{}}.png', f'{DECOMPOSED}{{}}.png'),
    (f'{DECOMPOSED}{{}}.png', f'{COMPOSED}{{}}.png'),
    ('{}.jpg', '{}.JPG'), ('{}', 'photos/{}.JPG'),
    (f'Cat/{COMPOSED}{{}}.jpg', f'photos/cat/{DECOMPOSED}{{}}.JPG')])
def test_a_table_finds_files_whose_names_look_the_same(
    tmp_path, written, existing):
  own_data.write(tmp_path, *(existing.format(i) for i in range(4)))
  table = own_data.write_table(tmp_path, 'image_id,label', (
      (written.format(i), 'ab'[i % 2]) for i in range(4)), images=False)
  assert own_data.labels(own_data.open_path(table)) == {
      existing.format(i): i % 2 for i in range(4)}


def test_a_name_that_several_files_match_is_an_error_that_names_them(tmp_path):
  own_data.write(tmp_path, 'a.JPG', 'A.jpg', 'b.jpg')
  table = own_data.write_table(
      tmp_path, 'path,label', ['a.jpg,x', 'b.jpg,y'], images=False)
  with pytest.raises(ValueError, match=(
      r'1 of 2 images .*a\.jpg .*/A\.jpg and .*/a\.JPG exist; the name differs '
      'in upper and lower case')):
    own_data.open_path(table)


@pytest.mark.parametrize('rows', [
    ['a.jpg,x', 'A.jpg,x', 'b.jpg,y'], ['A.JPG,x', 'A.jpg,x', 'b.jpg,y']])
def test_two_names_in_a_table_are_not_the_same_file(tmp_path, rows):
  own_data.write(tmp_path, 'a.jpg', 'b.jpg')
  table = own_data.write_table(tmp_path, 'path,label', rows, images=False)
  with pytest.raises(ValueError, match=r'1 of 3 images .*: A\.jpg|/A\.jpg'):
    own_data.open_path(table)


def test_a_mask_may_differ_from_its_image_in_spelling_if_it_is_unique(tmp_path):
  own_data.write(tmp_path, f'images/{COMPOSED}.jpg', 'images/b.jpg',
                 f'masks/{DECOMPOSED}.png', 'masks/B.png')
  opened = own_data.open_path(tmp_path, labelled=False)
  found = {example['image'].decode(): example['segmentation'].decode()
           for source in opened.splits.values()
           for example in (source[i] for i in range(len(source)))}
  assert found == {f'images/{COMPOSED}.jpg': f'masks/{DECOMPOSED}.png',
                   'images/b.jpg': 'masks/B.png'}
  own_data.write(tmp_path, 'images/B.jpg')
  with pytest.raises(ValueError, match='1 of 3 images .*: images/b.jpg'):
    own_data.open_path(tmp_path)


@pytest.mark.parametrize('find', [
    files.expand, paths.find, download.fetch, lambda name: image_files.find(
        [name])])
@pytest.mark.parametrize(('written', 'existing', 'difference'), [
    (COMPOSED, DECOMPOSED, r'Unicode normalisation \(NFC and NFD\)'),
    ('Runs/Mine.png', 'runs/mine.PNG', 'upper and lower case')])
def test_a_missing_path_says_how_an_existing_one_differs(
    tmp_path, find, written, existing, difference):
  own_data.write(tmp_path, existing)
  with pytest.raises((ValueError, FileNotFoundError), match=(
      f'{tmp_path / existing} exists; the name differs in {difference}')):
    find(str(tmp_path / written))


def test_a_new_run_names_a_workdir_that_looks_the_same(tmp_path, capsys):
  (tmp_path / DECOMPOSED).mkdir()
  assert main.main([
      'train', '--config=configs/pretrain.py',
      f'--config.data.source={tmp_path}/x',
      f'--workdir={tmp_path}/{COMPOSED}'])
  printed = ' '.join(capsys.readouterr().out.split())
  assert (f'note: the run in {tmp_path}/{COMPOSED} is new. '
          f'{tmp_path}/{DECOMPOSED} exists; the name differs in Unicode') in (
              printed)


def test_paths_that_look_different_and_broken_links_are_no_hints(tmp_path):
  own_data.write(tmp_path, 'a.png')
  (tmp_path / 'B.png').symlink_to('nowhere')
  assert spelling.hint(str(tmp_path / 'c.png')) == ''
  assert spelling.hint(str(tmp_path / 'b.png')) == ''
  assert spelling.hint('gs://bucket/a') == ''
