"""Bounds of a step, against divisions done by hand."""

import pytest

from vit_jax.plan import measure
from vit_jax.plan import roofline
from vit_jax.plan.compiled import collectives
from vit_jax.plan.compiled import program

MEMORY = measure.Memory(0, 0, 0, 0, 0, 0, 1, 1, 'nowhere')


def measured(kind='TPU v3', *, work, sent=(), refusal=''):
  return measure.Measured(
      device_kind=kind, devices=8, mesh={'data': 8}, images=4096, memory=MEMORY,
      training_flops=123e12, recomputed_flops=0.0, compiler_flops=None,
      compiler_bytes=None, work=work, collectives=sent, compile_secs=1.0,
      refusal=refusal)


def test_the_slowest_of_three_bounds_a_step():
  # A core of a TPUv3: 61.5 TFLOP/s, 450 GB/s, 164 GB/s.
  gradients = collectives.Collective('all-reduce', 8 * 10**9, group_size=8)
  e = roofline.estimate(measured(
      work=program.Work(flops=246 * 10**12, bytes=45 * 10**10),
      sent=[gradients]))
  assert {name: roof.secs for name, roof in e.roofs.items()} == pytest.approx({
      'compute': 4.0, 'memory': 1.0, 'interconnect': 2 * 7e9 / 164e9})
  assert e.bound.name == 'compute'
  assert e.step_secs == pytest.approx(4)
  assert e.serial_secs == pytest.approx(5 + 14 / 164)
  assert e.images_per_sec(4) == 1024
  # Of the model's own operations: half of those that the program does.
  assert e.utilisation(4) == pytest.approx(0.5)
  assert e.core_days(4, steps=21_600) == pytest.approx(8)


def test_memory_may_be_the_bound():
  e = roofline.estimate(measured(
      work=program.Work(flops=10**12, bytes=45 * 10**10)))
  assert e.bound.name == 'memory'
  assert set(e.roofs) == {'compute', 'memory'}  # One device says nothing.


def test_a_core_day_is_of_a_core():
  e = roofline.estimate(measured('TPU v5', work=program.Work(459 * 10**12, 1)))
  assert e.core_days(1, steps=86_400) == 16


def test_of_a_device_without_figures_there_is_no_estimate():
  assert roofline.estimate(measured('cpu', work=program.Work(1, 1))) is None


def test_links_of_unknown_speed_bound_nothing():
  row = collectives.Collective('all-reduce', 10**9, group_size=8)
  e = roofline.estimate(measured(
      'NVIDIA A100-PCIE-40GB', work=program.Work(1, 1), sent=[row]))
  assert set(e.roofs) == {'compute', 'memory'}
