"""Copies of test images are found, listed, shown, and then excluded."""

import json

from etils import epath
import numpy as np
from PIL import Image
from PIL import ImageEnhance
import pytest

from tests import pictures
from vit_jax import __main__ as main
from vit_jax import data
from vit_jax.extras.curation import output
from vit_jax.extras.curation import search
from vit_jax.extras.curation import selection as selection_lib

# Changes of the copies of test images 0, 1, ... among the training images.
COPIES = {
    'resized': lambda image: image.resize((80, 60)),
    'dark': lambda image: ImageEnhance.Brightness(image).enhance(0.6),
    'flipped': lambda image: image.transpose(
        Image.Transpose.FLIP_LEFT_RIGHT),
    'cropped': lambda image: image.crop((0, 2, 43, 46)),
    'both': lambda image: image.crop((4, 1, 48, 44)).transpose(
        Image.Transpose.FLIP_LEFT_RIGHT),
}


@pytest.fixture(scope='module', name='root')
def _root(tmp_path_factory):
  """Two folders: `mine` has copies of images of `theirs`, and a bad file."""
  root = tmp_path_factory.mktemp('pictures')
  pictures.save_all(root, [
      f'{folder}/{"ab"[i % 2]}/{i}.png' for folder, count in (
          ('theirs/test', 12), ('theirs/train', 12), ('mine/train', 24))
      for i in range(count)], side=48)
  for i, (name, change) in enumerate(COPIES.items()):
    pictures.save(
        root / f'mine/train/a/{name}.jpg', change(pictures.picture(i)))
  (root / 'mine/train/a/bad.jpg').write_bytes(b'nothing')
  pictures.save(root / 'mine/val/a/x.png', pictures.picture(500))
  return root


def _search(root, runner, folder='unused'):
  return search.search(
      selection_lib.parse(f'{root}/mine:train', {}),
      [selection_lib.parse(f'{root}/theirs:test', {})],
      search.Settings(), folder=epath.Path(folder), runner=runner)


@pytest.fixture(scope='module', name='found')
def _found(root):
  return _search(root, 'local')


def test_copies_and_unreadable_images_are_found(found):
  named = {pair.key: (pair.against_key, pair.change) for pair in found.pairs}
  assert named == {
      'train/a/resized.jpg': ('test/a/0.png', 'whole'),
      'train/a/dark.jpg': ('test/b/1.png', 'whole'),
      'train/a/flipped.jpg': ('test/a/2.png', 'mirrored'),
      'train/a/cropped.jpg': ('test/b/3.png', 'crop'),
      'train/a/both.jpg': ('test/a/4.png', 'mirrored crop')}
  assert all(pair.similarity > 0.9 for pair in found.pairs)
  (name, reason), = found.unreadable.items()
  assert name.endswith('mine:train train/a/bad.jpg')
  assert 'not an image' in reason


def test_crops_are_found_in_addition_to_copies(monkeypatch):
  y, x = np.mgrid[:64, :64] / 64
  rng = np.random.default_rng(0)
  # Crops of a periodic pattern have hashes like those of its noisy copies.
  waves = [
      np.stack([127 + 120 * np.sin(2 * np.pi * (a * x + b * y + phase * c))
                for phase in range(3)], axis=-1)
      for a, b, c in rng.uniform(2, 9, (100, 3))]
  tests, copies = (
      [wave.clip(0, 255).astype(np.uint8) for wave in several]
      for several in (waves, [w + rng.normal(0, 25, w.shape) for w in waves]))
  monkeypatch.setattr(search, '_thumbnail', lambda _, image: tests[image])
  chosen = selection_lib.build('digits', 'test', {})
  found, places = [], [(chosen, i) for i in range(len(tests))]
  for crops in (False, True):
    settings = search.Settings(crops=crops)
    index = search.build_index(
        [search.Views(places, search.views(tests, settings), {})], settings)
    found.append({
        pair.index for pair in search.compare(
            dict(enumerate(copies)), index, settings, chosen)
        if pair.similarity >= settings.min_similarity})
  assert found[0] and found[0] <= found[1]


def test_beam_finds_the_same_duplicates(root, found, tmp_path):
  pytest.importorskip('apache_beam')
  folder = tmp_path / 'found'
  assert _search(root, 'DirectRunner', folder) == found
  assert not folder.exists()  # Temporary files are removed.


def test_the_command_writes_keys_that_a_run_excludes(
    root, tmp_path, capsys, monkeypatch):
  monkeypatch.setattr(output, 'SHOWN_PAIRS', 2)
  to = tmp_path / 'clean'
  status = main.main([
      'deduplicate', f'--source={root}/mine', f'--against={root}/theirs',
      f'--to={to}', '--runner=local',
      f'--json={tmp_path}/figures.json'])
  printed = capsys.readouterr().out
  assert status == 1  # For the bad file.
  assert '5 of 30 examples' in printed and 'bad.jpg' in printed
  keys = (to / 'exclude.txt').read_text().split()
  assert len(keys) == 5 and 'train/a/flipped.jpg' in keys
  rows = [json.loads(line) for line in (to / 'pairs.jsonl').open()]
  assert [row['key'] for row in rows] == keys
  page = (to / 'pairs.html').read_text()
  assert page.count('<img') == 4 and 'http' not in page
  figures = json.loads((tmp_path / 'figures.json').read_text())
  assert (figures['near_duplicates'], figures['examples']) == (5, 30)
  dataset = data.open_dataset(data.parse({
      'source': f'{root}/mine', 'exclude': f'{to}/exclude.txt'}))
  assert len(dataset) == 25 and dataset.excluded.startswith('5 ')


@pytest.mark.parametrize(('flags', 'words'), [
    (['--against={root}/mine:train[:50%]'], 'have examples in common'),
    (['--against={root}/theirs', '--min-similarity=90'], 'most 1, but is 90'),
    (['--against={root}/theirs', '--max-distance=12'], 'at most 11, but is 12'),
])
def test_invalid_flags_are_errors_before_anything_is_read(
    root, tmp_path, capsys, flags, words):
  assert main.main([
      'deduplicate', f'--source={root}/mine', f'--to={tmp_path}/x',
      '--runner=local',
      *(flag.replace('{root}', str(root)) for flag in flags)]) == 2
  assert words in capsys.readouterr().err
  assert not (tmp_path / 'x').exists()
