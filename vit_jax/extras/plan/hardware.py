"""Peak figures of accelerators, each with its source.

A row describes a JAX device: a core of a TPU v2 or v3, and a whole chip, with
one or two cores, from v4 on. Peaks are of dense bfloat16 matrix products with
float32 accumulation.

Link bandwidth is the sum over all links in one direction, half of what a data
sheet calls bidirectional. Each core of a v2 or v3 is assigned half of its
chip's memory bandwidth and links.
"""

from collections.abc import Sequence
import dataclasses

from vit_jax import schema

GIB = 2**30
GB = 10**9

# Chips of v2 and v3 have four links of 496 and 656 Gbit/s; documented totals
# are 2,400 (v4), 1,600 (v5e) and 4,800 Gbit/s (v5p), and 800 GB/s in both
# directions (v6e).
_CACM = ('Jouppi et al., A Domain-Specific Supercomputer for Training Deep '
         'Neural Networks, CACM 63(7), 2020, table 3')
_DOCS = 'https://cloud.google.com/tpu/docs/'


@dataclasses.dataclass(frozen=True)
class Hardware:
  """A JAX device.

  Peaks of GPUs are without sparsity, and their links are NVLink within a host.

  Attributes:
    name: common name.
    kinds: values of `jax.Device.device_kind`.
    peak_flops: FLOPs per second; a multiply-add is two.
    memory_bytes: size of the device memory.
    memory_bytes_per_sec: bandwidth of the device memory.
    link_bytes_per_sec: bandwidth to other devices; None if unknown.
    cores: TensorCores; 1 for a GPU.
    source: source of these figures.
  """
  name: str
  kinds: Sequence[str]
  peak_flops: float
  memory_bytes: int
  memory_bytes_per_sec: float
  link_bytes_per_sec: float | None = None
  cores: int = 1
  source: str = ''

  @property
  def peak_flops_per_core(self) -> float:
    """FLOPs per second of one core."""
    return self.peak_flops / self.cores


TABLE: Sequence[Hardware] = (
    Hardware('TPUv2', ('TPU v2',), 46e12 / 2, 8 * GIB, 700e9 / 2,
             4 * 496e9 / 8 / 2, source=_CACM),
    Hardware('TPUv3', ('TPU v3',), 123e12 / 2, 16 * GIB, 900e9 / 2,
             4 * 656e9 / 8 / 2, source=f'{_DOCS}v3; links: {_CACM}'),
    Hardware('TPUv4', ('TPU v4',), 275e12, 32 * GIB, 1200e9, 2400e9 / 8,
             cores=2, source=f'{_DOCS}v4'),
    Hardware('TPUv5e', ('TPU v5 lite', 'TPU v5e'), 197e12, 16 * GB, 819e9,
             1600e9 / 8, source=f'{_DOCS}v5e'),
    Hardware('TPUv5p', ('TPU v5', 'TPU v5p'), 459e12, 95 * GB, 2765e9,
             4800e9 / 8, cores=2, source=f'{_DOCS}v5p'),
    Hardware('TPUv6e', ('TPU v6 lite', 'TPU v6e'), 918e12, 32 * GB, 1638e9,
             800e9 / 2, source=f'{_DOCS}v6e'),
    # In float16: they have no bfloat16.
    Hardware('V100', ('Tesla V100-SXM2-16GB',), 125e12, 16 * GB, 900e9,
             300e9 / 2, source='NVIDIA V100 data sheet, in float16'),
    Hardware('V100-32GB', ('Tesla V100-SXM2-32GB',), 125e12, 32 * GB, 900e9,
             300e9 / 2, source='NVIDIA V100 data sheet, in float16'),
    Hardware('A100', ('NVIDIA A100-SXM4-40GB',), 312e12, 40 * GB, 1555e9,
             600e9 / 2, source='NVIDIA A100 data sheet, SXM'),
    Hardware('A100-PCIe', ('NVIDIA A100-PCIE-40GB',), 312e12, 40 * GB, 1555e9,
             source='NVIDIA A100 data sheet, PCIe'),
    Hardware('A100-80GB', ('NVIDIA A100-SXM4-80GB',), 312e12, 80 * GB, 2039e9,
             600e9 / 2, source='NVIDIA A100 data sheet, SXM'),
    Hardware('A100-80GB-PCIe', ('NVIDIA A100 80GB PCIe',), 312e12, 80 * GB,
             1935e9, source='NVIDIA A100 data sheet, PCIe'),
    # The PCIe and NVL models are slower.
    Hardware('H100', ('NVIDIA H100 80GB HBM3',), 989e12, 80 * GB, 3350e9,
             900e9 / 2, source='NVIDIA H100 data sheet, SXM'),
    Hardware('H200', ('NVIDIA H200',), 989e12, 141 * GB, 4800e9, 900e9 / 2,
             source='NVIDIA H200 data sheet, SXM'),
)
_BY_KIND = {kind: row for row in TABLE for kind in row.kinds}


def find(device_kind: str) -> Hardware | None:
  """Returns the row of a `jax.Device.device_kind`, or None.

  The kind must match exactly: MIG slices and PCIe models have other peaks.
  """
  return _BY_KIND.get(device_kind)


def named(name: str) -> Hardware:
  """Returns the row with a name such as 'TPUv3' or 'H200'.

  Raises:
    ValueError: for an unknown name.
  """
  rows = {row.name: row for row in TABLE}
  return rows[schema.check_name(name, list(rows), what='device')]


def utilisation(
    flops_per_sec: float, *, kind: str, devices: int,
) -> float | None:
  """Returns the fraction of the devices' peak FLOP/s, or None if unknown."""
  row = find(kind)
  return flops_per_sec / (row.peak_flops * devices) if row else None
