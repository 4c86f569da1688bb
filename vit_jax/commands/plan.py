"""`main.py plan`: what a training needs on devices that need not be here.

    python main.py plan --config=configs/pretrain.py:model=L/16 \
        --topology=v3-512

Compiles the very training step of the config, for the devices that are here,
for a slice of TPUs or for GPUs, and says what it needs of each: memory,
operations, bytes, what the devices say to each other. Nothing is trained, and
no data is read; a slice needs the TPU's compiler (requirements-plan.txt), and
no TPU, GPUs need JAX's CUDA plugin (requirements-gpu.txt), and no GPU.

What the compiler says of memory is what a run would take. Speeds are estimates:
no step is faster than the bounds that are printed, and most are slower.

Where the step does not fit, the settings that may make it fit are tried, each
compiled. The largest batches that fit, of models and sizes of images, are a
table and a picture, as the right half of the paper's Figure 12:

    python main.py plan --config=configs/pretrain.py --topology=v3-8 \
        --max-batch --models=B/32,L/16,R50x1 --resolutions=64,128,224 \
        --json=max_batch.json --picture=max_batch.png
"""

import argparse
from collections.abc import Sequence
import dataclasses
import functools
import math
import shlex
import sys
from typing import Any

import jax

from vit_jax.analysis import memory_plot
from vit_jax.experiment import build as experiment_lib
from vit_jax.experiment import config as config_lib
from vit_jax.parallel import sharding
from vit_jax.parallel import topology
from vit_jax.plan import advice
from vit_jax.plan import building
from vit_jax.plan import max_batch
from vit_jax.plan import measure
from vit_jax.plan import microbatches
from vit_jax.plan import report
from vit_jax.training import writer


def add_arguments(parser: argparse.ArgumentParser) -> None:
  """Adds this command's flags."""
  parser.add_argument(
      '--config', required=True, metavar='FILE.py[:name=value,...]',
      help='what would be trained; change a value by '
      '--config.section.key=value')
  parser.add_argument(
      '--topology', default='', metavar='NAME',
      help='what need not be here: TPUs, a slice such as v3-8, v3-2048 or '
      'v5p-512, or a shape in chips such as v3:32x32; or the GPUs of a '
      'machine, such as h100:8. Without it: the devices that are here')
  parser.add_argument(
      '--sharding', action='store_true',
      help='also print how each parameter lies on the devices')
  parser.add_argument(
      '--no-search', action='store_true',
      help='where a step does not fit, do not look for settings with which it '
      'does: each has to be compiled')
  parser.add_argument(
      '--max-batch', action='store_true',
      help='find the largest batch that fits a device instead, of powers of '
      'two alone (somewhat more images may fit), of --models and '
      '--resolutions; --config must take the arguments model and resolution, '
      'as configs/pretrain.py')
  parser.add_argument(
      '--models', default=','.join(max_batch.MODELS), metavar='NAME,...',
      help='models of --max-batch (default: %(default)s)')
  parser.add_argument(
      '--resolutions', default=','.join(map(str, max_batch.RESOLUTIONS)),
      metavar='PIXELS,...',
      help='sizes of images of --max-batch (default: %(default)s)')
  parser.add_argument(
      '--picture', default='', metavar='FILE.png',
      help='draws the table of --max-batch')


def run(args: argparse.Namespace) -> int:
  """Prints a plan of each stage; returns 1 if one does not fit."""
  # What it takes to compile is one of the figures.
  jax.config.update('jax_enable_compilation_cache', False)
  devices: Sequence[jax.Device]
  if args.topology:
    topology.check(args.topology)
    # The devices that are here are not asked for anything, and not taken.
    jax.config.update('jax_platforms', 'cpu')
    devices = topology.devices(args.topology)
  else:
    topology.expect_no_tpu()
    devices = jax.devices()
  if args.max_batch:
    return _max_batch(args, devices)
  stages = config_lib.load(args.config, args.overrides)
  plans = []
  searches: dict[str, Any] = {}
  for name, config in stages.items():
    plans.append(_plan(name, config, devices, args))
    print(('\n' if len(plans) > 1 else '') + report.render(plans[-1]))
    if plans[-1].measured.fits is False and not args.no_search:
      searches[name] = _search(config, devices, plans[-1].measured)
  if args.json and jax.process_index() == 0:
    writer.write_json(args.json, {
        'jax': jax.__version__,
        'stages': [{**report.figures(plan), 'search': searches.get(plan.stage)}
                   for plan in plans]})
  return int(any(plan.measured.fits is False for plan in plans))


def _search(
    config: config_lib.Config, devices: Sequence[jax.Device],
    measured: measure.Measured,
) -> list[dict[str, Any]]:
  """Prints the settings with which a step may fit, as they are known."""
  print('\n' + advice.header(measured), flush=True)
  rows = advice.suggest(
      config, devices, measured=measured,
      say=functools.partial(print, flush=True))
  print(advice.footer(rows), flush=True)
  return advice.figures(rows)


def _max_batch(
    args: argparse.Namespace, devices: Sequence[jax.Device],
) -> int:
  """Prints, writes and draws the largest batches; what is known, at once."""
  try:
    resolutions = [int(text) for text in args.resolutions.split(',')]
  except ValueError:
    raise ValueError(
        '--resolutions are numbers of pixels with commas between, such as '
        f'224,384, but are {args.resolutions!r}.') from None
  models = args.models.split(',')
  kind = devices[0].device_kind
  unit = report.unit(kind)
  cells: list[max_batch.Cell] = []
  for cell in max_batch.table(
      args.config, devices, overrides=args.overrides, models=models,
      resolutions=resolutions):
    cells.append(cell)
    print(max_batch.line(cell), flush=True)
    if args.json:  # A table of hours is not lost with its last cell.
      writer.write_json(args.json, {
          'jax': jax.__version__, 'command': shlex.join(sys.argv),
          'device_kind': kind, 'cells': max_batch.figures(cells)})
  print('\n' + max_batch.render(cells, device_kind=kind, unit=unit))
  if args.picture:
    memory_plot.largest_batches(
        max_batch.figures(cells), args.picture, unit=unit,
        title=f'Largest batch that fits a {unit} ({kind})')
    print(f'picture  {args.picture}')
  return 0


def _plan(
    name: str, config: config_lib.Config, devices: Any,
    args: argparse.Namespace,
) -> report.Plan:
  # Evaluators need their own data, and are no part of the step.
  experiment, sizes_from = building.build(
      dataclasses.replace(config, evals={}), devices)
  experiment, measured = _measure(experiment)
  if args.sharding:
    print(f'{name + ": " if name else ""}how each parameter lies\n\n'
          + sharding.describe(
              sharding.table(experiment.abstract_state, experiment.axes,
                             experiment.mesh), experiment.mesh) + '\n')
  return report.plan(
      experiment, stage=name, sizes_from=sizes_from, topology=args.topology,
      measured=measured)


def _measure(
    experiment: experiment_lib.Experiment,
) -> tuple[experiment_lib.Experiment, measure.Measured]:
  """Compiles the step, in as few parts as fit where that is left open.

  Where none fits, it is the step in one part that is reported.
  """
  first = experiment, measure.measure(experiment)
  if experiment.config.accumulation != 'auto':
    return first
  found, sizes = first, {}
  while found[1].fits is False:
    memory = found[1].memory
    sizes[found[0].config.parts] = memory.total_bytes
    more = microbatches.next_parts(
        microbatches.options(experiment), sizes, memory.capacity_bytes or math.inf)
    if more is None:
      return first
    candidate = experiment.in_parts(more)
    found = candidate, measure.measure(candidate)
  return found
