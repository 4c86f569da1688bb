"""Peak figures are found by device kind and by name."""

import pytest

from vit_jax.extras.plan import hardware
from vit_jax.run import counters as counters_lib


@pytest.mark.parametrize('kind', [
    'cpu', 'NVIDIA H100 PCIe', 'NVIDIA H200 MIG 1g.18gb', 'TPU v9', ''])
def test_unknown_kinds_have_no_peak(kind):
  assert hardware.find(kind) is None


def test_every_row_has_a_kind_name_and_source():
  kinds = [kind for row in hardware.TABLE for kind in row.kinds]
  assert len(kinds) == len(set(kinds))
  for row in hardware.TABLE:
    assert hardware.named(row.name) is row
    assert row.source


def test_utilisation_is_over_all_devices():
  assert hardware.utilisation(
      246e12, kind='TPU v3', devices=8) == pytest.approx(0.5)
  assert hardware.utilisation(246e12, kind='cpu', devices=8) is None


def test_core_hours_multiply_device_hours_by_cores():
  # A chip of v4 is one device of two cores; of v3, two devices of one.
  spent = counters_lib.Counters(device_secs_by_kind={
      'TPU v4': 3600.0, 'TPU v3': 7200.0, 'cpu': 1800.0})
  assert spent.totals == {'exaflops': 0, 'device_hours': 3.5, 'core_hours': 4.5}
  assert spent.core_hours_by_kind == {'TPU v4': 2, 'TPU v3': 2, 'cpu': 0.5}


def test_the_nearest_name_is_suggested():
  with pytest.raises(ValueError, match="Did you mean 'TPUv5p'"):
    hardware.named('TPUv5pp')
