"""Runs on a mixture of datasets."""

import jax
import numpy as np
import pytest

from tests import toy
from vit_jax import run as run_lib
from vit_jax.checkpoints import items
from vit_jax.checkpoints import paths

pytestmark = pytest.mark.slow  # It trains models.

DATA = {
    'mixture': [{'source': 'digits', 'weight': 3}, {
        'source': 'shapes', 'weight': 1}],
    'shapes': {'label': 'single', 'num_examples': 4}}


def _build(**data):
  return toy.build(
      data={**DATA, **data}, total={'steps': 6}, log={'every': {'steps': 2}},
      checkpoint={'every': {'steps': 3}, 'keep': 2})


@pytest.fixture(scope='module', name='trained')
def _trained(tmp_path_factory):
  experiment, workdir = _build(), tmp_path_factory.mktemp('mixed')
  return experiment, workdir, run_lib.train(experiment, workdir)


def test_a_resumed_run_equals_an_uninterrupted_one(trained, tmp_path):
  experiment, workdir, _ = trained
  resumed = toy.copy_at(workdir, tmp_path / 'run', step=3)
  run_lib.train(experiment, resumed)
  assert toy.rows(resumed) == toy.rows(workdir)
  jax.tree.map(np.testing.assert_array_equal, *(
      items.read_params(paths.find(path)) for path in (workdir, resumed)))


def test_a_run_says_and_counts_how_often_it_sees_each_source(trained):
  _, workdir, _ = trained
  assert [(row['train/images_seen_digits'], row['train/images_seen_shapes'])
          for row in toy.rows(workdir)] == [(12, 4), (24, 8), (36, 12)]


def test_a_run_does_not_resume_with_another_mixture(trained):
  other = _build(mixture=[{**entry, 'weight': 1} for entry in DATA['mixture']])
  with pytest.raises(ValueError, match=(
      '(?s)other values of data.mixture. Use .*weight')):
    run_lib.train(other, trained[1])
