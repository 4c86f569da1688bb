"""How the time of a training step grows with what is asked of it.

    python benchmarks/scaling.py --model=Ti/16
    python benchmarks/scaling.py --model=B/16 --dtype=bfloat16 --json=grows.json

One thing at a time is made larger: images in a batch, the side of an image, the
layers, and the devices, where there are several, each with as many images. All
sizes take turns; of each the median counts. The exponent is the slope of a line
through the logarithms of size and time, beside that of the operations: time
must not grow faster. Between the two largest sizes it is what remains when
small ones no longer wait for something else.
"""

import argparse
import os
import pathlib
import sys

import jax
import numpy as np

sys.path.insert(0, os.fspath(pathlib.Path(__file__).parents[1]))

from vit_jax import atomic_files
from vit_jax import console as console_lib
from vit_jax.benchmarking import interleaved_timing
from vit_jax.benchmarking import step
from vit_jax.benchmarking import workload
from vit_jax.experiment import build as experiment_lib

SIZES = {
    'batch': (1, 2, 4, 8, 16),
    'resolution': (112, 160, 224, 320, 448),
    'depth': (3, 6, 12, 24),
}


def build(args, grown, size):
  """Returns an experiment with one thing of another size."""
  sizes = {'batch': args.batch_size, 'resolution': args.resolution,
           'devices': 1, grown: size}
  config = workload.config(
      args.model, resolution=sizes['resolution'],
      batch_size=sizes['batch'] * sizes['devices'], dtype=args.dtype,
      source='imagenet2012',
      overrides=[f'model.depth={size}'] if grown == 'depth' else [])
  return experiment_lib.build(
      config, jax.devices()[:sizes['devices']], expected_data=True)


def measure(args, grown, sizes):
  """Returns the time and a device's operations of a step at each size."""
  built = {str(size): build(args, grown, size) for size in sizes}
  timed = interleaved_timing.alternate(
      {name: step.Training(experiment, experiment.train_step).run
       for name, experiment in built.items()}, turns=args.turns,
      repeats=args.batches)
  return [{'size': int(name), 'secs': timed[name].secs.median,
           'flops': (experiment.training_flops_per_image
                     * experiment.config.batch_size / experiment.mesh.size)}
          for name, experiment in built.items()]


def slope(rows, name):
  """Returns by which power of the size a figure grows."""
  size, value = (np.log([row[key] for row in rows]) for key in ('size', name))
  return float(np.polyfit(size, value, 1)[0])


def main():
  """Measures, and prints the table."""
  parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
  parser.add_argument('--model', default='Ti/16')
  parser.add_argument('--resolution', type=int, default=224)
  parser.add_argument('--batch-size', type=int, default=4)
  parser.add_argument(
      '--dtype', default='float32', choices=('float32', 'bfloat16'))
  parser.add_argument('--turns', type=int, default=5)
  parser.add_argument('--batches', type=int, help='in a turn')
  parser.add_argument('--json', default='')
  args = parser.parse_args()
  sizes = dict(SIZES)
  if jax.device_count() > 1:
    sizes['devices'] = tuple(
        2**i for i in range(jax.device_count().bit_length()))
  found = {grown: measure(args, grown, of) for grown, of in sizes.items()}
  console_lib.table(
      f'{args.model}, {args.dtype}, {jax.device_count()} x '
      f'{jax.devices()[0].device_kind}: seconds of a step grow by the power', (
          'of', 'sizes', 'time', 'of the two largest', 'operations'),
      [(grown, ' '.join(str(row['size']) for row in rows),
        f'{slope(rows, "secs"):.2f}', f'{slope(rows[-2:], "secs"):.2f}',
        f'{slope(rows, "flops"):.2f}') for grown, rows in found.items()])
  if args.json:
    atomic_files.write_json(args.json, found)


if __name__ == '__main__':
  main()
