"""What a person writes for a part of a data set means one thing."""

import pytest

from vit_jax.data import selection


@pytest.mark.parametrize(('text', 'name'), [
    ('shapes', 'shapes:test'),
    ('shapes:train', 'shapes:train'),
    ('shapes:train[:100]+test[50%:]', 'shapes:train[:100]+test[50%:]'),
])
def test_a_split_follows_a_colon_and_else_is_the_published_one(text, name):
  chosen = selection.select(text, {})
  assert chosen.name == name
  assert chosen.open() is selection.select(name, {}).open()


def test_a_colon_before_a_number_or_a_slash_is_no_split():
  for text in ('cifar10:3.0.2', 'gs://bucket/photos'):
    assert selection.of(text, 'test', {}) == selection.select(
        f'{text}:test', {})


def test_ranges_cover_all_once():
  assert list(selection.ranges(7, 3)) == [(0, 3), (3, 6), (6, 7)]
