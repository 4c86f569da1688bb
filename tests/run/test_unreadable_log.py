"""Unreadable images are found before training."""

import dataclasses

import pytest

from tests import pictures
from vit_jax import data
from vit_jax.run import log_rows
from vit_jax.run import unreadable_log


@pytest.fixture(name='root')
def _root(tmp_path):
  for split in ('train', 'test'):
    for name in 'ab':
      (tmp_path / split / name).mkdir(parents=True)
      for i in range(10):
        (tmp_path / f'{split}/{name}/{i}.png').write_bytes(
            pictures.encode(pictures.picture(i)))
  return tmp_path


def _check(root, **settings):
  config = data.parse({'source': str(root), **settings})
  scans = [
      unreadable_log.scan_images(config, data.open_dataset(config, split=split))
      for split in ('train', 'test')]
  unreadable_log.check_scans(config, scans)
  return scans


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
  config = data.parse({
      'source': str(root), 'unreadable': 'skip', 'eval_unreadable': 'error'})
  scan = unreadable_log.scan_images(
      config, data.open_dataset(config, split='test'))
  with pytest.raises(ValueError, match='with --config.data.eval_unreadable=sk'):
    unreadable_log.check_scans(config, [None, scan])  # Published, own data.


def test_the_time_is_limited(root, monkeypatch):
  monkeypatch.setattr(unreadable_log, '_CHUNK', 3)
  for scan in _check(root, check_secs=1e-9):
    assert (scan.checked, scan.total) == (3, 20)


@pytest.mark.parametrize(('name', 'checked'), [
    ('digits', False), ('cifar10:3.0.2', False), ('vtab/dtd', False),
    ('photos:1.0.0', True), ('./photos', True)])
def test_all_but_published_datasets_are_checked(name, checked):
  config = data.parse({'source': 'digits', 'check_secs': 1e-9})
  dataset = dataclasses.replace(data.open_dataset(config), name=name)
  assert (unreadable_log.scan_images(config, dataset) is not None) == checked


def test_a_line_has_the_mean_of_several_targets_only():
  row = {'test/r2': 0.5, 'test/r2_red': 0.4, 'test/r2_blue': 0.6}
  assert log_rows.evaluation_line(
      row, step=7, targets=('red', 'blue')) == 'step 7: test/r2 0.500'
