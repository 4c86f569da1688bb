"""Search for image files."""

import pytest

from vit_jax.inference import image_files


def test_folders_and_globs_contribute_files_with_image_suffixes(tmp_path):
  for name in ('a.npy', 'b.PNG', 'c.tiff', 'd.mpg', 'e.psd', 'f.ico', 'g.tga',
               'h.npz', '.hidden.png'):
    (tmp_path / name).touch()
  expected = [f'{tmp_path}/{name}' for name in ('a.npy', 'b.PNG', 'c.tiff')]
  assert image_files.find([str(tmp_path)]) == expected
  assert image_files.find([f'{tmp_path}/*']) == expected


def test_each_file_is_found_once_through_any_path_or_link(
    tmp_path, monkeypatch):
  photos, other = tmp_path / 'photos', tmp_path / 'other'
  for path in (photos / 'deep' / 'a.png', other / 'b.png'):
    path.parent.mkdir(parents=True)
    path.touch()
  (photos / 'again').symlink_to(photos / 'deep')
  (photos / 'deep' / 'up').symlink_to(photos)
  (photos / 'elsewhere').symlink_to(other)
  found = [f'{photos}/deep/a.png', f'{photos}/elsewhere/b.png']
  assert image_files.find([str(photos)]) == found
  monkeypatch.chdir(photos / 'deep')
  assert image_files.find(['a.png', './a.png', str(photos)]) == [
      'a.png', found[1]]


@pytest.mark.parametrize(('path', 'error', 'message'), [
    ('none.jpg', FileNotFoundError, 'no such file or folder'),
    ('*.gif', ValueError, 'no file matches'),
    ('*.txt', ValueError, 'no image found')])
def test_a_path_without_images_is_an_error(tmp_path, path, error, message):
  (tmp_path / 'notes.txt').touch()
  with pytest.raises(error, match=message):
    image_files.find([f'{tmp_path}/{path}'])


def test_an_unreadable_folder_is_an_error_unless_others_have_images(
    tmp_path, monkeypatch):
  (tmp_path / 'closed').mkdir()
  (tmp_path / 'a.png').touch()
  folders = type(image_files.epath.Path(tmp_path))
  iterdir = folders.iterdir

  def refuse(folder):
    if folder.name == 'closed':
      raise PermissionError(13, 'Permission denied', str(folder))
    return iterdir(folder)

  monkeypatch.setattr(folders, 'iterdir', refuse)
  errors = {}
  assert image_files.find([str(tmp_path)], errors) == [f'{tmp_path}/a.png']
  assert errors == {f'{tmp_path}/closed': 'Permission denied'}
  with pytest.raises(PermissionError):
    image_files.find([f'{tmp_path}/closed'], {})
