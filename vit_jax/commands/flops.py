"""`main.py flops`: what training costs, next to the paper's Tables 6 and 2.

    exaFLOPs = 6 x multiply-adds of an image x images x epochs
    core-days = exaFLOPs / (utilisation x peak of a core x 86,400 s)

A forward pass, and a backward pass of twice its operations; a multiply-add is
two. Where parameters are frozen, what is left of the backward pass. Counted
from the traced model itself. The tables' rows have a head of one
class: the paper does not say whether its figures include the head, and one for
JFT's 18,291 classes would add less than 1 %. A config is counted as it is, with
its head.

How long it takes depends on the share of the peak that is reached, which is
measured, not known: a training logs it as `train/mfu`. The paper's own days
and operations imply one, which is shown beside them.
"""

import argparse
import dataclasses
import functools
from typing import Any

import jax

from vit_jax import atomic_files
from vit_jax import models
from vit_jax.experiment import config as config_lib
from vit_jax.experiment import load_config
from vit_jax.parallel import hardware
from vit_jax.parallel import mesh
from vit_jax.plan import build_without_data
from vit_jax.plan import paper_costs
from vit_jax.training import cost
from vit_jax.training import flops

# An assumption, within what Table 2 implies for a ViT: 0.32 to 0.43.
UTILISATION = 0.4
DAY_SECS = 86_400


@dataclasses.dataclass(frozen=True)
class Row:
  """A model's compute, ours and the paper's.

  Attributes:
    variant: the model.
    epochs: over JFT-300M.
    multiply_adds: of a forward pass over one image.
    exaflops: of the whole of pre-training.
    paper: what Table 6 says.
  """
  variant: str
  epochs: int
  multiply_adds: int
  exaflops: float
  paper: float

  @property
  def difference(self) -> float:
    """How much more than the paper's, as a fraction."""
    return self.exaflops / self.paper - 1


@dataclasses.dataclass(frozen=True)
class Days:
  """A row of Table 2, and what its days say of the speed.

  Attributes:
    variant: the model.
    dataset: what it was pre-trained on.
    epochs: over that.
    exaflops: our count.
    core_days: the paper's, of TPUv3.
  """
  variant: str
  dataset: str
  epochs: int
  exaflops: float
  core_days: float

  @property
  def utilisation(self) -> float:
    """The share of the cores' peak that these figures imply."""
    return self.exaflops / (
        self.core_days * _exaflops_per_day(hardware.named(paper_costs.DEVICE)))


@dataclasses.dataclass(frozen=True)
class Plan:
  """What the training that a config describes would cost.

  Attributes:
    stage: its name, '' where the config has none.
    variant: the model, where it has a name.
    dataset: what is trained on.
    sizes_from: 'data' where it was there, else 'table': the table of data sets.
    resolution: height and width of the images.
    images: trained on, all epochs together.
    epochs: over the training split.
    multiply_adds: of a forward pass over one image.
    exaflops: in all.
    core_days: on the device and at the utilisation that were asked for.
    paper_exaflops: what Table 6 says, where it has this row.
    paper_core_days: what Table 2 says, of TPUv3, where it has this row.
  """
  stage: str
  variant: str
  dataset: str
  sizes_from: str
  resolution: tuple[int, int]
  images: int
  epochs: float
  multiply_adds: int
  exaflops: float
  core_days: float
  paper_exaflops: float | None
  paper_core_days: float | None


def add_arguments(parser: argparse.ArgumentParser) -> None:
  """Adds this command's flags."""
  parser.add_argument(
      '--config', default='', metavar='FILE.py[:name=value,...]',
      help='count what this costs, stage by stage, instead of printing the '
      "paper's tables; change a value by --config.section.key=value")
  parser.add_argument(
      '--device', default=paper_costs.DEVICE, metavar='NAME',
      help='what to count core-days of (default: %(default)s): '
      + ', '.join(row.name for row in hardware.TABLE))
  parser.add_argument(
      '--utilisation', type=float, default=UTILISATION, metavar='SHARE',
      help='share of the peak that is reached, 0 to 1 (default: %(default)s, '
      'an assumption; train/mfu of a run is a measurement)')


def run(args: argparse.Namespace) -> int:
  """Prints the tables, or the cost of a config."""
  if args.overrides and not args.config:
    raise ValueError(
        f'--config.{args.overrides[0]} changes a config, but none is given. '
        'Name one: --config=configs/pretrain.py.')
  if not 0 < args.utilisation <= 1:
    raise ValueError(
        '--utilisation is a share of the peak, above 0 and at most 1, but is '
        f'{args.utilisation}.')
  device = hardware.named(args.device)
  figures = _run_config(args, device) if args.config else _run_tables()
  if args.json and jax.process_index() == 0:
    atomic_files.write_json(args.json, figures)
  return 0


def _run_tables() -> dict[str, Any]:
  rows, days = table(), table_2()
  print('Table 6: pre-training on JFT-300M')
  print(f'{"model":10} {"epochs":>6} {"GMACs":>8} {"exaFLOPs":>9} '
        f'{"Table 6":>8} {"differs":>8}')
  for row in rows:
    print(f'{row.variant:10} {row.epochs:6} {row.multiply_adds / 1e9:8.2f} '
          f'{row.exaflops:9.0f} {row.paper:8.0f} {row.difference:+8.1%}')
  peak = hardware.named(paper_costs.DEVICE)
  print('\nTable 2: days of a TPUv3 core, and the utilisation they imply of '
        f'its {peak.peak_flops_per_core / 1e12:.1f} TFLOP/s')
  print(f'{"model":10} {"data":12} {"epochs":>6} {"exaFLOPs":>9} '
        f'{"core-days":>10} {"implied":>8}')
  for day in days:
    print(f'{day.variant:10} {day.dataset:12} {day.epochs:6} '
          f'{day.exaflops:9.0f} {day.core_days:10,.0f} '
          f'{day.utilisation:8.1%}')
  return {
      'table_6': [{**dataclasses.asdict(row), 'difference': row.difference}
                  for row in rows],
      'table_2': [{**dataclasses.asdict(day), 'utilisation': day.utilisation}
                  for day in days]}


def _run_config(
    args: argparse.Namespace, device: hardware.Hardware,
) -> dict[str, Any]:
  plans = [plan(config, stage=name, device=device, utilisation=args.utilisation)
           for name, config in load_config.load(
               args.config, args.overrides).items()]
  print(f'{"stage":12} {"model":9} {"data":12} {"images":>14} {"epochs":>7} '
        f'{"GMACs":>8} {"exaFLOPs":>9} {"core-days":>9}')
  for p in plans:
    print(f'{p.stage or "-":12} {p.variant or "-":9} {p.dataset:12} '
          f'{p.images:14,} {p.epochs:7.1f} {p.multiply_adds / 1e9:8.4g} '
          f'{p.exaflops:9.4g} {p.core_days:9.4g}')
  total = {key: sum(getattr(p, key) for p in plans)
           for key in ('images', 'exaflops', 'core_days')}
  if len(plans) > 1:
    print(f'{"all":12} {"":9} {"":12} {total["images"]:14,} {"":7} {"":8} '
          f'{total["exaflops"]:9.4g} {total["core_days"]:9.4g}')
  assumed = ', an assumption: see --utilisation'
  print(f'\ncore-days of {device.name} at {args.utilisation:.4g} of its '
        f'{device.peak_flops_per_core / 1e12:.1f} TFLOP/s a core'
        + assumed * (args.utilisation == UTILISATION))
  for p in plans:
    for line in _notes(p):
      print(line)
  return {'device': device.name, 'utilisation': args.utilisation, **total,
          'stages': [dataclasses.asdict(p) for p in plans]}


def _notes(p: Plan) -> list[str]:
  """Returns what stands beside a row: the paper's, and where sizes are from."""
  name = f'{p.stage}: ' if p.stage else ''
  notes = []
  if p.sizes_from == 'table':
    notes.append(f'{name}{p.dataset} could not be opened: its sizes are those '
                 'of the table of data sets')
  if p.paper_exaflops:
    notes.append(f'{name}Table 6 of the paper: {p.paper_exaflops:,.0f} exaFLOPs'
                 f' (ours {p.exaflops / p.paper_exaflops - 1:+.1%})')
  if p.paper_core_days:
    implied = p.exaflops / (
        p.paper_core_days * _exaflops_per_day(hardware.named(paper_costs.DEVICE)))
    notes.append(f'{name}Table 2 of the paper: {p.paper_core_days:,.0f} '
                 f'TPUv3-core-days, which is {implied:.1%} of the peak')
  return notes


def plan(
    config: config_lib.Config, *, stage: str = '', device: hardware.Hardware,
    utilisation: float,
) -> Plan:
  """Counts what training by a config would cost; needs neither data nor chips.

  Args:
    config: of one stage.
    stage: its name.
    device: what the core-days are of.
    utilisation: share of the device's peak.
  """
  # Neither the layout nor what is measured on the way changes the count.
  config = dataclasses.replace(
      config, mesh=mesh.MeshConfig(), accumulation=1, evals={})
  experiment, sizes_from = build_without_data.build(config, jax.devices()[:1])
  per_image = experiment.flops_per_image
  images = experiment.total_steps * config.batch_size
  exaflops = experiment.training_flops_per_image * images / 1e18
  row: dict[str, Any] = {
      'variant': config.model.variant, 'dataset': experiment.dataset.name,
      'epochs': images / experiment.dataset.num_examples}
  published: dict[str, Any] = paper_costs.find(resolution=config.data.size, **row)
  return Plan(
      stage=stage, sizes_from=sizes_from, resolution=config.data.size,
      images=images, multiply_adds=per_image // 2, exaflops=exaflops,
      core_days=exaflops / (utilisation * _exaflops_per_day(device)),
      **row, **published)


def _exaflops_per_day(device: hardware.Hardware) -> float:
  """Returns what a core of the device does in a day at its peak."""
  return device.peak_flops_per_core * DAY_SECS / 1e18


def table() -> list[Row]:
  """Returns the rows of Table 6 with our own count beside."""
  rows = []
  for variant, epochs, theirs in paper_costs.TABLE_6:
    multiply_adds = count_multiply_adds(variant)
    exaflops = _exaflops(multiply_adds, paper_costs.JFT_IMAGES * epochs)
    rows.append(Row(variant, epochs, multiply_adds, exaflops, theirs))
  return rows


def table_2() -> list[Days]:
  """Returns the rows of Table 2 with our own count beside."""
  return [
      Days(variant, dataset, epochs, _exaflops(
          count_multiply_adds(variant), images * epochs), core_days)
      for variant, dataset, images, epochs, core_days in paper_costs.TABLE_2]


@functools.cache
def count_multiply_adds(variant: str) -> int:
  """Returns those of a forward pass over an image."""
  # The head of a single class costs nothing beside the rest.
  model = models.build(models.parse({'variant': variant}), num_classes=1)
  images = jax.ShapeDtypeStruct(
      (1, paper_costs.RESOLUTION, paper_costs.RESOLUTION, 3), 'float32')
  params = jax.eval_shape(
      lambda: models.init(model, jax.random.key(0), images))
  operations = flops.count(
      lambda p, x: model.apply({'params': p}, x)['logits'], params, images)
  return operations // 2  # A multiply-add is two.


def _exaflops(multiply_adds: int, images: float) -> float:
  return cost.training_flops(2 * multiply_adds) * images / 1e18
