"""Speed of our step compared with other implementations.

    python benchmarks/compare.py --python timm=/path/to/python

Each implementation is a process (`benchmarks/implementations.py`); they run in
turn. Ratios are medians over rounds of our speed divided by the other's.
Implementations whose libraries are missing are skipped. All processes keep
their memory: `gpu.py` measures one at a time, on a GPU.

`--also 'remat=model.remat=attention'` adds ours with other config settings or
XLA flags, `--also 'one=--xla_flag=value'`; separate several by spaces. `--set`
changes the model of every implementation in JAX. For `photos`:

    python benchmarks/compare.py --task=train --model= --resolution=32 \
        --batch-size=128 --batches=2 --rounds=8 \
        --implementations=ours,plain-flax,matmul \
        --set 'model.width=128 model.depth=7 model.mlp_dim=512
            model.num_heads=4 model.patch=4 model.unroll=7 model.remat=none' \
        --also 'microbatches=accumulation=8' \
        --also 'recipe=accumulation=8 optimizer.name=muon
            model.pooling=average'
"""

import argparse
import contextlib
import itertools
import json
import os
import pathlib
import statistics
import subprocess
import sys

import input_speed

sys.path.insert(0, os.fspath(pathlib.Path(__file__).parents[1]))

from vit_jax import atomic_files
from vit_jax import console
from vit_jax.extras.plan import interleaved_timing

PROGRAM = pathlib.Path(__file__).parent / 'implementations.py'
OURS = 'ours'
NAMES = (OURS, 'plain-flax', 'timm', 'timm-compiled')


def main(argv):
  """Runs the comparison; returns the exit status."""
  args = parser().parse_args(argv)
  pythons = dict(text.split('=', 1) for text in args.python)
  also = dict(text.split('=', 1) for text in args.also)
  names, missing = installed(args.implementations.split(','), pythons)
  for name in missing:
    print(f'{name}: skipped, its libraries are not installed.', flush=True)
  rows = []
  for task, dtype in itertools.product(
      args.task.split(','), args.dtype.split(',')):
    setting = {'task': task, 'dtype': dtype, 'model': args.model,
               'resolution': args.resolution, 'batch_size': args.batch_size}
    shared = args.set.split()
    found = measure(
        {name: command(name, setting, pythons, shared) for name in names}
        | {name: command(OURS, setting, pythons, [*shared, *words.split()])
           for name, words in also.items()},
        setting, batches=args.batches, rounds=args.rounds)
    rows += found
    show(f'{task}, {args.model or args.set} at {args.resolution}, {dtype}, '
         f'{os.cpu_count()} CPU cores, medians of {args.rounds} rounds', found)
    if args.json:
      atomic_files.write_json(args.json, rows)
  return 0


def parser():
  """Returns the parser of the flags."""
  flags = argparse.ArgumentParser(description=__doc__.split('\n')[0])
  flags.add_argument('--implementations', default=','.join(NAMES))
  flags.add_argument('--python', action='append', default=[],
                     metavar='NAME=PYTHON', help='Python interpreter to use')
  flags.add_argument('--also', action='append', default=[],
                     metavar='NAME=SETTINGS')
  flags.add_argument('--set', default='', metavar='SETTINGS',
                     help='settings of every implementation in JAX')
  flags.add_argument('--task', default='train,inference')
  flags.add_argument('--dtype', default='float32')
  flags.add_argument('--model', default='B/16')
  flags.add_argument('--resolution', type=int, default=224)
  flags.add_argument('--batch-size', type=int, default=8)
  flags.add_argument('--batches', type=int, default=1, help='batches per round')
  flags.add_argument('--rounds', type=int, default=10)
  flags.add_argument('--json')
  return flags


def python_of(name, pythons):
  """Returns an interpreter; `timm` also sets that of `timm-compiled`."""
  return pythons.get(name) or pythons.get(name.split('-')[0]) or sys.executable


def installed(names, pythons):
  """Splits names into installed and missing implementations."""
  available = {name: subprocess.run(
      [python_of(name, pythons), os.fspath(PROGRAM), name],
      check=False, stderr=subprocess.DEVNULL).returncode == 0
               for name in names}
  return ([name for name in names if available[name]],
          [name for name in names if not available[name]])


def command(name, setting, pythons, words=()):
  """Returns the command of an implementation's process."""
  flags = [word for word in words if word.startswith('--xla')]
  overrides = [word for word in words if not word.startswith('--xla')]
  known = filter(None, [os.environ.get('XLA_FLAGS'), *flags])
  return ['env', f'XLA_FLAGS={" ".join(known)}', python_of(name, pythons),
          os.fspath(PROGRAM), name,
          json.dumps({**setting, 'overrides': overrides})]


def measure(commands, setting, *, batches, rounds):
  """Returns a row per implementation for one setting."""
  with contextlib.ExitStack() as stack:
    speeds = input_speed.interleave(
        {name: stack.enter_context(input_speed.program(words))
         for name, words in commands.items()}, batches=batches, rounds=rounds)
  return [row(name, speeds, setting) for name in speeds]


def row(name, speeds, setting):
  """Returns an implementation's figures and the ratio to ours."""
  by_wall, by_cpu = (
      {n: [s.images / getattr(s, secs) for s in of]
       for n, of in speeds.items()} for secs in ('secs', 'cpu_secs'))
  figures = {**setting, 'implementation': name, 'rounds': len(by_wall[name])}
  for key, rates in (('images_per_sec', by_wall),
                     ('images_per_cpu_sec', by_cpu)):
    spread = interleaved_timing.spread(rates[name])
    figures |= {key: spread.median, f'{key}_lowest': spread.lowest,
                f'{key}_highest': spread.highest}
    figures[key.replace('images', 'ratio')] = (
        statistics.median(a / b for a, b in zip(rates[OURS], rates[name]))
        if OURS in rates else None)
  return figures


def show(title, rows):
  """Prints the table."""
  console.table(title, (
      'implementation', 'batch', 'images/s', 'images/CPU s', 'ratio',
      'CPU ratio'), [
          (r['implementation'], r['batch_size'], _rate(r),
           r['images_per_cpu_sec'], *(
               '' if r[key] is None or r['implementation'] == OURS
               else f'{r[key]:.2f} x'
               for key in ('ratio_per_sec', 'ratio_per_cpu_sec')))
          for r in rows])


def _rate(row):
  lowest, highest = (
      console.format_number(row[f'images_per_sec_{end}'], digits=2)
      for end in ('lowest', 'highest'))
  return (f'{console.format_number(row["images_per_sec"])} '
          f'({lowest} – {highest})')


if __name__ == '__main__':
  sys.exit(main(sys.argv[1:]))
