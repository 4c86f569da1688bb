"""A replaced part of an experiment changes all that depends on it."""

import dataclasses
import json

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from tests import toy
import vit_jax
from vit_jax import losses
from vit_jax import objectives
from vit_jax import tree
from vit_jax.run import writer as writer_lib

CONFIG = {
    'total': {'steps': 3}, 'batch_size': 16, 'log': {'every': {'steps': 1}},
    'evals': {'test': {'name': 'objective', 'split': 'test[:16]'}}}
FOCUS = 2.0


class Focal(objectives.Objective):
  """Focal loss (arXiv 1708.02002): -(1 - p)^2 log p for the true class."""

  def __init__(self, context):
    self._context, self.metrics = context, {'confident': 'max'}

  def __call__(self, params, batch, key, *, train=True):
    logits = self._context.apply(
        params, batch['image'], key, train=train)['logits']
    loss = losses.softmax_cross_entropy(logits, batch['label'])
    p = jnp.exp(-loss)
    return (1 - p) ** FOCUS * loss, {'confident': (p > 0.5).astype('float32')}


@pytest.fixture(name='experiment', scope='module')
def _experiment():
  return toy.build(**CONFIG)


def with_model(experiment, **changes):
  model = experiment.model
  return dataclasses.replace(experiment, model=model.clone(
      config=dataclasses.replace(model.config, **changes)))


def step(experiment):
  """Returns the state after one step, and its loss."""
  batches = experiment.batches(start_step=0)
  state, loss = experiment.train_step(experiment.init_state(), next(batches))
  batches.close()
  return jax.device_get((state, loss))


@pytest.mark.slow  # Compiles steps.
def test_an_objective_is_trained_evaluated_and_saved(experiment, tmp_path):
  focal = dataclasses.replace(experiment, objective=Focal(experiment.context))
  (state, loss), (_, cross_entropy) = step(focal), step(experiment)
  assert 'confident' in state.metrics and 'accuracy' not in state.metrics
  # About (1 - 1/10)^2 of the cross-entropy of ten classes.
  np.testing.assert_allclose(loss / cross_entropy, 0.81, atol=0.05)
  summary = vit_jax.train(focal, tmp_path / 'focal')
  plain = vit_jax.train(experiment, tmp_path / 'plain')
  for name in ('train/loss', 'test/loss'):
    assert summary['metrics'][name] < 0.9 * plain['metrics'][name]
  assert {'train/confident', 'test/confident'} <= {*summary['metrics']}
  rows = writer_lib.read_rows(tmp_path / 'focal')
  np.testing.assert_allclose(rows[0]['train/loss'], loss, rtol=1e-5)
  params = [vit_jax.load(tmp_path / name, log=None).params
            for name in ('focal', 'plain')]
  assert not np.array_equal(*(x['patches']['kernel'] for x in params))


@pytest.mark.slow  # Trains.
def test_a_model_changes_shapes_evaluators_and_checkpoints(
    experiment, tmp_path):
  deeper = with_model(experiment, depth=2, width=12)
  assert deeper.config.model.depth == 2
  assert deeper.objective is not experiment.objective
  shapes = tree.flatten(deeper.abstract_state.params)
  assert shapes['patches/kernel'].shape[-1] == 12
  assert jax.tree.structure(deeper.shardings) == jax.tree.structure(
      deeper.abstract_state)
  assert jax.tree.structure(deeper.optimizer.trainable) == (
      jax.tree.structure(deeper.abstract_state.params))
  summary = vit_jax.train(deeper, tmp_path)
  config = json.loads((tmp_path / 'config.json').read_text())
  assert (config['model']['depth'], config['model']['width']) == (2, 12)
  assert vit_jax.load(tmp_path, log=None).config.depth == 2
  np.testing.assert_allclose(
      vit_jax.evaluate(tmp_path)['test/loss'],
      summary['metrics']['test/loss'], rtol=1e-5)


@pytest.mark.slow  # Compiles steps.
def test_prepare_optimizer_and_data_change_the_step(experiment):
  def darker(batch, key):
    batch = experiment.prepare(batch, key)
    return {**batch, 'image': batch['image'] / 2}

  sgd = experiment.optimizer._replace(tx=optax.sgd(0.1))
  fewer = toy.build(data={'split': 'train[:40]'}).dataset
  first = step(experiment)
  for part in ({'prepare': darker}, {'optimizer': sgd}, {'dataset': fewer}):
    changed = step(dataclasses.replace(experiment, **part))
    assert not np.array_equal(
        *(x.params['head']['dense']['kernel']
          for x, _ in (first, changed))), part
  changed = dataclasses.replace(experiment, optimizer=sgd)
  assert len(jax.tree.leaves(changed.abstract_state.opt_state)) < len(
      jax.tree.leaves(experiment.abstract_state.opt_state))
  assert dataclasses.replace(experiment, dataset=fewer).steps_per_epoch == 2.5


def test_the_length_of_training_changes_the_schedule():
  experiment = toy.build(
      total={'epochs': 1}, optimizer={'schedule': {'name': 'cosine'}})
  longer = dataclasses.replace(experiment, total_steps=1_000)
  rates = [float(x.optimizer.schedule(150)) for x in (experiment, longer)]
  assert rates[0] < 0.2 * rates[1]


def test_what_depends_on_nothing_that_is_replaced_stays(experiment):
  split = experiment.with_microbatches(4)
  for name in experiment.made:
    assert getattr(split, name) is getattr(experiment, name), name
  other = dataclasses.replace(experiment, objective=Focal(experiment.context))
  assert other.model is experiment.model
  assert other.optimizer is experiment.optimizer


def test_an_own_part_is_not_combined_with_another_one_than_it_was_made_for(
    experiment):
  focal = dataclasses.replace(experiment, objective=Focal(experiment.context))
  with pytest.raises(ValueError, match=(
      'objective was replaced before, for another model than .* in one call')):
    with_model(focal, depth=2)
  deeper = with_model(experiment, depth=2)
  both = dataclasses.replace(
      focal, model=deeper.model, objective=Focal(deeper.context))
  assert {leaf.shape[0] for leaf in jax.tree.leaves(
      both.abstract_state.params['encoder']['layers'])} == {2}


@pytest.mark.parametrize(('change', 'words'), [
    (lambda experiment: dataclasses.replace(experiment, model=nn.Dense(10)),
     'model is Dense of another kind or size .*model.clone'),
    (lambda experiment: dataclasses.replace(
        experiment, model=experiment.model.clone(grid=(2, 2))),
     'model is ViT of another kind or size .*model.clone'),
    (lambda experiment: dataclasses.replace(
        experiment, dataset=dataclasses.replace(
            experiment.dataset, num_classes=3)),
     'dataset has 3 classes, but the model'),
    (lambda experiment: experiment.init_state(
        with_model(experiment, depth=2).random_params()),
     r'(?s)those of the experiment:\n  encoder/\S+: expected \(1, .*, found '
     r'\(2, .*\n  and 9 more\n.* set init.checkpoint')])
def test_parts_that_do_not_fit_the_others_are_errors(experiment, change, words):
  with pytest.raises(ValueError, match=words):
    change(experiment)


@pytest.mark.slow  # Trains.
def test_a_step_without_norms_logs_none(experiment, tmp_path):
  def still(state, batch):
    del batch
    return dataclasses.replace(state, step=state.step + 1), jnp.zeros(())

  vit_jax.train(experiment.with_step(still), tmp_path)
  row = writer_lib.read_rows(tmp_path)[0]
  assert 'train/loss' in row and 'train/gradient_norm' not in row
