"""No image is trained on and held out because of a link."""

import io
import os
import re
import tarfile

import pytest

from tests import own_data
from tests import toy
from vit_jax import data


def save(folder, count=4, first=0):
  own_data.write(folder, *(
      f'{"ab"[i % 2]}/{first + i}.png' for i in range(count)))


def open_dataset(source, **section):
  return data.open_dataset(data.parse({'source': str(source), **section}))


def error_of_two(first, second):
  return pytest.raises(ValueError, match=(
      f'{re.escape(str(first))}.*{re.escape(str(second))}.* are the same file'))


def test_validation_data_are_not_a_link_to_the_training_data(tmp_path):
  save(tmp_path / 'data')
  (tmp_path / 'val').symlink_to('data')
  with pytest.raises(ValueError, match='is the data that is trained on'):
    open_dataset(tmp_path / 'data', val_source=str(tmp_path / 'val'))


def test_validation_data_are_no_part_of_the_training_data(tmp_path):
  save(tmp_path / 'train')
  save(tmp_path / 'val', first=8)
  open_dataset(tmp_path / 'train', val_source=str(tmp_path / 'val'))
  image = tmp_path / 'train' / 'a' / '0.png'
  (tmp_path / 'val' / 'a' / '9.png').symlink_to(image)
  with error_of_two(image, tmp_path / 'val' / 'a' / '9.png'):
    open_dataset(tmp_path / 'train', val_source=str(tmp_path / 'val'))
  # Without any link, one may be a folder within the other.
  (tmp_path / 'val' / 'a' / '9.png').unlink()
  with error_of_two(tmp_path / 'train', tmp_path / 'train'):
    open_dataset(tmp_path, val_source=str(tmp_path / 'train'))


def test_the_own_validation_split_may_be_the_validation_data(tmp_path):
  save(tmp_path / 'train')
  save(tmp_path / 'val')
  open_dataset(tmp_path, val_source=str(tmp_path / 'val'))


def test_a_mixture_is_not_the_same_data_by_a_link(tmp_path):
  save(tmp_path / 'data')
  (tmp_path / 'copy').symlink_to('data')
  with pytest.raises(ValueError, match='names the same data'):
    data.parse({'mixture': [{'source': str(tmp_path / 'data')},
                            {'source': str(tmp_path / 'copy')}]})


def test_a_test_image_of_a_mixture_is_no_training_image_by_a_link(tmp_path):
  own_data.write(tmp_path, 'one/a/0.png', 'one/a/1.png', 'one/b/2.png',
                 'two/train/a/3.png', 'two/train/b/4.png')
  (tmp_path / 'two' / 'test').symlink_to('../one')
  with error_of_two(tmp_path / 'one', tmp_path / 'two' / 'test'):
    open_dataset('', mixture=[
        {'source': str(tmp_path / name)} for name in ('one', 'two')])


def test_selections_overlap_also_under_the_name_of_a_link(tmp_path):
  save(tmp_path / 'data')
  (tmp_path / 'link').symlink_to('data')
  one, other = (open_dataset(tmp_path / name) for name in ('data', 'link'))
  assert one.overlaps(other)


def test_an_evaluator_of_a_link_to_the_data_uses_their_held_out_part(tmp_path):
  save(tmp_path / 'data', count=40)
  (tmp_path / 'copy').symlink_to('data')
  experiment = toy.build(
      data={'source': str(tmp_path / 'data')},
      evals={'test': {'source': str(tmp_path / 'copy')}})
  assert experiment.data_of('test').split == 'test'
  assert len(experiment.data_of('test')) < 40


def test_an_evaluator_on_a_folder_of_training_images_is_noted(
    tmp_path, capsys):
  save(tmp_path / 'data', count=40)
  own_data.write(tmp_path, *(f'other/a/{i}.png' for i in range(4)))
  (tmp_path / 'other' / 'b').symlink_to('../data/b')
  toy.build(data={'source': str(tmp_path / 'data')},
            evals={'test': {'source': str(tmp_path / 'other')}})
  assert 'evals.test measures on images that are trained on' in ' '.join(
      capsys.readouterr().out.split())


@pytest.mark.parametrize('link', [
    'test', 'test/a', 'test/a/7.png', 'test/a/deep'])
def test_splits_of_a_folder_share_no_image_by_a_link(tmp_path, link):
  save(tmp_path / 'train')
  if link != 'test':
    save(tmp_path / 'test', first=8)
  if link == 'test/a':
    os.rename(tmp_path / 'test' / 'a', tmp_path / 'test' / 'c')
    save(tmp_path / 'train' / 'c')
  target = {'test/a/7.png': 'train/a/0.png', 'test': 'train'}.get(
      link, 'train/a')
  open_dataset(tmp_path / 'train')
  (tmp_path / link).symlink_to(tmp_path / target)
  with error_of_two(tmp_path / 'train', tmp_path / link):
    open_dataset(tmp_path)


def test_links_of_different_images_are_no_error(tmp_path):
  save(tmp_path / '.pool', count=8)
  for i in range(8):
    link = tmp_path / ('train', 'test')[i > 3] / 'ab'[i % 2] / f'{i}.png'
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(tmp_path / '.pool' / 'ab'[i % 2] / f'{i}.png')
  (tmp_path / 'train' / 'a' / 'again.png').symlink_to('0.png')
  for split, count in (('train', 5), ('test', 4)):
    assert len(data.open_dataset(data.parse(
        {'source': str(tmp_path)}), split=split)) == count


def test_a_hash_split_does_not_divide_a_linked_image(tmp_path):
  save(tmp_path / 'data', count=40)
  for i in range(0, 40, 2):
    (tmp_path / 'data' / 'a' / f'link{i}.png').symlink_to(f'{i}.png')
  with pytest.raises(ValueError, match='are the same file'):
    open_dataset(tmp_path / 'data', holdout=0.5)


def test_splits_of_masks_share_no_image_by_a_link(tmp_path):
  own_data.write(tmp_path, *(
      f'{folder}/{split}/{split}.png' for split in ('train', 'test')
      for folder in ('images', 'masks')))
  (tmp_path / 'masks' / 'test' / 'x.png').symlink_to('test.png')
  open_dataset(tmp_path)
  (tmp_path / 'images' / 'test' / 'x.png').symlink_to('../train/train.png')
  with error_of_two('train.png', 'x.png'):
    open_dataset(tmp_path)


@pytest.mark.parametrize('link', ['copy/0.png', 'images/link.png'])
def test_splits_of_a_table_share_no_image_by_a_link(tmp_path, link):
  rows = [f'images/{i}.png,{"ab"[i % 2]},{"train" if i < 3 else "test"}'
          for i in range(4)]
  table = own_data.write_table(tmp_path, 'path,label,split', rows)
  (tmp_path / 'copy').symlink_to('images')
  (tmp_path / 'images' / 'link.png').symlink_to('0.png')
  open_dataset(table)
  own_data.write_table(
      tmp_path, 'path,label,split', [*rows, f'{link},a,test'], images=False)
  with error_of_two('images/0.png', link):
    open_dataset(table)


def test_splits_share_no_linked_shard(tmp_path):
  with tarfile.open(tmp_path / 'train-0.tar', 'w') as tar:
    for i in range(2):
      for name in (f'{i}.png', f'{i}.cls'):
        member = tarfile.TarInfo(name)
        member.size = 1
        tar.addfile(member, io.BytesIO(str(i).encode()))
  (tmp_path / 'test-0.tar').symlink_to('train-0.tar')
  with error_of_two('test-0.tar', 'train-0.tar'):
    open_dataset(tmp_path)
