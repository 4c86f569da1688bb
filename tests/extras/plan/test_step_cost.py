"""The cost of a step agrees with sums by hand and with XLA's counts."""

from unittest import mock

import jax
import pytest

from tests import toy
from vit_jax.extras.plan import step_cost
from vit_jax.extras.plan.compiled import memory_traffic
from vit_jax.parallel import device_memory
from vit_jax.parallel import mesh as mesh_lib

DEPTH = 4
GIB = 2**30


def build(**model):
  return toy.build(devices=2, batch_size=16, accumulation=1, model={
      'width': 64, 'depth': DEPTH, 'num_heads': 1, 'mlp_dim': 256, 'patch': 2,
      'pooling': 'average', 'remat': 'none', **model})


@pytest.fixture(scope='module')
def scanned():
  return step_cost.compile_step(build())


@pytest.fixture(scope='module')
def unrolled():
  """A compiled step without loops, which XLA counts correctly."""
  experiment = build(unroll=DEPTH)
  return experiment.train_step.lower(
      experiment.abstract_state, experiment.abstract_batch).compile()


def test_memory_is_the_sum_of_shapes(scanned):
  width, mlp_dim, patch, classes = 64, 256, 2 * 2 * 3, 10
  layer = (4 * (width * width + width)  # Query, key, value, out.
           + 2 * width * mlp_dim + mlp_dim + width + 4 * width)
  params = 4 * (DEPTH * layer + (patch + 1 + 16) * width + 2 * width
                + (width + 1) * classes)
  memory = scanned.memory
  assert memory.params_bytes == params
  # Two moments, counters and metrics.
  assert 2 * params < memory.optimizer_bytes < 2 * params + 1000
  # Half of the images of 8 x 8 pixels, labels and masks.
  assert memory.batch_bytes == 8 * (8 * 8 * 3 + 4 + 4)
  assert memory.total_bytes == sum((
      memory.params_bytes, memory.optimizer_bytes, memory.batch_bytes,
      memory.activations_bytes, memory.outputs_bytes, memory.other_bytes))
  assert scanned.fits
  assert memory.fraction == memory.total_bytes / memory.capacity_bytes


def test_flops_agree_with_xla(scanned, unrolled):
  # XLA also counts elementwise operations.
  assert unrolled.cost_analysis()['flops'] == pytest.approx(
      scanned.flops, rel=0.08)


def test_traffic_agrees_with_xla_and_counts_loops(scanned, unrolled):
  traffic = memory_traffic.count(unrolled.as_text())
  assert unrolled.cost_analysis()['bytes accessed'] == pytest.approx(
      traffic, rel=0.2)
  # A scan also writes stacked activations and slices its parameters.
  assert traffic < scanned.traffic_bytes < 2 * traffic


@pytest.mark.parametrize(('remat', 'expected'), [
    ('none', 0),
    # Products of queries and keys, and of weights and values, in each layer.
    ('dots', DEPTH * 2 * 2 * 16 * 16 * 64),
])
def test_recomputed_flops_are_those_of_attention(remat, expected):
  assert step_cost.recomputed_flops_per_image(build(remat=remat)) == expected


def test_the_needed_memory_is_read_from_a_compiler_error():
  step = mock.Mock(**{
      'lower.return_value.compile.side_effect': jax.errors.JaxRuntimeError(
          'RESOURCE_EXHAUSTED: Ran out of memory on HBM, the total memory '
          'required for HLO temporaries (103.61G) exceeds available HBM '
          '(15.48G).')})
  cost = step_cost.compile_step(build().with_step(step))
  assert cost.fits is False
  assert cost.memory.total_bytes == round(103.61 * 2**30)
  assert cost.memory.fraction == pytest.approx(103.61 / 15.48)
  assert (cost.traffic_bytes, cost.memory.activations_bytes) == (None, None)
  assert cost.flops > 0  # Counted without the compiler.


def test_plans_and_runs_use_the_same_capacity(monkeypatch):
  monkeypatch.setattr(
      device_memory, 'free_host_bytes', lambda count: 36 * GIB // count)
  mesh = mesh_lib.build(mesh_lib.MeshConfig(), jax.devices()[:2])
  planned, source = step_cost.capacity(jax.devices()[0], num_devices=2)
  assert planned == device_memory.free_bytes(mesh) == 18 * GIB
  assert '90 % of the free host memory' in source
