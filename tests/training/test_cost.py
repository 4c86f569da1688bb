"""What a run has cost, against sums done by hand."""

import pytest

from vit_jax.training import cost


def test_a_core_hour_is_of_a_core_and_a_device_hour_of_a_device():
  # A chip of v4 is one device of two cores; of v3, two devices of one.
  spent = cost.Cost(0, 0, {'TPU v4': 3600.0, 'TPU v3': 7200.0, 'cpu': 1800.0})
  assert spent.device_hours == 3.5
  assert spent.core_hours_by_kind == {'TPU v4': 2, 'TPU v3': 2, 'cpu': 0.5}
  assert spent.core_hours == 4.5


def test_time_on_another_kind_of_device_keeps_its_own_sum():
  first = cost.add_device_secs({}, kind='TPU v3', device_secs=10)
  second = cost.add_device_secs(first, kind='TPU v4', device_secs=5)
  third = cost.add_device_secs(second, kind='TPU v3', device_secs=1)
  assert third == {'TPU v3': 11, 'TPU v4': 5}
  assert first == {'TPU v3': 10}


def test_a_thousandth_of_an_exaflop_of_many_images_is_counted_to_the_last_one():
  flops = cost.training_flops(61_573_467_137) * 4_242_001_921
  assert flops == 3 * 61_573_467_137 * 4_242_001_921  # Beyond 64 bits.
  assert cost.Cost(0, flops, {}).exaflops == pytest.approx(783.584, rel=1e-6)


def test_utilisation_is_of_all_devices_together():
  assert cost.utilisation(
      246e12, kind='TPU v3', devices=8) == pytest.approx(0.5)
  assert cost.utilisation(246e12, kind='cpu', devices=8) is None


def test_the_line_names_each_kind():
  assert cost.describe(783.2, {'TPU v3': 1204.0}) == (
      '783 exaFLOPs, 1,204 core-hours on TPU v3')
  assert cost.describe(0.5, {'TPU v3': 2.0, 'NVIDIA H200': 1.0}) == (
      '0.500 exaFLOPs, 2.00 core-hours on TPU v3 and 1.00 core-hours on '
      'NVIDIA H200')
  assert cost.describe(0.5, {}) == '0.500 exaFLOPs'
