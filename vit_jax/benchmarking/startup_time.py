"""Time from process start to the first training step.

Each measurement is a fresh process, `python -m
vit_jax.benchmarking.startup_time CONFIG.json START_TIME`, which follows the
path of a training run and prints the time of each phase as JSON. Cold starts
have an empty compilation cache; warm starts have the cache of a cold start.
"""

from collections.abc import Callable
import contextlib
import dataclasses
import itertools
import json
import os
import pathlib
import resource
import subprocess
import sys
import tempfile
import time

import jax

from vit_jax import atomic_files
from vit_jax import run as run_lib
from vit_jax.benchmarking import interleaved_timing
from vit_jax.benchmarking import step_speed
from vit_jax.experiment import config as config_lib
from vit_jax.experiment import fit_batch
from vit_jax.parallel import device_memory
from vit_jax.plan import build_without_data

ROOT = pathlib.Path(__file__).parents[2]


@dataclasses.dataclass(frozen=True)
class Startup:
  """Wall time of the phases of one start.

  Attributes:
    import_secs: interpreter and imports.
    build_secs: opening the data and building the experiment.
    compile_secs: tracing and compiling the training step.
    init_secs: initial parameters and optimizer state.
    batch_secs: first batch, including the start of its workers.
    step_secs: first step.
    total_secs: sum of all phases.
    cpu_secs: CPU time, without workers.
    host_bytes: peak host memory.
    device_bytes: peak device memory; None if the device does not report it.
  """
  import_secs: float
  build_secs: float
  compile_secs: float
  init_secs: float
  batch_secs: float
  step_secs: float
  total_secs: float
  cpu_secs: float
  host_bytes: float
  device_bytes: float | None


@dataclasses.dataclass(frozen=True)
class Startups:
  """Spread of each field of `Startup` over cold and over warm starts."""
  cold: dict[str, interleaved_timing.Spread]
  warm: dict[str, interleaved_timing.Spread]


def measure(
    config: config_lib.Config, *, rounds: int, report: Callable[[str], object],
) -> Startups:
  """Measures cold and warm starts in turn.

  Call it before this process uses its devices, which an accelerator gives to
  one process at a time.

  Args:
    config: the run.
    rounds: starts of each kind.
    report: called with a progress message after each pair.

  Raises:
    RuntimeError: if a start fails.
  """
  cold, warm = [], []
  with tempfile.TemporaryDirectory() as folder:
    path = pathlib.Path(folder) / 'config.json'
    atomic_files.write_json(path, config_lib.to_plain(config))
    for i in range(rounds):
      cache = os.path.join(folder, f'cache{i}')
      cold.append(_start(path, cache))
      warm.append(_start(path, cache))
      report(f'start {i + 1} of {rounds}, cold and warm')
  return Startups(_spreads(cold), _spreads(warm))


def _start(path: pathlib.Path, cache: str) -> Startup:
  python_path = [os.fspath(ROOT), *filter(None, [os.environ.get('PYTHONPATH')])]
  done = subprocess.run(
      [sys.executable, '-m', 'vit_jax.benchmarking.startup_time',
       os.fspath(path), repr(time.time())],
      env={**os.environ, 'JAX_COMPILATION_CACHE_DIR': cache,
           'PYTHONPATH': os.pathsep.join(python_path)},
      capture_output=True, text=True, check=False)
  if done.returncode:
    raise RuntimeError(f'A start failed with status {done.returncode}: '
                       f'{done.stderr.strip()[-2000:]}')
  return Startup(**json.loads(done.stdout.strip().splitlines()[-1]))


def _spreads(starts: list[Startup]) -> dict[str, interleaved_timing.Spread]:
  rows = [dataclasses.asdict(start) for start in starts]
  return {name: interleaved_timing.spread(row[name] for row in rows)
          for name in rows[0] if rows[0][name] is not None}


def main(path: str, start_time: str) -> None:
  """Runs all phases in this process and prints their times."""
  times = [float(start_time), time.time()]
  config = config_lib.resolve(json.loads(pathlib.Path(path).read_text()))
  experiment, sizes_from = build_without_data.build(config, jax.devices())
  times.append(time.time())
  fitted = fit_batch.fit(
      experiment, free_bytes=device_memory.free_bytes(experiment.mesh),
      batches_ahead=run_lib.IN_FLIGHT)
  times.append(time.time())
  state = jax.block_until_ready(fitted.experiment.init_state())
  times.append(time.time())
  with contextlib.ExitStack() as stack:
    if sizes_from == 'data':
      batch = next(stack.enter_context(contextlib.closing(
          fitted.experiment.batches(start_step=0))))
    else:
      batch = step_speed.random_batch(fitted.experiment)
    times.append(time.time())
    jax.block_until_ready(fitted.step(state, batch))
    times.append(time.time())
  phases = [after - before for before, after in itertools.pairwise(times)]
  names = [field.name for field in dataclasses.fields(Startup)]
  stats = experiment.mesh.devices.flat[0].memory_stats() or {}
  print(json.dumps(dict(zip(names, (
      *phases, sum(phases), time.process_time(),
      # Linux reports KiB.
      1024.0 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
      stats.get('peak_bytes_in_use')), strict=True))), flush=True)


if __name__ == '__main__':
  main(*sys.argv[1:])
