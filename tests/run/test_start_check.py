"""Unreadable images are found before training."""

import dataclasses

import pytest

from tests import pictures
from vit_jax import data
from vit_jax.run import start_check


@pytest.fixture(name='root')
def _root(tmp_path):
  for split in ('train', 'test'):
    for name in 'ab':
      for i in range(10):
        pictures.save(tmp_path / f'{split}/{name}/{i}.png', pictures.picture(i))
  return tmp_path


def _check(root, **settings):
  config = data.parse({'source': str(root), **settings})
  return start_check.check(config, [
      data.open_dataset(config, split=split) for split in ('train', 'test')])


@pytest.mark.parametrize('split', ['train', 'test'])
def test_a_truncated_image_ends_a_run_at_the_start_or_is_skipped(root, split):
  file = root / split / 'b/3.png'
  file.write_bytes(file.read_bytes()[:-200])  # The header remains valid.
  with pytest.raises(
      ValueError, match=r'1 of 20 images cannot be read\n.*b/3\.png.*truncated'
      r'(?s:.*)--config\.data\.unreadable=skip'):
    _check(root)
  found = [one.key for scan in _check(root, unreadable='skip')
           for one in scan.unreadable]
  assert found == [f'{split}/b/3.png']
  with pytest.raises(ValueError, match='cannot be read'):
    _check(root, unreadable='skip', max_unreadable=0.0)


def test_the_policy_of_each_split_applies(root):
  (root / 'test/b/3.png').write_bytes(b'')
  _check(root, unreadable='error', eval_unreadable='skip')
  with pytest.raises(ValueError, match='with --config.data.eval_unreadable=sk'):
    _check(root, unreadable='skip', eval_unreadable='error')


def test_the_time_is_limited(root, monkeypatch):
  monkeypatch.setattr(start_check, '_CHUNK', 3)
  for scan in _check(root, check_secs=1e-9):
    assert (scan.checked, scan.total) == (3, 20)


@pytest.mark.parametrize(('name', 'checked'), [
    ('digits', False), ('cifar10:3.0.2', False), ('vtab/dtd', False),
    ('photos:1.0.0', True), ('./photos', True)])
def test_all_but_published_datasets_are_checked(name, checked):
  config = data.parse({'source': 'digits', 'check_secs': 1e-9})
  dataset = dataclasses.replace(data.open_dataset(config), name=name)
  assert bool(start_check.check(config, [dataset])) == checked
