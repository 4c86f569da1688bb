"""Training steps compiled for a TPU: ours, big_vision's and plain Flax's.

    git clone https://github.com/google-research/big_vision /tmp/big_vision
    JAX_PLATFORMS=cpu python benchmarks/compiled.py \
        --big-vision=/tmp/big_vision --settings L/16x64@224 --chips v4-8

Needs the TPU compiler (pip install '.[plan]'), but no TPU; nothing runs. All
rows train a ViT with a class token and 1,000 classes in bfloat16, with softmax
loss and Adam. *Temporaries* is the memory besides the arguments, *peak* its
maximum at any time. FLOPs are the matrix products of the traced step, with
recomputation; bytes are those of `plan.compiled.memory_traffic`. Loops count as
often as they run. Times assume peak speed. *Needs* is the memory of a step that
does not fit, arguments included.
"""

import argparse
import fnmatch
import functools
import json
import os
import pathlib
import re
import sys
import time
import types

import implementations
import jax
from jax.extend import core
from jax.interpreters import partial_eval
import jax.numpy as jnp
import numpy as np
import plain_flax

sys.path.insert(0, os.fspath(pathlib.Path(__file__).parents[1]))

from vit_jax import console
from vit_jax.experiment import build as build_lib
from vit_jax.extras.plan import flops
from vit_jax.extras.plan import hardware
from vit_jax.extras.plan import topology
from vit_jax.extras.plan import workload
from vit_jax.extras.plan.compiled import memory_traffic
from vit_jax.models import factory
from vit_jax.parallel import device_memory

GIB = 2**30
SETTINGS = ('B/16x256@224', 'B/16x256@384', 'L/16x64@224', 'L/16x64@384',
            'H/14x16@224', 'H/14x16@378')  # 384 does not divide into patches.
# Headings and digits of the figures; both tables fit into 80 columns.
COLUMNS = ({
    'temporaries_gib': ('temp', 2), 'peak_gib': ('peak', 2),
    'needed_gib': ('needs', 1), 'tflop': ('TFLOP', 2), 'gb': ('GB', 1)}, {
    'compute_ms': ('compute', 1), 'memory_ms': ('memory', 1),
    'sum_ms': ('sum', 1), 'compile_cpu_secs': ('compile', 0)})
POLICIES = ('nothing_saveable', 'dots_with_no_batch_dims_saveable',
            'dots_saveable', 'everything_saveable')


def ours(setting, device, *, overrides):
  """Our training step."""
  config = workload.config(
      setting.model, resolution=setting.resolution,
      batch_size=setting.batch_size, dtype='bfloat16', source='imagenet2012',
      overrides=overrides.split())
  experiment = build_lib.build(config, [device], data_optional=True)
  return experiment.train_step.trace(
      experiment.abstract_state, experiment.abstract_batch)


def flax_step(apply, init, setting, device):
  """The step of `plain_flax.py` for a function from parameters to logits."""
  sharding = jax.sharding.NamedSharding(
      jax.sharding.Mesh(np.array([device]), 'x'), jax.sharding.PartitionSpec())
  images = jax.ShapeDtypeStruct((
      setting.batch_size, setting.resolution, setting.resolution, 3),
      jnp.float32)
  labels = jax.ShapeDtypeStruct((setting.batch_size,), jnp.int32)
  model = types.SimpleNamespace(apply=apply, init=init)
  state = jax.eval_shape(functools.partial(plain_flax.init, model), images)
  return jax.jit(
      functools.partial(plain_flax.train_step, model), donate_argnums=0,
      in_shardings=sharding, out_shardings=sharding,
  ).trace(state, images, labels)


def plain(setting, device):
  """A straightforward Flax encoder."""
  model = plain_flax.ViT(
      factory.parse({'variant': setting.model}), implementations.NUM_CLASSES,
      jnp.bfloat16)
  return flax_step(model.apply, model.init, setting, device)


def big_vision(setting, device, *, source, **options):
  """big_vision's model in the step of `plain_flax.py`."""
  if source not in sys.path:
    sys.path.insert(0, source)
  # Its utilities need TensorFlow, and the model only loads weights with them.
  sys.modules.setdefault('big_vision.utils', types.ModuleType('utils'))
  from big_vision.models import vit  # pylint: disable=import-outside-toplevel
  model = vit.Model(
      implementations.NUM_CLASSES, variant=setting.model, pool_type='tok',
      dtype_mm='bfloat16', **options)

  def apply(params, images):
    logits, _ = model.apply(params, images, train=True)
    return logits

  return flax_step(apply, model.init, setting, device)


def rows(source, overrides=''):
  """Returns a function (setting, device) -> traced step per implementation."""
  found = {
      f'ours remat={level}': functools.partial(
          ours, overrides=f'model.remat={level} {overrides}')
      for level in ('attention', 'dots', 'full', 'none')}
  found['ours attention=splash'] = functools.partial(
      ours, overrides=f'model.attention=splash {overrides}')
  found['plain Flax'] = plain
  if source:
    found['big_vision'] = functools.partial(big_vision, source=source)
    for policy in POLICIES:
      found[f'big_vision scan {policy}'] = functools.partial(
          big_vision, source=source, scan=True, remat_policy=policy)
  return found


def count_flops(jaxpr):
  """Returns the FLOPs of a traced step, without unused operations."""
  used, _ = partial_eval.dce_jaxpr(
      jaxpr.jaxpr, [True] * len(jaxpr.out_avals), instantiate=True)
  return flops.count(
      core.jaxpr_as_fun(core.ClosedJaxpr(used, jaxpr.consts)), *jaxpr.in_avals)


def measure(traced, device):
  """Returns the figures of a traced step; GiB, TFLOP, GB, ms and s."""
  start = time.process_time()
  compiled, sizes = device_memory.try_compile(traced.lower())
  found = {'compile_cpu_secs': time.process_time() - start}
  if sizes:  # Arguments and temporaries.
    return {**found, 'needed_gib': sizes[0] / GIB}
  stats, peak = compiled.memory_analysis(), hardware.find(device.device_kind)
  moved = memory_traffic.count(compiled.as_text())
  operations = count_flops(traced.jaxpr)
  found |= {
      'temporaries_gib': stats.temp_size_in_bytes / GIB,
      'peak_gib': (stats.peak_memory_in_bytes
                   - stats.argument_size_in_bytes) / GIB,
      'tflop': operations / 1e12, 'gb': moved / 1e9}
  if peak:
    found['compute_ms'] = 1e3 * operations / peak.peak_flops
    found['memory_ms'] = 1e3 * moved / peak.memory_bytes_per_sec
    found['sum_ms'] = found['compute_ms'] + found['memory_ms']
  return found


def parse(text):
  """Parses 'L/16x64@224' into model, batch size and resolution."""
  found = re.fullmatch(r'(\w+/\d+)x(\d+)@(\d+)', text)
  if not found:
    raise argparse.ArgumentTypeError(
        f'A setting is MODELxIMAGES@PIXELS, such as {SETTINGS[0]}, but got '
        f'{text!r}.')
  return types.SimpleNamespace(
      name=text, model=found[1], batch_size=int(found[2]),
      resolution=int(found[3]))


def show(title, found):
  """Prints a row per implementation; one that does not fit has its size."""
  for columns in COLUMNS:
    shown = {key: value for key, value in columns.items()
             if any(key in figures for figures in found.values())}
    console.table(title, ('', *(heading for heading, _ in shown.values())), [
        (name.removesuffix('_saveable'),
         *(f'{figures[key]:.{digits}f}' if key in figures else None
           for key, (_, digits) in shown.items()))
        for name, figures in found.items()])


def main(argv=None):
  """Prints a table per setting and chip."""
  parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
  parser.add_argument('--settings', nargs='+', type=parse,
                      default=[parse(text) for text in SETTINGS])
  parser.add_argument('--chips', nargs='+', default=['v4-8', 'v5p-8'])
  parser.add_argument('--rows', nargs='+', default=['*'],
                      help="patterns of rows, such as 'ours*'")
  parser.add_argument('--big-vision', help='checkout of google-research/'
                      'big_vision; its rows are left out without it')
  parser.add_argument('--overrides', default='',
                      help='of the config of our rows')
  parser.add_argument('--json', type=pathlib.Path)
  args = parser.parse_args(argv)
  results = []
  for chips in args.chips:
    device = topology.devices(chips)[0]
    for setting in args.settings:
      found = {}
      for name, build in rows(args.big_vision, args.overrides).items():
        if any(fnmatch.fnmatch(name, pattern) for pattern in args.rows):
          found[name] = measure(build(setting, device), device)
          results.append({'setting': setting.name, 'chips': chips,
                          'row': name, **found[name]})
      show(f'{setting.name}, one chip of {chips}; GiB, ms, CPU s', found)
      if args.json:
        args.json.write_text(json.dumps(results, indent=1))


if __name__ == '__main__':
  main()
