"""Counts the cost of training, next to the paper's Tables 2 and 6.

    exaFLOPs = 6 x multiply-adds per image x images x epochs
    core-days = exaFLOPs / (utilisation x peak of a core x 86,400 s)

A multiply-add is two FLOPs, and the backward pass costs twice the forward
pass; if parameters are frozen, their gradients are not counted. FLOPs are
counted from the traced model. Models of the paper's tables have a head of one
class, because the paper does not say whether the head is included; one for the
18,291 classes of JFT would add less than 1 %. A config is counted with its
head.

Core-days depend on the utilisation, which a training run logs as `train/mfu`.
The tables show the utilisation implied by the paper's own figures.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
import dataclasses
import functools
from typing import Any

from etils import epy

from vit_jax.commands import arguments
from vit_jax.parallel import hardware
from vit_jax.plan import paper_costs

with epy.lazy_imports():
  import jax

  from vit_jax import console
  from vit_jax import models
  from vit_jax.experiment import build as experiment_lib
  from vit_jax.experiment import config as config_lib
  from vit_jax.experiment import load_config
  from vit_jax.experiment import model_flops
  from vit_jax.parallel import mesh
  from vit_jax.plan import roofline
  from vit_jax.training import flops

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
    raise ValueError(
        f'--config.{args.overrides[0]} changes a config, but --config is '
        'missing. Add for example --config=configs/pretrain.py.')
  if not 0 < args.utilisation <= 1:
    raise ValueError(
        '--utilisation is a fraction of the peak, above 0 and at most 1, but '
        f'got {args.utilisation}.')
  device = hardware.named(args.device)
  return 0, _run_config(args, device) if args.config else _run_tables()


def _run_tables() -> dict[str, Any]:
  table_6, table_2 = paper_table_6(), paper_table_2()
  console.table(
      'Table 6: pre-training on JFT-300M',
      ('model', 'epochs', 'GMACs', 'exaFLOPs', 'paper', 'difference'),
      [(row['variant'], row['epochs'], f'{row["multiply_adds"] / 1e9:.2f}',
        f'{row["exaflops"]:,.0f}', f'{row["paper"]:,.0f}',
        f'{row["difference"]:+.1%}') for row in table_6])
  peak = hardware.named(paper_costs.DEVICE).peak_flops_per_core / 1e12
  console.table(
      f'Table 2: TPUv3-core-days, and implied utilisation of {peak:.1f} '
      'TFLOP/s',
      ('model', 'data', 'epochs', 'exaFLOPs', 'core-days', 'utilisation'),
      [(row['variant'], row['dataset'], row['epochs'],
        f'{row["exaflops"]:,.0f}', f'{row["core_days"]:,.0f}',
        f'{row["utilisation"]:.1%}') for row in table_2])
  return {'table_6': table_6, 'table_2': table_2}


def paper_table_6() -> list[dict[str, Any]]:
  """Returns the rows of Table 6, each with the paper's count and ours."""
  rows = []
  for variant, epochs, paper in paper_costs.TABLE_6:
    exaflops = _exaflops(variant, paper_costs.JFT_IMAGES * epochs)
    rows.append({
        'variant': variant, 'epochs': epochs,
        'multiply_adds': count_multiply_adds(variant), 'exaflops': exaflops,
        'paper': paper, 'difference': exaflops / paper - 1})
  return rows


def paper_table_2() -> list[dict[str, Any]]:
  """Returns the rows of Table 2 with our counts and implied utilisations."""
  rows = []
  for variant, dataset, images, epochs, core_days in paper_costs.TABLE_2:
    exaflops = _exaflops(variant, images * epochs)
    rows.append({
        'variant': variant, 'dataset': dataset, 'epochs': epochs,
        'exaflops': exaflops, 'core_days': core_days,
        'utilisation': _paper_utilisation(exaflops, core_days)})
  return rows


def _run_config(
    args: argparse.Namespace, device: hardware.Hardware,
) -> dict[str, Any]:
  stages = load_config.load(args.config, args.overrides)
  rows = [{'stage': name, **stage_cost(config, device, args.utilisation)}
          for name, config in stages.items()]
  total = {key: sum(row[key] for row in rows)
           for key in ('images', 'exaflops', 'core_days')}
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
        f'{device.peak_flops_per_core / 1e12:.1f} TFLOP/s per core'
        + (' (an assumption: see --utilisation)'
           if args.utilisation == UTILISATION else ''))
  for row in rows:
    _print_notes(row)
  return {'device': device.name, 'utilisation': args.utilisation, **total,
          'stages': rows}


def _print_notes(row: Mapping[str, Any]) -> None:
  """Prints the source of the sizes, and the paper's figures."""
  name = f'{row["stage"]}: ' if row['stage'] else ''
  if row['sizes_from'] == 'table':
    print(f'{name}{row["dataset"]} is not available: sizes are from the data '
          'set table')
  if paper := row['paper_exaflops']:
    print(f'{name}Paper, Table 6: {paper:,.0f} exaFLOPs '
          f'(ours {row["exaflops"] / paper - 1:+.1%})')
  if paper := row['paper_core_days']:
    print(f'{name}Paper, Table 2: {paper:,.0f} TPUv3-core-days, which implies '
          f'{_paper_utilisation(row["exaflops"], paper):.1%} of the peak')


def stage_cost(
    config: config_lib.Config, device: hardware.Hardware, utilisation: float,
) -> dict[str, Any]:
  """Counts the training cost of a config, without data or accelerators."""
  # These do not affect the count.
  config = dataclasses.replace(
      config_lib.without_evals(config), mesh=mesh.MeshConfig(), accumulation=1)
  experiment = experiment_lib.build(
      config, jax.devices()[:1], data_optional=True)
  images = experiment.total_steps * config.batch_size
  counted = model_flops.per_image(experiment)
  exaflops = counted.training * images / 1e18
  row: dict[str, Any] = {
      'variant': config.model.variant, 'dataset': experiment.dataset.name,
      'epochs': images / experiment.dataset.num_examples,
      'resolution': config.data.size}
  return {
      **row, **paper_costs.find(**row),
      'sizes_from': 'table' if experiment.dataset.planned else 'data',
      'images': images, 'multiply_adds': counted.forward // 2,
      'exaflops': exaflops,
      'core_days': exaflops / (utilisation * _exaflops_per_day(device))}


def _exaflops_per_day(device: hardware.Hardware) -> float:
  """Returns the peak of a core per day."""
  return device.peak_flops_per_core * roofline.DAY_SECS / 1e18


def _paper_utilisation(exaflops: float, core_days: float) -> float:
  device = hardware.named(paper_costs.DEVICE)
  return exaflops / (core_days * _exaflops_per_day(device))


@functools.cache
def count_multiply_adds(variant: str) -> int:
  """Returns the multiply-adds of a forward pass over one image."""
  model = models.build(models.parse({'variant': variant}), num_classes=1)
  images = jax.ShapeDtypeStruct(
      (1, paper_costs.RESOLUTION, paper_costs.RESOLUTION, 3), 'float32')
  params = jax.eval_shape(
      lambda: models.init(model, jax.random.key(0), images))
  return flops.count(
      lambda p, x: model.apply({'params': p}, x)['logits'], params, images) // 2


def _exaflops(variant: str, images: float) -> float:
  """Returns the cost of training on a number of images."""
  return 3 * 2 * count_multiply_adds(variant) * images / 1e18
