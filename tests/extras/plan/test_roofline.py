"""Roofline bounds agree with divisions by hand."""

import pytest

from vit_jax.extras.plan import roofline
from vit_jax.extras.plan import step_cost
from vit_jax.extras.plan.compiled import collectives

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
