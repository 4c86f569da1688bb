"""Any source becomes shards that hold just what it held, and go on if stopped.
"""

import io
import json
import shutil
import time

import numpy as np
from PIL import Image
import pytest
import tensorflow_datasets as tfds

import main
from tests import pictures
from vit_jax import data
from vit_jax.commands import data as commands_data
from vit_jax.data.splits import selection
from vit_jax.prepare import examples
from vit_jax.prepare import images as storing
from vit_jax.prepare import prepare
from vit_jax.prepare import shards


@pytest.fixture(scope='module', name='folder')
def _folder(tmp_path_factory):
  """A folder of 30 images in two formats, with a test split."""
  root = tmp_path_factory.mktemp('photos')
  for i in range(30):
    path = root / f'{"test" if i < 5 else "train"}/{("cat", "dog")[i % 2]}'
    path.mkdir(parents=True, exist_ok=True)
    form = 'JPEG' if i % 3 else 'PNG'
    (path / f'{i}.{form.lower()}').write_bytes(
        pictures.encoded(pictures.picture(i, side=16), form))
  return root


def _prepare(source, to, *flags):
  return main.main([
      'data', 'prepare', f'--source={source}', f'--to={to}', '--name=mine',
      '--runner=local', *flags])


def _open(source, split, **settings):
  return data.open_dataset(data.parse({
      'source': str(source), 'split': split, **settings}))


def _plan(folder, to, *, shard_bytes=4000):
  return prepare.plan(
      {'source': str(folder), 'data_dir': ''}, splits=[], to=str(to),
      name='mine', version='1.0.0', shard_bytes=shard_bytes)


def _same(there, source):
  assert len(there) == len(source)
  for i in range(len(source)):
    assert there[i]['image'] == storing.Pictures().stored(source[i]['image'])
    np.testing.assert_array_equal(there[i]['label'], source[i]['label'])


def test_a_folder_keeps_bytes_labels_names_and_order(folder, tmp_path, capsys):
  assert _prepare(folder, tmp_path, f'--json={tmp_path}/facts.json') == 0
  assert 'train: 25 examples in 1 shard\n' in capsys.readouterr().out
  for split in ('train', 'test'):
    there = _open('mine', split, data_dir=str(tmp_path))
    assert there.class_names == ('cat', 'dog')
    _same(there, _open(folder, split))
  assert sorted(p.name for p in (tmp_path / 'mine/1.0.0').iterdir()) == [
      'checksums.json', 'dataset_info.json', 'features.json',
      'label.labels.txt', 'mine-test.array_record-00000-of-00001',
      'mine-train.array_record-00000-of-00001']
  facts = json.loads((tmp_path / 'facts.json').read_text())['shards']
  assert sum(shard['examples'] for shard in facts.values()) == 30


def test_a_split_without_examples_is_left_out_in_words(
    folder, tmp_path, capsys):
  _prepare(folder, tmp_path)
  info = tmp_path / 'mine/1.0.0/dataset_info.json'
  text = json.loads(info.read_text())
  text['splits'] = [s | ({'numBytes': '0', 'shardLengths': []}
                         if s['name'] == 'test' else {})
                    for s in text['splits']]
  info.write_text(json.dumps(text))
  capsys.readouterr()
  assert _prepare(
      'mine', tmp_path, f'--data-dir={tmp_path}', '--version=1.0.1') == 0
  assert 'test has no examples, and is left out' in capsys.readouterr().out
  assert _open('mine:1.0.1', 'train', data_dir=str(tmp_path)).splits == (
      'train',)


def test_tensorflow_datasets_reads_and_decodes_it(folder, tmp_path):
  _prepare(folder, tmp_path)
  source = tfds.builder_from_directory(
      tmp_path / 'mine/1.0.0').as_data_source('train')
  original = _open(folder, 'train')
  assert source[3]['key'].decode() == original.source.key(3)
  np.testing.assert_array_equal(
      source[3]['image'],
      np.asarray(Image.open(io.BytesIO(original[3]['image']))))


def test_what_is_excluded_is_left_out_of_the_training_split_alone(
    folder, tmp_path, capsys):
  keys = tmp_path / 'exclude.txt'
  keys.write_text('train/cat/6.png\ntrain/dog/7.jpeg\n')
  assert _prepare(folder, tmp_path, f'--set=exclude={keys}') == 0
  assert '2 examples are left out' in capsys.readouterr().out
  for split in ('train', 'test'):
    exclude = {'exclude': str(keys)} if split == 'train' else {}
    _same(_open('mine', split, data_dir=str(tmp_path)),
          _open(folder, split, **exclude))
  assert len(_open('mine', 'train', data_dir=str(tmp_path))) == 23


def test_pixels_and_several_labels_come_back(tmp_path):
  section = {'label': 'multi', 'num_test_examples': 20}
  assert _prepare('shapes', tmp_path, '--splits=test', '--set=resolution=8',
                  f'--set=shapes={section}') == 0
  there = _open('mine', 'test', data_dir=str(tmp_path))
  assert there.multi_label
  _same(there, _open('shapes', 'test', resolution=8, shapes=section))


def test_shards_are_ranges_of_about_one_size(folder, tmp_path):
  planned = _plan(folder, tmp_path)
  ends = [(shard.first, shard.last) for shard in planned.shards['train']]
  assert len(ends) > 2 and ends[0][0] == 0 and ends[-1][1] == 25
  assert [last for _, last in ends[:-1]] == [first for first, _ in ends[1:]]
  assert max(b - a for a, b in ends) - min(b - a for a, b in ends) <= 1


def test_a_run_that_was_stopped_goes_on_and_keeps_what_is_finished(
    folder, tmp_path, monkeypatch):
  planned = _plan(folder, tmp_path)
  prepare.begin(planned)
  written = []
  whole = shards._write_records

  def fail_at_the_third(part, shard):
    if len(written) == 2:
      part.write_bytes(b'half')
      raise KeyboardInterrupt
    written.append(shard.name)
    return whole(part, shard)

  monkeypatch.setattr(shards, '_write_records', fail_at_the_third)
  with pytest.raises(KeyboardInterrupt):
    prepare.write(planned, runner='local', flags=[])
  with pytest.raises(RuntimeError, match='The same command goes on'):
    prepare.finish(planned)
  monkeypatch.undo()
  assert not (tmp_path / 'mine/1.0.0/dataset_info.json').exists()
  times = {name: (tmp_path / 'mine/1.0.0' / name).stat().st_mtime_ns
           for name in written}
  planned = _plan(folder, tmp_path)
  assert prepare.begin(planned) == 2
  prepare.write(planned, runner='local', flags=[])
  prepare.finish(planned)
  prepare.verify(planned)
  for name, written_at in times.items():
    assert (tmp_path / 'mine/1.0.0' / name).stat().st_mtime_ns == written_at
  _same(_open('mine', 'train', data_dir=str(tmp_path)),
        _open(folder, 'train'))


def test_shards_that_are_finished_are_counted_meanwhile(
    folder, tmp_path, monkeypatch, capsys):
  monkeypatch.setattr(commands_data, '_TELL_SECS', 0.02)
  write = shards.write

  def write_and_wait(shard):
    write(shard)
    deadline = time.monotonic() + 5
    while '1 of 2' not in said[0] and time.monotonic() < deadline:
      time.sleep(0.02)
      said[0] += capsys.readouterr().out

  said = ['']
  monkeypatch.setattr(shards, 'write', write_and_wait)
  assert _prepare(folder, tmp_path) == 0
  assert said[0].count('1 of 2 shards are written; 0:0') == 1


def test_what_a_disk_garbles_is_not_taken_for_finished(
    folder, tmp_path, monkeypatch):
  planned = _plan(folder, tmp_path, shard_bytes=10**6)
  prepare.begin(planned)
  add = examples.Digest.add_record

  def other(self, record, features):
    add(self, record.replace(b'train/cat', b'train/cow'), features)

  monkeypatch.setattr(examples.Digest, 'add_record', other)
  with pytest.raises(RuntimeError, match='25 came back when it was read'):
    prepare.write(planned, runner='local', flags=[])
  assert not list((tmp_path / 'mine/1.0.0').glob('mine-train*'))


@pytest.mark.parametrize(('flags', 'words'), [
    (['--name=My-Photos'], 'small letters'),
    (['--version=1'], 'like 1.0.0'),
    (['--splits=tets'], "Did you mean 'test'?"),
    (['--shard-mib=0'], 'at least 1'),
    (['--shorter-side=-1'], 'got -1'),
    (['--shorter-side=8', '--quality=0'], 'from 1 to 100'),
    (['--shorter-side=8', '--set=channels=4'], 'Leave it out'),
    (['--quality=80'], 'Give --shorter-side'),
])
def test_a_mistake_is_said_before_anything_is_written(
    folder, tmp_path, capsys, flags, words):
  assert _prepare(folder, tmp_path / 'to', *flags) == 2
  assert words in capsys.readouterr().err
  assert not (tmp_path / 'to').exists()


def test_another_plan_or_a_finished_set_is_not_written_over(
    folder, tmp_path, capsys):
  prepare.begin(_plan(folder, tmp_path))
  assert _prepare(folder, tmp_path) == 2
  assert 'another command began' in capsys.readouterr().err
  assert _prepare(folder, tmp_path, '--version=1.0.1') == 0
  assert _prepare(folder, tmp_path, '--version=1.0.1') == 2
  assert 'is prepared already' in capsys.readouterr().err


def test_shards_of_a_source_that_changed_are_not_gone_on_with(tmp_path):
  source = tmp_path / 'photos'
  for i in range(8):
    path = source / 'train' / ('cat', 'dog')[i % 2] / f'{i}.png'
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(pictures.encoded(pictures.picture(i, side=16), 'PNG'))
  begun = _plan(source, tmp_path)
  assert prepare.begin(begun) == 0
  assert prepare.begin(_plan(source, tmp_path)) == 0
  (source / 'train/cat/0.png').rename(source / 'train/cat/9.png')
  selection._open.cache_clear()  # As another process sees it.
  with pytest.raises(ValueError, match='or the source has changed since'):
    prepare.begin(_plan(source, tmp_path))


def test_what_differs_from_its_source_is_no_data_set(
    folder, tmp_path, monkeypatch):
  planned = _plan(folder, tmp_path, shard_bytes=10**6)
  prepare.begin(planned)
  prepare.write(planned, runner='local', flags=[])
  prepare.finish(planned)
  stored = storing.Pictures.stored
  monkeypatch.setattr(
      storing.Pictures, 'stored', lambda self, image: (
          stored(self, image) + b'another'))
  with pytest.raises(RuntimeError, match='differs from the source: example 0'):
    prepare.verify(planned)
  assert not (tmp_path / 'mine/1.0.0/dataset_info.json').exists()


def test_files_that_cannot_be_read_go_along_as_they_are(tmp_path):
  source = tmp_path / 'photos'
  for i in range(6):
    path = source / 'train' / ('cat', 'dog')[i % 2] / f'{i}.jpg'
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b'no image' if i == 3 else pictures.encoded(
        pictures.picture(i, side=16), 'JPEG'))
  assert _prepare(source, tmp_path) == 0
  for split in ('train', 'test'):
    _same(_open('mine', split, data_dir=str(tmp_path)), _open(source, split))


def test_what_pillow_thinks_of_a_picture_is_not_said(
    tmp_path, capsys, recwarn):
  source = tmp_path / 'photos'
  for i in range(4):
    path = source / 'train' / ('cat', 'dog')[i % 2] / f'{i}.jpg'
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new('RGB', (16, 12)).save(
        path, exif=b'Exif\0\0II*\0\x08\0\0\0\x05\0')  # Cut off.
  assert _prepare(source, tmp_path, '--shorter-side=8') == 0
  assert not [w for w in recwarn if 'EXIF' in str(w.message)]
  assert 'test: 1 example in 1 shard\n' in capsys.readouterr().out


def test_a_prepared_file_that_cannot_be_read_is_named_as_in_its_source(
    folder, tmp_path, capsys):
  source = shutil.copytree(folder, tmp_path / 'photos')
  (source / 'train/dog/7.jpeg').write_bytes(b'no image')
  _prepare(source, tmp_path)
  capsys.readouterr()
  main.main(['data', 'check', '--source=mine', f'--data-dir={tmp_path}',
             f'--json={tmp_path}/check.json'])
  report = json.loads((tmp_path / 'check.json').read_text())
  assert report['unreadable'][0]['reason'].endswith(
      '; prepared from train/dog/7.jpeg')
  config = data.parse({'source': 'mine', 'data_dir': str(tmp_path),
                       'split': 'train', 'resolution': 8})
  batches = data.train_batches(
      config, data.open_dataset(config), seed=0, batch_size=25)
  with pytest.raises(ValueError, match='; prepared from train/dog/7.jpeg'):
    next(batches)
  batches.close()


@pytest.mark.parametrize(('head', 'cells'), [
    ('age', ('1.5', '-2', '', '0.1')),
    ('age,größe', ('1,2.5', '0.1,', '-7,1e-3', '3,4')),
    ('labels', ('a|b', 'b|c', '', 'a')),
])
def test_numbers_and_several_labels_of_a_table_come_back(
    tmp_path, head, cells):
  for i in range(20):
    (tmp_path / f'{i}.png').write_bytes(
        pictures.encoded(pictures.picture(i, side=8), 'PNG'))
  (tmp_path / 'labels.csv').write_text('\n'.join(
      [f'path,{head}', *(f'{i}.png,{cells[i % 4]}' for i in range(20))]))
  target = 'multi' if head == 'labels' else 'regression'
  assert _prepare(
      tmp_path / 'labels.csv', tmp_path / 'to', f'--set=target={target}') == 0
  for split in ('train', 'test'):
    there = _open('mine', split, data_dir=str(tmp_path / 'to'))
    source = _open(tmp_path / 'labels.csv', split, target=target)
    _same(there, source)
    for name in ('targets', 'num_classes', 'class_names', 'multi_label'):
      assert getattr(there, name) == getattr(source, name)
    if target == 'regression':
      assert there[0]['label'].dtype == np.float32
      assert there.targets == tuple(head.split(','))


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


def test_beam_names_the_example_that_cannot_be_read(folder, tmp_path):
  pytest.importorskip('apache_beam')
  planned = _plan(folder, tmp_path, shard_bytes=10**6)
  shard = planned.shards['test'][0]
  path = folder / shard.selection.open().source.key(0)
  content = path.read_bytes()
  path.unlink()
  try:
    prepare.begin(planned)
    with pytest.raises(RuntimeError, match=r'Example 0 of .*:test \(test/'):
      prepare.write(planned, runner='DirectRunner', flags=[])
  finally:
    path.write_bytes(content)
