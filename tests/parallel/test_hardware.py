"""Peak figures are found by device kind and by name."""

import pytest

from vit_jax.parallel import hardware


@pytest.mark.parametrize(('kind', 'peak', 'cores', 'memory', 'links'), [
    # Two cores of v3 share a chip's 900 GB/s, and its four links of 656 Gbit/s.
    ('TPU v2', 23e12, 1, 350e9, 124e9), ('TPU v3', 61.5e12, 1, 450e9, 164e9),
    ('TPU v4', 275e12, 2, 1200e9, 300e9),
    ('TPU v5 lite', 197e12, 1, 819e9, 200e9),
    ('TPU v5', 459e12, 2, 2765e9, 600e9),
    ('TPU v6 lite', 918e12, 1, 1638e9, 400e9),
    ('NVIDIA A100-SXM4-40GB', 312e12, 1, 1555e9, 300e9),
    ('NVIDIA A100 80GB PCIe', 312e12, 1, 1935e9, None),
    ('NVIDIA H100 80GB HBM3', 989e12, 1, 3350e9, 450e9),
    ('NVIDIA H200', 989e12, 1, 4800e9, 450e9),
])
def test_peaks_agree_with_data_sheets(kind, peak, cores, memory, links):
  row = hardware.find(kind)
  assert (row.peak_flops, row.cores) == (peak, cores)
  assert (row.memory_bytes_per_sec, row.link_bytes_per_sec) == (memory, links)
  assert hardware.cores(kind) == cores
  assert row.peak_flops_per_core == peak / cores


@pytest.mark.parametrize('kind', [
    'cpu', 'NVIDIA H100 PCIe', 'NVIDIA H200 MIG 1g.18gb', 'TPU v9', ''])
def test_unknown_kinds_have_no_peak(kind):
  assert hardware.find(kind) is None
  assert hardware.cores(kind) == 1


def test_every_row_has_a_kind_name_and_source():
  kinds = [kind for row in hardware.TABLE for kind in row.kinds]
  assert len(kinds) == len(set(kinds))
  for row in hardware.TABLE:
    assert hardware.named(row.name) is row
    assert hardware.describe_source(row.source).startswith(row.source)


def test_utilisation_is_over_all_devices():
  assert hardware.utilisation(
      246e12, kind='TPU v3', devices=8) == pytest.approx(0.5)
  assert hardware.utilisation(246e12, kind='cpu', devices=8) is None


@pytest.mark.parametrize('name', ['TPUv3', 'tpu-v3', 'TPU v3', 'tpu_v3'])
def test_names_ignore_case_and_separators(name):
  assert hardware.named(name).kinds == ('TPU v3',)


def test_an_unknown_name_suggests_the_nearest():
  with pytest.raises(ValueError, match="Did you mean 'TPUv5p'"):
    hardware.named('TPUv5pp')
