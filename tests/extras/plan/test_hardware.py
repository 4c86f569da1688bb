"""Peak figures are found by device kind and by name."""

import pytest

from vit_jax.extras.plan import hardware


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


def test_the_nearest_name_is_suggested():
  with pytest.raises(ValueError, match="Did you mean 'TPUv5p'"):
    hardware.named('TPUv5pp')
