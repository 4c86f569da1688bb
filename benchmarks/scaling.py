"""Scaling of the time of a training step with batch, resolution and depth.

    python benchmarks/scaling.py --model=Ti/16
    python benchmarks/scaling.py --model=B/16 --dtype=bfloat16 --json=grows.json

One size is varied at a time: batch, resolution, depth, and the number of
devices with the same batch per device. All sizes run in turn, and medians are
reported. The exponent is the slope of log(time) over log(size), compared with
that of the FLOPs; time should not grow faster. The slope between the two
largest sizes excludes the overhead of small steps.
"""

import argparse
import os
import pathlib
import sys

import jax
import numpy as np

sys.path.insert(0, os.fspath(pathlib.Path(__file__).parents[1]))

from vit_jax import atomic_files
from vit_jax import console
from vit_jax.benchmarking import interleaved_timing
from vit_jax.benchmarking import step_speed
from vit_jax.benchmarking import workload
from vit_jax.experiment import build as experiment_lib

SIZES = {
    'batch': (1, 2, 4, 8, 16),
    'resolution': (112, 160, 224, 320, 448),
    'depth': (3, 6, 12, 24),
}


def build(args, varied, size):
  """Builds an experiment with one size changed."""
  sizes = {'batch': args.batch_size, 'resolution': args.resolution,
           'devices': 1, varied: size}
  config = workload.config(
      args.model, resolution=sizes['resolution'],
      batch_size=sizes['batch'] * sizes['devices'], dtype=args.dtype,
      source='imagenet2012',
      overrides=[f'model.depth={size}'] if varied == 'depth' else [])
  return experiment_lib.build(
      config, jax.devices()[:sizes['devices']], expected_data=True)


def measure(args, varied, sizes):
  """Returns time and FLOPs per device of a step at each size."""
  built = {str(size): build(args, varied, size) for size in sizes}
  timed = interleaved_timing.interleave(
      {name: step_speed.Training(experiment, experiment.train_step).run
       for name, experiment in built.items()}, rounds=args.rounds,
      repeats=args.batches)
  return [{'size': int(name), 'secs': timed[name].secs.median,
           'flops': (experiment.training_flops_per_image
                     * experiment.config.batch_size / experiment.mesh.size)}
          for name, experiment in built.items()]


def slope(rows, name):
  """Returns the exponent of a figure as a power of the size."""
  size, value = (np.log([row[key] for row in rows]) for key in ('size', name))
  return float(np.polyfit(size, value, 1)[0])


def main():
  """Prints the table."""
  parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
  parser.add_argument('--model', default='Ti/16')
  parser.add_argument('--resolution', type=int, default=224)
  parser.add_argument('--batch-size', type=int, default=4)
  parser.add_argument(
      '--dtype', default='float32', choices=('float32', 'bfloat16'))
  parser.add_argument('--rounds', type=int, default=5)
  parser.add_argument('--batches', type=int, help='batches per round')
  parser.add_argument('--json', default='')
  args = parser.parse_args()
  sizes = dict(SIZES)
  if jax.device_count() > 1:
    sizes['devices'] = tuple(
        2**i for i in range(jax.device_count().bit_length()))
  found = {varied: measure(args, varied, of) for varied, of in sizes.items()}
  console.table(
      f'{args.model}, {args.dtype}, {jax.device_count()} x '
      f'{jax.devices()[0].device_kind}: exponents of the time of a step', (
          'size', 'values', 'time', 'two largest', 'FLOPs'),
      [(varied, ' '.join(str(row['size']) for row in rows),
        f'{slope(rows, "secs"):.2f}', f'{slope(rows[-2:], "secs"):.2f}',
        f'{slope(rows, "flops"):.2f}') for varied, rows in found.items()])
  if args.json:
    atomic_files.write_json(args.json, found)


if __name__ == '__main__':
  main()
