"""A run gives the same numbers on every mesh, with minimal communication.

The step of each mesh is compiled once, run, and its collectives are counted.
All sources of randomness are on: augmentation, mixing, dropout and stochastic
depth.
"""

import functools
import itertools
import math
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests import random_models
from tests import toy
from vit_jax import tree
from vit_jax.extras.plan.compiled import collectives

# Compiles six programs, four of them for eight devices.
pytestmark = pytest.mark.slow

DEPTH = 3
STEPS = 4
NUM_MICROBATCHES = 7
CONFIG = {
    # No other size is 56, so that arrays of the whole batch are recognised.
    'total': {'steps': STEPS}, 'batch_size': 56, 'averaging': 0.5,
    'model': {'width': 32, 'depth': DEPTH, 'mlp_dim': 64, 'num_heads': 4,
              'dropout': 0.1, 'attention_dropout': 0.1,
              'stochastic_depth': 0.1},
    'data': {'mixup': 0.5, 'cutmix': 0.5, 'train_ops': (
        {'op': 'resize'}, {'op': 'flip'}, {'op': 'randaugment'})},
    # Adam would amplify the rounding errors of the keys' bias, whose gradient
    # is zero.
    'optimizer': {'name': 'sgd', 'learning_rate': 0.3, 'clip_norm': 1.0,
                  'weight_decay': 0.1},
}
MESHES = {
    '1x1x1': {'data': 1},
    '8x1x1': {'data': 8},
    '1x8x1': {'data': 1, 'fsdp': 8},
    '2x2x2': {'data': 2, 'fsdp': 2, 'tensor': 2},
}


def compile_step(built):
  # Collectives do not depend on the optimisation of machine code.
  return built.train_step.lower(
      built.abstract_state, built.abstract_batch).compile(
          compiler_options={'xla_backend_optimization_level': 0})


@functools.cache
def initial_state():
  """Returns the state of step 0 on the host, which compiles only once."""
  return jax.device_get(toy.build(**CONFIG).init_state())


def by_kind(compiled):
  found = collectives.find(compiled.as_text())
  return {kind: [c for c in found if c.kind == kind]
          for kind in collectives.KINDS}


@functools.cache
def run(name):
  """Returns experiment, state, losses and collectives."""
  sizes = MESHES[name]
  built = toy.build(devices=math.prod(sizes.values()), mesh=sizes, **CONFIG)
  step = compile_step(built)
  # One mesh initialises its own state, which must be the same.
  state = (built.init_state() if name == '2x2x2' else
           jax.device_put(initial_state(), built.shardings))
  batches = built.batches(start_step=0)
  losses = []
  for _ in range(STEPS):
    state, loss = step(state, next(batches))
    losses.append(float(loss))
  batches.close()
  return built, state, losses, by_kind(step)


@pytest.mark.parametrize('name', [
    pytest.param(name, marks=[pytest.mark.large] * (name == '1x8x1'))
    for name in list(MESHES)[1:]])
def test_losses_do_not_depend_on_the_mesh(name):
  _, want, want_losses, _ = run('1x1x1')
  _, have, losses, _ = run(name)
  assert len(set(losses)) == STEPS
  np.testing.assert_allclose(losses, want_losses, rtol=1e-5)
  want, have = jax.device_get((want, have))
  assert want.step == have.step == STEPS
  random_models.assert_close(have, want, rtol=1e-3, atol=1e-5)


def test_the_state_is_sharded_before_and_after_steps():
  built, state, *_ = run('2x2x2')
  kernel = state.params['encoder']['layers']['mlp']['hidden']['kernel']
  assert kernel.shape == (DEPTH, 32, 64)
  assert {s.data.shape for s in kernel.addressable_shards} == {(DEPTH, 16, 32)}
  same = jax.tree.map(lambda leaf, want: leaf.sharding.is_equivalent_to(
      want, jnp.ndim(leaf)), state, built.shardings)
  assert all(jax.tree.leaves(same))


def param_bytes(built):
  return tree.num_bytes(built.abstract_state.params)


def is_one_image_and_label(rows):
  """Whether rows are the neighbouring example that mixup and CutMix need."""
  return sorted(row.bytes for row in rows) == 2 * [4 * 10] + 2 * [4 * 192]


def test_data_parallelism_only_reduces_each_gradient_once():
  built, *_, found = run('8x1x1')
  assert not (found['all-gather'] or found['reduce-scatter']
              or found['all-to-all'])
  assert is_one_image_and_label(found['collective-permute'])
  reduced = collectives.total(found['all-reduce'])['all-reduce'].bytes
  # Includes the sums of loss, metrics and mask.
  assert param_bytes(built) <= reduced <= param_bytes(built) + 32
  # Gradients of a layer are reduced inside the loop.
  layers = tree.num_bytes(built.abstract_state.params['encoder'])
  inside = [c for c in found['all-reduce'] if c.loops == (DEPTH,)]
  assert sum(c.count * c.bytes for c in inside) == layers


def split_params(built, under=''):
  """Returns the shapes of parameters sharded over `fsdp`, by path."""
  return {
      path: leaf.shape for path, leaf in tree.flatten(
          built.abstract_state.params).items()
      if 'fsdp' in leaf.sharding.spec and path.startswith(under)}


def bare(shape):
  """Parses 'f32[1,32,64]' as (32, 64)."""
  sizes = [int(n) for n in re.findall(r'\d+', shape.partition('[')[2])]
  return tuple(n for n in sizes if n > 1)


def gathered(built):
  """Returns the shapes of the kernels of a layer, with q, k and v apart."""
  shapes = [shape[1:] for shape in split_params(built, 'encoder').values()]
  qkv = next(shape for shape in shapes if len(shape) == 4)
  return [*(shape for shape in shapes if shape != qkv),
          *3 * [(qkv[0], *qkv[2:])]]


def test_fsdp_gathers_one_layer_at_a_time_and_reduces_gradients_once():
  built, *_, found = run('1x8x1')
  assert not found['all-to-all']
  assert is_one_image_and_label(found['collective-permute'])
  layer = set(gathered(built))
  assert len(layer) == 4  # Attention: q, k, v and out. MLP: two kernels.
  inside = [c for c in found['all-gather'] if c.loops]
  assert {c.loops for c in inside} == {(DEPTH,)}
  assert {bare(shape) for c in inside for shape in c.shapes} == layer
  # Each is gathered once in the forward and once in the backward pass.
  assert len(inside) == 2 * len(gathered(built))
  others = {math.prod(shape) * 4 for path, shape in split_params(built).items()
            if not path.startswith('encoder')}
  outside = [c for c in found['all-gather'] if not c.loops]
  assert {c.bytes for c in outside} == others
  # Each gradient is reduced once, inside the loop. XLA for CPUs uses an
  # all-reduce in place of a reduce-scatter.
  reduced = [*found['all-reduce'], *found['reduce-scatter']]
  # Norms need a few scalars per parameter.
  scalars = 4 * 4 * len(tree.flatten(built.abstract_state.params))
  total = sum(c.count * c.bytes for c in reduced)
  assert param_bytes(built) <= total <= param_bytes(built) + scalars
  layers = tree.num_bytes(built.abstract_state.params['encoder'])
  assert sum(c.count * c.bytes for c in reduced if c.loops == (DEPTH,)
             ) == layers


def test_no_device_holds_the_whole_batch():
  for name in ('8x1x1', '1x8x1', '2x2x2'):
    *_, found = run(name)
    for row in itertools.chain(*found.values()):
      assert not any(56 in bare(shape) for shape in row.shapes), (name, row)


def test_three_axes_gather_only_their_shard_of_a_layer():
  built, *_, found = run('2x2x2')
  layer = {math.prod(shape) * 4 // 2  # `tensor` shards the other half.
           for shape in gathered(built)}
  inside = [c for c in found['all-gather'] if c.loops]
  assert {c.bytes for c in inside} == layer
  assert {(c.loops, c.group_size) for c in inside} == {((DEPTH,), 2)}


def test_microbatches_draw_the_same_masks_on_any_number_of_devices():
  params = {}
  for number in (1, 8):
    built = toy.build(devices=number, **{
        **CONFIG, 'accumulation': NUM_MICROBATCHES, 'mesh': {'data': number},
        'data': {}})
    step = compile_step(built)
    state = jax.device_put(initial_state(), built.shardings)
    batches = built.batches(start_step=0)
    for _ in range(3):
      state, _ = step(state, next(batches))
    batches.close()
    params[number] = jax.device_get(state.params)
  random_models.assert_close(params[8], params[1])
  assert {kind for kind, rows in by_kind(step).items() if rows} == {
      'all-reduce'}
