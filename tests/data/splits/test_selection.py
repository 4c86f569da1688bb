"""What a person writes for a part of a data set means one thing."""

import pytest

from vit_jax.data.splits import selection


@pytest.mark.parametrize(('text', 'name'), [
    ('shapes', 'shapes:test'),
    ('shapes:train', 'shapes:train'),
    ('shapes:train[:100]+test[50%:]', 'shapes:train[:100]+test[50%:]'),
])
def test_a_split_follows_a_colon_and_else_is_the_published_one(text, name):
  chosen = selection.parse(text, {})
  assert chosen.name == name
  assert chosen.open() is selection.parse(name, {}).open()


def test_a_colon_before_a_number_or_a_slash_is_no_split():
  for text in ('cifar10:3.0.2', 'gs://bucket/photos'):
    assert selection.build(text, 'test', {}) == selection.parse(
        f'{text}:test', {})


def test_ranges_cover_all_once():
  assert list(selection.ranges(7, 3)) == [(0, 3), (3, 6), (6, 7)]


def _tables(root, *names):
  for i in range(20):
    (root / f'{i}.png').write_bytes(b'')
  for k, name in enumerate(names):
    rows = [f'{i}.png,{i % 2},x' for i in range(10 * k, 10 * k + 10)]
    (root / name).write_text('\n'.join(['photo,breed,note', *rows]))


_BREED = {'table': {'path': 'photo', 'label': 'breed'}, 'target': 'single'}


def test_a_comma_in_braces_is_of_a_source(tmp_path):
  _tables(tmp_path, 'train.csv', 'test.csv')
  text = f'{tmp_path}/{{train,test}}.csv:test'
  both = selection.parse_others(f'{text},shapes', _BREED)
  assert [chosen.name for chosen in both] == [text, 'shapes:test']
  assert len(both[0].open()) == 10


def test_settings_of_another_hold_where_they_mean_something(tmp_path):
  _tables(tmp_path, 'labels.csv')
  table, shapes = selection.parse_others(
      f'{tmp_path}/labels.csv:train,shapes',
      {**_BREED, 'num_examples': 3, 'max_pixels': 99})
  assert len(table.open()) > 3  # The whole test set.
  assert '"max_pixels": 99' in shapes.section and len(shapes.open())
