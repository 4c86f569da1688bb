"""Terminal report of step speed and startup time."""

from collections.abc import Mapping
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


def show(title: str, found: step_speed.StepSpeed) -> None:
  """Prints the training step and the forward pass."""
  number, columns = console.format_number, [
      _rows(speed) for speed in (found.train, found.inference)]
  console.table(
      f'{title}, {found.devices} x {found.device_kind}, '
      f'{os.cpu_count()} CPU cores', ('', 'training step', 'inference'),
      [(name, *(column[name] for column in columns)) for name in columns[0]])
  peak = found.peak
  print(f'Medians of {found.train.timing.rounds} interleaved rounds (lowest – '
        f'highest).\nMatmul of {peak.size:,} x {peak.size:,}: '
        f'{number(peak.flops_per_sec / 1e12)} TFLOP/s '
        f'({_spread(peak.timing.secs)} s).')
  if found.num_microbatches > 1:
    print(f'A batch is split into {found.num_microbatches} microbatches.')
  if found.input is None:
    print('The data are not available: input was not measured.')
    return
  share = found.input['wait_share']
  print('With the input pipeline: '
        f'{_spread(found.input["images_per_sec"])} images/s, waiting for input '
        f'{share.median:.1%} of the time ({share.lowest:.1%} – '
        f'{share.highest:.1%}).')


def _rows(speed: step_speed.Speed) -> dict[str, str | None]:
  number, datasheet = console.format_number, speed.datasheet_utilisation
  return {
      'images/s': number(speed.images_per_sec),
      'seconds': _spread(speed.timing.secs),
      'CPU seconds': _spread(speed.timing.cpu_secs),
      'GFLOP/image': number(speed.flops_per_image / 1e9),
      'TFLOP/s': number(speed.flops_per_sec / 1e12),
      '% of measured matmul peak': f'{speed.matmul_utilisation:.1%}',
      '% of data sheet peak': (
          None if datasheet is None else f'{datasheet:.1%}'),
      'memory per device': console.format_bytes(speed.needed_bytes)}


def show_startups(
    found: Mapping[str, startup_time.Spreads], *, rounds: int) -> None:
  """Prints the time to the first step."""
  print()
  console.table(
      f'Start to first step, seconds; medians of {rounds} (lowest – highest)',
      ('', 'cold compilation cache', 'warm compilation cache'), [
          (name, *(_spread(found[kind][field]) for kind in ('cold', 'warm')))
          for name, field in _PHASES.items()])
  print('Peak memory: ' + ', '.join(
      f'{name} {console.format_bytes(found["cold"][f"{name}_bytes"].median)}'
      for name in ('host', 'device') if f'{name}_bytes' in found['cold']) + '.')


def _spread(found: interleaved_timing.Spread) -> str:
  median, lowest, highest = (
      console.format_number(value)
      for value in (found.median, found.lowest, found.highest))
  return f'{median} ({lowest} – {highest})'
