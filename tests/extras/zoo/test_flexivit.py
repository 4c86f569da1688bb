"""One model for several patch sizes (FlexiViT)."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from tests import random_models
from tests import toy
from tests.experiment import test_steps
import vit_jax
from vit_jax import objectives
from vit_jax import tree
from vit_jax.checkpoints import paths
from vit_jax.extras.zoo import flexivit
from vit_jax.extras.zoo import interpolation
from vit_jax.models import factory
from vit_jax.models import positions as positions_lib
from vit_jax.training import step as step_lib

SIZES = (2, 8)  # Of models with patches of 4 pixels.
OBJECTIVE = {'name': 'flexivit', 'patch_sizes': SIZES}


def logits(model, flat, images):
  params = tree.unflatten(
      {name: jnp.asarray(array) for name, array in flat.items()})
  return jax.jit(model.apply)({'params': params}, images)['logits']


@pytest.mark.parametrize('settings', [
    {'registers': 2, 'position_cls': False},
    {}, pytest.param({'position': 'sincos'}, marks=pytest.mark.slow),
    {'rotary': {'reference': 4}, 'position': 'none', 'num_heads': 3}], ids=str)
def test_another_patch_size_computes_what_resized_parameters_do(
    settings, patch=16):
  config = random_models.config_of(**settings)
  flat = random_models.params(config, (48, 32))
  images = jnp.asarray(np.random.default_rng(1).normal(
      size=(2, 48, 32, 3)), 'float32')
  flexible = flexivit.with_patch(factory.build(config, num_classes=5), patch)
  shapes = tree.flatten(random_models.shapes_of(flexible, images))
  assert {n: s.shape for n, s in shapes.items()} == {
      n: array.shape for n, array in flat.items()}
  found = logits(flexible, flat, images)
  resized = {
      **flat, 'patches/kernel': interpolation.resize_filters(
          flat['patches/kernel'], (patch, patch))}
  if 'positions' in flat:
    resized['positions'] = positions_lib.resize_positions(
        flat['positions'], old_grid=(6, 4),
        new_grid=(48 // patch, 32 // patch), method='bilinear')
  fixed = factory.build(
      random_models.config_of(**settings, patch=patch), num_classes=5)
  np.testing.assert_allclose(
      found, logits(fixed, resized, images), rtol=1e-4, atol=1e-4)


MASKS = [None, [1, 1, 0, 1, 1, 0, 1, 0], [0, 0, 0, 0, 0, 1, 0, 0]]
PARTS = [1, 2]  # Microbatches.
TX = optax.sgd(1.0)


def batch(mask=None):
  rng = np.random.default_rng(0)
  return {'image': jnp.asarray(rng.uniform(size=(8, 8, 8, 3)), 'float32'),
          'label': jnp.asarray(rng.integers(0, 4, 8)),
          'mask': jnp.asarray(np.ones(8) if mask is None else mask, 'float32')}


@functools.cache
def vit(**settings):
  """Returns a model for images of 8x8 pixels, and parameters."""
  model = factory.build(factory.parse(
      {'width': 8, 'depth': 2, 'mlp_dim': 12, 'num_heads': 2, 'patch': 4,
       **settings}), num_classes=4)
  return model, jax.tree.map(jnp.asarray, random_models.randomize(
      model, jax.ShapeDtypeStruct((1, 8, 8, 3), 'float32'), scale=0.3, seed=0))


def loss_of(model, section=None):
  return objectives.parse(section or OBJECTIVE).build(objectives.Context(model))


@functools.cache
def step_of(loss, parts):
  """Returns the jitted step of a loss for prepared batches."""
  return jax.jit(step_lib.build(
      loss=loss, tx=TX, prepare=lambda batch, key: batch,
      key=jax.random.key(3), accumulation=parts))


def drawn(index, **changes):
  """Returns a batch for which the size with an index was drawn."""
  images = batch(**changes)
  name, = loss_of(vit()[0]).draw(images['image'], jax.random.key(0))
  return {**images, name: jnp.full(8, index)}


@functools.cache
def steps(parts):
  """Returns the steps of a FlexiViT, and of each of its sizes alone."""
  model, _ = vit(dropout=0.1)
  return step_of(loss_of(model), parts), [
      step_of(loss_of(flexivit.with_patch(model, size), {'loss': 'softmax'}),
              parts) for size in SIZES]


def start():
  model, params = vit()
  return step_lib.init_state(
      params, tx=TX, loss=loss_of(model), averaging=False)


@pytest.mark.slow  # Compiles three steps each.
@pytest.mark.parametrize('parts', PARTS, ids=str)
@pytest.mark.parametrize('mask', MASKS, ids=str)
def test_a_step_is_that_of_the_drawn_size_alone(parts, mask):
  flexible, alone = steps(parts)
  for index in range(len(SIZES)):
    found, loss = flexible(start(), drawn(index, mask=mask))
    expected, other = alone[index](start(), batch(mask))
    np.testing.assert_allclose(loss, other, rtol=1e-6)
    random_models.assert_close(found.params, expected.params, rtol=1e-5)
    np.testing.assert_allclose(*(
        state.metrics['accuracy'].compute() for state in (found, expected)))


def cost(step, inputs):
  compiled = step.lower(start(), inputs).compile()
  return (compiled.cost_analysis()['flops'],
          compiled.memory_analysis().temp_size_in_bytes)


@pytest.mark.slow
@pytest.mark.parametrize('parts', PARTS, ids=str)
def test_a_step_costs_what_that_of_the_smallest_patches_does(parts):
  flexible, (smallest, _) = steps(parts)
  for found, expected in zip(cost(flexible, drawn(0)), cost(smallest, batch())):
    assert found < 1.1 * expected


def test_one_of_the_sizes_is_drawn_for_all_images():
  loss, found = loss_of(vit()[0]), set()
  for seed in range(10):
    index, = loss.draw(batch()['image'], jax.random.key(seed)).values()
    assert index.shape == (8,)
    found.add(tuple(np.unique(index)))
  assert found == {(0,), (1,)}


def test_evaluation_is_at_the_patch_size_of_the_model():
  model, params = vit()
  call = lambda loss, inputs, **options: jax.jit(functools.partial(
      loss, **options))(params, inputs, jax.random.key(0))
  expected = call(loss_of(model, {'loss': 'softmax'}), batch(), train=False)
  for inputs, train in ((drawn(0), False), (batch(), True)):
    found = call(loss_of(model), inputs, train=train)
    jax.tree.map(np.testing.assert_array_equal, found, expected)


@pytest.mark.slow
def test_devices_and_microbatches_do_not_change_the_steps():
  test_steps.test_devices_and_microbatches_do_not_change_the_steps(
      {**OBJECTIVE, 'patch_sizes': (1, 4)}, accumulation=2)


@pytest.mark.slow  # Trains.
def test_runs_of_earlier_versions_predict_evaluate_and_resume(tmp_path):
  config = toy.config(evals={'test': {'split': 'test[:8]'}})
  before = vit_jax.train(vit_jax.build(config), tmp_path)
  images = list(np.zeros((2, 8, 8, 3), np.uint8))
  expected = vit_jax.load(tmp_path, log=None).predict(images)
  step, = (tmp_path / paths.FOLDER / paths.LATEST).iterdir()
  random_models.edit_config(step, lambda config: config['model'].update(
      patch_sizes=[2, 4]))
  assert vit_jax.load(tmp_path, log=None).predict(images) == expected
  assert vit_jax.evaluate(tmp_path)['test/loss'] == pytest.approx(
      before['metrics']['test/loss'])
  summary = vit_jax.train(vit_jax.build({
      **config, 'total': {'steps': 4}, 'objective': OBJECTIVE}), tmp_path)
  assert summary['steps'] == 4
