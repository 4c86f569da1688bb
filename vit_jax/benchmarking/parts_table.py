"""The parts of a step, as a person reads them."""

import os

from vit_jax import console as console_lib
from vit_jax.benchmarking import parts as parts_lib


def show(title: str, measured: parts_lib.Roofline) -> None:
  """Prints what each part takes, and the least that it could."""
  total = measured.step_secs.median
  console_lib.table(
      f'{title}, {os.cpu_count()} cores; milliseconds of a step, medians', (
          'part', 'times', 'GFLOP', 'MB', 'ms', 'at least', 'of its bound',
          'of the step'),
      [(part.name, part.times, part.flops / 1e9, part.num_bytes / 1e6,
        1e3 * part.secs.median, 1e3 * part.bound_secs,
        f'{100 * part.share:.0f} %',
        f'{100 * part.secs.median / total:.1f} %') for part in measured.parts])
  together = sum(part.secs.median for part in measured.parts)
  print(f'The whole step takes {1e3 * total:,.1f} ms, its parts apart '
        f'{1e3 * together:,.1f} ms. At best this device does '
        f'{measured.flops_per_sec / 1e9:,.1f} GFLOP/s and moves '
        f'{measured.bytes_per_sec / 1e9:,.1f} GB/s: what stays in a cache can '
        'be faster than its bound.')
