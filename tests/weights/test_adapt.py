"""Parameters of one model initialise another, and each is reported."""

import dataclasses
import re

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

  adapted, rows = adapt_lib.adapt(
      source, target, config=config, resize=resize)
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
  assert tree.differences(target, adapted) == []
  np.testing.assert_array_equal(adapted['cls'], source['cls'])
  np.testing.assert_array_equal(
      adapted['encoder']['layers']['mlp']['kernel'],
      source['encoder']['layers']['mlp']['kernel'])
  np.testing.assert_array_equal(
      adapted['positions'], positions_lib.resize_positions(
          source['positions'], old_grid=(3, 3), new_grid=(4, 5)))


def test_the_head_is_new_unless_configured_otherwise():
  source = params()
  adapted, rows = adapt(source, initial())
  assert not adapted['head']['dense']['kernel'].any()
  assert rows['head/dense/kernel'].status == 'new'
  adapted, rows = adapt(source, initial(), new=[])
  assert {row.status for row in rows.values()} == {'loaded'}
  np.testing.assert_array_equal(
      adapted['head']['dense']['kernel'], source['head']['dense']['kernel'])


def broken(change):
  source, target = params(), initial()
  change(source, target)
  return source, target


@pytest.mark.parametrize('change, line', [
    (lambda s, t: s.pop('cls'), 'cls: expected (1, 6), found nothing'),
    (lambda s, t: s.update(extra=np.zeros((2, 3))),
     'extra: expected nothing, found (2, 3)'),
    (lambda s, t: s.update(cls=np.zeros((1, 7), np.float32)),
     'cls: expected (1, 6), found (1, 7)'),
    (lambda s, t: s.update(positions=np.zeros((10, 7), np.float32)),
     'positions: expected (10, 6), found (10, 7)'),
], ids=['missing', 'unexpected', 'shape', 'width of positions'])
def test_a_difference_is_an_error(change, line):
  with pytest.raises(ValueError, match=re.escape(
      f'The checkpoint does not fit the model:\n  {line}\nCorrect the '
      'section model, or list')):
    adapt(*broken(change))


def test_differences_can_be_allowed_by_name():
  def change(source, target):
    del source['cls']
    source['a'] = {'b': np.zeros(1)}
  source, target = broken(change)
  adapted, rows = adapt(
      source, target, new=['head/.*', 'cls'], ignored=['a/.*'])
  status = {name: row.status for name, row in rows.items()}
  assert status['cls'] == 'new'
  assert status['a/b'] == 'ignored'
  np.testing.assert_array_equal(adapted['cls'], target['cls'])


def test_positions_of_a_model_with_another_prefix_are_an_error():
  # From a class token to average pooling: the grid is the same, the tokens
  # before it are not, and no resizing makes them so.
  with pytest.raises(ValueError, match=re.escape(
      'positions: expected (9, 6), found (10, 6)')):
    adapt(params(), initial(cls=False), ignored=['cls', 'head/.*'])
  with pytest.raises(ValueError, match=re.escape(
      'positions: expected (16, 6), found (10, 6)')):
    adapt(params(), initial(cls=False, grid=(4, 4)), new_grid=(4, 4),
          ignored=['cls', 'head/.*'])


def test_the_report_names_parameters_that_are_not_loaded_and_the_counts():
  _, rows = adapt(params(representation=True),
                  initial(grid=(2, 2), classes=3), new_grid=(2, 2))
  lines = adapt_lib.report(list(rows.values())).splitlines()
  assert [line.split()[:2] for line in lines[:-1]] == [
      ['new:', 'head/dense/bias'], ['new:', 'head/dense/kernel'],
      ['resized:', 'positions'], ['ignored:', 'representation/dense/kernel']]
  assert lines[2].endswith('(10, 6) -> (5, 6)')
  assert lines[-1].strip() == '2 loaded, 1 resized, 2 new, 1 ignored'


def test_checkpoint_and_stage_exclude_each_other():
  with pytest.raises(ValueError, match='from a checkpoint or from a stage, not'
                     " from both: got checkpoint='a' and stage='b'"):
    adapt_lib.InitConfig(checkpoint='a', stage='b')


def test_a_rule_of_new_that_matches_nothing_is_an_error():
  with pytest.raises(ValueError, match=r"init\.new: the rule 'positons'"):
    adapt(params(), initial(), new=['head/.*', 'positons'])


KINDS = [
    {}, {'position': '2d', 'position_at': 'layers'},
    {'position': 'learned', 'position_at': 'shared'},
    {'position': '2d', 'position_at': 'layers', 'axial': True,
     'pooling': 'average'},
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
  none = dataclasses.replace(sincos, config=factory.parse(
      {**SINCOS, 'position': 'none'}))
  with pytest.raises(ValueError, match='positions: expected .* found nothing'):
    fit(none, learned)
  own = sincos.with_params(learned)
  np.testing.assert_array_equal(
      fit(own, learned)['positions'], learned['positions'])


def test_positions_that_a_model_does_not_learn_are_an_error_with_the_remedy():
  target = initial()
  del target['positions']
  with pytest.raises(ValueError, match=(
      'positions: expected nothing, found .*: to start from these .* set '
      '--config.model.position=learned')):
    adapt(params(), target)


def test_a_kept_regression_head_predicts_the_same_labels_on_another_scale():
  kernel, bias = np.ones((3, 2), np.float32), np.float32([1, 2])
  scale = {'target_mean': (1000.0, -1.0), 'target_std': (200.0, 0.5)}
  other = {'target_mean': (900.0, 1.0), 'target_std': (100.0, 2.0)}

  def labels(params, scale):
    head = params['head']['dense']
    outputs = np.float32([[1, 2, 3]]) @ head['kernel'] + head['bias']
    return outputs * scale['target_std'] + scale['target_mean']

  params = {'head': {'dense': {'kernel': kernel, 'bias': bias}}}
  expected = labels(params, scale)
  for to in (other, {}):
    np.testing.assert_allclose(labels(
        adapt_lib.rescale_head(params, of=scale, to=to),
        to or {'target_mean': 0, 'target_std': 1}), expected, rtol=1e-6)
  assert adapt_lib.rescale_head(params, of=scale, to=scale) is params
