"""Counts the cost of training, next to the paper's Tables 2 and 6.

Core-days depend on the utilisation, which a training run logs as `train/mfu`.
The tables show the utilisation implied by the paper's own figures. See
`plan.training_cost` for what is counted.
"""

from __future__ import annotations

import argparse
from typing import Any

from etils import epy

from vit_jax import fields
from vit_jax.commands import arguments
from vit_jax.exceptions import UserError
from vit_jax.extras.plan import hardware
from vit_jax.extras.plan import paper_costs

with epy.lazy_imports():
  from vit_jax import console
  from vit_jax.experiment import load_config
  from vit_jax.extras.plan import training_cost

# An assumption; Table 2 implies 0.32 to 0.43 for a ViT.
UTILISATION = 0.4


def add_arguments(parser: argparse.ArgumentParser) -> None:
  """Adds the flags of the command."""
  arguments.add_config(
      parser, "count each stage of this config, instead of the paper's models",
      required=False)
  parser.add_argument(
      '--device', default=paper_costs.DEVICE, metavar='NAME',
      help='device type for core-days (default: %(default)s): '
      + ', '.join(row.name for row in hardware.TABLE))
  parser.add_argument(
      '--utilisation', type=float, default=UTILISATION, metavar='FRACTION',
      help='assumed fraction of the peak, 0 to 1 (default: %(default)s); runs '
      'log a measured value as train/mfu')


def run(args: argparse.Namespace) -> tuple[int, Any]:
  """Prints and returns the tables, or the cost of a config."""
  if args.overrides and not args.config:
    raise UserError(
        f'--config.{args.overrides[0]} changes a config, but --config is '
        'missing. Add for example --config=configs/pretrain.py.')
  fields.check_range(args, 'utilisation', above=0, most=1)
  device = hardware.named(args.device)
  return 0, _run_config(args, device) if args.config else _run_tables()


def _run_tables() -> dict[str, Any]:
  table_6, table_2 = training_cost.table_6(), training_cost.table_2()
  console.table(
      'Table 6: pre-training on JFT-300M',
      ('model', 'epochs', 'GMACs', 'exaFLOPs', 'paper', 'difference'),
      [(row['variant'], row['epochs'], f'{row["multiply_adds"] / 1e9:.2f}',
        f'{row["exaflops"]:,.0f}', f'{row["paper"]:,.0f}',
        f'{100 * row["difference"]:+.1f} %') for row in table_6])
  peak = hardware.named(paper_costs.DEVICE).peak_flops_per_core / 1e12
  console.table(
      f'Table 2: TPUv3-core-days, and implied utilisation of {peak:.1f} '
      'TFLOP/s',
      ('model', 'data', 'epochs', 'exaFLOPs', 'core-days', 'utilisation'),
      [(row['variant'], row['dataset'], row['epochs'],
        f'{row["exaflops"]:,.0f}', f'{row["core_days"]:,.0f}',
        console.format_percent(row['utilisation'], digits=1))
       for row in table_2])
  return {'table_6': table_6, 'table_2': table_2}


def _run_config(
    args: argparse.Namespace, device: hardware.Hardware,
) -> dict[str, Any]:
  rows, total = training_cost.stage_costs(
      load_config.load(args.config, args.overrides), device, args.utilisation)
  cells = [
      (row['stage'] or None, row['variant'] or None, row['dataset'],
       row['epochs'], row['multiply_adds'] / 1e9, row['exaflops'],
       row['core_days']) for row in rows]
  if len(rows) > 1:
    cells.append(('all', None, None, None, None, total['exaflops'],
                  total['core_days']))
  console.table('Training cost', (
      'stage', 'model', 'data', 'epochs', 'GMACs', 'exaFLOPs', 'core-days'),
                cells)
  print(f'Core-days of {device.name} at {args.utilisation:.4g} of '
        f'{device.peak_flops_per_core / 1e12:.1f} TFLOP/s per core (an '
        'assumption: see --utilisation)')
  for row in rows:
    if paper := row['paper_exaflops']:
      print(f'Paper, Table 6: {paper:,.0f} exaFLOPs')
    if paper := row['paper_core_days']:
      print(f'Paper, Table 2: {paper:,.0f} {paper_costs.DEVICE}-core-days')
    if row['sizes_from'] == 'table':
      print(f'{row["dataset"]} is not available: sizes are from the dataset '
            'table')
  return {'device': device.name, 'utilisation': args.utilisation, **total,
          'stages': rows}
