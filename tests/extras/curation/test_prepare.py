"""Prepared shards hold exactly what the source holds, and can be resumed."""

import io
import json
import shutil
from unittest import mock

import numpy as np
from PIL import Image
import pytest
import tensorflow_datasets as tfds

from tests import pictures
from vit_jax import __main__ as main
from vit_jax import data
from vit_jax.data.splits import split_strings
from vit_jax.extras.curation import prepare
from vit_jax.extras.curation import selection as selection_lib
from vit_jax.extras.curation import shards as shards_lib
from vit_jax.extras.curation import stored_images


@pytest.fixture(scope='module', name='folder')
def _folder(tmp_path_factory):
  """A folder of 30 images in two formats, with a test split."""
  return pictures.save_all(tmp_path_factory.mktemp('photos'), [
      f'{"test" if i < 5 else "train"}/{("cat", "dog")[i % 2]}/'
      f'{i}.{"jpeg" if i % 3 else "png"}' for i in range(30)], side=16)


def _prepare(source, to, *flags):
  return main.main([
      'data', 'prepare', f'--source={source}', f'--to={to}', '--name=mine',
      '--runner=local', *flags])


def _open(source, split, **settings):
  return data.open_dataset(data.parse({
      'source': str(source), 'split': split, **settings}))


def _made(folder, split='train', **settings):
  """Opens the prepared dataset in a folder."""
  return _open('mine', split, data_dir=str(folder), **settings)


def _groups(folder, split='train'):
  return split_strings.groups(_made(folder, split).source).tolist()


def _plan(folder, to, *, shard_bytes=4000):
  return prepare.plan(
      {'source': str(folder), 'data_dir': ''}, splits=[], to=str(to),
      name='mine', version='1.0.0', shard_bytes=shard_bytes)


def _same(there, source):
  assert len(there) == len(source)
  for i in range(len(source)):
    assert there[i]['image'] == stored_images.ImageFormat().encode(
        source[i]['image'])
    np.testing.assert_array_equal(there[i]['label'], source[i]['label'])


def test_a_folder_keeps_its_bytes_labels_names_and_order(
    folder, tmp_path, capsys):
  assert _prepare(folder, tmp_path, f'--json={tmp_path}/facts.json') == 0
  assert 'train: 25 examples to read, in 1 shard\n' in capsys.readouterr().out
  for split in ('train', 'test'):
    there = _made(tmp_path, split)
    assert there.class_names == ('cat', 'dog')
    source = _open(folder, split)
    _same(there, source)
    row = tfds.builder_from_directory(
        tmp_path / 'mine/1.0.0').as_data_source(split)[3]
    assert row['key'].decode() == source.source.key(3)
    np.testing.assert_array_equal(
        row['image'], np.asarray(Image.open(io.BytesIO(source[3]['image']))))
  assert sorted(p.name for p in (tmp_path / 'mine/1.0.0').iterdir()) == [
      'dataset_info.json', 'features.json', 'label.labels.txt',
      'mine-test.array_record-00000-of-00001',
      'mine-train.array_record-00000-of-00001']
  facts = json.loads((tmp_path / 'facts.json').read_text())['shards']
  assert sum(shard['examples'] for shard in facts.values()) == 30


@pytest.mark.parametrize(('excluded', 'settings', 'counts', 'printed'), [
    ('train/cat/6.png train/dog/7.jpeg', {}, (23, 5), '2 examples'),
    ('', {'num_examples': 10}, (10, 5), '10 examples'),
    # Examples are excluded from each training split.
    ('train/cat/6.png test/dog/1.jpeg', {'split': 'train + test'},
     (24, 4), '')])
def test_examples_are_chosen_from_the_training_splits_only(
    folder, tmp_path, capsys, excluded, settings, counts, printed):
  if excluded:
    (tmp_path / 'keys.txt').write_text(excluded.replace(' ', '\n') + '\n')
    settings = {**settings, 'exclude': f'{tmp_path}/keys.txt'}
  assert _prepare(folder, tmp_path, *(
      f'--set={key}={value}' for key, value in settings.items())) == 0
  assert printed in capsys.readouterr().out
  train, test = _made(tmp_path), _made(tmp_path, 'test')
  assert (len(train), len(test)) == counts
  if 'split' not in settings:
    _same(train, _open(folder, 'train', **settings))
    _same(test, _open(folder, 'test'))


def test_shards_keep_groups_without_further_settings(tmp_path):
  pictures.save_all(tmp_path / 'photos', [
      f'{"ab"[p % 2]}/P{p}_{k}.png' for p in range(12)
      for k in range(1 + p % 3)])
  (tmp_path / 'photos/a/P6_9.png').write_bytes(b'')  # Left out.
  group = r'group=(P\d+)_'
  assert _prepare(tmp_path / 'photos', tmp_path, f'--set={group}',
                  '--set=unreadable=skip') == 0
  folder = tmp_path / 'mine/1.0.0'
  rows = tfds.builder_from_directory(folder).as_data_source('train')
  patients = [row['key'].decode().split('/')[1].split('_')[0] for row in rows]
  groups = _groups(tmp_path)
  assert groups == [*map(split_strings.stable_hash, patients)]
  assert np.uint64(groups).view(np.int64).tolist() == [
      row['group_hash'] for row in rows]
  assert len({*patients}) < len(groups) and 'P6' in patients
  first, second = (_groups(tmp_path, f'train[{part}]')
                   for part in (':50%', '50%:'))
  assert first + second == groups and not {*first} & {*second}
  _made(tmp_path, group=group)
  (folder / 'train.groups.npy').write_bytes(b'')
  with pytest.raises(ValueError, match='train.groups.npy is missing or damag'):
    _made(tmp_path)


def test_images_without_labels_are_prepared(tmp_path):
  photos = pictures.save_all(
      tmp_path / 'photos', [f'{i}.png' for i in range(20)])
  assert _prepare(photos, tmp_path) == 0
  features = json.loads((tmp_path / 'mine/1.0.0/features.json').read_text())
  assert 'label' not in features['featuresDict']['features']
  prepared = _made(tmp_path, 'all')
  assert prepared.is_unlabelled and len(prepared) == 20
  assert 'mine has no labels' in prepared.no_labels


def test_pixels_are_preserved(tmp_path):
  section = {'num_test_examples': 20}
  assert _prepare('shapes', tmp_path, '--splits=test', '--set=resolution=8',
                  f'--set=shapes={section}') == 0
  _same(_made(tmp_path, 'test'),
        _open('shapes', 'test', resolution=8, shapes=section))


def test_a_stopped_command_continues_with_the_unfinished_shards(
    folder, tmp_path, monkeypatch):
  planned = _plan(folder, tmp_path)
  prepare.begin(planned)
  shards_lib.write(planned.all_shards[0])
  kept = planned.all_shards[0].path
  written_at = kept.stat().mtime
  monkeypatch.setattr(
      shards_lib, '_read_records', mock.Mock(side_effect=KeyboardInterrupt))
  with pytest.raises(KeyboardInterrupt):
    prepare.write(planned, runner='local', flags=[])
  with pytest.raises(ValueError, match='run the command again'):
    prepare.finish(planned)
  monkeypatch.undo()
  # A shard is not finished without its name, whatever its counts say.
  planned.all_shards[1].facts_path.write_text('{}')
  assert not (tmp_path / 'mine/1.0.0/dataset_info.json').exists()
  planned = _plan(folder, tmp_path)
  assert prepare.begin(planned) == 1
  prepare.write(planned, runner='local', flags=[])
  prepare.finish(planned)
  assert kept.stat().mtime == written_at
  _same(_made(tmp_path), _open(folder, 'train'))


@pytest.mark.parametrize(('flags', 'words'), [
    (['--name=My-Photos'], 'lower-case letters'),
    (['--version=1'], 'like 1.0.0'),
    (['--splits=tets'], "Did you mean 'test'?"),
    (['--set=split=train[:50%]'], 'whole splits are written'),
    (['--shard-mib=0'], 'at least 1'),
    (['--shorter-side=-1'], 'at least 0, but is -1'),
    (['--shorter-side=8', '--set=channels=4'], 'Remove it'),
])
def test_invalid_flags_are_errors_before_anything_is_written(
    folder, tmp_path, capsys, flags, words):
  assert _prepare(folder, tmp_path / 'to', *flags) == 2
  assert words in capsys.readouterr().err
  assert not (tmp_path / 'to').exists()


def test_shards_of_other_plans_and_finished_datasets_are_kept(
    folder, tmp_path, capsys):
  source = shutil.copytree(folder, tmp_path / 'photos')
  for _ in range(2):
    assert prepare.begin(_plan(source, tmp_path)) == 0
  assert _prepare(source, tmp_path) == 2  # Other shard sizes.
  assert 'shards of another command' in capsys.readouterr().err
  (source / 'train/cat/6.png').rename(source / 'train/cat/99.png')
  selection_lib.Selection.open.cache_clear()  # As in another process.
  with pytest.raises(ValueError, match='or the source has changed since'):
    prepare.begin(_plan(source, tmp_path))
  assert _prepare(source, tmp_path, '--version=1.0.1') == 0
  assert _prepare(source, tmp_path, '--version=1.0.1') == 2
  assert 'is prepared already' in capsys.readouterr().err


def test_unreadable_images_are_refused_until_repaired_or_left_out(
    folder, tmp_path, capsys):
  source = shutil.copytree(folder, tmp_path / 'photos')
  there = tmp_path / 'mine/1.0.0'
  image = (source / 'train/dog/7.jpeg').read_bytes()
  (source / 'train/dog/7.jpeg').write_bytes(image[:-100])
  (source / 'train/dog/9.png').write_bytes(b'no image')
  assert _prepare(source, tmp_path) == 2
  error = capsys.readouterr().err
  assert '2 of 30 images cannot be read' in error and 'dog/9.png' in error
  assert '--set=unreadable=skip' in error and 'now' not in error
  assert not (there / 'dataset_info.json').exists()
  (source / 'train/dog/7.jpeg').write_bytes(image)
  assert _prepare(source, tmp_path, '--set=unreadable=skip') == 0
  printed = ' '.join(capsys.readouterr().out.split())
  assert '1 of 30 images cannot be read' in printed
  assert 'train: 25 examples to read' in printed
  assert 'mine/1.0.0: train 24, test 5 examples, ' in printed
  row, = map(json.loads, (there / 'unreadable.jsonl').open())
  assert row['key'] == 'train/dog/9.png'
  (source / 'train/dog/9.png').unlink()
  _same(_made(tmp_path), _open(source, 'train'))


@pytest.mark.parametrize(('head', 'cells'), [
    ('age', ('1.5', '-2', '', '0.1')),
    ('age,größe', ('1,2.5', '0.1,', '-7,1e-3', '3,4')),
    ('label', ('a|b', 'b|c', '', 'a')),
])
def test_numbers_and_several_labels_of_a_table_are_preserved(
    tmp_path, head, cells):
  table = pictures.write_table(tmp_path, head, cells * 5)
  target = 'multi' if head == 'label' else 'regression'
  assert _prepare(
      table, tmp_path / 'to', f'--set=target={target}',
      f'--set=table.label={head}', '--set=table.separator=|') == 0
  for split in ('train', 'test'):
    there = _made(tmp_path / 'to', split)
    source = _open(table, split, target=target, table={
        'label': head, 'separator': '|'})
    _same(there, source)
    for name in ('targets', 'num_classes', 'class_names', 'multi_label'):
      assert getattr(there, name) == getattr(source, name)
    if target == 'regression':
      assert there[0]['label'].dtype == np.float32
      assert there.targets == tuple(head.split(','))


@pytest.mark.slow
def test_beam_writes_the_same_files(folder, tmp_path):
  pytest.importorskip('apache_beam')
  contents = []
  for runner in ('local', 'DirectRunner'):
    planned = _plan(folder, tmp_path / runner)
    prepare.begin(planned)
    prepare.write(planned, runner=runner, flags=[])
    prepare.finish(planned)
    contents.append({
        path.name: path.read_bytes()
        for path in (tmp_path / runner / 'mine/1.0.0').iterdir()})
  assert contents[0] == contents[1]
