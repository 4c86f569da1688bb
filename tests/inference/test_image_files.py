"""Search for image files."""

from tests import own_data
from vit_jax.inference import image_files


def find(paths):
  found, errors = image_files.find(paths)
  return list(found), errors


def test_folders_and_globs_contribute_files_with_image_suffixes(tmp_path):
  for name in ('a.npy', 'b.PNG', 'c.tiff', 'd.mpg', 'e.psd', 'f.ico', 'g.tga',
               'h.npz', '.hidden.png'):
    (tmp_path / name).touch()
  expected = [f'{tmp_path}/{name}' for name in ('a.npy', 'b.PNG', 'c.tiff')]
  assert find([str(tmp_path)]) == (expected, {})
  assert find([f'{tmp_path}/*']) == (expected, {})


def test_files_that_are_not_read_are_counted(tmp_path, capsys):
  own_data.write(tmp_path, 'a/1.jpg', 'a/x/1.heic', 'a/Thumbs.db', 'a/2',
                 'a/#recycle/3.jpg')
  assert [*image_files.find([f'{tmp_path}/a'])[0]] == [f'{tmp_path}/a/1.jpg']
  assert capsys.readouterr().err == (
      f'note: not read in {tmp_path}/a: 1 .heic, 1 without suffix\n')
  assert [*image_files.find([f'{tmp_path}/**/*'])[0]] == [f'{tmp_path}/a/1.jpg']


def test_each_file_is_found_once_with_the_labels_of_all_tables(
    tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  for name in ('a.png', 'c.png', 'd.png'):
    (tmp_path / name).touch()
  assert find(['a.png', './a.png', 'b.png']) == (
      ['a.png'], {'b.png': 'no such file or folder.'})
  (tmp_path / 'one.csv').write_text(
      'path,label\na.png,apple\nc.png,beet\na.png,apple\n')
  (tmp_path / 'two.csv').write_text('path,label\nc.png,corn\n')
  found, _ = image_files.find(['.', 'one.csv', 'two.csv'])
  assert {path: [row.get('label') for row in rows]
          for path, rows in found.items()} == {
              'a.png': ['apple', 'apple'], 'c.png': ['beet', 'corn'],
              'd.png': [None]}
