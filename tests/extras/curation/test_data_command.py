"""`data check` reports its findings in three formats and by its status."""

import json
import re
import sys

import numpy as np
from PIL import Image
import pytest

from tests import pictures
from vit_jax import __main__ as main


@pytest.fixture(name='photos')
def _photos(tmp_path):
  return pictures.save_all(tmp_path / 'photos', [
      f'{("cat", "dog")[i % 2]}/{i}.png' for i in range(12)], side=48)


def _check(photos, *flags):
  return main.main(['data', 'check', f'--source={photos}', *flags])


def test_findings_are_in_every_format_and_fail_only_with_strict(
    photos, tmp_path, capsys):
  (photos / 'cat' / 'empty[0].jpg').write_bytes(b'')
  page, facts = tmp_path / 'out' / 'page.html', tmp_path / 'facts.json'
  assert _check(photos, f'--html={page}', f'--json={facts}') == 0
  printed, found = capsys.readouterr().out, json.loads(facts.read_text())
  for words in ('cat/empty[0].jpg', '2 classes: cat, dog (class folders)'):
    assert words in printed and words in page.read_text()
  assert '2 classes: cat, dog (class folders)' in found['description']
  assert [item['example']['key'] for item in found['unreadable']] == [
      'cat/empty[0].jpg']
  assert found['findings'][0] == {
      'kind': 'unreadable', 'unit': 'images', 'count': 1,
      'text': '1 unreadable image', 'harmful': True}
  assert re.search(r'Suspicious labels: \w+, by photos', printed)
  assert _check(photos, '--strict') == 1


def test_12_bit_values_in_16_bit_files_are_noted(tmp_path, capsys):
  for i in range(12):
    pictures.save(tmp_path / 'ab'[i % 2] / f'{i}.png', Image.fromarray(
        np.random.default_rng(i).integers(4096, size=(48, 48), dtype='uint16')))
  assert _check(tmp_path) == 0
  assert 'as of 12 bits' in capsys.readouterr().out


def test_set_selects_the_label_column_of_a_table(tmp_path, capsys):
  table = pictures.write_table(
      tmp_path, 'breed,note', [f'{name},x' for name in 'ab' * 6], side=16)
  assert _check(table) == 0  # Without labels.
  assert '--config.data.table.label=COLUMN' in capsys.readouterr().out
  for flag in ('--set=', '--config.data.'):
    assert _check(table, f'{flag}table.label=breed') == 0
    assert 'classes: a, b (breed)' in capsys.readouterr().out


@pytest.mark.parametrize(('flags', 'words'), [
    (['--max-examples=-1'], 'max_examples must be at least 0'),
    (['--set=target=multi', '--set=target.label=x'],
     "target is 'multi', not a section"),
    (['--set=max_unreadable=0.1'], "Did you mean 'unreadable'"),
    (['--config.data.max_unreadable=0.1'], "Did you mean 'unreadable'"),
    (['--config.seed=1'], 'but got --config.seed=1')])
def test_mistakes_are_errors(photos, capsys, flags, words):
  assert _check(photos, *flags) == 2
  assert words in capsys.readouterr().err


def test_a_missing_beam_is_an_error_with_the_install_command(
    monkeypatch, capsys):
  monkeypatch.setitem(sys.modules, 'apache_beam', None)
  assert main.main(['data', 'prepare', '--source=digits', '--to=x',
                    '--name=x', '--runner=DirectRunner']) == 2
  assert 'pip install -r requirements-beam.txt' in capsys.readouterr().err
