"""GPUs that are not here, by name, for the compiler alone.

    gpus.devices('h100:8')    # a machine of eight

XLA compiles for a GPU that it is told of, where JAX's CUDA plugin is installed;
no GPU and no driver is needed. What it gives for a topology are descriptions of
devices: programs can be compiled for them, and no array can be put on one. A
machine would try which of several kernels is the fastest; here that cannot be
tried, and products are left to NVIDIA's library. One machine alone, since what
joins several differs from one place to the next.
"""

from collections.abc import Mapping, Sequence
import contextlib
import dataclasses
import importlib.metadata
import os

import jax
from jax.experimental import topologies

from vit_jax.parallel import hardware

# XLA's own kernels for products are chosen by trying them.
_FLAG = '--xla_gpu_enable_triton_gemm=false'
MOST = 8  # Of a machine, where all are joined alike.
# The CUDA that each plugin is built for.
_CUDA = {'jax-cuda13-plugin': (13, 0), 'jax-cuda12-plugin': (12, 9)}


@dataclasses.dataclass(frozen=True)
class Chip:
  """What the compiler asks of a GPU beside its memory.

  Attributes:
    capability: of CUDA, major and minor.
    multiprocessors: streaming multiprocessors.
    lanes: float32 units of each.
    shared_bytes: memory that the threads of a multiprocessor share.
    l2_bytes: of the cache that all share.
    clock_ghz: at most.
  """
  capability: tuple[int, int]
  multiprocessors: int
  lanes: int
  shared_bytes: int
  l2_bytes: int
  clock_ghz: float


# NVIDIA's white papers on the A100 (2020) and the H100 (2022), SXM; CUDA C++
# Programming Guide, table of technical specifications by compute capability.
_A100 = Chip((8, 0), 108, 64, 164 * 2**10, 40 * 2**20, 1.41)
_H100 = Chip((9, 0), 132, 128, 228 * 2**10, 50 * 2**20, 1.98)
# By the name of their row of `hardware.TABLE`, in small letters.
CHIPS: Mapping[str, Chip] = {
    'a100': _A100, 'a100-80gb': _A100, 'h100': _H100, 'h200': _H100}


def parse(name: str) -> tuple[str, int] | None:
  """Returns the GPU and how many of them: ('h100', 8).

  Args:
    name: 'h100:8'.

  Returns:
    None if it names no GPU.

  Raises:
    ValueError: if it does, but not how many a machine may have.
  """
  gpu, _, count = name.strip().lower().partition(':')
  if gpu not in CHIPS:
    return None
  if not count.isdecimal() or not 1 <= int(count) <= MOST:
    raise ValueError(
        f'GPUs are named with their number in a machine, {gpu}:1 to '
        f'{gpu}:{MOST}, but this is {name!r}.')
  return gpu, int(count)


def devices(name: str) -> Sequence[jax.Device]:
  """Returns descriptions of GPUs.

  Args:
    name: as `parse` takes it, of a GPU.

  Raises:
    ValueError: if it is not known, or the plugin is not installed.
  """
  found = parse(name)
  if found is None:
    raise ValueError(f'{name!r} names none of the GPUs {", ".join(CHIPS)}.')
  gpu, count = found
  installed = plugin()
  if installed is None:
    raise ValueError(
        "GPUs that are not here need JAX's CUDA plugin, which needs no GPU but "
        'is not installed. Install it with: pip install -r '
        'requirements-gpu.txt')
  flags = os.environ.get('XLA_FLAGS', '')
  if 'triton_gemm' not in flags:
    os.environ['XLA_FLAGS'] = f'{flags} {_FLAG}'.strip()
  return topologies.get_topology_desc(
      platform='cuda', topology=f'1x1x{count}',
      target_config=describe(
          hardware.named(gpu), CHIPS[gpu], _CUDA[installed])).devices


def plugin() -> str | None:
  """Returns JAX's CUDA plugin that is installed, or None."""
  for name in _CUDA:
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
      importlib.metadata.version(name)
      return name
  return None


def describe(
    row: hardware.Hardware, chip: Chip, cuda: tuple[int, int]) -> str:
  """Returns the text of XLA's `GpuTargetConfigProto`."""
  block_bytes = chip.shared_bytes - 2**10  # CUDA keeps a KiB of each block.
  return f"""
gpu_device_info {{
  cuda_compute_capability {{
    major: {chip.capability[0]} minor: {chip.capability[1]} }}
  core_count: {chip.multiprocessors}
  fpus_per_core: {chip.lanes}
  clock_rate_ghz: {chip.clock_ghz}
  device_memory_size: {row.memory_bytes}
  memory_bandwidth: {int(row.memory_bytes_per_sec)}
  l2_cache_size: {chip.l2_bytes}
  shared_memory_per_core: {chip.shared_bytes}
  shared_memory_per_block: {48 * 2**10}
  shared_memory_per_block_optin: {block_bytes}
  registers_per_core_limit: 65536
  registers_per_block_limit: 65536
  threads_per_core_limit: 2048
  threads_per_block_limit: 1024
  threads_per_warp: 32
  block_dim_limit_x: 2147483647
  block_dim_limit_y: 65535
  block_dim_limit_z: 65535
}}
platform_name: "CUDA"
dnn_version_info {{ major: 9 minor: 10 }}
runtime_version {{ major: {cuda[0]} minor: {cuda[1]} }}
device_description_str: "{row.kinds[0]}"
"""
