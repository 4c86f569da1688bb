"""Folders of images and masks (`data.target=masks`)."""

import pytest

from tests import own_data


@pytest.mark.parametrize('split', ['', 'train/'])
def test_folders_of_masks(tmp_path, split):
  names = [f'{split}{i}' for i in range(20)] + ['val/d/e'] * bool(split)
  own_data.write(tmp_path, *(f'images/{name}.jpg' for name in names), *(
      f'masks/{name}.png' for name in [*names, 'unused']), 'images/x.heic')
  opened = own_data.open_path(tmp_path, 'masks', labelled=False)
  assert opened.no_labels == 'Pixels have labels, images have none.'
  assert opened.description.startswith(f'{tmp_path}: masks; train ')
  assert opened.description.endswith(
      'masks without an image: 1 (masks/unused.png); not read: 1 .heic')
  sizes = own_data.sizes(opened)
  assert sizes == ({'train': 20, 'val': 1} if split else
                   {'train': 20 - sizes['test'], 'test': sizes['test']})
  for source in opened.splits.values():
    for i in range(len(source)):
      path = source.key(i)
      assert source[i]['image'].decode() == path
      assert source[i]['segmentation'].decode() == path.replace(
          'images/', 'masks/').replace('.jpg', '.png')
