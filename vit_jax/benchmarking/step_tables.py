"""The speed of a step, as a person reads it."""

import os

from vit_jax.benchmarking import start as start_lib
from vit_jax.benchmarking import step as step_lib
from vit_jax.benchmarking import turns as turns_lib
from vit_jax.training import progress

_PARTS = (
    ('import', 'import_secs'), ('wire, open the data', 'build_secs'),
    ('compile', 'compile_secs'), ('first state', 'state_secs'),
    ('first batch', 'batch_secs'), ('first step', 'step_secs'),
    ('all of these', 'total_secs'), ('of processors', 'core_secs'))


def show(title: str, measured: step_lib.Measured) -> None:
  """Prints the step and the forward pass."""
  turns = measured.train.timed.turns
  progress.table(
      f'{title}, {measured.devices} x {measured.device_kind}, '
      f'{os.cpu_count()} cores; medians of {turns} turns (lowest to highest)',
      ('', 'images/s', 'seconds', 'of processors', 'GFLOP an image', 'TFLOP/s',
       'of a product', 'of data sheet', 'GiB'),
      [_row(name, part) for name, part in (
          ('training step', measured.train),
          ('inference', measured.inference))])
  peak = measured.peak
  print(f'A product of {peak.size:,} x {peak.size:,} matrices: '
        f'{progress.format_number(peak.flops_per_sec / 1e12)} TFLOP/s '
        f'({_spread(peak.timed.secs)} s).')
  if measured.accumulation > 1:
    print(f'A batch is computed in {measured.accumulation} parts.')
  if measured.input is None:
    print('The data are not here: what the input takes was not measured.')
    return
  share = measured.input.wait_share
  print(f'With its input {_spread(measured.input.images_per_sec)} images/s, '
        f'of which {share.median:.1%} is waiting for images '
        f'({share.lowest:.1%} to {share.highest:.1%}).')


def show_starts(starts: start_lib.Starts, *, turns: int) -> None:
  """Prints what a fresh process waits for."""
  print()
  progress.table(
      f'From nothing to the first step, seconds; medians of {turns} (lowest to '
      'highest)', ('', 'nothing compiled before', 'compiled before'), [
          (words, _spread(starts.cold[name]), _spread(starts.warm[name]))
          for words, name in _PARTS])
  memory = [f'{_gib(starts.cold["host_bytes"].median)} GiB of the host']
  if 'device_bytes' in starts.cold:
    memory.append(f'{_gib(starts.cold["device_bytes"].median)} of a device')
  print(f'At most held: {", ".join(memory)}.')


def _row(name: str, part: step_lib.Part) -> tuple[str | float | None, ...]:
  sheet = part.datasheet_utilisation
  return (name, part.images_per_sec, _spread(part.timed.secs),
          part.timed.core_secs.median, part.flops_per_image / 1e9,
          part.flops_per_sec / 1e12, f'{100 * part.utilisation:.1f} %',
          None if sheet is None else f'{100 * sheet:.1f} %',
          _gib(part.needed_bytes))


def _spread(found: turns_lib.Spread) -> str:
  median, lowest, highest = (
      progress.format_number(value)
      for value in (found.median, found.lowest, found.highest))
  return f'{median} ({lowest} to {highest})'


def _gib(count: float) -> str:
  return progress.format_number(count / 2**30)
