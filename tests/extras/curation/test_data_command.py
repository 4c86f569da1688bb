"""`data check` and `data describe` report what they find."""

import json
import re
import sys

import pytest

from tests import own_data
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


@pytest.mark.slow
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
    (['--config.data.exclude=x'], 'Remove --config.data.exclude'),
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
  assert "pip install '.[beam]'" in capsys.readouterr().err


def _describe(source, *flags):
  """Returns the status, the description and the rows of each table."""
  path = source.parent / 'described.json'
  status = main.main(
      ['data', 'describe', str(source), *flags, f'--json={path}'])
  found = json.loads(path.read_text())
  return status, found['description'], {
      title.split(':')[0].split(' ')[0]: rows
      for title, _, rows in found['tables']}


def test_classes_are_counted_and_empty_ones_are_named(tmp_path):
  pets = tmp_path / 'pets'
  for i in range(6):
    for name in ('cat', 'dog'):
      pictures.save(pets / f'train/{name}/{i}.png',
                    pictures.picture(i, side=8 + i))
  pictures.save(pets / 'test/cat/7.png', pictures.picture(7, side=16))
  (pets / 'train/emu').mkdir()
  status, text, tables = _describe(pets)
  assert status == 0 and 'train/emu (no files)' in text
  assert tables['Splits'] == [
      ['train', 12, 'training'], ['test', 1, 'evaluation']]
  assert tables['Classes'] == [
      ['cat', 6, 1], ['dog', 6, 0], ['train/emu (no files)', 0, 0]]
  assert tables['Sizes'] == [['width', 8, 11, 16], ['height', 8, 11, 16]]
  assert tables['Examples'][-1] == ['test', 'test/cat/7.png', 'cat']
  _, text, tables = _describe(pets, '--config.data.target=none')
  assert 'target is none' in text and 'Classes' not in tables


@pytest.mark.parametrize(('flags', 'label'), [
    (['table.label=age', 'target=regression'], '2'),
    (['table.label=tags', 'target=multi', 'table.separator=|'], 'a, b'),
    (['target=none'], '')])
def test_labels_of_each_kind_are_shown(tmp_path, flags, label):
  table = pictures.write_table(tmp_path, 'age,tags', ['2,a|b'] * 9)
  _, _, tables = _describe(table, *(f'--config.data.{flag}' for flag in flags))
  assert tables['Examples'][0][-1] == label


def test_data_that_do_not_open_print_the_flags(tmp_path, capsys):
  table = own_data.write_table(
      tmp_path, 'image,breed', [f'{i}.png,{"ab"[i % 2]}' for i in range(9)])
  assert main.main([
      'data', 'describe', str(table), '--config.data.target=single']) == 2
  flags = own_data.paste('\n'.join(
      line.removeprefix('  ') for line in capsys.readouterr().err.splitlines()))
  assert flags == {'table.path': 'image', 'table.label': 'breed'}
