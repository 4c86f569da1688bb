"""Plan of a training stage: terminal report and JSON."""

from collections.abc import Mapping
import dataclasses
import textwrap
from typing import Any

from vit_jax import console
from vit_jax import models
from vit_jax.experiment import build as experiment_lib
from vit_jax.parallel import hardware
from vit_jax.plan import paper_costs
from vit_jax.plan import roofline
from vit_jax.plan import step_cost
from vit_jax.plan.compiled import collectives

HOUR_SECS = 3600


@dataclasses.dataclass(frozen=True)
class Plan:
  """Cost of one stage of a config on a set of devices.

  Attributes:
    stage: name of the stage, '' if the config has none.
    model: variant, or dimensions.
    dataset: training data set.
    sizes_from: 'data', or 'table' if the data set is not available.
    epochs: passes over the training split.
    total_steps: length of the schedule.
    topology: name of the TPU slice; '' for the local devices.
    settings: settings that affect the cost.
    cost: the compiled step.
    estimate: estimated speed, or None if the device is unknown.
    paper: the paper's figures for the same training.
  """
  stage: str
  model: str
  dataset: str
  sizes_from: str
  epochs: float
  total_steps: int
  topology: str
  settings: Mapping[str, Any]
  cost: step_cost.StepCost
  estimate: roofline.Estimate | None
  paper: Mapping[str, float | None]


def plan(
    experiment: experiment_lib.Experiment, *, stage: str, sizes_from: str,
    topology: str, cost: step_cost.StepCost,
) -> Plan:
  """Returns the plan of a stage; see `Plan` for the arguments."""
  config = experiment.config
  images = experiment.total_steps * config.batch_size
  epochs = images / experiment.dataset.num_examples
  variant = config.model.variant
  used = models.for_devices(
      config.model, experiment.mesh.devices.flatten().tolist())
  return Plan(
      stage=stage, sizes_from=sizes_from, topology=topology,
      model=variant or _dimensions(config.model),
      dataset=experiment.dataset.name, epochs=epochs,
      total_steps=experiment.total_steps,
      settings={
          'resolution': config.data.size, 'batch_size': config.batch_size,
          'accumulation': config.num_microbatches,
          'remat': getattr(config.model, 'remat', 'none'),
          'attention': getattr(config.model, 'attention', 'plain'),
          'attention_used': getattr(used, 'attention', 'plain')},
      cost=cost, estimate=roofline.estimate(cost),
      paper=paper_costs.find(
          variant=variant, dataset=experiment.dataset.name, epochs=epochs,
          resolution=config.data.size))


def figures(plan: Plan) -> dict[str, Any]:
  """Returns a plan as plain data for JSON."""
  row: dict[str, Any] = dataclasses.asdict(plan)
  row['cost'] |= {
      'fits': plan.cost.fits,
      'collectives': {
          kind: dataclasses.asdict(total) for kind, total in collectives.total(
              plan.cost.collectives).items()}}
  e = plan.estimate
  if plan.cost.compile_error or e is None:
    return row | {'estimate': None}
  row['estimate'] |= {
      'bottleneck': e.bottleneck.name,
      'bound_secs': {name: bound.secs for name, bound in e.bounds.items()}}
  for name, secs in _step_secs(e).items():
    row['estimate'][name] = {
        'step_secs': secs, 'steps_per_sec': 1 / secs,
        'images_per_sec': e.images_per_sec(secs), 'mfu': e.mfu(secs),
        'hours': secs * plan.total_steps / HOUR_SECS,
        'core_days': e.core_days(secs, steps=plan.total_steps)}
  return row


def show(plan: Plan) -> None:
  """Prints a plan."""
  print(_header(plan) + '\n')
  _show_memory(plan)
  _show_work(plan)
  if plan.cost.compile_error:
    print('No speed estimate: the step does not fit.')
  elif plan.estimate is None:
    print(f'No speed estimate: the peak of {plan.cost.device_kind!r} is '
          'unknown.')
  else:
    _show_bounds(plan.estimate)
    _show_schedule(plan, plan.estimate)


def unit(device_kind: str) -> str:
  """Returns the name of a device: 'core' in TPU v2 and v3, 'chip' in others."""
  if device_kind in ('TPU v2', 'TPU v3'):
    return 'core'
  return 'chip' if device_kind.startswith('TPU') else 'device'


def _header(plan: Plan) -> str:
  cost, s = plan.cost, plan.settings
  height, width = s['resolution']
  stage = f'{plan.stage}: ' if plan.stage else ''
  lines = [f'{stage}{plan.model}, {plan.dataset} at {height} x {width}']
  if plan.sizes_from == 'table':
    lines.append(
        f'{plan.dataset} is not available: sizes are from the data set table')
  n = s['accumulation']
  mesh = ' x '.join(f'{axis} {size}' for axis, size in cost.mesh.items())
  lines.append(
      f'batch {s["batch_size"]:,}' + f' in {n} microbatches' * (n > 1)
      + f' | remat {s["remat"]!r} | mesh {mesh}')
  if s['attention'] != 'plain':
    lines.append(f'attention {s["attention"]!r}' + (
        ', replaced by plain attention: it requires NVIDIA GPUs'
        if s['attention_used'] != s['attention'] else ''))
  topology = f' ({plan.topology})' if plan.topology else ''
  result = 'failed to compile' if cost.compile_error else 'compiled'
  lines.append(
      f'{cost.devices:,} x {cost.device_kind}{topology} | {result} in '
      f'{cost.compile_secs:,.0f} s ({cost.compile_cpu_secs:,.0f} CPU s)')
  return '\n'.join(lines)


def _show_memory(plan: Plan) -> None:
  memory = plan.cost.memory
  sizes = {
      'parameters': memory.params_bytes,
      'optimizer state, average': memory.optimizer_bytes,
      'batch': memory.batch_bytes,
      'activations, gradients': memory.activations_bytes,
      'outputs': memory.outputs_bytes,
      'program, padding': memory.other_bytes}
  rows = [(name, console.format_bytes(size), '')
          for name, size in sizes.items() if size is not None]
  result = '' if memory.fraction is None else (
      f'{memory.fraction:.0%} of '
      f'{console.format_bytes(memory.capacity_bytes or 0)}: '
      + ('fits' if plan.cost.fits else 'DOES NOT FIT'))
  total = 'needed (compiler error)' if plan.cost.compile_error else 'total'
  console.table(
      f'Memory per {unit(plan.cost.device_kind)}'
      + (f', of {console.format_bytes(memory.capacity_bytes)} '
         f'({memory.capacity_source})' if memory.capacity_bytes else ''),
      ('', 'size', ''),
      [*rows, (total, console.format_bytes(memory.total_bytes), result)])


def _show_work(plan: Plan) -> None:
  cost = plan.cost
  rows = [('forward + backward', console.format_flops(cost.training_flops), '')]
  if cost.recomputed_flops:
    rows.append(('recomputation (remat)',
                 console.format_flops(cost.recomputed_flops), ''))
  if cost.traffic_bytes is not None:
    rows.append(('memory traffic', console.format_bytes(cost.traffic_bytes),
                 ''))
  for kind, total in collectives.total(cost.collectives).items():
    rows.append((kind, console.format_bytes(total.bytes),
                 f'{total.count:,} operations, sends '
                 + console.format_bytes(total.wire_bytes)))
  console.table(
      f'Work per {unit(cost.device_kind)} and step', ('', 'amount', ''), rows)


def _show_bounds(e: roofline.Estimate) -> None:
  console.table(
      'Roofline estimate: lower bounds of a step', ('', 'ms', 'peak'), [
          (name, bound.secs * 1e3,
           (f'{bound.per_sec / 1e12:,.1f} TFLOP/s' if name == 'compute'
            else f'{bound.per_sec / 1e9:,.0f} GB/s')
           + ' <- bottleneck' * (bound is e.bottleneck))
          for name, bound in e.bounds.items()])
  for source in dict.fromkeys(bound.source for bound in e.bounds.values()):
    print(textwrap.fill(
        hardware.describe_source(source), subsequent_indent='  ',
        width=80, break_on_hyphens=False) + '\n')


def _show_schedule(plan: Plan, e: roofline.Estimate) -> None:
  secs = _step_secs(e).values()
  is_tpu = unit(plan.cost.device_kind) != 'device'
  console.table(
      f'Estimate for {plan.total_steps:,} steps ({plan.epochs:.1f} epochs), by '
      'overlap of the bounds', ('', 'full overlap', 'no overlap'), [
          ('steps/s', *(1 / s for s in secs)),
          ('images/s', *(e.images_per_sec(s) for s in secs)),
          ('MFU', *(f'{e.mfu(s):.0%}' for s in secs)),
          ('hours', *(s * plan.total_steps / HOUR_SECS for s in secs)),
          (f'{e.core}-core-days' if is_tpu else f'{e.core}-days',
           *(e.core_days(s, steps=plan.total_steps) for s in secs))])
  if plan.paper['paper_core_days']:
    print(f'Paper, Table 2: {plan.paper["paper_core_days"]:,.0f} '
          f'{paper_costs.DEVICE}-core-days')


def _step_secs(e: roofline.Estimate) -> dict[str, float]:
  return {'full_overlap': e.overlapped_secs, 'no_overlap': e.sequential_secs}


def _dimensions(model: Any) -> str:
  names = ('width', 'depth', 'mlp_dim', 'num_heads', 'patch')
  return ', '.join(f'{name} {getattr(model, name)}' for name in names
                   if hasattr(model, name)) or model.name
