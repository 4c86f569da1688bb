"""`main.py plan`: what a training needs on devices that need not be here.

    python main.py plan --config=configs/pretrain.py:model=L/16 \
        --topology=v3-512

Compiles the very training step of the config, for the devices that are here or
for a slice of TPUs, and says what it needs of each: memory, operations, bytes,
what the devices say to each other. Nothing is trained, and no data is read; a
slice needs the TPU's compiler (requirements-plan.txt), and no TPU.

What the compiler says of memory is what a run would take. Speeds are estimates:
no step is faster than the bounds that are printed, and most are slower.
"""

import argparse
import dataclasses
from typing import Any

import jax

from vit_jax import config as config_lib
from vit_jax.parallel import topology
from vit_jax.plan import building
from vit_jax.plan import measure
from vit_jax.plan import report
from vit_jax.training import writer


def add_arguments(parser: argparse.ArgumentParser) -> None:
  """Adds this command's flags."""
  parser.add_argument(
      '--config', required=True, metavar='FILE.py[:name=value,...]',
      help='what would be trained; change a value by '
      '--config.section.key=value')
  parser.add_argument(
      '--topology', default='', metavar='SLICE',
      help='TPUs that need not be here: a slice such as v3-8, v3-2048 or '
      'v5p-512, or a shape in chips such as v3:32x32. Without it: the devices '
      'that are here')
  parser.add_argument(
      '--sharding', action='store_true',
      help='also print how each parameter lies on the devices')


def run(args: argparse.Namespace) -> int:
  """Prints a plan of each stage; returns 1 if one does not fit."""
  # What it takes to compile is one of the figures.
  jax.config.update('jax_enable_compilation_cache', False)
  if args.topology:
    topology.parse(args.topology)
    # The devices that are here are not asked for anything, and not taken.
    jax.config.update('jax_platforms', 'cpu')
  devices = topology.devices(args.topology) if args.topology else jax.devices()
  stages = config_lib.load(args.config, args.overrides)
  plans = []
  for name, config in stages.items():
    plans.append(_plan(name, config, devices, args))
    print(('\n' if len(plans) > 1 else '') + report.render(plans[-1]))
  if args.json and jax.process_index() == 0:
    writer.write_json(args.json, {
        'jax': jax.__version__,
        'stages': [report.figures(plan) for plan in plans]})
  return int(any(plan.measured.fits is False for plan in plans))


def _plan(
    name: str, config: config_lib.Config, devices: Any,
    args: argparse.Namespace,
) -> report.Plan:
  # Evaluators need their own data, and are no part of the step.
  experiment, sizes_from = building.build(
      dataclasses.replace(config, evals={}), devices)
  return report.plan(
      experiment, stage=name, sizes_from=sizes_from, topology=args.topology,
      measured=measure.measure(experiment))
