"""Optimizers against loops written out in NumPy, with rules over paths."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from vit_jax import optim
from vit_jax import tree
from vit_jax.optim import config

TOTAL = 10
NAMES = ('adam', 'sgd', 'adafactor', 'muon')


def to_steps(duration):
  return duration.to_steps(batch_size=1, num_examples=1, total_steps=TOTAL)


def random(rng, shapes):
  return jax.tree.map(
      lambda shape: rng.normal(size=shape).astype(np.float32), shapes,
      is_leaf=lambda node: isinstance(node, tuple))


SHAPES = {
    'body': {'kernel': (3, 4), 'bias': (4,)},
    'head': {'kernel': (4, 2), 'bias': (2,)},
}
PARAMS = random(np.random.default_rng(0), SHAPES)
GRADS = [random(np.random.default_rng(1 + step), SHAPES)
         for step in range(TOTAL)]


def parse(name, **section):
  defaults = {'name': name, 'learning_rate': 0.1,
              'schedule': {'name': 'linear', 'warmup': {'steps': 3}}}
  if name == 'muon':
    defaults['matrices'] = '.*kernel'
  return optim.parse(defaults | section)


def build(name, params=PARAMS, **section):
  return optim.build(
      parse(name, **section), params, total_steps=TOTAL, to_steps=to_steps)


def run(optimizer, params=PARAMS, grads=GRADS):
  """Returns the parameters by name after one update for each of `grads`."""
  update = jax.jit(optimizer.tx.update)
  state = optimizer.tx.init(params)
  for grad in grads:
    updates, state = update(grad, state, params)
    params = optax.apply_updates(params, updates)
  return {k: np.asarray(v) for k, v in tree.flatten(params).items()}


def rate(step):
  """The default schedule above."""
  return 0.1 * (step / 3 if step < 3 else 1 - (step - 3) / 7)


# The optimizers' own formulas, a parameter at a time, in float64.


class NumpyAdam:

  def __init__(self, beta1=0.9, beta2=0.999, epsilon=1e-8):
    self.beta1, self.beta2, self.epsilon = beta1, beta2, epsilon
    self.m = self.v = 0.0

  def __call__(self, g, step):
    self.m = self.beta1 * self.m + (1 - self.beta1) * g
    self.v = self.beta2 * self.v + (1 - self.beta2) * g ** 2
    m = self.m / (1 - self.beta1 ** (step + 1))
    v = self.v / (1 - self.beta2 ** (step + 1))
    return m / (np.sqrt(v) + self.epsilon)


class NumpySgd:

  def __init__(self, momentum=0.9, nesterov=False):
    self.momentum, self.nesterov = momentum, nesterov
    self.m = 0.0

  def __call__(self, g, step):
    self.m = self.momentum * self.m + g
    return g + self.momentum * self.m if self.nesterov else self.m


class NumpyAdafactor:
  """Of a matrix (or a stack of matrices) if factored, else of anything."""

  def __init__(self, factored, cap=0.999, momentum=0.9, clip_rms=None):
    self.factored, self.cap, self.momentum = factored, cap, momentum
    self.clip_rms = clip_rms
    self.row = self.col = self.whole = self.m = 0.0

  def __call__(self, g, step):
    beta2 = min(self.cap, 1 - (step + 1.0) ** -0.8)
    blend = lambda old, new: beta2 * old + (1 - beta2) * new
    square = g ** 2 + 1e-30
    if self.factored:
      self.row = blend(self.row, square.mean(-1))
      self.col = blend(self.col, square.mean(-2))
      second = (self.row[..., :, None] * self.col[..., None, :]
                / self.row.mean(-1)[..., None, None])
    else:
      second = self.whole = blend(self.whole, square)
    u = g / np.sqrt(second)
    if self.clip_rms:
      u = u / max(1.0, np.sqrt((u ** 2).mean()) / self.clip_rms)
    self.m = self.momentum * self.m + (1 - self.momentum) * u
    return self.m


class NumpyMuon:
  """Of a matrix, or a stack of them, [..., rows, columns]."""

  def __init__(self, momentum=0.95, rms=0.2):
    self.momentum, self.rms = momentum, rms
    self.m = 0.0

  def __call__(self, g, step):
    self.m = self.momentum * self.m + (1 - self.momentum) * g
    ahead = (
        self.momentum * self.m / (1 - self.momentum ** (step + 2))
        + (1 - self.momentum) * g / (1 - self.momentum ** (step + 1)))
    x = ahead / np.linalg.norm(ahead, axis=(-2, -1), keepdims=True)
    for _ in range(5):
      square = x @ np.swapaxes(x, -2, -1)
      x = (3.4445 * x - 4.7750 * square @ x + 2.0315 * square @ square @ x)
    return self.rms * np.sqrt(max(x.shape[-2:])) * x


def numpy_run(
    make, *, decay=None, multiplier=None, frozen=(), clip=None, rate=rate,
    params=PARAMS, grads=GRADS):
  """The update of the module's docstring, written out."""
  decay, multiplier = decay or {}, multiplier or {}
  params = {k: v.astype(np.float64) for k, v in tree.flatten(params).items()}
  rules = {name: make() for name in params}
  for step, grad in enumerate(grads):
    grad = {k: v.astype(np.float64) for k, v in tree.flatten(grad).items()
            if k not in frozen}
    if clip is not None:
      norm = np.sqrt(sum((g ** 2).sum() for g in grad.values()))
      grad = {k: g * min(1.0, clip / norm) for k, g in grad.items()}
    for name, g in grad.items():
      u = rules[name](g, step) + decay.get(name, 0.0) * params[name]
      params[name] = params[name] - (
          rate(step) * multiplier.get(name, 1.0) * u)
  return params


def check_close(got, want, rtol=1e-4, atol=1e-6):
  assert got.keys() == want.keys()
  for name in want:
    np.testing.assert_allclose(
        got[name], want[name], rtol=rtol, atol=atol, err_msg=name)


def test_adam_follows_the_formula():
  check_close(run(build('adam')), numpy_run(NumpyAdam))
  check_close(
      run(build('adam', beta1=0.5, beta2=0.8, epsilon=0.1)),
      numpy_run(lambda: NumpyAdam(0.5, 0.8, 0.1)))


@pytest.mark.parametrize('momentum, nesterov', [
    (0.9, False), (0.9, True), (0.0, False)])
def test_sgd_follows_the_formula(momentum, nesterov):
  check_close(
      run(build('sgd', momentum=momentum, nesterov=nesterov)),
      numpy_run(lambda: NumpySgd(momentum, nesterov)))


@pytest.mark.parametrize('section', [
    {}, {'clip_rms': 0.5}, {'beta2_cap': 0.6}, {'momentum': 0.0}])
def test_adafactor_follows_the_formula(section):
  shapes = {'kernel': (3, 32, 40), 'bias': (32, 40)}
  params = random(np.random.default_rng(0), shapes)
  grads = [random(np.random.default_rng(i), shapes) for i in range(1, 6)]
  optimizer = build('adafactor', params, momentum_dtype='float32', **section)
  keywords = {'cap' if k == 'beta2_cap' else k: v for k, v in section.items()}
  for name in shapes:
    want = numpy_run(
        lambda: NumpyAdafactor(name == 'kernel', **keywords),  # noqa: B023
        params={name: params[name]}, grads=[{name: g[name]} for g in grads])
    np.testing.assert_allclose(
        run(optimizer, params, grads)[name], want[name], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize('section', [{}, {'momentum': 0.5, 'rms': 1.0}])
def test_muon_follows_the_formula_and_leaves_the_rest_to_adam(section):
  got = run(build('muon', **section))
  check_close(
      {key: got[key] for key in got if key.endswith('bias')},
      {key: value for key, value in numpy_run(NumpyAdam).items()
       if key.endswith('bias')})
  want = {}
  for part in SHAPES:
    want |= numpy_run(
        lambda: NumpyMuon(**section),
        params={part: {'kernel': PARAMS[part]['kernel']}},
        grads=[{part: {'kernel': grad[part]['kernel']}} for grad in GRADS])
  check_close({key: got[key] for key in want}, want, rtol=1e-3, atol=1e-4)


def test_muon_takes_the_matrices_of_the_layers_apart():
  shapes = {'encoder': {'layers': {
      'qkv_kernel': (2, 6, 3, 2, 4),  # layers, width, q k v, heads, head_dim
      'out': {'kernel': (2, 2, 4, 6)},  # layers, heads, head_dim, width
      'hidden': {'kernel': (2, 6, 9)}}}, 'head': {'kernel': (6, 3)}}
  params = random(np.random.default_rng(0), shapes)
  grads = [random(np.random.default_rng(i), shapes) for i in range(1, 4)]
  got = run(build('muon', params, matrices='encoder/layers/.*kernel'),
            params, grads)
  as_matrices = {
      'encoder/layers/qkv_kernel': lambda a: np.moveaxis(
          a.reshape(2, 6, 3, 8), 2, 1),
      'encoder/layers/out/kernel': lambda a: a.reshape(2, 8, 6),
      'encoder/layers/hidden/kernel': lambda a: a}
  for name, matrices in as_matrices.items():
    want = numpy_run(
        NumpyMuon, params={'it': matrices(tree.flatten(params)[name])},
        grads=[{'it': matrices(tree.flatten(grad)[name])} for grad in grads])
    np.testing.assert_allclose(
        matrices(got[name]), want['it'], rtol=1e-3, atol=1e-4, err_msg=name)
  # By default neither the head nor what is no kernel.
  adam = numpy_run(NumpyAdam, params={'it': params['head']['kernel']},
                   grads=[{'it': grad['head']['kernel']} for grad in grads])
  np.testing.assert_allclose(
      got['head/kernel'], adam['it'], rtol=1e-4, atol=1e-6)
  default = optim.parse({'name': 'muon', 'learning_rate': 0.1,
                         'schedule': {'name': 'constant'}})
  assert default.matrices == 'encoder/layers/.*kernel'


def test_muon_makes_every_direction_of_an_update_about_as_long():
  params = {'kernel': np.zeros((32, 48), np.float32)}
  grads = random(np.random.default_rng(0), {'kernel': (32, 48)})
  grads['kernel'] *= np.logspace(0, -1, 48, dtype=np.float32)
  tx = build('muon', params, schedule={'name': 'constant'}).tx
  updates, _ = tx.update(grads, tx.init(params), params)
  lengths = np.linalg.svd(updates['kernel'], compute_uv=False)
  unit = 0.1 * 0.2 * 48 ** 0.5  # Learning rate, rms, and the longer side.
  assert 0.6 * unit < lengths.min() and lengths.max() < 1.3 * unit
  given = np.linalg.svd(grads['kernel'], compute_uv=False)
  assert given.max() / given.min() > 4


def test_weight_decay_is_decoupled_and_multiplied_by_the_learning_rate():
  kernels = {'body/kernel': 0.5, 'head/kernel': 0.5}
  check_close(run(build('adam', weight_decay=0.5)),
              numpy_run(NumpyAdam, decay=kernels))
  check_close(run(build('sgd', weight_decay=0.5)),
              numpy_run(NumpySgd, decay=kernels))


def test_weight_decay_alone_shrinks_by_one_minus_rate_times_decay():
  # What 0.1 means: at learning rate 0.1 a kernel loses one percent a step.
  zeros = [jax.tree.map(np.zeros_like, PARAMS)] * 2
  for name in NAMES:
    got = run(build(name, weight_decay=0.1, schedule={'name': 'constant'}),
              grads=zeros)
    np.testing.assert_allclose(
        got['body/kernel'], 0.99 ** 2 * PARAMS['body']['kernel'], rtol=1e-6)
    np.testing.assert_array_equal(got['body/bias'], PARAMS['body']['bias'])


def test_weight_decay_has_a_multiplier_by_path():
  got = run(build(
      'adam', weight_decay=0.1,
      weight_decay_rules=[['head/kernel', 10.0], ['.*kernel', 1.0],
                          ['body/bias', 0.5]]))
  check_close(got, numpy_run(NumpyAdam, decay={
      'head/kernel': 1.0, 'body/kernel': 0.1, 'body/bias': 0.05}))


def test_learning_rate_has_a_multiplier_by_path_that_decay_shares():
  got = run(build('adam', weight_decay=0.3,
                  learning_rate_rules=[['head/.*', 10.0], ['.*bias', 0.5]]))
  check_close(got, numpy_run(
      NumpyAdam, decay={'body/kernel': 0.3, 'head/kernel': 0.3},
      multiplier={'head/kernel': 10.0, 'head/bias': 10.0, 'body/bias': 0.5}))


@pytest.mark.parametrize('clip', [0.5, 3.0, 1e6])
def test_gradients_are_clipped_to_their_global_norm(clip):
  check_close(run(build('sgd', clip_norm=clip)),
              numpy_run(NumpySgd, clip=clip))


@pytest.mark.parametrize('name', NAMES)
def test_frozen_parameters_do_not_change_whatever_their_gradient(name):
  frozen = ['body/.*', 'head/bias']
  grads = jax.tree.map(np.copy, GRADS)
  for grad in grads:
    grad['body']['kernel'][:] = np.nan
    grad['body']['bias'][:] = np.inf
  got = run(build(name, weight_decay=0.1, clip_norm=1.0, frozen=frozen,
                  learning_rate_rules=[['.*', 2.0]]), grads=grads)
  for key in ('body/kernel', 'body/bias', 'head/bias'):
    np.testing.assert_array_equal(got[key], tree.flatten(PARAMS)[key])
  assert np.isfinite(got['head/kernel']).all()
  assert (got['head/kernel'] != PARAMS['head']['kernel']).all()


def test_frozen_parameters_are_not_counted_in_the_clipped_norm():
  frozen = ('body/kernel', 'body/bias')
  got = run(build('sgd', frozen=frozen, clip_norm=0.5, weight_decay=0.2,
                  learning_rate_rules=[['head/bias', 3.0]]))
  check_close(got, numpy_run(
      NumpySgd, frozen=frozen, clip=0.5, decay={'head/kernel': 0.2},
      multiplier={'head/bias': 3.0}))


@pytest.mark.parametrize('name', NAMES)
def test_frozen_parameters_have_no_state(name):
  optimizer = build(name, frozen=['body/.*'])
  names = tree.flatten(optimizer.tx.init(PARAMS))
  assert not [n for n in names if 'body' in n]
  assert [n for n in names if n.endswith('head/kernel')]
  assert tree.flatten(optimizer.trainable) == {
      'body/bias': False, 'body/kernel': False,
      'head/bias': True, 'head/kernel': True}
  assert all(jax.tree.leaves(build(name).trainable))


# The state.


def state_names(name, **section):
  return tree.flatten(
      jax.eval_shape(build(name, **section).tx.init, PARAMS))


def test_state_is_named_after_optimizer_moment_and_parameter():
  moments = [f'adam/{moment}/{part}/{leaf}' for moment in ('mu', 'nu')
             for part in ('body', 'head') for leaf in ('bias', 'kernel')]
  assert list(state_names('adam')) == [
      'adam/count', *moments, 'learning_rate/count']
  assert 'sgd/trace/head/kernel' in state_names('sgd')
  assert 'adafactor/momentum/ema/head/kernel' in state_names('adafactor')


@pytest.mark.parametrize('name', NAMES)
@pytest.mark.parametrize('frozen', [(), ('body/bias',)])
def test_state_that_mirrors_a_parameter_ends_with_its_path(name, frozen):
  names = state_names(name, frozen=frozen, weight_decay=0.1, clip_norm=1.0)
  params = tree.flatten(PARAMS)
  for key, leaf in names.items():
    if key.endswith('/count'):
      assert leaf.shape == () and leaf.dtype == jnp.int32
      continue
    if key.endswith('/ns_coeffs'):  # Muon's polynomial.
      assert leaf.shape == (3,)
      continue
    owners = [p for p in params if key.endswith(f'/{p}')]
    assert len(owners) == 1, key
    if name != 'adafactor' or '/ema/' in key:
      assert leaf.shape == params[owners[0]].shape


def test_state_keeps_its_names_when_the_chain_grows():
  assert list(state_names('adam')) == list(state_names(
      'adam', weight_decay=0.1, clip_norm=1.0,
      learning_rate_rules=[['head/.*', 2.0]]))


@pytest.mark.parametrize('name', ['adam', 'sgd'])
@pytest.mark.parametrize('dtype', ['float32', 'bfloat16'])
def test_momentum_alone_has_the_chosen_type(name, dtype):
  for key, leaf in state_names(name, momentum_dtype=dtype).items():
    if '/mu/' in key or '/trace/' in key:
      assert leaf.dtype == jnp.dtype(dtype)
    elif '/nu/' in key:
      assert leaf.dtype == jnp.float32


def test_adafactor_keeps_a_row_and_a_column_and_a_momentum_of_half_size():
  params = {'layers': {'kernel': np.zeros((40, 64, 48), np.float32),
                       'bias': np.zeros((40, 48), np.float32)}}
  shapes = jax.eval_shape(build('adafactor', params).tx.init, params)
  state = {key: (leaf.shape, str(leaf.dtype)) for key, leaf in
           tree.flatten(shapes).items()}
  second = [shape for shape, dtype in state.values() if dtype == 'float32']
  assert sorted(second) == sorted([
      (40, 64), (40, 48), (1,),  # Kernel: by layer, never across layers.
      (1,), (1,), (40, 48)])  # Bias: whole, though it has two long axes.
  assert state['adafactor/momentum/ema/layers/kernel'] == (
      (40, 64, 48), 'bfloat16')


@pytest.mark.parametrize('name', NAMES)
def test_bfloat16_momentum_stays_near_the_float32_one(name):
  full = run(build(name, momentum_dtype='float32'))
  half = run(build(name, momentum_dtype='bfloat16'))
  moved = full['body/kernel'] - PARAMS['body']['kernel']
  error = half['body/kernel'] - full['body/kernel']
  assert 0 < np.abs(error).max() < 0.02 * np.abs(moved).max()


@pytest.mark.parametrize('name', NAMES)
def test_nothing_is_allocated_before_init(name):
  # A parameter of 4 TB.
  huge = {'kernel': jax.ShapeDtypeStruct((10 ** 6, 10 ** 6), jnp.float32)}
  optimizer = build(name, huge, weight_decay=0.1, clip_norm=1.0,
                    learning_rate_rules=[['.*', 2.0]])
  state = jax.eval_shape(optimizer.tx.init, huge)
  updates, after = jax.eval_shape(optimizer.tx.update, huge, state, huge)
  assert updates == huge
  assert after == state


@pytest.mark.parametrize('name', NAMES)
@pytest.mark.parametrize('frozen', [(), ('body/bias',)])
def test_compiled_steps_with_donated_state_equal_plain_ones(name, frozen):
  optimizer = build(
      name, weight_decay=0.1, clip_norm=1.0, frozen=frozen,
      learning_rate_rules=[['head/.*', 2.0]])

  def step(params, state, grads):
    updates, state = optimizer.tx.update(grads, state, params)
    return optax.apply_updates(params, updates), state

  compiled = jax.jit(step, donate_argnums=(0, 1))
  params, donated = (jax.tree.map(jnp.array, PARAMS) for _ in range(2))
  state, kept = optimizer.tx.init(params), jax.jit(optimizer.tx.init)(params)
  assert jax.tree.structure(state) == jax.tree.structure(kept)
  for grads in GRADS[:4]:
    params, state = step(params, state, grads)
    donated, kept = compiled(donated, kept, grads)
  # A bfloat16 momentum is rounded where the compiler likes.
  tolerance = 1e-2 if name == 'adafactor' else 1e-4
  check_close(tree.flatten(donated), tree.flatten(params), rtol=tolerance,
              atol=0.1 * tolerance)
  assert jax.tree.structure(kept) == jax.tree.structure(state)


@pytest.mark.parametrize('name', NAMES)
def test_run_goes_on_from_its_state_alone(name):
  # Where the schedule stands is part of the state, not of the process.
  first, second = build(name, clip_norm=1.0), build(name, clip_norm=1.0)
  params, state = PARAMS, first.tx.init(PARAMS)
  for i, grads in enumerate(GRADS):
    tx = (first if i < 4 else second).tx
    updates, state = jax.jit(tx.update)(grads, state, params)
    params = optax.apply_updates(params, updates)
  once = run(build(name, clip_norm=1.0))
  for key, value in tree.flatten(params).items():
    np.testing.assert_array_equal(value, once[key])


def test_schedule_is_the_learning_rate_of_the_next_update():
  optimizer = build('sgd', momentum=0.0)
  ones = jax.tree.map(np.ones_like, PARAMS)
  state = optimizer.tx.init(PARAMS)
  for step in range(TOTAL):
    updates, state = optimizer.tx.update(ones, state, PARAMS)
    assert updates['head']['bias'][0] == -optimizer.schedule(step)
    assert optimizer.schedule(step) == pytest.approx(rate(step), abs=1e-8)


# Rules over the parameters of a run.


def test_rules_that_nobody_wrote_may_match_nothing():
  params = {'scale': np.ones(3, np.float32)}
  for name in NAMES:
    for weight_decay in (0.0, 0.1):
      matrices = {'matrices': config.LAYERS} if name == 'muon' else {}
      got = run(
          build(name, params, weight_decay=weight_decay, **matrices), params,
          [{'scale': np.zeros(3, np.float32)}])
      np.testing.assert_array_equal(got['scale'], params['scale'])


@pytest.mark.parametrize('section, words', [
    ({'weight_decay_rules': [['haed/.*', 1.0]]},
     "optimizer.weight_decay_rules: the rule 'haed/.*' matches no parameter. "
     'Parameters: body/bias, body/kernel, head/bias, head/kernel.'),
    ({'weight_decay_rules': [['.*kernel', 1.0], ['head/kernel', 10.0]]},
     "optimizer.weight_decay_rules: the rule 'head/kernel' only matches "
     'parameters that an earlier rule takes.'),
    ({'learning_rate_rules': [['tail', 1.0]]},
     "optimizer.learning_rate_rules: the rule 'tail' matches no parameter."),
    ({'frozen': ['tail']},
     "optimizer.frozen: the rule 'tail' matches no parameter."),
    ({'frozen': ['.*']},
     "optimizer.frozen ['.*'] matches every parameter: nothing is left to "
     'train.'),
    ({'frozen': ['(']}, "optimizer.frozen: '(' is not a regular expression"),
    ({'schedule': {'name': 'cosine', 'warmup': {'steps': 11}}},
     "optimizer.schedule.warmup is 11 steps ({'steps': 11}), but the whole run "
     'is 10 steps.'),
])
def test_section_that_does_not_fit_the_run_is_an_error(section, words):
  with pytest.raises(ValueError, match=re.escape(words)):
    build('adam', **section)


def test_adafactor_rule_that_somebody_wrote_must_match():
  with pytest.raises(ValueError, match=re.escape(
      "optimizer.factored: the rule '.*/kernels' matches no parameter.")):
    build('adafactor', factored='.*/kernels')
