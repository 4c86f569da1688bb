"""Memory of a training step on a TPU, compared with a plain Flax encoder.

    JAX_PLATFORMS=cpu python benchmarks/step_memory.py --model=L/16 \
        --batch-size=64

Needs the TPU compiler (requirements-plan.txt), but no TPU. *Temporaries* is
the memory besides the arguments, *peak* its maximum at any time. Both train
with softmax loss, 1,000 classes and Adam, in bfloat16. FLOPs are counted from
the jaxpr, including recomputation. There is a row per `model.remat`, and one
for an unrolled encoder.
"""

import argparse
import functools
import os
import pathlib
import sys

import implementations
import jax
import jax.numpy as jnp
import numpy as np
import plain_flax

sys.path.insert(0, os.fspath(pathlib.Path(__file__).parents[1]))

from vit_jax import console
from vit_jax import models
from vit_jax.benchmarking import workload
from vit_jax.experiment import build as experiment_lib
from vit_jax.parallel import device_memory
from vit_jax.parallel import topology
from vit_jax.plan import step_cost
from vit_jax.training import flops

GIB = 2**30


def plain(args, device):
  """Returns the lowered step of the plain encoder and its FLOPs."""
  sharding = jax.sharding.NamedSharding(
      jax.sharding.Mesh(np.array([device]), 'x'), jax.sharding.PartitionSpec())
  config = models.parse({'variant': args.model})
  model = plain_flax.ViT(config, implementations.NUM_CLASSES, jnp.bfloat16)
  images = jax.ShapeDtypeStruct(
      (args.batch_size, args.resolution, args.resolution, 3), jnp.float32)
  labels = jax.ShapeDtypeStruct((args.batch_size,), jnp.int32)
  state = jax.eval_shape(functools.partial(plain_flax.init, model), images)
  step = functools.partial(plain_flax.train_step, model)
  shapes = state, images, labels
  jitted = jax.jit(step, donate_argnums=0, in_shardings=sharding,
                   out_shardings=sharding)
  return jitted.lower(*shapes), flops.count(step, *shapes)


def ours(args, device, overrides):
  """Returns the lowered step of a run and its FLOPs."""
  config = workload.config(
      args.model, resolution=args.resolution, batch_size=args.batch_size,
      dtype='bfloat16', source='imagenet2012', overrides=overrides)
  experiment = experiment_lib.build(config, [device], expected_data=True)
  count = args.batch_size * (
      experiment.training_flops_per_image
      + step_cost.recomputed_flops_per_image(experiment))
  return experiment.train_step.lower(
      experiment.abstract_state, experiment.abstract_batch), count


def row(name, built, of_plain):
  """Returns the cells of a step and the figures to compare with."""
  lowered, operations = built
  compiled, sizes = device_memory.try_compile(lowered)
  if sizes:
    return (name, 'does not fit', f'{sizes[0] / GIB:.2f} in all',
            f'{operations / 1e12:.2f}', *3 * ['']), of_plain
  stats = compiled.memory_analysis()
  found = (stats.temp_size_in_bytes / GIB,
           (stats.peak_memory_in_bytes - stats.argument_size_in_bytes) / GIB,
           operations / 1e12)
  of_plain = of_plain or found
  return (name, *(f'{value:.2f}' for value in found),
          *(f'{value / base - 1:+.1%}' if base else ''
            for value, base in zip(found, of_plain))), of_plain


def main():
  """Prints a row per implementation."""
  parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
  parser.add_argument('--model', default='L/16')
  parser.add_argument('--resolution', type=int, default=224)
  parser.add_argument('--batch-size', type=int, default=64)
  parser.add_argument('--slice', default='v4-8')
  args = parser.parse_args()
  device = topology.devices(args.slice)[0]
  cells, of_plain = row('plain Flax', plain(args, device), None)
  rows = [cells]
  depth = models.parse({'variant': args.model}).depth
  settings = [f'model.remat={level}'
              for level in ('attention', 'dots', 'full', 'none')]
  # Last, because it compiles slowest.
  for overrides in (*settings, f'model.remat=none model.unroll={depth}'):
    cells, _ = row(overrides, ours(args, device, overrides.split()), of_plain)
    rows.append(cells)
  console.table(
      f'{args.model}, {args.resolution} pixels, {args.batch_size} images, '
      f'one core of {args.slice}; relative to plain Flax', (
          '', 'temporaries, GiB', 'peak, GiB', 'TFLOP', 'temporaries', 'peak',
          'TFLOP'), rows)


if __name__ == '__main__':
  main()
