"""Memory of a training step on a TPU, ours beside the plain encoder's.

    JAX_PLATFORMS=cpu python benchmarks/memory.py --model=L/16 --batch-size=64

What the TPU's compiler reports of one core, no TPU needed (README says what to
install): *temporaries* is all that a step takes beside what it is given, *in
use* the most of it at once. Both train with the softmax loss of 1,000 classes
and Adam, in bfloat16; operations are counted from the jaxpr, what is computed
again included. Ours has a row for each way to compute again, and one unrolled.
"""

import argparse
import functools
import os
import pathlib
import sys

import contestants
import jax
import jax.numpy as jnp
import numpy as np
import plain_flax

sys.path.insert(0, os.fspath(pathlib.Path(__file__).parents[1]))

from vit_jax import models
from vit_jax.benchmarking import workload
from vit_jax.experiment import build as experiment_lib
from vit_jax.experiment import fit_batch
from vit_jax.parallel import topology
from vit_jax.plan import step_cost
from vit_jax.training import flops

GIB = 2**30


def plain(args, device):
  """Returns the lowered step of the plain encoder, and its operations."""
  sharding = jax.sharding.NamedSharding(
      jax.sharding.Mesh(np.array([device]), 'x'), jax.sharding.PartitionSpec())
  config = models.parse({'variant': args.model})
  model = plain_flax.ViT(config, contestants.NUM_CLASSES, jnp.bfloat16)
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
  """Returns the lowered step of a run, and its operations."""
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
  """Prints what a step needs; returns it to be compared with."""
  lowered, operations = built
  try:
    stats = lowered.compile().memory_analysis()
  except jax.errors.JaxRuntimeError as error:
    if (said := fit_batch.parse_out_of_memory(str(error))) is None:
      raise
    print(f'{name:<28} refused: needs {said[0] / GIB:.2f} GiB in all',
          flush=True)
    return of_plain
  temporaries = stats.temp_size_in_bytes
  in_use = stats.peak_memory_in_bytes - stats.argument_size_in_bytes
  beside = ''
  if of_plain:
    beside = (f'{temporaries / of_plain[0] - 1:+7.0%}'
              f'{in_use / of_plain[1] - 1:+9.0%}'
              f'{operations / of_plain[2] - 1:+10.1%}')
  print(f'{name:<28}{temporaries / GIB:12.2f}{in_use / GIB:10.2f}'
        f'{operations / 1e12:10.2f}{beside}', flush=True)
  return of_plain or (temporaries, in_use, operations)


def main():
  """Measures, and prints a row each."""
  parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
  parser.add_argument('--model', default='L/16')
  parser.add_argument('--resolution', type=int, default=224)
  parser.add_argument('--batch-size', type=int, default=64)
  parser.add_argument('--slice', default='v4-8')
  args = parser.parse_args()
  device = topology.devices(args.slice)[0]
  print(f'{args.model}, {args.resolution} pixels, {args.batch_size} images, '
        f'one core of {args.slice}')
  print(f'{"":<28}{"temporaries":>12}{"in use":>10}{"TFLOP":>10}'
        '   beside plain Flax')
  of_plain = row('plain Flax', plain(args, device), None)
  depth = models.parse({'variant': args.model}).depth
  for name, overrides in {
      'remat=attention': ['model.remat=attention'],
      'remat=dots': ['model.remat=dots'],
      'remat=full': ['model.remat=full'],
      'remat=none': ['model.remat=none'],
      # Last: it takes the longest to compile.
      f'remat=none, unroll={depth}': [
          'model.remat=none', f'model.unroll={depth}'],
  }.items():
    row(name, ours(args, device, overrides), of_plain)


if __name__ == '__main__':
  main()
