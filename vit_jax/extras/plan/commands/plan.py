"""Estimates memory and speed of a training step without running it.

    python main.py plan --config=configs/pretrain.py:model=L/16 \
        --topology=v3-512

Compiles the training step of the config for the local devices or for a TPU
slice, and prints its memory, operations, memory traffic and collectives. No
data is read. A slice needs the TPU compiler (pip install '.[plan]'), but no
TPU.

Memory figures are the compiler's and apply to a run. Speeds are roofline
estimates: no step is faster than these bounds, and most are slower.

The largest batches that fit, per model and resolution, are printed as a table
and drawn like the right half of the paper's Figure 12:

    python main.py plan --config=configs/pretrain.py --topology=v3-8 \
        --max-batch --models=B/32,L/16,R50x1 --resolutions=64,128,224 \
        --json=max_batch.json --picture=max_batch.png
"""

from __future__ import annotations

import argparse
from typing import Any

from etils import epy

from vit_jax.commands import arguments

with epy.lazy_imports():
  from clu import parameter_overview
  import jax

  from vit_jax import console
  from vit_jax.experiment import build as build_lib
  from vit_jax.experiment import fit_batch
  from vit_jax.experiment import load_config
  from vit_jax.extras.plan import max_batch
  from vit_jax.extras.plan import report as plan_report
  from vit_jax.extras.plan import step_cost
  from vit_jax.extras.plan import topology
  from vit_jax.extras.plan import workload

# arXiv 2010.11929, figure 12: models and resolutions.
MODELS = 'R50x1,R50x2,R152x4,B/32,B/16,L/32,L/16,H/14'
RESOLUTIONS = '64,128,224,384,512'


def add_arguments(parser: argparse.ArgumentParser) -> None:
  """Adds the flags of the command."""
  arguments.add_config(parser)
  parser.add_argument(
      '--topology', default='', metavar='NAME',
      help='TPU slice, such as v3-8 or v5p-512, or its shape in chips, such as '
      'v3:32x32 (default: the local devices)')
  parser.add_argument(
      '--sharding', action='store_true',
      help='also print the sharding of each parameter')
  parser.add_argument(
      '--max-batch', action='store_true',
      help='find the largest batch per device that fits, among powers of two, '
      'for each of --models and --resolutions; --config must have the '
      'arguments model and resolution, like configs/pretrain.py')
  parser.add_argument(
      '--models', default=MODELS, metavar='NAME,...',
      help='models for --max-batch (default: %(default)s)')
  parser.add_argument(
      '--resolutions', default=RESOLUTIONS, metavar='PIXELS,...',
      help='image sizes for --max-batch (default: %(default)s)')
  parser.add_argument(
      '--picture', default='', metavar='FILE.png',
      help='draw the results of --max-batch')


def run(args: argparse.Namespace) -> tuple[int, Any]:
  """Prints and returns a plan per stage; status 1 if one does not fit."""
  # The plan reports the compilation time, so nothing may come from the cache.
  jax.config.update('jax_enable_compilation_cache', False)
  devices = topology.local_or_named(args.topology)
  if args.max_batch:
    return 0, max_batch.run(
        args.config, devices, overrides=args.overrides,
        models=args.models.split(','), resolutions=args.resolutions,
        json=args.json, picture=args.picture)
  stages = load_config.load(args.config, args.overrides)
  rows: list[dict[str, Any]] = []
  for name, config in stages.items():
    # Evaluators need their own data and do not affect the step.
    experiment = build_lib.build(
        workload.without_evals(config), devices, data_optional=True)
    experiment, cost = step_cost.compile_fitting_step(experiment)
    print('\n' if rows else '', end='')
    if args.sharding:
      print(parameter_overview.get_parameter_overview(
          experiment.abstract_state.params, include_stats='sharding'))
    plan = plan_report.figures(
        experiment, cost, stage=name, topology=args.topology)
    plan_report.show(plan, cost)
    if cost.fits is False:
      console.print_lines(f'Does not fit. {fit_batch.ADVICE}')
    rows.append(plan)
  return int(any(row['cost']['fits'] is False for row in rows)), {
      'jax': jax.__version__, 'stages': rows}
