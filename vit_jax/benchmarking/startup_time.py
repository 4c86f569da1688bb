"""Time from process start to the first training step.

Each measurement is a fresh process, `python -m
vit_jax.benchmarking.startup_time CONFIG.json START_TIME`, which follows the
path of a training run and prints the time of each phase as JSON. Cold starts
have an empty compilation cache; warm starts have the cache of a cold start.
"""

import contextlib
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
# Spread of each figure, in seconds or bytes.
Spreads = dict[str, interleaved_timing.Spread]


def measure(
    config: config_lib.Config, *, rounds: int,
) -> dict[str, Spreads]:
  """Measures cold and warm starts in turn, and prints the progress.

  Call it before this process uses its devices, which an accelerator gives to
  one process at a time.

  Args:
    config: the run.
    rounds: starts of each kind.

  Returns:
    'cold' and 'warm' figures; see `main`.

  Raises:
    RuntimeError: if a start fails.
  """
  found: dict[str, list[dict[str, float]]] = {'cold': [], 'warm': []}
  with tempfile.TemporaryDirectory() as folder:
    path = pathlib.Path(folder) / 'config.json'
    atomic_files.write_json(path, config_lib.to_plain(config))
    for i in range(rounds):
      for starts in found.values():
        starts.append(_start(path, os.path.join(folder, f'cache{i}')))
      print(f'start {i + 1} of {rounds}, cold and warm', flush=True)
  return {kind: {name: interleaved_timing.spread(row[name] for row in starts)
                 for name in starts[0]} for kind, starts in found.items()}


def _start(path: pathlib.Path, cache: str) -> dict[str, float]:
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
  return json.loads(done.stdout.strip().splitlines()[-1])


def main(path: str, start_time: str) -> None:
  """Runs all phases in this process and prints their times as JSON.

  Prints `import_secs` (interpreter and imports), `build_secs`, `compile_secs`,
  `init_secs`, `batch_secs` (with the start of the workers) and `step_secs`;
  their sum `total_secs`; `cpu_secs` without workers; and the peak of the host
  and device memory, as far as the device reports it.
  """
  figures: dict[str, float] = {}
  last = float(start_time)

  def end(phase: str) -> None:
    nonlocal last
    figures[f'{phase}_secs'] = time.time() - last
    last = time.time()

  end('import')
  config = config_lib.resolve(json.loads(pathlib.Path(path).read_text()))
  experiment, sizes_from = build_without_data.build(config, jax.devices())
  end('build')
  fitted = fit_batch.fit(
      experiment, free_bytes=device_memory.free_bytes(experiment.mesh),
      batches_ahead=run_lib.IN_FLIGHT)
  end('compile')
  state = jax.block_until_ready(fitted.experiment.init_state())
  end('init')
  with contextlib.ExitStack() as stack:
    if sizes_from == 'data':
      batch = next(stack.enter_context(contextlib.closing(
          fitted.experiment.batches(start_step=0))))
    else:
      batch = step_speed.random_batch(fitted.experiment)
    end('batch')
    jax.block_until_ready(fitted.step(state, batch))
    end('step')
  figures |= {
      'total_secs': sum(figures.values()), 'cpu_secs': time.process_time(),
      # Linux reports KiB.
      'host_bytes': (
          1024.0 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)}
  stats = experiment.mesh.devices.flat[0].memory_stats() or {}
  if 'peak_bytes_in_use' in stats:
    figures['device_bytes'] = stats['peak_bytes_in_use']
  print(json.dumps(figures), flush=True)


if __name__ == '__main__':
  main(*sys.argv[1:])
