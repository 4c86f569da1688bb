"""Memory per example of each kind of data source, and the time to open it.

    python benchmarks/scale.py --counts 20000 200000 --sources parquet tar
    python benchmarks/scale.py --runs

Writes synthetic data sets of tiny images, opens each in a fresh process by
`data.open_dataset`, reads a training batch, and prints slopes between the two
counts: resident memory, its private part, and the size of the mapped arrays.
Pages of mapped files are shared by processes, and the system takes them back
when it needs memory; in an epoch, all arrays become resident. Archives are
indexed, and Parquet is converted, before. Peak memory, CPU seconds and elapsed
seconds are those of the larger count. All figures are medians of three
processes. The default takes about 5 minutes on 2 cores.

`--runs` prints the seconds of what could grow with the length of a run: reading
its log, writing a line, drawing its curves, listing its checkpoints, 1,000
evaluations, and an evaluation with 21,843 classes.
"""

import argparse
import contextlib
import json
import os
import pathlib
import resource
import shutil
import subprocess
import sys
import tempfile
import time

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import tiny_sets

ROOT = pathlib.Path(__file__).parents[1]
MANY = 300_000_000  # Images of JFT-300M.
IMAGES = 50_000  # Of a run with many classes.
CONFIG = """
from ml_collections import ConfigDict

def get_config():
  return ConfigDict({{
      'model': {{'width': 32, 'depth': 1, 'mlp_dim': 32, 'num_heads': 1,
                'patch': 8}},
      'data': {{'source': '{source}', 'resolution': 8, 'num_workers': 0}},
      'optimizer': {{'name': 'sgd', 'learning_rate': 0.1,
                    'schedule': {{'name': 'constant'}}}},
      'batch_size': 64, 'total': {{'steps': 2}},
      'evals': {{'test': {{'batch_size': 500}}}}}})
"""
SELECTIONS = {
    'open': {}, 'fraction': {'fraction': 0.5},
    'per class': {'examples_per_class': 5}, 'weights': {'sampling': 'balanced'}}


def measure(source, selection):
  """Prints the memory and seconds of this process up to the first batch."""
  sys.path.insert(0, os.fspath(ROOT))
  import cloudpickle

  from vit_jax import allocator
  from vit_jax import data
  allocator.keep_freed_memory(os.environ)  # As main.py.
  config = data.parse({'source': source, 'resolution': 8, 'num_workers': 0,
                       **SELECTIONS[selection]})
  begin, wall = time.process_time(), time.perf_counter()
  dataset = data.open_dataset(config)
  next(data.train_batches(config, dataset, seed=0, batch_size=64))
  secs, wall = time.process_time() - begin, time.perf_counter() - wall
  proc = pathlib.Path('/proc/self')
  status, maps = ((proc / name).read_text() for name in ('status', 'maps'))
  print(json.dumps({
      'secs': secs, 'wall': wall, 'copied': len(cloudpickle.dumps(dataset)),
      'arrays': sum(map(os.path.getsize, {
          line.split()[-1] for line in maps.splitlines()
          if '/vit_jax/arrays/' in line})),
      **{name: int(status.split(f'{name}:')[1].split()[0]) * 1024
         for name in ('VmRSS', 'RssAnon', 'VmHWM')}}))


def start(path, cache, selection):
  """Returns the figures of a fresh process."""
  out = subprocess.run(
      [sys.executable, __file__, '--measure', path, selection],
      env={**os.environ, 'JAX_PLATFORMS': 'cpu', 'HF_DATASETS_CACHE': cache,
           'XDG_CACHE_HOME': cache},
      check=True, stdout=subprocess.PIPE, text=True).stdout
  return json.loads(out.splitlines()[-1])


def medians(*args):
  """Returns the median of each figure of three fresh processes."""
  found = [start(*args) for _ in range(3)]
  return {key: np.median([row[key] for row in found]) for key in found[0]}


def print_row(*cells):
  print('|', ' | '.join(map(str, cells)), '|', flush=True)


def measure_sources(args):
  """Prints a row for each source and selection."""
  print_row('source', 'selection', 'examples', 'resident bytes per example',
            'private', 'arrays', 'copied to a worker', 'peak GB', 'CPU seconds',
            'seconds', f'private and arrays, GB at {MANY:,} (extrapolated)')
  print_row(*['---'] * 11)
  for source in args.sources:
    with tempfile.TemporaryDirectory() as folder:
      paths = {}
      for count in args.counts:
        place = pathlib.Path(folder, str(count))
        place.mkdir()
        paths[count] = os.fspath(tiny_sets.WRITERS[source](place, count))
      print_rows(source, paths, folder, args.selections)


def print_rows(source, paths, cache, selections):
  """Prints a row for each selection, given data of two counts."""
  low, high = paths
  for path in paths.values():
    start(path, cache, 'open')  # Writes indices and caches.
  for selection in selections:
    found = [medians(path, cache, selection) for path in paths.values()]
    resident, private, arrays, copied = (
        (found[1][key] - found[0][key]) / (high - low)
        for key in ('VmRSS', 'RssAnon', 'arrays', 'copied'))
    print_row(
        source, selection, f'{low:,} to {high:,}',
        *(f'{slope:.1f}' for slope in (resident, private, arrays, copied)),
        f'{found[1]["VmHWM"] / 1e9:.2f}',
        *(f'{found[1][key]:.1f}' for key in ('secs', 'wall')),
        f'{(private + arrays) * MANY / 1e9:.2g}')


def timed(function):
  """Returns the CPU seconds of a call, as text."""
  begin = time.process_time()
  function()
  return f'{time.process_time() - begin:.3g}'


def time_log(folder, count):
  """Yields names and seconds of using a log of `count` rows."""
  from vit_jax import metrics
  from vit_jax.run import curves as plots
  from vit_jax.run import writer as writer_lib
  folder.mkdir()
  names = [f'train/metric_{i}' for i in range(8)]
  with open(folder / writer_lib.FILENAME, 'w') as file:
    for step in range(1, count + 1):
      row = {'step': step, 'train/loss': 1 / step,
             **dict.fromkeys(names, 1.5)}
      if step % 100 == 0:  # An evaluation.
        row |= {'val/loss': 2 / step, 'val/accuracy': 0.5}
      file.write(json.dumps(row) + '\n')
  writers = []
  yield 'log: open', timed(lambda: writers.append(
      writer_lib.MetricWriter(folder, resume_step=count)))
  yield 'log: write a line', timed(
      lambda: writers[0].write(count + 1, {'train/loss': 1.0}))
  writers[0].close()
  yield 'log: draw curves', timed(lambda: plots.curves(
      {'run': writer_lib.read_rows(folder)}, folder / 'curves.png',
      declared=(metrics.LOSS, metrics.ACCURACY)))


def time_checkpoints(folder, count):
  """Yields names and seconds of a run that keeps `count` checkpoints."""
  import jax
  import jax.numpy as jnp

  from vit_jax import types
  from vit_jax.checkpoints import config as checkpoint_config
  from vit_jax.checkpoints import manager
  config = checkpoint_config.CheckpointConfig(keep=count)
  state = types.TrainState(
      step=jnp.asarray(1), params={'w': jnp.ones(3)}, opt_state=(),
      average=None, metrics={})
  save = lambda step: checkpoints.save(
      state.replace(step=jnp.asarray(step)), config={}, progress={})
  with manager.Checkpoints(folder, config) as checkpoints:
    save(1)
  first, = (folder / 'checkpoints' / 'latest').iterdir()
  for step in range(2, count + 1):
    shutil.copytree(first, first.with_name(str(step)), copy_function=os.link)
  opened = []
  yield 'checkpoints: open', timed(
      lambda: opened.append(manager.Checkpoints(folder, config)))
  checkpoints = opened[0]
  abstract = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(
      leaf.shape, leaf.dtype, sharding=leaf.sharding), state)
  yield 'checkpoints: restore', timed(lambda: checkpoints.restore(abstract))
  yield 'checkpoints: save one more', timed(
      lambda: (save(count + 1), checkpoints.wait()))
  checkpoints.__exit__(None)


def time_classes(folder, count):
  """Yields the seconds of two steps and an evaluation with many classes."""
  folder.mkdir()
  pq.write_table(pa.table({
      'image': [tiny_sets.png()] * IMAGES,
      'label': [f'class {i % count}' for i in range(IMAGES)]}),
      folder / 'images.parquet')
  config = folder / 'config.py'
  config.write_text(CONFIG.format(source=folder / 'images.parquet'))
  before = resource.getrusage(resource.RUSAGE_CHILDREN)
  subprocess.run(
      [sys.executable, os.fspath(ROOT / 'main.py'), 'train',
       f'--config={config}', f'--workdir={folder / "run"}'], check=True,
      stdout=sys.stderr, env={
          **os.environ, 'JAX_PLATFORMS': 'cpu',
          'HF_DATASETS_CACHE': os.fspath(folder)})
  after = resource.getrusage(resource.RUSAGE_CHILDREN)
  yield 'classes: start, train 2 steps, evaluate', (
      f'{after.ru_utime - before.ru_utime:.3g}')


def time_evaluations(folder, count):
  """Yields the seconds of `count` steps with an evaluation after each."""
  import vit_jax
  every = {'every': {'steps': 1}}
  with contextlib.redirect_stdout(sys.stderr):
    experiment = vit_jax.build({
        'total': {'steps': count}, 'batch_size': 8,
        'model': {'width': 8, 'depth': 1, 'num_heads': 2, 'mlp_dim': 16,
                  'patch': 4},
        'data': {'source': 'digits', 'resolution': 8, 'num_workers': 0},
        'optimizer': {'name': 'adam', 'learning_rate': 1e-3,
                      'schedule': {'name': 'constant'}},
        'evals': {'test': {'split': 'test[:32]', 'batch_size': 32, **every}},
        'log': every, 'checkpoint': {'best': ''}})
    yield 'evaluations: train, evaluate after each step', timed(
        lambda: vit_jax.train(experiment, folder))


def measure_runs():
  """Prints the seconds of runs with few and many rows, steps or classes."""
  sys.path.insert(0, os.fspath(ROOT))
  print_row('', 'few', 'CPU seconds', 'many', 'CPU seconds')
  print_row(*['---'] * 5)
  for function, counts in ((time_log, (10_000, 100_000)),
                           (time_checkpoints, (10, 1000)),
                           (time_evaluations, (100, 1000)),
                           (time_classes, (1000, 21_843))):
    with tempfile.TemporaryDirectory() as folder:
      few, many = (list(function(pathlib.Path(folder, str(count)), count))
                   for count in counts)
      for (name, low), (_, high) in zip(few, many):
        print_row(name, f'{counts[0]:,}', low, f'{counts[1]:,}', high)


def main():
  """Prints the table."""
  parser = argparse.ArgumentParser(description=(__doc__ or '').split('\n')[0])
  parser.add_argument('--counts', type=int, nargs=2, default=(20_000, 200_000))
  parser.add_argument('--sources', nargs='+', default=list(tiny_sets.WRITERS))
  parser.add_argument('--selections', nargs='+', default=['open'])
  parser.add_argument('--runs', action='store_true')
  parser.add_argument('--measure', nargs=2, help=argparse.SUPPRESS)
  args = parser.parse_args()
  if args.measure:
    measure(*args.measure)
  elif args.runs:
    measure_runs()
  else:
    measure_sources(args)


if __name__ == '__main__':
  main()
