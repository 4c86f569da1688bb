"""Images of a group (`data.group`) are never divided, in any source."""

import hashlib
import json
import re

import datasets
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests import own_data
from tests import pictures
from tests import toy
from vit_jax import data
from vit_jax.data.splits import groups as groups_lib
from vit_jax.data.splits import holdout
from vit_jax.data.splits import split_strings

# Patients have 2 to 5 images.
NAMES = [f'P{p}_{k}' for p in range(30) for k in range(2 + p % 4)]
PATTERN = r'(P\d+)_'


def patient(name):
  return re.search(r'P\d+', name)[0]


def label(name):
  return ('cat', 'dog')[int(patient(name)[1:]) % 2]


@pytest.fixture(autouse=True)
def cache(tmp_path_factory, monkeypatch):
  monkeypatch.setattr(
      datasets.config, 'HF_DATASETS_CACHE', tmp_path_factory.mktemp('hf'))
  datasets.disable_progress_bars()


def write_csv(root, names=NAMES):
  # Groups are cleaned as labels are.
  return own_data.write_table(root, 'path,label,patient', [
      f'{n}.png,{label(n)},' + ('{}\u00e9', '"{}e\u0301 "')[i % 2].format(
          patient(n)) for i, n in enumerate(names)]), 'patient'


def write_folders(root, names=NAMES):
  own_data.write(root, *(f'{label(name)}/{name}.png' for name in names))
  return root, PATTERN


def write_masks(root):
  own_data.write(root, *(f'{folder}/{name}.png' for name in NAMES
                         for folder in ('images', 'masks')))
  return root, PATTERN


def write_parquet(root):
  pq.write_table(pa.table({
      'image': [name.encode() for name in NAMES],
      'label': [*map(label, NAMES)], 'patient': [*map(patient, NAMES)]}),
                 root / 'a.parquet')
  return root / 'a.parquet', 'patient'


def write_tar(root):
  return own_data.write_tar(root / 'a.tar', [member for name in NAMES for (
      member) in ((f'{name}.png', name), (f'{name}.cls', label(name)), (
          f'{name}.json', json.dumps({
              'kind': label(name), 'patient': patient(name)})))]), 'patient'


def open_split(path, group, split='train', **section):
  return data.open_dataset(data.parse({
      'source': str(path), 'group': group, 'split': split, **section})).source


def names_of(source):
  return [re.search(r'P\d+_\d', source[i]['image'].decode())[0]
          for i in range(len(source))]


def patients_of(source):
  return {*map(patient, names_of(source))}


@pytest.mark.parametrize(('write', 'target', 'table'), [
    (write_csv, '', {}), (write_csv, 'none', {}), (write_folders, '', {}),
    (write_folders, 'none', {}), (write_masks, 'masks', {}),
    (write_parquet, '', {'path': 'image'}),
    (write_parquet, 'none', {'path': 'image'}), (write_tar, '', {}),
    (write_tar, '', {'label': 'kind'}), (write_tar, 'none', {})])
def test_a_hold_out_and_slices_have_whole_groups_in_every_source(
    tmp_path, write, target, table):
  path, group = write(tmp_path)
  opened = own_data.open_path(
      path, target, labelled=False, group=group, **table)
  train, test = (names_of(opened.splits[s]) for s in ('train', 'test'))
  assert sorted(train + test) == sorted(NAMES) and train and test
  assert not {*map(patient, train)} & {*map(patient, test)}
  assert len(split_strings.groups(opened.splits['train'])) == len(train)
  for bound in ('90%', '50%', '7', '11', '-13'):
    first, second = (
        names_of(split_strings.select_split(opened, f'train[{part}]', name=''))
        for part in (f':{bound}', f'{bound}:'))
    assert first + second == train
    assert not {*map(patient, first)} & {*map(patient, second)}


def test_without_groups_examples_are_in_the_order_of_the_hash_of_their_key(
    tmp_path):
  def digest(text):
    return int.from_bytes(hashlib.blake2b(
        text.encode(), digest_size=8).digest(), 'little')

  path, _ = write_csv(tmp_path)
  train = open_split(path, '')
  keys = [train.key(i) for i in range(len(train))]
  assert keys == sorted(keys, key=digest)
  assert split_strings.groups(train) is None
  train = open_split(path, 'patient')
  keys = [train.key(i) for i in range(len(train))]
  assert keys == sorted(
      keys, key=lambda key: (digest(f'{patient(key)}\u00e9'), digest(key)))


def test_images_in_no_class_folder_need_no_group(tmp_path):
  own_data.write(tmp_path, *(
      f'train/{label(name)}/{name}.png' for name in NAMES), 'test/x.png')
  assert patients_of(open_split(tmp_path, PATTERN))


def _write_divided(root, kind):
  """Writes splits with one image of P3 in test, and one of P21 in train."""
  moved = {'P3_4': 'test', 'P21_0': 'train'}
  split_of = {name: moved.get(name, (
      'train' if int(patient(name)[1:]) < 20 else 'test')) for name in NAMES}
  if kind == 'column':
    return {'source': str(own_data.write_table(
        root, 'path,label,patient,split', [
            f'{name}.png,{label(name)},{patient(name)},{split}'
            for name, split in split_of.items()])), 'group': 'patient'}
  train, test = (write_folders(root / part, [
      name for name in NAMES if split_of[name] == part])[0]
                 for part in ('train', 'test'))
  return {'source': str(train), 'val_source': str(test), 'group': PATTERN}


@pytest.mark.parametrize('kind', ['column', 'val_source'])
def test_splits_that_divide_groups_are_an_error_or_a_note(tmp_path, kind):
  section = _write_divided(tmp_path, kind)
  text = '2 of 30 groups of .* have images in several splits: '
  test = 'test' if kind == 'column' else 'val'
  for counts in (rf'P3\S* \(train 4, {test} 1\)',
                 rf'P21\S* \(train 1, {test} 2\)'):
    with pytest.raises(ValueError, match=f'{text}.*{counts}.*=allow'):
      data.open_dataset(data.parse(section))
  opened = data.open_dataset(data.parse({**section, 'divided_groups': 'allow'}))
  assert re.search(text, opened.description)


def test_data_that_only_an_evaluator_uses_need_no_groups(tmp_path):
  assert data.open_dataset(data.parse({
      'source': str(tmp_path), 'group': 'patient'}), source='digits')


def test_validation_data_without_groups_are_an_error(tmp_path):
  write_folders(tmp_path / 'a')
  splits = {'train': open_split(tmp_path / 'a', PATTERN),
            'val': open_split('digits', '')}
  with pytest.raises(ValueError, match='train of .* groups .*, but val do not'):
    groups_lib.check_all_have(splits, where='a and b', divided='error')
  groups_lib.check_all_have(splits, where='a and b', divided='allow')


def divided(names, chosen):
  """Returns the patients of whom a part of the images is chosen."""
  left = {*names} - {*chosen}
  return {*map(patient, chosen)} & {*map(patient, left)}


def test_a_subset_has_whole_groups_but_one_and_is_part_of_larger_ones(tmp_path):
  path, group = write_csv(tmp_path)
  all_names, smaller = names_of(open_split(path, group)), set()
  for count in (1, 7, 20, 50, len(all_names)):
    names = names_of(open_split(path, group, num_examples=count))
    assert len(names) == count and smaller <= {*names}
    assert len(divided(all_names, names)) <= 1
    smaller = {*names}
  half = names_of(open_split(path, group, fraction=0.5))
  assert half == [n for n in all_names if n in half]


def test_samples_per_class_take_groups_one_after_another(tmp_path):
  path, group = write_csv(tmp_path)
  names, samples = names_of(open_split(path, group)), []
  for seed in (0, 1):
    drawn = names_of(open_split(
        path, group, examples_per_class=9, sample_seed=seed))
    samples.append({*map(patient, drawn)})
    for one in ('cat', 'dog'):
      mine = [n for n in drawn if label(n) == one]
      assert len(mine) == 9
      assert len(divided(names, mine)) <= 1
  assert samples[0] != samples[1]


def test_a_hold_out_of_few_groups_does_not_divide_one_of_two_classes():
  # Only the first group has class 1, so it cannot be held out.
  groups = np.array([1, 1, 2, 2], np.uint64)
  held = holdout.hold_out(groups, np.array([0, 1, 0, 0]), fraction=0.1)
  assert held.tolist() == [False, False, True, True]


def test_an_evaluator_of_another_source_with_trained_groups_is_an_error(
    tmp_path):
  for name, names in (('a', NAMES), ('b', NAMES[:30:3])):
    for each in names:
      pictures.save(tmp_path / f'{name}/{label(each)}/{each}.png',
                    pictures.picture(0, side=8))
  changes = {'data': {'source': str(tmp_path / 'a'), 'group': PATTERN},
             'evals': {'other': {'source': str(tmp_path / 'b')}}}
  with pytest.raises(ValueError, match=(
      r'groups of .* that of cat/P\S+ \(train \d, evals.other \d\).*=allow')):
    toy.build(**changes)
  changes['data']['divided_groups'] = 'allow'
  assert toy.build(**changes)


def test_sources_of_groups_keep_eight_bytes_per_example(tmp_path):
  path, group = write_csv(tmp_path)
  opened = own_data.open_path(path, group=group)
  train, test = opened.splits['train'], opened.splits['test']
  assert train.groups is test.groups and train.groups.nbytes == 8 * len(NAMES)
  assert own_data.open_path(path).splits['train'].groups is None
