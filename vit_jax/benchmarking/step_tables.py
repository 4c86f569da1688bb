"""The speed of a step, as a person reads it."""

import os

from vit_jax import console as console_lib
from vit_jax.benchmarking import interleaved_timing as interleaved_timing_lib
from vit_jax.benchmarking import start as start_lib
from vit_jax.benchmarking import step as step_lib

_PARTS = (
    ('import', 'import_secs'), ('wire, open the data', 'build_secs'),
    ('compile', 'compile_secs'), ('first state', 'state_secs'),
    ('first batch', 'batch_secs'), ('first step', 'step_secs'),
    ('all of these', 'total_secs'), ('of processors', 'core_secs'))
_ROWS = ('images/s', 'seconds', 'seconds of processors', 'GFLOP an image',
         'TFLOP/s', 'share of a product here', 'share of the data sheet',
         'GiB, as the compiler has it')


def show(title: str, measured: step_lib.Measured) -> None:
  """Prints the step and the forward pass."""
  columns = [_column(part) for part in (measured.train, measured.inference)]
  console_lib.table(
      f'{title}, {measured.devices} x {measured.device_kind}, '
      f'{os.cpu_count()} cores', ('', 'training step', 'inference'),
      [(words, *cells) for words, cells in zip(_ROWS, zip(*columns))])
  peak = measured.peak
  print(f'Medians of {measured.train.timed.turns} turns, in turn (lowest to '
        'highest).')
  print(f'A product of {peak.size:,} x {peak.size:,} matrices: '
        f'{console_lib.format_number(peak.flops_per_sec / 1e12)} TFLOP/s '
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
  console_lib.table(
      f'From nothing to the first step, seconds; medians of {turns} (lowest to '
      'highest)', ('', 'nothing compiled before', 'compiled before'), [
          (words, _spread(starts.cold[name]), _spread(starts.warm[name]))
          for words, name in _PARTS])
  memory = [f'{_gib(starts.cold["host_bytes"].median)} GiB of the host']
  if 'device_bytes' in starts.cold:
    memory.append(f'{_gib(starts.cold["device_bytes"].median)} of a device')
  print(f'At most held: {", ".join(memory)}.')


def _column(part: step_lib.Part) -> tuple[str, ...]:
  """Returns the cells of `_ROWS`."""
  sheet = part.datasheet_utilisation
  return (console_lib.format_number(part.images_per_sec),
          _spread(part.timed.secs), _spread(part.timed.core_secs),
          console_lib.format_number(part.flops_per_image / 1e9),
          console_lib.format_number(part.flops_per_sec / 1e12),
          f'{part.utilisation:.1%}',
          '–' if sheet is None else f'{sheet:.1%}',
          _gib(part.needed_bytes))


def _spread(found: interleaved_timing_lib.Spread) -> str:
  median, lowest, highest = (
      console_lib.format_number(value)
      for value in (found.median, found.lowest, found.highest))
  return f'{median} ({lowest} to {highest})'


def _gib(count: float) -> str:
  return console_lib.format_number(count / 2**30)
