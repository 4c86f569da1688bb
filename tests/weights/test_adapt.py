"""Parameters of one model initialise another, and each is reported."""

import dataclasses

import numpy as np
import pytest

from tests import random_models
from vit_jax import schema
from vit_jax import tree
from vit_jax.models import ablations
from vit_jax.models import factory
from vit_jax.models import positions as positions_lib
from vit_jax.weights import adapt as adapt_lib
from vit_jax.weights import check

RNG = np.random.default_rng(0)
WIDTH = 6


def params(*, grid=(3, 3), classes=10, representation=False, cls=True):
  shapes = {
      'cls': (1, WIDTH), 'positions': (cls + grid[0] * grid[1], WIDTH),
      'encoder/layers/mlp/kernel': (2, WIDTH, 8),
      'head/dense/kernel': (WIDTH, classes), 'head/dense/bias': (classes,)}
  if not cls:
    del shapes['cls']
  if representation:
    shapes['representation/dense/kernel'] = (WIDTH, WIDTH)
  return tree.unflatten({
      name: RNG.normal(size=shape).astype(np.float32)
      for name, shape in shapes.items()})


def initial(**settings):
  values = params(**settings)
  values['head'] = {'dense': {k: np.zeros_like(v) for k, v in
                              values['head']['dense'].items()}}
  return values


def adapt(source, target, *, old_grid=(3, 3), new_grid=(3, 3), model=None,
          **section):
  config = schema.parse(adapt_lib.InitConfig, section, where='init')

  def resize(name, array):
    return (model or ablations.AblationConfig()).resize_positions(
        name, array, old_grid=old_grid, new_grid=new_grid,
        method=config.positions or 'linear')

  adapted, rows = adapt_lib.adapt(source, target, config=config, resize=resize)
  return adapted, {row.name: row for row in rows}


def test_every_parameter_of_either_model_is_reported():
  source = params(grid=(3, 3), representation=True)
  target = initial(grid=(4, 5), classes=3)
  adapted, rows = adapt(source, target, new_grid=(4, 5))
  assert {name: row.status for name, row in rows.items()} == {
      'cls': 'loaded', 'encoder/layers/mlp/kernel': 'loaded',
      'positions': 'resized', 'head/dense/kernel': 'new',
      'head/dense/bias': 'new', 'representation/dense/kernel': 'ignored'}
  assert (rows['positions'].old_shape, rows['positions'].new_shape) == (
      (10, WIDTH), (21, WIDTH))
  assert rows['head/dense/bias'].old_shape == (10,)
  assert rows['representation/dense/kernel'].new_shape is None
  counts, *lines = adapt_lib.report(list(rows.values()))
  assert [line.split()[:2] for line in lines] == [
      ['new:', 'head/dense/bias'], ['new:', 'head/dense/kernel'],
      ['resized:', 'positions'], ['ignored:', 'representation/dense/kernel']]
  assert lines[2].endswith('(10, 6) -> (21, 6)')
  assert counts == '2 loaded, 1 resized, 2 new, 1 ignored'
  assert tree.differences(target, adapted) == []
  np.testing.assert_array_equal(adapted['cls'], source['cls'])
  np.testing.assert_array_equal(
      adapted['encoder']['layers']['mlp']['kernel'],
      source['encoder']['layers']['mlp']['kernel'])
  np.testing.assert_array_equal(
      adapted['positions'], positions_lib.resize_positions(
          source['positions'], old_grid=(3, 3), new_grid=(4, 5)))


def test_differences_can_be_allowed_by_name():
  source, target = params(), initial()
  del source['cls']
  source['a'] = {'b': np.zeros(1)}
  adapted, rows = adapt(
      source, target, new=['head/.*', 'cls'], ignored=['a/.*'])
  assert (rows['cls'].status, rows['a/b'].status) == ('new', 'ignored')
  np.testing.assert_array_equal(adapted['cls'], target['cls'])


KINDS = [
    {}, {'name': 'ablation', 'position': '2d', 'position_at': 'layers'},
    {'name': 'ablation', 'position': 'learned', 'position_at': 'shared'},
    {'name': 'ablation', 'position': '2d', 'position_at': 'layers',
     'axial': True, 'pooling': 'average'},
    {'position': 'none'}]


@pytest.mark.parametrize('settings', KINDS, ids=str)
def test_positions_of_every_kind_fit_a_model_of_another_grid(settings):
  config = factory.parse({
      'width': 8, 'depth': 2, 'mlp_dim': 12, 'num_heads': 2, 'patch': 4,
      'num_classes': 3, **settings})

  def values(resolution):
    shapes = tree.flatten(check.abstract_params(config, resolution))
    return tree.unflatten({
        name: RNG.normal(size=shape.shape).astype(np.float32)
        for name, shape in shapes.items()})

  source, target = values((12, 16)), values((20, 8))
  adapted, rows = adapt(
      source, target, old_grid=(3, 4), new_grid=(5, 2), model=config)
  assert tree.differences(target, adapted) == []
  # Only embeddings whose length differs are resized.
  status = {name: row.status for name, row in rows.items()}
  assert {name for name, one in status.items() if one == 'resized'} == {
      name for name, shape in tree.flatten(target).items()
      if shape.shape != tree.flatten(source)[name].shape
      and not name.startswith('head/')}
  for name, array in tree.flatten(adapted).items():
    if status[name] == 'loaded':
      np.testing.assert_array_equal(array, tree.flatten(source)[name])


def test_filters_are_spread_over_other_channels_if_configured():
  filters = RNG.normal(size=(2, 2, 3, 5))
  initial = {'patches': {'kernel': np.zeros((2, 2, 13, 5), np.float32)}}
  source = {'patches': {'kernel': filters.astype(np.float32)}}
  with pytest.raises(ValueError, match='--config.init.channels=mean'):
    adapt(source, initial, new=[])
  adapted, rows = adapt(source, initial, new=[], channels='mean')
  assert rows['patches/kernel'].status == 'resized'
  # The embedding of an image with equal channels does not change.
  grey = np.ones((2, 2))
  np.testing.assert_allclose(
      np.einsum('hw,hwce->e', grey, adapted['patches']['kernel']),
      np.einsum('hw,hwce->e', grey, filters), rtol=1e-5)


SINCOS = {'width': 8, 'depth': 1, 'mlp_dim': 12, 'num_heads': 2, 'patch': 4,
          'num_classes': 3, 'position': 'sincos'}


def test_a_model_that_learns_positions_starts_from_fixed_ones():
  sincos = random_models.make(SINCOS, side=(12, 16))
  learned = tree.unflatten(random_models.params(factory.parse(
      {**SINCOS, 'position': 'learned'}), (12, 16)))

  def fit(weights, initial):
    return adapt_lib.fit(weights, initial, grid=(3, 4), data={},
                          config=adapt_lib.InitConfig(new=()))[0]

  # The class token has none.
  np.testing.assert_array_equal(fit(sincos, learned)['positions'], (
      np.concatenate([
          np.zeros((1, 8)), positions_lib.sincos_positions((3, 4), 8)])))
  assert 'positions' not in fit(sincos, sincos.params)
  with pytest.raises(ValueError, match=(
      'positions: expected nothing, found .*: to start from these .* set '
      '--config.model.position=learned')):
    fit(sincos.with_params(learned), sincos.params)
  none = dataclasses.replace(sincos, config=factory.parse(
      {**SINCOS, 'position': 'none'}))
  with pytest.raises(ValueError, match='positions: expected .* found nothing'):
    fit(none, learned)
  own = sincos.with_params(learned)
  np.testing.assert_array_equal(
      fit(own, learned)['positions'], learned['positions'])
