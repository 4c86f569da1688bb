"""From nothing to the first trained step: what a fresh process waits for.

    import ─▶ wire ─▶ compile ─▶ state ─▶ first batch ─▶ first step

Each measurement is a process of its own, `python -m vit_jax.benchmarking.start
CONFIG.json BEGAN`, which goes the way of a run and writes what each part took
as JSON. Cold, nothing was compiled before; warm, JAX's cache on disk holds what
a cold one left there.
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
from vit_jax.benchmarking import interleaved_timing as interleaved_timing_lib
from vit_jax.benchmarking import step as step_lib
from vit_jax.experiment import config as config_lib
from vit_jax.experiment import fit_batch
from vit_jax.plan import build_without_data

ROOT = pathlib.Path(__file__).parents[2]


@dataclasses.dataclass(frozen=True)
class Start:
  """One start; seconds by the clock.

  Attributes:
    import_secs: of the interpreter and of all modules.
    build_secs: of the data that are opened, and all that is wired.
    compile_secs: of the training step: traced, lowered and compiled.
    state_secs: of the first parameters and the optimizer's state.
    batch_secs: of the first batch, and of the workers that make it.
    step_secs: of the first step.
    total_secs: of all of these.
    core_secs: of processors, for all but the workers.
    host_bytes: the most that the process held of the host's memory.
    device_bytes: of a device's memory; None where it does not count them.
  """
  import_secs: float
  build_secs: float
  compile_secs: float
  state_secs: float
  batch_secs: float
  step_secs: float
  total_secs: float
  core_secs: float
  host_bytes: float
  device_bytes: float | None


@dataclasses.dataclass(frozen=True)
class Starts:
  """Several starts: each of `Start`'s figures, with its spread."""
  cold: dict[str, interleaved_timing_lib.Spread]
  warm: dict[str, interleaved_timing_lib.Spread]


def measure(
    config: config_lib.Config, *, turns: int, say: Callable[[str], object],
) -> Starts:
  """Starts so often with an empty cache, and each time again with a full one.

  Before this process asks for its devices: an accelerator serves one at a time.

  Args:
    config: of the run.
    turns: starts of each kind.
    say: is told after each pair, which may take a minute.

  Raises:
    RuntimeError: if a start fails, with its words.
  """
  cold, warm = [], []
  with tempfile.TemporaryDirectory() as folder:
    path = pathlib.Path(folder) / 'config.json'
    atomic_files.write_json(path, config_lib.to_plain(config))
    for turn in range(turns):
      cache = os.path.join(folder, f'cache{turn}')
      cold.append(_start(path, cache))
      warm.append(_start(path, cache))
      say(f'start {turn + 1} of {turns}: nothing compiled before, and again')
  return Starts(_spreads(cold), _spreads(warm))


def _start(path: pathlib.Path, cache: str) -> Start:
  places = [os.fspath(ROOT), *filter(None, [os.environ.get('PYTHONPATH')])]
  done = subprocess.run(
      [sys.executable, '-m', 'vit_jax.benchmarking.start', os.fspath(path),
       repr(time.time())],
      env={**os.environ, 'JAX_COMPILATION_CACHE_DIR': cache,
           'PYTHONPATH': os.pathsep.join(places)},
      capture_output=True, text=True, check=False)
  if done.returncode:
    raise RuntimeError(
        f'A start ended with {done.returncode}: {done.stderr.strip()[-2000:]}')
  return Start(**json.loads(done.stdout.strip().splitlines()[-1]))


def _spreads(starts: list[Start]) -> dict[str, interleaved_timing_lib.Spread]:
  rows = [dataclasses.asdict(start) for start in starts]
  return {name: interleaved_timing_lib.spread(row[name] for row in rows)
          for name in rows[0] if rows[0][name] is not None}


def main(path: str, began: str) -> None:
  """Starts, in this process, and writes what that took."""
  times = [float(began), time.time()]
  config = config_lib.resolve(json.loads(pathlib.Path(path).read_text()))
  experiment, origin = build_without_data.build(config, jax.devices())
  times.append(time.time())
  fitted = fit_batch.fit(
      experiment, free_bytes=fit_batch.free_bytes(experiment.mesh),
      batches_ahead=run_lib.IN_FLIGHT)
  times.append(time.time())
  state = jax.block_until_ready(fitted.experiment.init_state())
  times.append(time.time())
  with contextlib.ExitStack() as stack:
    if origin == 'data':
      batch = next(stack.enter_context(contextlib.closing(
          fitted.experiment.batches(start_step=0))))
    else:
      batch = step_lib.made_up_batch(fitted.experiment)
    times.append(time.time())
    jax.block_until_ready(fitted.step(state, batch))
    times.append(time.time())
  parts = [after - before for before, after in itertools.pairwise(times)]
  names = [field.name for field in dataclasses.fields(Start)]
  stats = experiment.mesh.devices.flat[0].memory_stats() or {}
  print(json.dumps(dict(zip(names, (
      *parts, sum(parts), time.process_time(),
      # Linux counts in KiB.
      1024.0 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
      stats.get('peak_bytes_in_use')), strict=True))), flush=True)


if __name__ == '__main__':
  main(*sys.argv[1:])
