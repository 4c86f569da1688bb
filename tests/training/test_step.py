"""One update has the gradient of the whole batch for any microbatches."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from tests import random_models
from vit_jax import objectives
from vit_jax import tree
from vit_jax.models import factory
from vit_jax.training import step as step_lib

RNG = np.random.default_rng(0)
BATCH, CLASSES = 8, 4
KEY = jax.random.key(3)
TX = optax.chain(optax.clip_by_global_norm(0.1),
                 optax.adamw(1e-2, weight_decay=0.5))


def batch(*, seed=0, mask=None, image=(8, 8, 3)):
  rng = np.random.default_rng(seed)
  return {
      'image': jnp.asarray(rng.normal(size=(BATCH, *image)), jnp.float32),
      'label': jnp.asarray(rng.integers(0, CLASSES, BATCH)),
      'mask': jnp.asarray(np.ones(BATCH) if mask is None else mask,
                          jnp.float32)}


class Linear:
  """The smallest objective: softmax regression, optionally with noise."""
  metrics = ('accuracy',)

  def __init__(self, noise=0.0):
    self.noise = noise

  def __call__(self, params, batch, key):
    x = batch['image'].reshape(batch['image'].shape[0], -1)
    x += self.noise * jax.random.normal(key, x.shape)
    logits = x @ params['kernel'] + params['bias']
    loss = -jnp.take_along_axis(
        jax.nn.log_softmax(logits), batch['label'][:, None], axis=1)[:, 0]
    hit = (logits.argmax(-1) == batch['label']).astype(jnp.float32)
    return loss, {'accuracy': hit}


LINEAR_PARAMS = {
    'kernel': jnp.asarray(RNG.normal(size=(192, CLASSES)), jnp.float32),
    'bias': jnp.zeros(CLASSES)}


def keep(batch, key):
  del key
  return batch


def build(loss, *, tx=TX, prepare=keep, **settings):
  return jax.jit(step_lib.build(
      loss=loss, tx=tx, prepare=prepare, key=KEY, **settings))


def new_state(loss=None, params=None, *, tx=TX, averaging=None):
  return step_lib.init_state(
      LINEAR_PARAMS if params is None else params, tx=tx,
      loss=loss or Linear(), averaging=bool(averaging))


def measured(state):
  return {name: float(value.compute()) for name, value in state.metrics.items()
          if name != 'non_finite'}


@pytest.fixture(scope='module')
def vit():
  model = factory.build(
      factory.parse({'width': 8, 'depth': 2, 'mlp_dim': 12, 'num_heads': 2,
                    'patch': 4}), num_classes=CLASSES)
  params = random_models.randomize(
      model, jax.ShapeDtypeStruct((1, 8, 8, 3), 'float32'), scale=0.3, seed=0)
  loss = objectives.parse({'label_smoothing': 0.1}).build(
      objectives.Context(model))
  return loss, params


MASKS = [None, [1, 1, 0, 1, 1, 0, 1, 0], [0, 0, 0, 0, 0, 1, 0, 0]]

# SGD, as Adam would hide a gradient of the wrong scale.
SGD = optax.chain(optax.clip_by_global_norm(0.5),
                  optax.add_decayed_weights(0.1), optax.sgd(0.1, momentum=0.9))


class Centred:
  """The smallest loss that compares examples: distances to their mean."""
  metrics = ('distance',)

  def embed(self, params, batch, key):
    rows = batch['image'].reshape(len(batch['image']), -1) @ params['kernel']
    return jnp.tanh(rows + params['bias'])

  def compare(self, embeddings, mask, key):
    weight = mask[:, None] / mask.sum()
    mean = (weight * embeddings).sum(axis=0)
    distance = jnp.square(embeddings - mean).sum(axis=1)
    return jax.random.normal(key) * distance + mean.sum(), {
        'distance': distance}

  def __call__(self, params, batch, key):
    return self.compare(self.embed(params, batch, key), batch['mask'], key)


@pytest.fixture(scope='module')
def steps(vit):
  losses = {'vit': vit[0], 'centred': Centred()}
  return {(name, parts): build(loss, tx=SGD, accumulation=parts)
          for name, loss in losses.items() for parts in (1, 2, 8)}


@pytest.mark.parametrize(('name', 'parts'), [
    ('vit', 2), pytest.param('vit', 8, marks=pytest.mark.slow),
    ('centred', 2)])
@pytest.mark.parametrize('mask', MASKS, ids=str)
def test_accumulation_equals_one_batch(vit, steps, name, parts, mask):
  start = (new_state(*vit, tx=SGD) if name == 'vit' else
           new_state(Centred(), tx=SGD))
  whole, whole_loss = steps[name, 1](start, batch(mask=mask))
  state, part_loss = steps[name, parts](start, batch(mask=mask))
  random_models.assert_close(part_loss, whole_loss)
  # Gradients of saturated units cancel: 1.6e-4 with jax 0.12.
  random_models.assert_close(state, whole, rtol=1e-3)
  assert whole.metrics['gradient_norm'].compute() > 0
  for metric in {'loss', 'distance'} & {*whole.metrics}:
    assert whole.metrics[metric].count == (8 if mask is None else sum(mask))


@pytest.mark.parametrize('parts', [1, 2])
def test_padding_does_not_change_the_step(vit, steps, parts):
  loss, params = vit
  mask = np.array([1, 1, 0, 1, 1, 0, 1, 0])
  clean, padded = batch(mask=mask), batch(mask=mask)
  rows = np.flatnonzero(mask == 0)
  # As wrong as a row can be: its loss is NaN, its image far out of range.
  padded['image'] = padded['image'].at[rows].set(1e6)
  padded['label'] = padded['label'].at[rows].set(-1)
  start = new_state(loss, params, tx=SGD)
  want, want_loss = steps['vit', parts](start, clean)
  have, have_loss = steps['vit', parts](start, padded)
  random_models.assert_close(have, want, rtol=1e-6)
  assert float(have_loss) == pytest.approx(float(want_loss), rel=1e-6)
  assert have.metrics['non_finite'].step == 0


def test_a_batch_of_padding_changes_nothing():
  tx = optax.sgd(1.0)
  state = new_state(tx=tx)
  after, _ = build(Linear(), tx=tx)(state, batch(mask=np.zeros(BATCH)))
  random_models.assert_close(after.params, state.params, rtol=0, atol=0)
  assert after.metrics['loss'].count == 0
  assert after.metrics['non_finite'].step == 0


def test_steps_equal_a_hand_written_loop():
  step = build(Linear())
  state = new_state()
  params, opt_state = LINEAR_PARAMS, TX.init(LINEAR_PARAMS)
  for i in range(3):
    data = batch(seed=i)

    def mean_loss(p, data=data):
      x = data['image'].reshape(BATCH, -1)
      log_p = jax.nn.log_softmax(x @ p['kernel'] + p['bias'])
      return -jnp.mean(log_p[jnp.arange(BATCH), data['label']])

    value, grads = jax.value_and_grad(mean_loss)(params)
    updates, opt_state = TX.update(grads, opt_state, params)
    params = optax.apply_updates(params, updates)
    state, loss = step(state, data)
    assert float(loss) == pytest.approx(float(value), rel=1e-5)
    for name, norm in (('gradient_norm', grads), ('update_norm', updates),
                       ('parameter_norm', params)):
      assert measured(state)[name] == pytest.approx(
          float(optax.global_norm(norm)), rel=1e-4)
  assert state.step == 3
  random_models.assert_close(state.params, params)
  random_models.assert_close(state.opt_state, opt_state)
  assert state.average is None


@pytest.mark.parametrize('averaging', [0.15, 0.9999])
def test_the_average_equals_a_hand_written_loop(averaging):
  step = build(Linear(), averaging=averaging)
  state = new_state(averaging=averaging)
  random_models.assert_close(state.average, state.params, rtol=0)
  seen = []
  for s in range(4):
    state, _ = step(state, batch(seed=s))
    seen.append(np.asarray(state.params['kernel'], np.float64))
    weights = averaging ** np.arange(s, -1, -1.0)
    want = np.tensordot(weights / weights.sum(), np.stack(seen), axes=1)
    np.testing.assert_allclose(state.average['kernel'], want, rtol=1e-4,
                               atol=1e-6)
  assert state.eval_params is state.average


def test_the_average_of_a_constant_parameter_is_exact():
  step = build(Linear(), tx=optax.sgd(0.0), averaging=0.99)
  state = new_state(tx=optax.sgd(0.0), averaging=0.99)
  for _ in range(40):
    state, _ = step(state, batch())
  jax.tree.map(np.testing.assert_array_equal, state.average, state.params)


@pytest.mark.parametrize('parts', [1, 2])
def test_randomness_depends_on_the_step_only(parts):
  # A learning rate of zero: only the key tells the steps apart.
  tx = optax.sgd(0.0)
  step = build(Linear(noise=1.0), tx=tx, accumulation=parts)

  def run():
    state, losses = new_state(tx=tx), []
    for _ in range(3):
      state, loss = step(state, batch())
      losses.append(float(loss))
    return losses

  losses = run()
  assert len(set(losses)) == 3
  assert run() == losses
  # A state that was restored at step 2 draws what step 2 draws.
  restored = dataclasses.replace(new_state(tx=tx), step=jnp.array(2, jnp.int32))
  assert float(step(restored, batch())[1]) == losses[2]


def test_microbatches_have_different_randomness():
  # Eight equal rows in eight parts: equal noise would give equal losses.
  data = jax.tree.map(lambda x: jnp.repeat(x[:1], BATCH, axis=0), batch())

  class Spread(Linear):
    def __call__(self, params, batch, key):
      loss, _ = super().__call__(params, batch, key)
      return loss, {'accuracy': loss ** 2}

  tx = optax.sgd(0.0)
  state, mean = build(Spread(noise=1.0), tx=tx, accumulation=8)(
      new_state(tx=tx), data)
  assert measured(state)['accuracy'] - float(mean) ** 2 > 1e-3


def test_prepare_receives_the_whole_batch_and_its_own_key():
  seen = []

  def prepare(data, key):
    seen.append(data['image'].shape)
    noise = jax.random.normal(key, ())
    return {**data, 'image': data['image'] * 0 + noise}

  class Sum(Linear):
    def __call__(self, params, batch, key):
      # The same draw as in `prepare` only if it has the same key.
      draw = jax.random.normal(key, ())
      image = batch['image'][:, 0, 0, 0]
      return image + 0 * params['bias'].sum(), {'accuracy': image - draw}

  tx = optax.sgd(0.0)
  state, loss = build(Sum(), tx=tx, prepare=prepare)(new_state(tx=tx), batch())
  assert abs(measured(state)['accuracy']) > 1e-3
  _, same = build(Sum(), tx=tx, prepare=prepare, accumulation=4)(
      new_state(tx=tx), batch())
  assert float(same) == pytest.approx(float(loss), rel=1e-5)
  assert set(seen) == {(BATCH, 8, 8, 3)}


def test_metrics_are_means_since_the_last_reset():
  step = build(Linear())
  state, first = step(new_state(), batch(mask=MASKS[1]))
  state, second = step(state, batch(seed=1))
  # By example, not by batch.
  assert state.metrics['loss'].count == 13
  assert measured(state)['loss'] == pytest.approx(
      float(5 * first + 8 * second) / 13, rel=1e-5)
  assert 0 <= measured(state)['accuracy'] <= 1
  state, third = step(dataclasses.replace(
      state, metrics=step_lib.empty_metrics(Linear(), state.params)), batch())
  assert measured(state)['loss'] == pytest.approx(float(third), rel=1e-5)


def test_frozen_parameters_have_no_backward_pass(vit):
  loss, params = vit
  head = tree.map_with_name(lambda name, _: name.startswith('head/'), params)
  tx = optax.sgd(1.0)
  state, data = new_state(loss, params, tx=tx), batch()
  flops, gradients = {}, {}
  for name, trainable in (('all', None), ('head', head)):
    compiled = build(
        loss, tx=tx, accumulation=2, trainable=trainable,
    ).lower(state, data).compile()
    flops[name] = compiled.cost_analysis()['flops']
    gradients[name] = jax.tree.map(
        jnp.subtract, params, compiled(state, data)[0].params)
  assert flops['head'] < 0.6 * flops['all']
  frozen = tree.map_with_name(
      lambda name, g: g if name.startswith('head/') else 0 * g,
      gradients['all'])
  random_models.assert_close(gradients['head'], frozen)
