"""What a run has cost, against sums done by hand."""

import pytest

from vit_jax.training import cost


def test_core_hours_multiply_device_hours_by_cores():
  # A chip of v4 is one device of two cores; of v3, two devices of one.
  spent = cost.Cost(0, 0, {'TPU v4': 3600.0, 'TPU v3': 7200.0, 'cpu': 1800.0})
  assert spent.device_hours == 3.5
  assert spent.core_hours_by_kind == {'TPU v4': 2, 'TPU v3': 2, 'cpu': 0.5}
  assert spent.core_hours == 4.5


def test_flops_are_exact_integers():
  flops = cost.training_flops(61_573_467_137) * 4_242_001_921
  assert flops == 3 * 61_573_467_137 * 4_242_001_921  # Beyond 64 bits.
  assert cost.Cost(0, flops, {}).exaflops == pytest.approx(783.584, rel=1e-6)


def test_utilisation_is_over_all_devices():
  assert cost.utilisation(
      246e12, kind='TPU v3', devices=8) == pytest.approx(0.5)
  assert cost.utilisation(246e12, kind='cpu', devices=8) is None


def test_the_description_names_each_device_kind():
  assert cost.describe(783.2, {'TPU v3': 1204.0}) == (
      '783 exaFLOPs, 1,204 core-hours on TPU v3')
  assert cost.describe(0.5, {'TPU v3': 2.0, 'NVIDIA H200': 1.0}) == (
      '0.500 exaFLOPs, 2.00 core-hours on TPU v3 and 1.00 core-hours on '
      'NVIDIA H200')
  assert cost.describe(0.5, {}) == '0.500 exaFLOPs'
