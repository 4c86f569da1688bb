"""Time from process start to the first training step.

    python benchmarks/startup.py --model=Ti/16
    python benchmarks/startup.py --config=configs/pretrain.py

Each start is a fresh process that follows the path of a training run and prints
the time of each phase. Cold starts have an empty compilation cache; warm starts
have the cache of a cold start. They run in turn, and medians are reported.
"""

import argparse
import contextlib
import dataclasses
import json
import os
import pathlib
import resource
import subprocess
import sys
import tempfile
import time

import jax
import synthetic_photos

sys.path.insert(0, os.fspath(pathlib.Path(__file__).parents[1]))

from vit_jax import atomic_files
from vit_jax import console
from vit_jax.experiment import build as build_lib
from vit_jax.experiment import config as config_lib
from vit_jax.experiment import fit_batch
from vit_jax.experiment import load_config
from vit_jax.extras.plan import interleaved_timing
from vit_jax.extras.plan import step_speed
from vit_jax.extras.plan import workload
from vit_jax.parallel import device_memory

NUM_PHOTOS = 64
PHASES = {
    'import': 'import_secs', 'build, open data': 'build_secs',
    'compile': 'compile_secs', 'initial state': 'init_secs',
    'first batch': 'batch_secs', 'first step': 'step_secs',
    'total': 'total_secs', 'CPU time': 'cpu_secs'}


def measure(config, *, rounds):
  """Returns the spread of each figure of 'cold' and of 'warm' starts."""
  found = {'cold': [], 'warm': []}
  with tempfile.TemporaryDirectory() as folder:
    path = pathlib.Path(folder) / 'config.json'
    atomic_files.write_json(path, config_lib.to_plain(config))
    for i in range(rounds):
      for starts in found.values():
        starts.append(start(path, os.path.join(folder, f'cache{i}')))
      print(f'start {i + 1} of {rounds}, cold and warm', flush=True)
  return {kind: {name: interleaved_timing.spread(row[name] for row in starts)
                 for name in starts[0]} for kind, starts in found.items()}


def start(path, cache):
  """Returns the figures of one start; see `run_phases`."""
  done = subprocess.run(
      [sys.executable, __file__, '--phases', os.fspath(path),
       repr(time.time())],
      env={**os.environ, 'JAX_COMPILATION_CACHE_DIR': cache},
      capture_output=True, text=True, check=False)
  if done.returncode:
    raise RuntimeError(f'A start failed with status {done.returncode}: '
                       f'{done.stderr.strip()[-2000:]}')
  return json.loads(done.stdout.strip().splitlines()[-1])


def run_phases(path, start_time):
  """Runs all phases in this process and prints their times as JSON.

  Prints `import_secs` (interpreter and imports), `build_secs`, `compile_secs`,
  `init_secs`, `batch_secs` (with the start of the workers) and `step_secs`;
  their sum `total_secs`; `cpu_secs` without workers; and the peak of the host
  and device memory, as far as the device reports it.
  """
  figures = {}
  last = float(start_time)

  def end(phase):
    nonlocal last
    figures[f'{phase}_secs'] = time.time() - last
    last = time.time()

  end('import')
  config = config_lib.resolve(json.loads(pathlib.Path(path).read_text()))
  experiment = build_lib.build(config, data_optional=True)
  end('build')
  fitted = fit_batch.fit(
      experiment, free_bytes=device_memory.free_bytes(experiment.mesh))
  end('compile')
  state = jax.block_until_ready(fitted.experiment.init_state())
  end('init')
  with contextlib.ExitStack() as stack:
    if experiment.dataset.planned:
      batch = step_speed.random_batch(fitted.experiment)
    else:
      batch = next(stack.enter_context(contextlib.closing(
          fitted.experiment.batches(start_step=0))))
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


def parser():
  """Returns the parser of the flags."""
  flags = argparse.ArgumentParser(description=__doc__.split('\n')[0])
  what = flags.add_mutually_exclusive_group(required=True)
  what.add_argument('--model', help='model, such as B/16')
  what.add_argument('--config', help='config; of several stages, the first')
  what.add_argument('--phases', nargs=2, help=argparse.SUPPRESS)
  flags.add_argument('--set', action='append', default=[], metavar='KEY=VALUE',
                     help='change a value of the config')
  flags.add_argument('--rounds', type=int, default=5)
  flags.add_argument('--json')
  return flags


def main(argv):
  """Prints the table."""
  args = parser().parse_args(argv)
  if args.phases:
    return run_phases(*args.phases)
  with tempfile.TemporaryDirectory() as folder:
    if args.config:
      config = next(iter(load_config.load(args.config, args.set).values()))
    else:
      synthetic_photos.write(
          pathlib.Path(folder), NUM_PHOTOS, num_classes=1000)
      config = workload.config(
          args.model, batch_size=8, source=folder, num_workers=1,
          overrides=args.set)
    found = measure(config, rounds=args.rounds)
  console.table(
      'Start to first step, seconds; medians (lowest – highest)',
      ('', 'cold compilation cache', 'warm compilation cache'), [
          (name, *(found[kind][field].text for kind in ('cold', 'warm')))
          for name, field in PHASES.items()])
  print('Peak memory: ' + ', '.join(
      f'{name} {console.format_bytes(found["cold"][f"{name}_bytes"].median)}'
      for name in ('host', 'device') if f'{name}_bytes' in found['cold']) + '.')
  if args.json:
    atomic_files.write_json(args.json, {
        kind: {name: dataclasses.asdict(value)
               for name, value in spreads.items()}
        for kind, spreads in found.items()})


if __name__ == '__main__':
  main(sys.argv[1:])
