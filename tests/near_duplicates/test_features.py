"""Near-duplicates by the features of a model."""

from etils import epath
import numpy as np
import pytest

import main
from tests import pictures
from tests import random_models
from vit_jax.data.splits import selection
from vit_jax.near_duplicates import methods
from vit_jax.near_duplicates import search


def _means(images):
  """Features of a model: mean colours."""
  return np.stack([
      np.asarray(image.resize((4, 4)), np.float32).ravel() for image in images])


@pytest.fixture(scope='module', name='root')
def _root(tmp_path_factory):
  root = tmp_path_factory.mktemp('alike')
  for name, first in (('mine/train', 0), ('theirs/test', 100)):
    for i in range(10):
      path = root / name / 'ab'[i % 2] / f'{i}.png'
      path.parent.mkdir(parents=True, exist_ok=True)
      image = pictures.picture(first + i, side=24)
      if i == 3:  # The same in both.
        image = pictures.picture(3, side=24)
      path.write_bytes(pictures.encode(image))
  for name in ('mine/test', 'theirs/train'):
    for folder in 'ab':
      (root / name / folder).mkdir(parents=True)
      (root / name / folder / 'x.png').write_bytes(
          pictures.encode(pictures.picture(500)))
  return root


def test_the_same_image_is_found_and_no_other(root):
  result = search.search(
      selection.parse(f'{root}/mine:train', {}),
      [selection.parse(f'{root}/theirs:test', {})],
      methods.FeatureMethod(_means),
      folder=epath.Path(root), runner='local')
  (pair,) = result.pairs
  assert (pair.key, pair.against_key, pair.change) == (
      'train/b/3.png', 'test/b/3.png', 'alike')
  assert pair.similarity == pytest.approx(1, abs=1e-5)


def test_the_command_takes_a_model(root, tmp_path, capsys):
  random_models.make(
      {'width': 8, 'depth': 1, 'mlp_dim': 8, 'num_heads': 2, 'patch': 4,
       'num_classes': 4}, side=8).save(tmp_path / 'tiny')
  assert main.main([
      'deduplicate', f'--source={root}/mine', f'--against={root}/theirs',
      '--split=train', f'--to={tmp_path}/x', '--runner=local', '--no-crops',
      f'--model={tmp_path}/tiny', '--min-cosine=0.9999']) == 0
  assert '1 of 10 examples' in capsys.readouterr().out


def test_pairs_of_two_methods_are_listed_once():
  def found(*pairs):
    return search.Matches(tuple(
        search.Pair(index, f'k{index}', 'a', 0, 'b', 1.0, 0, change)
        for index, change in pairs), 5, {})
  joined = search.merge(
      [found((3, 'whole')), found((1, 'alike'), (3, 'alike'))])
  assert [(p.index, p.change) for p in joined.pairs] == [
      (1, 'alike'), (3, 'whole')]
