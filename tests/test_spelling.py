"""Names that look the same: Unicode normalisation, upper and lower case."""

import pytest

from tests import own_data
from vit_jax import spelling
from vit_jax.checkpoints import paths
from vit_jax.data.sources import files
from vit_jax.inference import image_files
from vit_jax.weights import download

COMPOSED, DECOMPOSED = 'caf\u00e9', 'cafe\u0301'


def test_the_error_of_a_table_names_files_that_look_the_same(tmp_path):
  own_data.write(tmp_path, 'a.JPG', 'A.jpg', 'b.jpg')
  table = own_data.write_table(
      tmp_path, 'path,label', ['a.jpg,x', 'b.jpg,y'], images=False)
  with pytest.raises(ValueError, match=(
      r'1 of 2 images .*a\.jpg\. .*/A\.jpg and .*/a\.JPG exist; the name '
      'differs in upper and lower case')):
    own_data.open_path(table)


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


def test_paths_that_look_different_and_broken_links_are_no_hints(tmp_path):
  own_data.write(tmp_path, 'a.png')
  (tmp_path / 'B.png').symlink_to('nowhere')
  assert spelling.hint(str(tmp_path / 'c.png')) == ''
  assert spelling.hint(str(tmp_path / 'b.png')) == ''
  assert spelling.hint('gs://bucket/a') == ''
