"""Costs of steps and of training agree with sums by hand, XLA and the paper."""

from unittest import mock

import jax
import pytest

from tests import toy
from vit_jax.extras.plan import paper_costs
from vit_jax.extras.plan import roofline
from vit_jax.extras.plan import step_cost
from vit_jax.extras.plan import training_cost
from vit_jax.extras.plan.compiled import collectives
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


@pytest.mark.slow  # Compiles a step without loops.
def test_flops_agree_with_xla(scanned, unrolled):
  # XLA also counts elementwise operations.
  assert unrolled.cost_analysis()['flops'] == pytest.approx(
      scanned.flops, rel=0.08)


@pytest.mark.slow
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


MEMORY = step_cost.Memory(0, 0, 0, 0, 0, 0, 1, 1, 'fake')


def cost(kind='TPU v3', *, flops=1e12, traffic_bytes=1, sent=()):
  return step_cost.StepCost(
      device_kind=kind, devices=8, mesh={'data': 8}, images=4096, memory=MEMORY,
      training_flops=flops / 2, recomputed_flops=flops / 2,
      traffic_bytes=traffic_bytes, collectives=sent, compile_secs=1.0)


def test_the_largest_of_three_bounds_is_the_bottleneck():
  # A TPUv3 core: 61.5 TFLOP/s, 450 GB/s, 164 GB/s.
  gradients = collectives.Collective('all-reduce', 8 * 10**9, group_size=8)
  e = roofline.estimate(cost(
      flops=246e12, traffic_bytes=45 * 10**10, sent=[gradients]),
      total_steps=21_600)
  assert {name: bound.secs for name, bound in e.bounds.items()
          } == pytest.approx({'compute': 4.0, 'memory': 1.0,
                              'interconnect': 2 * 7e9 / 164e9})
  assert e.bottleneck == 'compute'
  assert e.full_overlap.step_secs == pytest.approx(4)
  assert e.no_overlap.step_secs == pytest.approx(5 + 14 / 164)
  assert e.full_overlap.images_per_sec == 1024
  assert e.full_overlap.mfu == pytest.approx(0.5)  # Without recomputation.
  assert e.full_overlap.core_days == pytest.approx(8)


def estimate(*args, **keywords):
  return roofline.estimate(cost(*args, **keywords), total_steps=86_400)


def test_core_days_count_the_cores_of_a_chip():
  speed = estimate('TPU v5').full_overlap
  assert speed.core_days == 16 * speed.step_secs


def test_unknown_peaks_give_no_bound():
  assert estimate('cpu') is None
  row = collectives.Collective('all-reduce', 10**9, group_size=8)
  e = estimate('NVIDIA A100-PCIE-40GB', sent=[row])
  assert set(e.bounds) == {'compute', 'memory'}


@pytest.mark.slow  # Traces large models.
def test_the_counts_agree_with_table_6():
  counted = {(row['variant'], row['epochs']): row['exaflops']
             for row in training_cost.table_6()}
  for variant, epochs, paper in paper_costs.TABLE_6:
    assert counted[variant, epochs] == pytest.approx(
        paper, rel=0.05 if variant.startswith('R') else 0.03), variant
