"""What is planted in a data set is found in it, and nothing is changed."""

import re
import tempfile

import numpy as np
from PIL import Image
from PIL import ImageOps
import pytest

from tests import pictures
from vit_jax import data
from vit_jax.check import check
from vit_jax.check import page
from vit_jax.check import report as report_lib
from vit_jax.check import suspicious_labels
from vit_jax.data.fingerprints import similarity

_WRONG = 'train/lying/wrong.png'


def _striped(seed, *, lying):
  """Returns a picture whose class is which way its stripes run."""
  rng = np.random.default_rng(seed)
  waves = np.sin(np.arange(48) / rng.uniform(2, 4) + rng.uniform(0, 6))
  pixels = 128 + 60 * waves + rng.normal(0, 25, (48, 48))
  pixels = pixels.T if lying else pixels
  return Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).convert('RGB')


def _save(path, image, **options):
  path.parent.mkdir(parents=True, exist_ok=True)
  image.save(path, **options)


def _plant(root):
  """Writes 44 sound pictures and one fault of each kind."""
  for i in range(44):
    split, name = 'test' if i < 8 else 'train', ('lying', 'upright')[i % 2]
    _save(root / split / name / f'{i}.png', _striped(i, lying=i % 2 == 0))
  _save(root / _WRONG, _striped(90, lying=False))
  photos = [pictures.picture(i) for i in range(4)]
  _save(root / 'train/lying/same.png', photos[0])
  _save(root / 'train/upright/same.png', photos[0])
  _save(root / 'train/lying/leak.png', photos[1])
  _save(root / 'test/lying/leak.jpg', photos[1].resize((64, 64)), quality=80)
  _save(root / 'train/lying/turned.png', photos[2])
  _save(root / 'train/lying/turned2.png', ImageOps.mirror(photos[2]))
  _save(root / 'train/lying/jpeg.png', photos[3], format='JPEG')
  (root / 'train/lying/empty.png').write_bytes(b'')
  whole = pictures.encoded(photos[3], 'JPEG')
  (root / 'test/lying/half.jpg').write_bytes(whole[:len(whole) // 2])
  return root


def _check(source, *, max_examples=0, embed=None, keep=0, **section):
  config = data.parse({'source': str(source), **section})
  asked = check.ask(
      config, max_examples=max_examples, embed=embed, keep=keep)
  with tempfile.TemporaryFile() as store:
    told = []
    report = check.check(
        asked, check.Settings(labels=suspicious_labels.Settings(neighbours=5)),
        features='stripes', store=store, done=told.append,
        failed=lambda key, error: told.append(1))
    assert sum(told) == len(asked)
    return report, _page(report)


def _page(report):
  with tempfile.TemporaryDirectory() as folder:
    page.write(report, f'{folder}/page.html')
    with open(f'{folder}/page.html', encoding='utf-8') as file:
      return file.read()


@pytest.fixture(scope='module', name='root')
def _root(tmp_path_factory):
  return _plant(tmp_path_factory.mktemp('planted'))


@pytest.fixture(scope='module', name='checked')
def _checked(root):
  return _check(root)


@pytest.fixture(name='report')
def _report(checked):
  return checked[0]


def _keys(report, numbers):
  return {report.scan.asked.key(number) for number in numbers}


def test_what_cannot_be_read_is_named_with_why(report):
  assert _keys(report, report.scan.errors) == {
      'train/lying/empty.png', 'test/lying/half.jpg'}
  assert sorted(why[:20] for why in report.scan.errors.values()) == [
      'not a readable image', 'not an image in a fo']
  assert [row['unreadable'] for row in report.split_rows()] == [1, 1]


def test_each_kind_of_copy_is_found_and_nothing_else(report):
  found = [_keys(report, group.numbers) for group in report.groups]
  assert sorted(found, key=sorted) == [
      {'test/lying/leak.jpg', 'train/lying/leak.png'},
      {'train/lying/same.png', 'train/upright/same.png'},
      {'train/lying/turned.png', 'train/lying/turned2.png'}]


def test_copies_that_harm_come_first(report):
  first, second, last = report.groups
  assert first.conflict and first.exact and not first.across
  assert second.across and not second.exact and not second.conflict
  assert not (last.across or last.conflict)
  assert second.similarity >= 0.9


def test_a_wrong_label_is_the_most_suspicious_one(report):
  suspect = report.labels.suspects[0]
  assert report.scan.asked.key(suspect.number) == _WRONG
  assert report.scan.asked.class_names[suspect.suggested] == 'upright'
  assert all('upright' in key for key in _keys(report, suspect.nearest))
  assert report.labels.agreement > 0.8


def test_what_is_odd_and_no_fault_is_remarked(report):
  assert _keys(report, report.scan.remarks['of another format than its name '
                                           'says']) == {'train/lying/jpeg.png'}
  assert report.mode_rows() == [('PNG RGB', 50), ('JPEG RGB', 2)]


def test_classes_are_counted_in_each_split(report):
  counts = report.counts()
  assert counts.shape == (2, 2) and counts.sum() == len(report.scan.asked)
  names = [split.name for split in report.scan.asked.splits]
  assert counts[names.index('test')].tolist() == [6, 4]


def test_the_page_needs_nothing_else_and_describes_each_picture(checked):
  report, text = checked
  assert not re.search(r'(src|href)="(?!data:)|https?://|<script', text)
  images = re.findall(r'<img [^>]*>', text)
  assert all(re.search(r'loading="lazy".* alt="[^"]+"', i) for i in images)
  # Each readable example is on a sheet, and findings are shown besides.
  assert len(images) >= int(report.scan.readable.sum())
  for word in (_WRONG, 'labels differ', 'in several splits', 'empty.png'):
    assert word in text


def test_pictures_of_the_page_keep_to_their_limit(root, monkeypatch):
  monkeypatch.setattr(page, 'MAX_BYTES', 20_000)
  _, text = _check(root)
  assert 10_000 < sum(map(len, re.findall(r'base64,([^"]*)', text))) <= 20_000
  for name in ('lying', 'upright'):  # Each class has its share.
    sheet = text[text.index(f'<h3>{name}'):].partition('</div>')[0]
    assert sheet.count('<img') >= 2


def test_names_are_text_on_the_page_and_in_the_terminal(tmp_path):
  for i, name in enumerate(('<b>x', '[red]y')):
    for j in range(4):
      _save(tmp_path / name / f'{j}&.png', pictures.picture(10 * i + j))
  _, text = _check(tmp_path)
  assert '<b>x' not in text and '&lt;b&gt;x' in text and '[red]y' in text


def test_nothing_is_changed(root):
  before = {path: (path.stat().st_mtime_ns, path.stat().st_size)
            for path in root.rglob('*')}
  _check(root)
  assert before == {path: (path.stat().st_mtime_ns, path.stat().st_size)
                    for path in root.rglob('*')}


def test_copies_have_no_vote_on_each_other(tmp_path):
  for i in range(8):
    for name in ('lying', 'upright'):
      _save(tmp_path / 'train' / name / f'{i}.png',
            _striped(i, lying=name == 'lying'))
  wrong = _striped(90, lying=False)
  for i in range(6):  # Wrong six times: as many as would vote.
    _save(tmp_path / f'train/lying/wrong{i}.jpg', wrong, quality=80 + i)
  _save(tmp_path / 'test/lying/x.png', _striped(50, lying=True))
  report, _ = _check(tmp_path)
  suspects = _keys(report, [s.number for s in report.labels.suspects])
  assert {f'train/lying/wrong{i}.jpg' for i in range(6)} <= suspects


def test_a_model_decides_what_is_near(root):
  sizes = []

  def embed(images):  # Sees by mean brightness, which is no class here.
    sizes.extend(image.size for image in images)
    values = np.array([np.asarray(image).mean() for image in images])
    return np.stack([values, np.ones_like(values)], axis=1)

  report, _ = _check(root, embed=embed, keep=16)
  assert report.scan.features.shape[1] == 2
  # Smaller by whole pixels, and not under what the model needs.
  assert all(16 <= min(size) < 32 for size in sizes)
  assert len(sizes) == report.scan.readable.sum()


def test_a_part_is_the_same_part_and_nested(root):
  few, more = (check.ask(data.parse({'source': str(root)}), max_examples=n)
               for n in (12, 30))
  keys = [{asked.key(i) for i in range(len(asked))} for asked in (few, more)]
  assert 11 <= len(few) <= 13 and keys[0] < keys[1]
  assert few.splits[0].total == check.ask(
      data.parse({'source': str(root)})).splits[0].total


def _table(root, header, cells):
  for i in range(len(cells)):
    _save(root / f'{i}.png', pictures.picture(i))
  lines = [f'{i}.png,{cell}' for i, cell in enumerate(cells)]
  (root / 'table.csv').write_text('\n'.join([f'path,{header}', *lines]))
  return root / 'table.csv'


def test_several_labels_are_counted_and_not_voted_on(tmp_path):
  report, text = _check(_table(
      tmp_path, 'labels', ['a|b', 'a', 'b|c', 'c', 'a|c', 'b'] * 3))
  assert report.counts().sum(axis=0).tolist() == [9, 9, 9]
  assert report.labels.agreement is None and not report.labels.suspects
  assert 'Not looked for' in text and 'a, b' in text


def test_numbers_have_no_classes_and_a_sheet_in_order(tmp_path):
  report, text = _check(_table(
      tmp_path, 'age', [f'{i}.5' for i in range(12)]), target='regression')
  assert report.scan.asked.kind == 'numbers' and not report.counts().size
  sheet = text[text.index('Contact sheets'):]
  ages = [float(age) for age in re.findall(r'alt="([\d.]+):', sheet)]
  assert len(ages) == 12 and ages == sorted(ages)
  assert report.to_json()['classes'] == []


def test_other_channels_are_shown_and_compared(tmp_path):
  rng = np.random.default_rng(0)
  for i in range(6):
    path = tmp_path / ('a', 'b')[i % 2] / f'{i}.npy'
    path.parent.mkdir(exist_ok=True)
    pixels = np.repeat(np.repeat(
        rng.integers(0, 9_000, (6, 6, 5)), 4, 0), 4, 1).astype(np.uint16)
    np.save(path, pixels)
    if i == 0:
      np.save(path.with_name('again.npy'), pixels)
  report, text = _check(
      tmp_path, channels=5, dtype='uint16', value_range=(0, 10_000))
  assert report.mode_rows() == [('uint16 x 5', 7)] and not report.scan.errors
  group, = report.groups
  assert group.exact and len(group.numbers) == 2
  data_url = re.search(r'base64,([^"]*)', text)[1]
  assert data_url.startswith('/9j/')  # A JPEG.


def test_a_source_without_files_is_checked_too():
  report, _ = _check('digits', max_examples=60)
  assert report.scan.readable.all()
  assert report.mode_rows() == [('uint8 x 1', len(report.scan.asked))]


def test_a_reader_that_fails_otherwise_is_a_finding(root):
  asked = check.ask(data.parse({'source': str(root)}))

  class Broken:
    """Raises what no reader should."""

    def __len__(self):
      return 2

    def __getitem__(self, index):
      raise KeyError('a column')

    def label(self, index):
      return 0

    def key(self, index):
      return f'row {index}'

  split = type(asked.splits[0])('train', Broken(), 2)
  broken = type(asked)('x', (split,), 'classes', ('a', 'b'), asked.decode)
  with tempfile.TemporaryFile() as store:
    report = check.check(
        broken, check.Settings(), features='', store=store,
        done=lambda count: None, failed=lambda key, error: None)
  assert len(report.scan.errors) == 2 and not report.groups
  assert 'row 1' in _page(report) and report.harmful


@pytest.mark.parametrize('build,words', [
    (lambda: similarity.Likeness(max_distance=12), 'from 0 to 11'),
    (lambda: similarity.Likeness(min_similarity=0), r'\(0, 1\]'),
    (lambda: suspicious_labels.Settings(neighbours=0), 'at least one neighbour'),
    (lambda: suspicious_labels.Settings(min_margin=2), r'in \[0, 1\]'),
    (lambda: check.ask(data.parse({'source': 'digits'}), max_examples=-1),
     'or more; got -1'),
])
def test_settings_without_sense_are_errors(build, words):
  with pytest.raises(ValueError, match=words):
    build()


def test_a_clean_data_set_has_no_faults(tmp_path):
  for i in range(24):
    split = 'test' if i < 6 else 'train'
    _save(tmp_path / split / ('lying', 'upright')[i % 2] / f'{i}.png',
          _striped(i, lying=i % 2 == 0))
  report, text = _check(tmp_path)
  assert report.faults() == [] and not report.harmful
  assert 'Found nothing wrong' in text
  assert report_lib.rest(3, 3, 'x') == ''


def test_what_a_run_would_refuse_for_its_pixels_cannot_be_read(tmp_path):
  for name in ('lying', 'upright'):
    for i, side in enumerate((48, 48, 60)):
      _save(tmp_path / name / f'{i}.png',
            _striped(i, lying=name == 'lying').resize((side, side)))
  report, _ = _check(tmp_path, max_pixels=50 * 50)
  assert len(report.scan.errors) == 2
  assert all('2,500 are the most' in e for e in report.scan.errors.values())


def test_the_copy_that_harms_is_among_those_that_are_shown(tmp_path):
  whole = pictures.picture(7)
  for i in range(9):  # Of other bytes each.
    _save(tmp_path / f'train/lying/{i}.jpg', whole, quality=70 + 3 * i)
  _save(tmp_path / 'train/upright/other.png', _striped(1, lying=False))
  for place in ('test/upright/leak.jpg', 'train/upright/wrong.jpg'):
    (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / place).write_bytes(
        (tmp_path / 'train/lying/4.jpg').read_bytes())
  report, text = _check(tmp_path)
  group, = report.groups
  assert len(group.numbers) == 11 and not group.exact and group.same_across
  assert {'test/upright/leak.jpg', 'train/upright/wrong.jpg'} <= _keys(
      report, group.numbers[:3])
  found = {fault.kind: fault for fault in report.faults()}
  for kind in ('across_splits', 'labels_differ'):
    fault = found[kind]
    assert (fault.counted, fault.count) == ('groups', 1)
    assert fault.text.startswith('1 group of copies, 11 pictures in all, ')
  assert '(1 of the groups with the same' in found['across_splits'].text
  assert (found['copies'].counted, found['copies'].count) == ('pictures', 10)
  written = report.to_json()
  assert written['found'][0]['counted'] == 'groups'
  of_group, = written['duplicates']
  assert not of_group['all_same_bytes']
  assert of_group['same_bytes_across_splits']
  cards = text[:text.index('Suspicious labels')]
  assert 'leak.jpg' in cards and 'wrong.jpg' in cards
