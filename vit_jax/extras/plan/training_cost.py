"""FLOPs and core-days of training, next to the paper's Tables 2 and 6.

    exaFLOPs = 6 x multiply-adds per image x images x epochs
    core-days = exaFLOPs / (utilisation x peak of a core x 86,400 s)

A multiply-add is two FLOPs, and the backward pass costs twice the forward
pass; if parameters are frozen, their gradients are not counted. FLOPs are
counted from the traced model. Models of the paper's tables have a head of one
class, because the paper does not say whether the head is included; a head for
the 18,291 classes of JFT would add less than 1 %. A config is counted with its
head.
"""

from collections.abc import Mapping
import dataclasses
import functools
from typing import Any

import jax

from vit_jax.data import known_datasets
from vit_jax.experiment import build as build_lib
from vit_jax.experiment import config as config_lib
from vit_jax.extras.plan import flops
from vit_jax.extras.plan import hardware
from vit_jax.extras.plan import model_flops
from vit_jax.extras.plan import paper_costs
from vit_jax.extras.plan import roofline
from vit_jax.extras.plan import workload
from vit_jax.models import factory
from vit_jax.parallel import mesh as mesh_lib


def table_6() -> list[dict[str, Any]]:
  """Returns the rows of Table 6, each with the paper's count and ours."""
  rows = []
  for variant, epochs, paper in paper_costs.TABLE_6:
    exaflops = _exaflops(variant, 'jft', epochs)
    rows.append({
        'variant': variant, 'epochs': epochs,
        'multiply_adds': count_multiply_adds(variant), 'exaflops': exaflops,
        'paper': paper, 'difference': exaflops / paper - 1})
  return rows


def table_2() -> list[dict[str, Any]]:
  """Returns the rows of Table 2 with our counts and implied utilisations."""
  rows = []
  for variant, dataset, epochs, core_days in paper_costs.TABLE_2:
    exaflops = _exaflops(variant, dataset, epochs)
    rows.append({
        'variant': variant, 'dataset': dataset, 'epochs': epochs,
        'exaflops': exaflops, 'core_days': core_days,
        'utilisation': utilisation_of(exaflops, core_days)})
  return rows


def stage_cost(
    config: config_lib.Config, device: hardware.Hardware, utilisation: float,
) -> dict[str, Any]:
  """Counts the training cost of a config, without data or accelerators."""
  # These do not affect the count.
  config = dataclasses.replace(
      workload.without_evals(config), mesh=mesh_lib.MeshConfig(),
      accumulation=1)
  experiment = build_lib.build(config, jax.devices()[:1], data_optional=True)
  images = experiment.total_steps * config.batch_size
  counted = model_flops.per_image(experiment)
  exaflops = counted.training * images / 1e18
  row: dict[str, Any] = {
      'variant': config.model.variant, 'dataset': experiment.dataset.name,
      'epochs': images / experiment.dataset.num_examples,
      'resolution': config.data.size}
  return {
      **row, **paper_costs.find(
          config, dataset=row['dataset'], epochs=row['epochs']),
      'sizes_from': 'table' if experiment.dataset.planned else 'data',
      'images': images, 'multiply_adds': counted.forward // 2,
      'exaflops': exaflops,
      'core_days': exaflops / (utilisation * _exaflops_per_day(device))}


def stage_costs(
    stages: Mapping[str, config_lib.Config], device: hardware.Hardware,
    utilisation: float,
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
  """Returns the cost of each stage, with its name, and the sums of all."""
  rows = [{'stage': name, **stage_cost(config, device, utilisation)}
          for name, config in stages.items()]
  return rows, {key: sum(row[key] for row in rows)
                for key in ('images', 'exaflops', 'core_days')}


def _exaflops_per_day(device: hardware.Hardware) -> float:
  """Returns the peak of a core per day."""
  return device.peak_flops_per_core * roofline.DAY_SECS / 1e18


def utilisation_of(exaflops: float, core_days: float) -> float:
  """Returns the utilisation that core-days of the paper imply."""
  device = hardware.named(paper_costs.DEVICE)
  return exaflops / (core_days * _exaflops_per_day(device))


@functools.cache
def count_multiply_adds(variant: str) -> int:
  """Returns the multiply-adds of a forward pass over one image."""
  model = factory.build(factory.parse({'variant': variant}), num_classes=1)
  images = jax.ShapeDtypeStruct(
      (1, paper_costs.RESOLUTION, paper_costs.RESOLUTION, 3), 'float32')
  params = jax.eval_shape(
      lambda: factory.init(model, jax.random.key(0), images))
  return flops.count(
      lambda p, x: model.apply({'params': p}, x)['logits'], params, images) // 2


def _exaflops(variant: str, dataset: str, epochs: int) -> float:
  """Returns the cost of training on a dataset."""
  images = epochs * known_datasets.facts(dataset).num_examples['train']
  return 3 * 2 * count_multiply_adds(variant) * images / 1e18
