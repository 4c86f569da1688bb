"""Problems planted in a dataset are found, and nothing is changed."""

import pathlib
import re
import shutil
import tempfile
from unittest import mock

import numpy as np
from PIL import Image
from PIL import ImageOps
import pytest

from tests import hostile
from tests import in_memory
from tests import leaves
from tests import pictures
from vit_jax import data
from vit_jax import registry
from vit_jax.extras.curation import bit_depth
from vit_jax.extras.curation import check as check_lib
from vit_jax.extras.curation import output
from vit_jax.extras.curation import scan as scan_lib
from vit_jax.extras.curation import similarity
from vit_jax.extras.curation import suspicious_labels

_WRONG = 'train/lying/wrong.png'


def _striped(seed, *, lying):
  """Returns an image whose class is the direction of its stripes."""
  rng = np.random.default_rng(seed)
  waves = np.sin(np.arange(48) / rng.uniform(2, 4) + rng.uniform(0, 6))
  pixels = 128 + 60 * waves + rng.normal(0, 25, (48, 48))
  pixels = pixels.T if lying else pixels
  return Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).convert('RGB')


@pytest.fixture(scope='module', name='root')
def _root(tmp_path_factory):
  """A folder of 44 valid images and one problem of each kind."""
  root = tmp_path_factory.mktemp('planted')
  for i in range(44):
    name = f'{"test" if i < 8 else "train"}/{("lying", "upright")[i % 2]}'
    pictures.save(root / name / f'{i}.png', _striped(i, lying=i % 2 == 0))
  pictures.save(root / _WRONG, _striped(90, lying=False))
  photos = [pictures.picture(i) for i in range(4)]
  pictures.save(root / 'train/lying/same.png', photos[0])
  pictures.save(root / 'train/upright/same.png', photos[0])
  pictures.save(root / 'train/lying/leak.png', photos[1])
  pictures.save(root / 'test/lying/leak.jpg', photos[1].resize((64, 64)),
                quality=80)
  pictures.save(root / 'train/lying/turned.png', photos[2])
  pictures.save(root / 'train/lying/turned2.png', ImageOps.mirror(photos[2]))
  pictures.save(root / 'train/lying/jpeg.png', photos[3], format='JPEG')
  (root / 'train/lying/empty.png').write_bytes(b'')
  whole = pictures.encode(photos[3], 'JPEG')
  (root / 'test/lying/half.jpg').write_bytes(whole[:len(whole) // 2])
  return root


def _gradients(images):
  """Returns the contrast of each image along its columns and rows."""
  return np.array([[np.abs(np.diff(np.asarray(image, float), axis=axis)).mean()
                    for axis in (0, 1)] for image in images])


def _prepare(
    source, *, max_examples=0, embed=_gradients, min_side=16, **section):
  return scan_lib.prepare(
      data.parse({'source': str(source), **section}),
      max_examples=max_examples, embed=embed, min_side=min_side)


def _check(source, **settings):
  """Returns the report of a check, and the text of its page."""
  request, counts = _prepare(source, **settings), []
  report = check_lib.check(
      request, thresholds=similarity.Thresholds(), features='stripes',
      advance=counts.append)
  assert sum(counts) == len(request.examples)
  with tempfile.TemporaryDirectory() as folder:
    output.write_report(report, request, f'{folder}/page.html')
    return report, pathlib.Path(folder, 'page.html').read_text('utf-8')


@pytest.fixture(autouse=True, scope='module')
def _few_neighbours():
  with mock.patch.object(suspicious_labels, '_NEIGHBOURS', 5):
    yield


@pytest.fixture(scope='module', name='checked')
def _checked(root):
  before = {path: path.stat() for path in root.rglob('*')}
  result = _check(root)
  assert {path: path.stat().st_mtime_ns for path in root.rglob('*')} == {
      path: stat.st_mtime_ns for path, stat in before.items()}
  return result


def _keys(examples):
  return {example.key for example in examples}


def test_problems_sizes_and_classes_are_counted(checked):
  report, _ = checked
  assert _keys(u.example for u in report.unreadable) == {
      'train/lying/empty.png', 'test/lying/half.jpg'}
  assert all('not a' in u.reason for u in report.unreadable)
  assert [split['unreadable'] for split in report.splits.values()] == [1, 1]
  assert report.sizes == {'48 x 48': 51, '64 x 64': 1}
  assert report.classes == {
      'lying': {'train': 25, 'test': 6}, 'upright': {'train': 19, 'test': 4}}


def test_each_kind_of_duplicate_is_found_and_nothing_else(checked):
  report, _ = checked
  found = [_keys(group.examples) for group in report.duplicates]
  assert sorted(found, key=sorted) == [
      {'test/lying/leak.jpg', 'train/lying/leak.png'},
      {'train/lying/same.png', 'train/upright/same.png'},
      {'train/lying/turned.png', 'train/lying/turned2.png'}]
  first, second, last = report.duplicates  # The most harmful first.
  assert first.labels_differ and first.identical and not first.across_splits
  assert second.across_splits and not second.identical
  assert second.min_similarity >= 0.9
  assert not (last.across_splits or last.labels_differ)


def test_a_wrong_label_is_the_most_suspicious(checked):
  report, _ = checked
  suspect = report.suspicious_labels[0]
  assert (suspect.example.key, suspect.suggested) == (_WRONG, 'upright')
  assert all('upright' in key for key in _keys(suspect.neighbours))
  assert report.label_agreement > 0.8


def test_the_page_is_self_contained_and_describes_each_image(checked):
  _, text = checked
  assert not re.search(r'(src|href)="(?!data:)|https?://|<script', text)
  images = re.findall(r'<img [^>]*>', text)
  assert all(re.search(r'loading="lazy".* alt="[^"]+"', i) for i in images)
  assert len(images) >= 6  # Of the groups of duplicates.
  for word in (_WRONG, 'labels differ', 'in several splits', 'empty.png'):
    assert word in text


def test_duplicates_do_not_vote_on_each_other(tmp_path):
  for i in range(16):
    pictures.save(tmp_path / 'train' / ('lying', 'upright')[i % 2] / f'{i}.png',
                  _striped(i, lying=i % 2 == 0))
  wrong = _striped(90, lying=False)
  for i in range(6):  # As many copies as neighbours vote.
    pictures.save(tmp_path / f'train/lying/wrong{i}.jpg', wrong, quality=80 + i)
  pictures.save(tmp_path / 'test/lying/x.png', _striped(50, lying=True))
  report, _ = _check(tmp_path)
  suspects = _keys(s.example for s in report.suspicious_labels)
  assert {f'train/lying/wrong{i}.jpg' for i in range(6)} <= suspects


def test_a_model_receives_reduced_images_of_its_size(root):
  sizes = []

  def embed(images):
    sizes.extend(image.size for image in images)
    return _gradients(images)

  _check(root, embed=embed, min_side=16)
  assert all(16 <= min(size) < 32 for size in sizes) and len(sizes) == 52


def test_a_smaller_subset_is_part_of_a_larger_one(root):
  few, more = (_prepare(root, max_examples=count) for count in (12, 30))
  keys = [{r.examples.key(i) for i in range(len(r.examples))}
          for r in (few, more)]
  assert 11 <= len(keys[0]) <= 13 and keys[0] < keys[1]
  assert sum(split.total for split in few.splits) == 54


def test_several_labels_are_counted_and_not_compared(tmp_path):
  report, text = _check(pictures.write_table(
      tmp_path, 'label', ['a|b', 'a', 'b|c', 'c', 'a|c', 'b'] * 3),
                        target='multi', table={'separator': '|'})
  assert [sum(row.values()) for row in report.classes.values()] == [9, 9, 9]
  assert report.label_agreement is None and not report.suspicious_labels
  assert 'Not searched' in text and 'a, b' in text


def test_missing_numbers_are_equal(tmp_path):
  path = pictures.write_table(
      tmp_path, 'age,size', [',2', ',2', '7.5,2', '2.5,1', ',', '3,'], side=48)
  pictures.save(tmp_path / '1.png', pictures.picture(0))
  report, _ = _check(path, target='regression', table={'label': 'age,size'})
  assert report.label_kind == 'numbers' and not report.classes
  group, = report.duplicates  # Of missing numbers, which are equal.
  assert group.identical and not group.labels_differ


def test_multichannel_images_are_shown_and_compared(tmp_path):
  rng = np.random.default_rng(0)
  for i in range(6):
    path = tmp_path / ('a', 'b')[i % 2] / f'{i}.npy'
    path.parent.mkdir(exist_ok=True)
    pixels = rng.integers(0, 9_000, (6, 6, 5), np.uint16)
    np.save(path, pixels.repeat(4, 0).repeat(4, 1))
  shutil.copy(path, path.with_name('again.npy'))
  report, text = _check(
      tmp_path, channels=5, dtype='uint16', value_range=(0, 10_000))
  assert report.sizes == {'24 x 24': 7} and not report.unreadable
  group, = report.duplicates
  assert group.identical and len(group.examples) == 2
  assert 'data:image/png;base64' in text


def test_a_check_without_labels_says_so(tmp_path):
  report, _ = _check(pictures.save_all(
      tmp_path, [f'{i}.png' for i in range(20)]))
  assert 'Labels are not checked: ' in report.description
  assert report.label_kind == 'none' and not report.classes
  assert report.labels_not_compared == 'there are no labels'


UINT16 = {'channels': 1, 'dtype': 'uint16'}
WIDE = {**UINT16, 'value_range': [0, 65535]}


@pytest.mark.skipif(
    not leaves.has(registry.IMAGE_DECODER), reason='It decodes 16 bits.')
@pytest.mark.parametrize(('largest', 'encode', 'settings', 'words'), [
    (4095, pictures.encode, {}, 'at most 4,095.*upper 8 of 16 bits'),
    (4095, pictures.encode, WIDE, 'at most 4,095.*value_range ends at 65535'),
    (4095, hostile.npy, WIDE, "2 sampled images.*'.0,4095.'"),
    (4096, pictures.encode, {}, None), (4096, pictures.encode, WIDE, None),
    (4095, pictures.encode, {**UINT16, 'value_range': [0, 4095]}, None)])
def test_12_bit_values_in_16_bit_files_are_noted(
    largest, encode, settings, words):
  config = data.parse({'source': 'x', **settings})
  files = [encode(pixels if encode is hostile.npy else Image.fromarray(pixels))
           for pixels in np.uint16([[[0, 9], [1, 3]], [[0, 9], [1, largest]]])]
  note = bit_depth.note(config, in_memory.Arrays(files, [0, 1]))
  assert re.search(words, note) if words else not note


def test_dark_8_bit_images_are_not_noted():
  dark = pictures.encode(Image.new('L', (4, 4), 3))
  assert not bit_depth.note(
      data.parse({'source': 'x'}), in_memory.Arrays([dark, b'junk'], [0, 1]))
