"""What an accelerator can do at best: a row each, with its source.

The unit is what JAX calls a device. That is a core of a TPU v2 or v3, and a
whole chip from v4 on: of two cores where it has two ("megacore"). Speeds are
of dense matrix products in bfloat16, summed in float32; in float32 proper the
same devices do a fraction of it.

What a device sends to others is that of all its links together, in one
direction, and it receives as much meanwhile: half of what a data sheet calls
bidirectional. The two cores of a v2 or v3 share their chip's memory bandwidth
and links; each is said to have half.
"""

from collections.abc import Mapping, Sequence
import dataclasses
import glob
import re

from vit_jax import schema

GIB = 2**30
GB = 10**9

# What stands in brackets in a row's source. A v2's and a v3's chip has four
# links of 496 and of 656 Gbit/s; the documentation gives a v4's 2,400, a v5e's
# 1,600 and a v5p's 4,800 Gbit/s, and a v6e's 800 GB/s in both directions.
SOURCES: Mapping[str, str] = {
    'v2': 'Jouppi et al., A Domain-Specific Supercomputer for Training Deep '
          'Neural Networks, CACM 63(7), 2020, table 3',
    'v3': 'https://cloud.google.com/tpu/docs/v3; links: CACM 63(7), 2020, '
          'table 3',
    'v4': 'https://cloud.google.com/tpu/docs/v4',
    'v5e': 'https://cloud.google.com/tpu/docs/v5e',
    'v5p': 'https://cloud.google.com/tpu/docs/v5p',
    'v6e': 'https://cloud.google.com/tpu/docs/v6e',
    'V100': "NVIDIA's data sheet of the V100",
    # Without sparsity; links are NVLink within a machine.
    'A100': "NVIDIA's data sheet of the A100",
    'H100': "NVIDIA's data sheet of the H100",
    'H200': "NVIDIA's data sheet of the H200",
}


@dataclasses.dataclass(frozen=True)
class Hardware:
  """One device, as JAX counts devices.

  Attributes:
    name: as people write it.
    kinds: what `jax.Device.device_kind` may say.
    peak_flops: operations per second; a multiply-add is two.
    memory_bytes: of the device.
    memory_bytes_per_sec: between the device and its memory.
    link_bytes_per_sec: that the device can send to others; None if not known.
    cores: TensorCores of a device; a GPU counts as one.
    source: of these figures.
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
    """Operations per second of one core."""
    return self.peak_flops / self.cores


TABLE: Sequence[Hardware] = (
    Hardware('TPUv2', ('TPU v2',), 46e12 / 2, 8 * GIB, 700e9 / 2,
             4 * 496e9 / 8 / 2, source='[v2]'),
    Hardware('TPUv3', ('TPU v3',), 123e12 / 2, 16 * GIB, 900e9 / 2,
             4 * 656e9 / 8 / 2, source='[v3]'),
    Hardware('TPUv4', ('TPU v4',), 275e12, 32 * GIB, 1200e9, 2400e9 / 8,
             cores=2, source='[v4]'),
    Hardware('TPUv5e', ('TPU v5 lite', 'TPU v5e'), 197e12, 16 * GB, 819e9,
             1600e9 / 8, source='[v5e]'),
    Hardware('TPUv5p', ('TPU v5', 'TPU v5p'), 459e12, 95 * GB, 2765e9,
             4800e9 / 8, cores=2, source='[v5p]'),
    Hardware('TPUv6e', ('TPU v6 lite', 'TPU v6e'), 918e12, 32 * GB, 1638e9,
             800e9 / 2, source='[v6e]'),
    Hardware('V100', ('Tesla V100-SXM2-16GB',), 125e12, 16 * GB, 900e9,
             300e9 / 2, source='[V100], in float16: it has no bfloat16'),
    Hardware('V100-32GB', ('Tesla V100-SXM2-32GB',), 125e12, 32 * GB, 900e9,
             300e9 / 2, source='[V100], in float16: it has no bfloat16'),
    Hardware('A100', ('NVIDIA A100-SXM4-40GB',), 312e12, 40 * GB, 1555e9,
             600e9 / 2, source='[A100], SXM'),
    Hardware('A100-PCIe', ('NVIDIA A100-PCIE-40GB',), 312e12, 40 * GB, 1555e9,
             source='[A100], PCIe'),
    Hardware('A100-80GB', ('NVIDIA A100-SXM4-80GB',), 312e12, 80 * GB, 2039e9,
             600e9 / 2, source='[A100], SXM'),
    Hardware('A100-80GB-PCIe', ('NVIDIA A100 80GB PCIe',), 312e12, 80 * GB,
             1935e9, source='[A100], PCIe'),
    # The PCIe and NVL models of these two are slower.
    Hardware('H100', ('NVIDIA H100 80GB HBM3',), 989e12, 80 * GB, 3350e9,
             900e9 / 2, source='[H100], SXM'),
    Hardware('H200', ('NVIDIA H200',), 989e12, 141 * GB, 4800e9, 900e9 / 2,
             source='[H200], SXM'),
)
_BY_KIND = {kind: row for row in TABLE for kind in row.kinds}


def find(device_kind: str) -> Hardware | None:
  """Returns the row of a `jax.Device.device_kind`, or None if there is none.

  The whole kind must be known: a part of a GPU, or its PCIe model, has another
  peak, and no figure is better than a wrong one.
  """
  return _BY_KIND.get(device_kind)


def named(name: str) -> Hardware:
  """Returns the row of a name: 'TPUv3', 'tpu-v3', 'TPU v3', 'H200'.

  Raises:
    ValueError: for a name without a row, with those that have one.
  """
  rows = {_bare(row.name): row for row in TABLE}
  if _bare(name) not in rows:
    schema.check_name(name, [row.name for row in TABLE], what='device')
  return rows[_bare(name)]


def describe_source(source: str) -> str:
  """Returns a row's source in full: '[H100], SXM' names a data sheet."""
  key = source.strip('[').partition(']')[0]
  return f'{source}: {SOURCES[key]}'


def cores(device_kind: str) -> int:
  """Returns the cores of a device; one, where nothing is known of it.

  One too for a CPU, which JAX shows as a single device whatever it has.
  """
  row = find(device_kind)
  return row.cores if row else 1


def _bare(name: str) -> str:
  return re.sub(r'[\s_-]', '', name).lower()


def has_tpu() -> bool:
  """Whether a TPU is in this machine, and shown to this process."""
  return bool(glob.glob('/dev/accel*') + glob.glob('/dev/vfio/[0-9]*'))
