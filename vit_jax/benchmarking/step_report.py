"""Terminal report of step speed and startup time."""

import os

from vit_jax import console
from vit_jax.benchmarking import interleaved_timing
from vit_jax.benchmarking import startup_time
from vit_jax.benchmarking import step_speed

_PHASES = {
    'import': 'import_secs', 'build, open data': 'build_secs',
    'compile': 'compile_secs', 'initial state': 'init_secs',
    'first batch': 'batch_secs', 'first step': 'step_secs',
    'total': 'total_secs', 'CPU time': 'cpu_secs'}
_ROWS = ('images/s', 'seconds', 'CPU seconds', 'GFLOP/image', 'TFLOP/s',
         '% of measured matmul peak', '% of data sheet peak',
         'memory per device')


def show(title: str, found: step_speed.StepSpeed) -> None:
  """Prints the training step and the forward pass."""
  columns = [_column(speed) for speed in (found.train, found.inference)]
  console.table(
      f'{title}, {found.devices} x {found.device_kind}, '
      f'{os.cpu_count()} CPU cores', ('', 'training step', 'inference'),
      [(name, *cells) for name, cells in zip(_ROWS, zip(*columns))])
  peak = found.peak
  print(f'Medians of {found.train.timing.rounds} interleaved rounds (lowest – '
        'highest).')
  print(f'Matmul of {peak.size:,} x {peak.size:,}: '
        f'{console.format_number(peak.flops_per_sec / 1e12)} TFLOP/s '
        f'({_spread(peak.timing.secs)} s).')
  if found.num_microbatches > 1:
    print(f'A batch is split into {found.num_microbatches} microbatches.')
  if found.input is None:
    print('The data are not available: input was not measured.')
    return
  share = found.input.wait_share
  print(f'With the input pipeline: {_spread(found.input.images_per_sec)} '
        f'images/s, waiting for input {share.median:.1%} of the time '
        f'({share.lowest:.1%} – {share.highest:.1%}).')


def show_startups(found: startup_time.Startups, *, rounds: int) -> None:
  """Prints the time to the first step."""
  print()
  console.table(
      f'Start to first step, seconds; medians of {rounds} (lowest – highest)',
      ('', 'cold compilation cache', 'warm compilation cache'), [
          (name, _spread(found.cold[field]), _spread(found.warm[field]))
          for name, field in _PHASES.items()])
  memory = 'host ' + console.format_bytes(found.cold['host_bytes'].median)
  if 'device_bytes' in found.cold:
    memory += ', device ' + console.format_bytes(
        found.cold['device_bytes'].median)
  print(f'Peak memory: {memory}.')


def _column(speed: step_speed.Speed) -> tuple[str, ...]:
  """Returns the cells of `_ROWS`."""
  datasheet = speed.datasheet_utilisation
  return (console.format_number(speed.images_per_sec),
          _spread(speed.timing.secs), _spread(speed.timing.cpu_secs),
          console.format_number(speed.flops_per_image / 1e9),
          console.format_number(speed.flops_per_sec / 1e12),
          f'{speed.matmul_utilisation:.1%}',
          '–' if datasheet is None else f'{datasheet:.1%}',
          console.format_bytes(speed.needed_bytes))


def _spread(found: interleaved_timing.Spread) -> str:
  median, lowest, highest = (
      console.format_number(value)
      for value in (found.median, found.lowest, found.highest))
  return f'{median} ({lowest} – {highest})'
