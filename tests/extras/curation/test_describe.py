"""`data describe` prints how a dataset is read, or the flags that open it."""

import json

import pytest

from tests import own_data
from tests import pictures
from vit_jax import __main__ as main_lib


def _describe(source, *flags):
  """Returns the status, the description and the rows of each table."""
  path = source.parent / 'described.json'
  status = main_lib.main(
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
  assert tables['Sizes'] == [
      ['width', 8, 11, 16], ['height', 8, 11, 16]]
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
  assert main_lib.main([
      'data', 'describe', str(table), '--config.data.target=single']) == 2
  flags = own_data.paste('\n'.join(
      line.removeprefix('  ') for line in capsys.readouterr().err.splitlines()))
  assert flags == {'table.path': 'image', 'table.label': 'breed'}
