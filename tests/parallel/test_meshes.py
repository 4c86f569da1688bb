"""One run on several meshes: the same numbers, and what devices have to say.

Each mesh's step is compiled once, run for 20 steps, and read. Everything is on
that is random: what the host draws, mixing, dropout, stochastic depth.
"""

import functools
import itertools
import math
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from vit_jax import tree
from vit_jax.experiment import build as experiment_lib
from vit_jax.experiment import config as config_lib
from vit_jax.plan.compiled import collectives

DEPTH = 3
CONFIG = {
    # No other size is 56: it would be found if a device held the whole batch.
    'total': {'steps': 20}, 'batch_size': 56, 'averaging': 0.5,
    'model': {'width': 32, 'depth': DEPTH, 'mlp_dim': 64, 'num_heads': 4,
              'patch': 4, 'dropout': 0.1, 'attention_dropout': 0.1,
              'stochastic_depth': 0.1},
    'data': {'source': 'digits', 'resolution': 8, 'mixup': 0.5, 'cutmix': 0.5,
             'train_ops': ({'op': 'resize'}, {'op': 'flip'},
                           {'op': 'randaugment'})},
    # Not Adam, which divides by the gradient's size: the bias of the keys has
    # a gradient of zero, all rounding, and would move by a whole step.
    'optimizer': {'name': 'sgd', 'learning_rate': 0.3, 'clip_norm': 1.0,
                  'weight_decay': 0.1, 'schedule': {'name': 'constant'}},
}
MESHES = {
    '1x1x1': {'data': 1},
    '8x1x1': {'data': 8},
    '1x8x1': {'data': 1, 'fsdp': 8},
    '2x2x2': {'data': 2, 'fsdp': 2, 'tensor': 2},
}


def compile_step(built):
  # What is said between devices is settled before machine code is made.
  return built.train_step.lower(
      built.abstract_state, built.abstract_batch).compile(
          compiler_options={'xla_backend_optimization_level': 0})


def by_kind(compiled):
  found = collectives.find(compiled.as_text())
  return {kind: [c for c in found if c.kind == kind]
          for kind in collectives.KINDS}


@functools.cache
def run(name):
  """Returns experiment, parameters before, state after, losses, collectives."""
  sizes = MESHES[name]
  devices = jax.devices()[:math.prod(sizes.values())]
  built = experiment_lib.build(
      config_lib.resolve({**CONFIG, 'mesh': sizes}), devices=devices)
  step = compile_step(built)
  state = built.init_state()
  before = jax.device_get(state.params)
  batches = built.batches(start_step=0)
  losses = []
  for _ in range(20):
    state, loss = step(state, next(batches))
    losses.append(float(loss))
  batches.close()
  return built, before, state, losses, by_kind(step)


@pytest.mark.parametrize('name', list(MESHES)[1:])
def test_every_mesh_gives_the_same_losses(name):
  *_, want, want_losses, _ = run('1x1x1')
  *_, have, losses, _ = run(name)
  np.testing.assert_allclose(losses, want_losses, rtol=1e-5)
  want, have = jax.device_get((want, have))
  assert want.step == have.step == 20
  assert jax.tree.structure(want) == jax.tree.structure(have)
  for path, value in tree.flatten(want).items():
    np.testing.assert_allclose(
        tree.flatten(have)[path], value, rtol=1e-3, atol=1e-5, err_msg=path)


def test_training_moved_the_parameters():
  # Guards the test above: doing nothing is the same everywhere.
  _, before, after, losses, _ = run('1x1x1')
  before = tree.flatten(before)
  for name, value in tree.flatten(after.params).items():
    assert np.abs(value - before[name]).max() > 1e-4, name
  assert len(set(losses)) == 20


def test_state_really_is_split_and_stays_so():
  built, _, state, _, _ = run('2x2x2')
  kernel = state.params['encoder']['layers']['mlp']['hidden']['kernel']
  assert kernel.shape == (DEPTH, 32, 64)
  assert {s.data.shape for s in kernel.addressable_shards} == {(DEPTH, 16, 32)}
  same = jax.tree.map(lambda leaf, want: leaf.sharding.is_equivalent_to(
      want, jnp.ndim(leaf)), state, built.shardings)
  assert all(jax.tree.leaves(same))


def param_bytes(built):
  return tree.num_bytes(built.abstract_state.params)


def is_one_image_and_label(rows):
  """Whether these are what mixup and CutMix fetch of the device before."""
  return sorted(row.bytes for row in rows) == 2 * [4 * 10] + 2 * [4 * 192]


def test_data_parallel_reduces_each_gradient_once_and_gathers_nothing():
  built, *_, found = run('8x1x1')
  assert not (found['all-gather'] or found['reduce-scatter']
              or found['all-to-all'])
  assert is_one_image_and_label(found['collective-permute'])
  reduced = collectives.total(found['all-reduce'])['all-reduce'].bytes
  # And the sums of the loss, of the measures and of the mask.
  assert param_bytes(built) <= reduced <= param_bytes(built) + 32
  # Those of a layer as soon as they are known, inside the loop.
  layers = tree.num_bytes(built.abstract_state.params['encoder'])
  inside = [c for c in found['all-reduce'] if c.loops == (DEPTH,)]
  assert sum(c.count * c.bytes for c in inside) == layers


def split_params(built, under=''):
  """Returns the shapes of the parameters that `fsdp` splits, by path."""
  return {
      path: leaf.shape for path, leaf in tree.flatten(
          built.abstract_state.params).items()
      if 'fsdp' in leaf.sharding.spec and path.startswith(under)}


def bare(shape):
  """Returns 'f32[1,32,64]' as [32, 64]."""
  sizes = [int(n) for n in re.findall(r'\d+', shape.partition('[')[2])]
  return tuple(n for n in sizes if n > 1)


def test_fully_sharded_gathers_a_layer_at_a_time():
  built, *_, found = run('1x8x1')
  assert not found['all-to-all']
  assert is_one_image_and_label(found['collective-permute'])
  layer = {shape[1:] for shape in split_params(built, 'encoder').values()}
  assert len(layer) == 4  # Of each: qkv, out, hidden, out.
  inside = [c for c in found['all-gather'] if c.loops]
  assert {c.loops for c in inside} == {(DEPTH,)}
  assert {bare(shape) for c in inside for shape in c.shapes} == layer
  # Once forward, once backward.
  assert len(inside) == 2 * len(layer)
  others = {math.prod(shape) * 4 for path, shape in split_params(built).items()
            if not path.startswith('encoder')}
  outside = [c for c in found['all-gather'] if not c.loops]
  assert {c.bytes for c in outside} == others


def test_fully_sharded_reduces_each_gradient_once_as_it_is_known():
  built, *_, found = run('1x8x1')
  # XLA for CPUs has no reduce-scatter here: an all-reduce, of which each device
  # then keeps its part. That for TPUs makes one of the two.
  reduced = [*found['all-reduce'], *found['reduce-scatter']]
  # And a scalar or two of each parameter, for norms.
  scalars = 4 * 4 * len(tree.flatten(built.abstract_state.params))
  total = sum(c.count * c.bytes for c in reduced)
  assert param_bytes(built) <= total <= param_bytes(built) + scalars
  layers = tree.num_bytes(built.abstract_state.params['encoder'])
  assert sum(c.count * c.bytes for c in reduced if c.loops == (DEPTH,)
             ) == layers


def test_no_device_of_any_mesh_holds_the_whole_batch():
  for name in ('8x1x1', '1x8x1', '2x2x2'):
    *_, found = run(name)
    for row in itertools.chain(*found.values()):
      assert not any(56 in bare(shape) for shape in row.shapes), (name, row)


def test_all_three_axes_gather_no_more_than_their_part_of_a_layer():
  built, *_, found = run('2x2x2')
  layer = {math.prod(shape[1:]) * 4 // 2  # The other half is on `tensor`.
           for shape in split_params(built, 'encoder').values()}
  inside = [c for c in found['all-gather'] if c.loops]
  assert {c.bytes for c in inside} == layer
  assert {(c.loops, c.group_size) for c in inside} == {((DEPTH,), 2)}


PARTS = 7


def test_in_parts_devices_draw_as_one_does_and_reduce_each_gradient_once():
  params = {}
  for number in (1, 8):
    built = experiment_lib.build(config_lib.resolve({
        **CONFIG, 'accumulation': PARTS, 'mesh': {'data': number},
        'data': {'source': 'digits', 'resolution': 8}}),
        devices=jax.devices()[:number])
    step, state = compile_step(built), built.init_state()
    batches = built.batches(start_step=0)
    for _ in range(3):
      state, _ = step(state, next(batches))
    batches.close()
    params[number] = tree.flatten(jax.device_get(state.params))
  for path, value in params[1].items():
    np.testing.assert_allclose(
        params[8][path], value, rtol=1e-4, atol=1e-6, err_msg=path)
  found = by_kind(step)
  assert not any(
      rows for kind, rows in found.items() if kind != 'all-reduce')
  reduced = collectives.total(found['all-reduce'])['all-reduce'].bytes
  assert param_bytes(built) <= reduced <= param_bytes(built) + 32
  assert not any(c.loops for c in found['all-reduce'])


def test_in_parts_no_kernel_of_a_convolution_has_a_gradient_for_each_device():
  # The compiler would send the images of each around: see `experiment.build`.
  built = experiment_lib.build(config_lib.resolve({
      **CONFIG, 'accumulation': PARTS, 'mesh': MESHES['8x1x1'],
      'model': {**CONFIG['model'], 'patch': 1,
                'backbone': {'depths': (), 'width': 32}}}))
  step = built.train_step.lower(built.abstract_state, built.abstract_batch)
  assert {int(n) for n in re.findall(
      r'_group_count = (\d+)', step.as_text())} == {1}


@functools.cache
def compiled_in_parts():
  """Returns experiment and collectives of a step in parts, over `fsdp`."""
  model = {name: value for name, value in CONFIG['model'].items()
           if 'drop' not in name}  # Faster to compile.
  built = experiment_lib.build(config_lib.resolve({
      **CONFIG, 'accumulation': PARTS, 'model': model,
      'mesh': MESHES['1x8x1']}))
  return built, by_kind(compile_step(built))


def test_accumulation_leaves_images_on_their_devices():
  built, found = compiled_in_parts()
  assert not found['all-to-all']
  assert is_one_image_and_label(found['collective-permute'])
  largest = max(math.prod(shape) for shape in split_params(
      built, 'encoder').values()) * 4 // DEPTH
  assert max(c.bytes for c in found['all-gather']) == largest


def test_where_parameters_are_split_every_part_reduces_every_gradient():
  # Each part gathers the parameters as well. Where this fails for less, change
  # what `training/step.py`, CONTRIBUTING.md and docs/plans.md say.
  built, found = compiled_in_parts()
  reduced = [*found['all-reduce'], *found['reduce-scatter']]
  total = sum(c.count * c.bytes for c in reduced)
  scalars = 4 * 4 * len(tree.flatten(built.abstract_state.params))
  each = PARTS * param_bytes(built)
  assert each <= total <= each + PARTS * scalars
  layers = tree.num_bytes(built.abstract_state.params['encoder'])
  assert sum(c.count * c.bytes for c in reduced if c.loops == (PARTS, DEPTH)
             ) == PARTS * layers
