"""Selections name the examples of a source by its text and settings."""

import pytest

from tests import own_data
from tests import pictures
from vit_jax.extras.curation import selection as selection_lib


@pytest.mark.parametrize(('text', 'name'), [
    ('shapes', 'shapes:test'),
    ('shapes:train', 'shapes:train'),
    ('shapes:train[:100]+test[50%:]', 'shapes:train[:100]+test[50%:]'),
])
def test_the_default_split_is_that_of_published_results(text, name):
  chosen = selection_lib.parse(text, {})
  assert chosen.name == name
  assert chosen.open() is selection_lib.parse(name, {}).open()


def test_a_colon_before_a_number_or_slash_does_not_begin_a_split():
  for text in ('cifar10:3.0.2', 'gs://bucket/photos', '/a::b/photos'):
    assert selection_lib.build(text, 'test', {}) == selection_lib.parse(
        f'{text}:test', {})
  hub = 'hf://datasets/user/name'
  assert selection_lib.parse(f'{hub}:full:test', {}).name == f'{hub}:full:test'
  assert selection_lib.parse(f'{hub}::test', {}).name == f'{hub}:test'


def test_images_of_a_selection_keep_its_limit_of_pixels(tmp_path):
  pictures.save_all(tmp_path, [
      f'train/{name}/{i}.png' for name in 'ab' for i in range(3)])
  assert selection_lib.build(str(tmp_path), 'train', {}).image(0).size == (8, 8)
  with pytest.raises(ValueError, match='max_pixels'):
    selection_lib.build(str(tmp_path), 'train', {'max_pixels': 63}).image(0)


def test_commas_in_braces_do_not_separate_sources(tmp_path):
  for split in ('train', 'test'):
    own_data.write_tar(tmp_path / f'{split}.tar', (
        (f'{i}.{kind}', 'ab'[i % 2]) for i in range(10)
        for kind in ('png', 'cls')))
  text = f'{tmp_path}/{{train,test}}.tar:test'
  both = selection_lib.parse_others(f'{text},shapes', {})
  assert [chosen.name for chosen in both] == [text, 'shapes:test']
  assert len(both[0].open()) == 10


def test_settings_apply_to_other_sources_where_meaningful(tmp_path):
  own_data.write_table(tmp_path, 'photo,breed,note', [
      f'{i}.png,{i % 2},x' for i in range(10)])
  table, shapes = selection_lib.parse_others(
      f'{tmp_path}/labels.csv:train,shapes',
      {'table': {'path': 'photo', 'label': 'breed'}, 'target': 'single',
       'num_examples': 3, 'max_pixels': 99})
  assert len(table.open()) > 3  # The whole test set.
  assert '"max_pixels": 99' in shapes.section and len(shapes.open())
