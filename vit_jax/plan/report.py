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

_MEMORY_ROWS = {
    'params_bytes': 'parameters',
    'optimizer_bytes': 'optimizer state, average',
    'batch_bytes': 'batch',
    'activations_bytes': 'activations, gradients',
    'outputs_bytes': 'outputs',
    'other_bytes': 'program, padding'}


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
    estimate: None if the device is unknown or the step did not compile.
    paper: result of `paper_costs.find`.
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
  config, total_steps = experiment.config, experiment.total_steps
  epochs = total_steps * config.batch_size / experiment.dataset.num_examples
  used = models.for_devices(
      config.model, experiment.mesh.devices.flatten().tolist())
  return Plan(
      stage=stage, sizes_from=sizes_from, topology=topology,
      model=config.model.variant or _dimensions(config.model),
      dataset=experiment.dataset.name, epochs=epochs, total_steps=total_steps,
      settings={
          'resolution': config.data.size, 'batch_size': config.batch_size,
          'accumulation': config.num_microbatches,
          'remat': getattr(config.model, 'remat', 'none'),
          'attention': getattr(config.model, 'attention', 'plain'),
          'attention_used': getattr(used, 'attention', 'plain')},
      cost=cost, estimate=roofline.estimate(cost, total_steps=total_steps),
      paper=paper_costs.find(
          variant=config.model.variant, dataset=experiment.dataset.name,
          epochs=epochs, resolution=config.data.size))


def _dimensions(model: Any) -> str:
  names = ('width', 'depth', 'mlp_dim', 'num_heads', 'patch')
  return ', '.join(f'{name} {getattr(model, name)}' for name in names
                   if hasattr(model, name)) or model.name


def figures(plan: Plan) -> dict[str, Any]:
  """Returns a plan as plain data for JSON."""
  row: dict[str, Any] = dataclasses.asdict(plan)
  row['cost'] |= {
      'fits': plan.cost.fits,
      'collectives': {
          kind: dataclasses.asdict(total) for kind, total in collectives.total(
              plan.cost.collectives).items()}}
  return row


def show(plan: Plan) -> None:
  """Prints a plan."""
  print(_header(plan) + '\n')
  _show_memory(plan.cost)
  _show_work(plan.cost)
  if plan.estimate:
    _show_estimate(plan, plan.estimate)
  elif plan.cost.is_compiled:
    print('No speed estimate: the peak of '
          f'{plan.cost.device_kind!r} is unknown.')
  else:
    print('No speed estimate: the step does not fit.')


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
  if s['attention'] != s['attention_used']:
    lines.append(f'attention {s["attention"]!r}, replaced by plain attention: '
                 'it requires NVIDIA GPUs')
  topology = f' ({plan.topology})' if plan.topology else ''
  result = 'compiled' if cost.is_compiled else 'failed to compile'
  lines.append(
      f'{cost.devices:,} x {cost.device_kind}{topology} | {result} in '
      f'{cost.compile_secs:,.0f} s ({cost.compile_cpu_secs:,.0f} CPU s)')
  return '\n'.join(lines)


def _show_memory(cost: step_cost.StepCost) -> None:
  memory = cost.memory
  rows = [(name, console.format_bytes(size), '')
          for field, name in _MEMORY_ROWS.items()
          if (size := getattr(memory, field)) is not None]
  limit = result = ''
  if memory.capacity_bytes:
    size = console.format_bytes(memory.capacity_bytes)
    limit = f', of {size} ({memory.capacity_source})'
    result = f'{memory.fraction:.0%} of {size}: ' + (
        'fits' if cost.fits else 'DOES NOT FIT')
  total = 'total' if cost.is_compiled else 'needed (compiler error)'
  console.table(
      f'Memory per {unit(cost.device_kind)}{limit}', ('', 'size', ''),
      [*rows, (total, console.format_bytes(memory.total_bytes), result)])


def _show_work(cost: step_cost.StepCost) -> None:
  rows = [('forward + backward', console.format_flops(cost.training_flops), '')]
  if cost.recomputed_flops:
    rows.append(('recomputation (remat)',
                 console.format_flops(cost.recomputed_flops), ''))
  if cost.traffic_bytes is not None:
    rows.append(('memory traffic', console.format_bytes(cost.traffic_bytes),
                 ''))
  rows += [
      (kind, console.format_bytes(total.bytes), f'{total.count:,} operations, '
       f'sends {console.format_bytes(total.wire_bytes)}')
      for kind, total in collectives.total(cost.collectives).items()]
  console.table(
      f'Work per {unit(cost.device_kind)} and step', ('', 'amount', ''), rows)


def _show_estimate(plan: Plan, e: roofline.Estimate) -> None:
  console.table(
      'Roofline estimate: lower bounds of a step', ('', 'ms', 'peak'), [
          (name, bound.secs * 1e3,
           (f'{bound.per_sec / 1e12:,.1f} TFLOP/s' if name == 'compute'
            else f'{bound.per_sec / 1e9:,.0f} GB/s')
           + ' <- bottleneck' * (name == e.bottleneck))
          for name, bound in e.bounds.items()])
  print(textwrap.fill(
      hardware.describe_source(e.source), subsequent_indent='  ', width=80,
      break_on_hyphens=False) + '\n')
  speeds = e.full_overlap, e.no_overlap
  core = f'{e.core}-core' if e.core.startswith('TPU') else e.core
  console.table(
      f'Estimate for {plan.total_steps:,} steps ({plan.epochs:.1f} epochs), by '
      'overlap of the bounds', ('', 'full overlap', 'no overlap'), [
          ('steps/s', *(s.steps_per_sec for s in speeds)),
          ('images/s', *(s.images_per_sec for s in speeds)),
          ('MFU', *(f'{s.mfu:.0%}' for s in speeds)),
          ('hours', *(s.hours for s in speeds)),
          (f'{core}-days', *(s.core_days for s in speeds))])
  if plan.paper['paper_core_days']:
    print(f'Paper, Table 2: {plan.paper["paper_core_days"]:,.0f} '
          f'{paper_costs.DEVICE}-core-days')
