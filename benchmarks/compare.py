"""Our step beside what one would take instead: who computes more images?

    python benchmarks/compare.py --python timm=/path/to/python
    python benchmarks/compare.py --dtype=bfloat16 --model=L/16 \
        --batch-size=64,128,256 --contestants=ours,timm-compiled

Each contestant is a process of its own (`benchmarks/contestants.py`), told to
take its turn while the others wait: what else the machine does, and how warm it
is, strikes all alike. A ratio is the median of those of single rounds, ours by
the other's. Those whose libraries are not installed are left out, and named.
Where several batch sizes are given, each contestant is shown at its best. Who
waits keeps its memory: where that runs short, let few compete at a time.

`--also 'remat=model.remat=attention'` lets ours compete once more with other
settings of the config, or with flags of XLA, `--also 'one=--xla_flag=value'`;
several are separated by spaces.
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

sys.path.insert(0, os.fspath(pathlib.Path(__file__).parents[1]))

from vit_jax import atomic_files
from vit_jax import console as console_lib
from vit_jax.benchmarking import interleaved_timing as interleaved_timing_lib
from vit_jax.benchmarking import reading

PROGRAM = pathlib.Path(__file__).parent / 'contestants.py'
OURS = 'ours'
NAMES = (OURS, 'plain-flax', 'timm', 'timm-compiled')


def main(argv):
  """Runs the comparison; returns the exit status."""
  args = parser().parse_args(argv)
  pythons = dict(text.split('=', 1) for text in args.python)
  also = dict(text.split('=', 1) for text in args.also)
  names, missing = installed(args.contestants.split(','), pythons)
  for name in missing:
    print(f'{name}: its libraries are not installed. Left out.', flush=True)
  rows = []
  for task, dtype in itertools.product(
      args.task.split(','), args.dtype.split(',')):
    found = []
    for size in map(int, args.batch_size.split(',')):
      setting = {'task': task, 'dtype': dtype, 'model': args.model,
                 'resolution': args.resolution, 'batch_size': size}
      found += measure(
          {name: command(name, setting, pythons) for name in names}
          | {name: command(OURS, setting, pythons, words.split())
             for name, words in also.items()},
          setting, batches=args.batches, turns=args.turns)
    rows += found
    show(f'{task}, {args.model} at {args.resolution}, {dtype}, '
         f'{os.cpu_count()} cores, medians of {args.turns} turns', best(found))
    if args.json:
      atomic_files.write_json(args.json, rows)
  return 0


def parser():
  """Returns what reads the flags."""
  flags = argparse.ArgumentParser(description=__doc__.split('\n')[0])
  flags.add_argument('--contestants', default=','.join(NAMES))
  flags.add_argument('--python', action='append', default=[],
                     metavar='NAME=PYTHON', help='of `timm`, for example')
  flags.add_argument('--also', action='append', default=[],
                     metavar='NAME=SETTINGS')
  flags.add_argument('--task', default='train,inference')
  flags.add_argument('--dtype', default='float32')
  flags.add_argument('--model', default='B/16')
  flags.add_argument('--resolution', type=int, default=224)
  flags.add_argument('--batch-size', default='8')
  flags.add_argument('--batches', type=int, default=1, help='in a turn')
  flags.add_argument('--turns', type=int, default=10)
  flags.add_argument('--json')
  return flags


def python_of(name, pythons):
  """Returns a contestant's Python; `timm` is that of `timm-compiled`, too."""
  return pythons.get(name) or pythons.get(name.split('-')[0]) or sys.executable


def installed(names, pythons):
  """Returns those that can run, and those that cannot."""
  can = {name: subprocess.run(
      [python_of(name, pythons), os.fspath(PROGRAM), name],
      check=False, stderr=subprocess.DEVNULL).returncode == 0
         for name in names}
  return ([name for name in names if can[name]],
          [name for name in names if not can[name]])


def command(name, setting, pythons, words=()):
  """Returns the command of a contestant's process."""
  flags = [word for word in words if word.startswith('--xla')]
  overrides = [word for word in words if not word.startswith('--xla')]
  known = filter(None, [os.environ.get('XLA_FLAGS'), *flags])
  return ['env', f'XLA_FLAGS={" ".join(known)}', python_of(name, pythons),
          os.fspath(PROGRAM), name,
          json.dumps({**setting, 'overrides': overrides})]


def measure(commands, setting, *, batches, turns):
  """Returns a row for each contestant of one setting."""
  with contextlib.ExitStack() as stack:
    speeds = reading.alternate(
        {name: stack.enter_context(reading.program(words))
         for name, words in commands.items()}, batches=batches, turns=turns)
  return [row(name, speeds, setting) for name in speeds]


def row(name, speeds, setting):
  """Returns a contestant's figures, and how many times as fast ours is."""
  by_clock, by_cores = (
      {n: [s.images / getattr(s, secs) for s in of]
       for n, of in speeds.items()} for secs in ('secs', 'core_secs'))
  figures = {**setting, 'contestant': name, 'turns': len(by_clock[name])}
  for key, rates in (('images_per_sec', by_clock),
                     ('images_per_core_sec', by_cores)):
    spread = interleaved_timing_lib.spread(rates[name])
    figures |= {key: spread.median, f'{key}_lowest': spread.lowest,
                f'{key}_highest': spread.highest}
    figures[key.replace('images', 'ratio')] = (
        statistics.median(a / b for a, b in zip(rates[OURS], rates[name]))
        if OURS in rates else None)
  return figures


def best(rows):
  """Returns each contestant's row of its best batch size.

  Between different sizes, ratios are of medians.
  """
  names = dict.fromkeys(row['contestant'] for row in rows)
  kept = {name: max((row for row in rows if row['contestant'] == name),
                    key=lambda row: row['images_per_sec']) for name in names}
  kept = {name: dict(row) for name, row in kept.items()}
  for found in kept.values():
    if OURS in kept and found['batch_size'] != kept[OURS]['batch_size']:
      for key in ('images_per_sec', 'images_per_core_sec'):
        found[key.replace('images', 'ratio')] = kept[OURS][key] / found[key]
  return list(kept.values())


def show(title, rows):
  """Prints the table."""
  console_lib.table(title, (
      'contestant', 'batch', 'images/s', 'of a core', 'ours is', 'of a core'), [
          (r['contestant'], r['batch_size'], _rate(r),
           r['images_per_core_sec'], *(
               '' if r[key] is None or r['contestant'] == OURS
               else f'{r[key]:.2f} x'
               for key in ('ratio_per_sec', 'ratio_per_core_sec')))
          for r in rows])


def _rate(row):
  lowest, highest = (
      console_lib.format_number(row[f'images_per_sec_{end}'], digits=2)
      for end in ('lowest', 'highest'))
  return (f'{console_lib.format_number(row["images_per_sec"])} '
          f'({lowest} to {highest})')


if __name__ == '__main__':
  sys.exit(main(sys.argv[1:]))
