"""Plan of a training stage: terminal report and JSON."""

from collections.abc import Mapping
import dataclasses
import textwrap
from typing import Any

from vit_jax import console
from vit_jax.experiment import build as build_lib
from vit_jax.extras.plan import paper_costs
from vit_jax.extras.plan import roofline
from vit_jax.extras.plan import step_cost
from vit_jax.extras.plan.compiled import collectives

_MEMORY_ROWS = {
    'params_bytes': 'parameters',
    'optimizer_bytes': 'optimizer state, average',
    'batch_bytes': 'batch',
    'activations_bytes': 'activations, gradients',
    'outputs_bytes': 'outputs',
    'other_bytes': 'program, padding'}


def figures(
    experiment: build_lib.Experiment, cost: step_cost.StepCost, *,
    stage: str, topology: str,
) -> dict[str, Any]:
  """Returns the plan of a stage of a config as plain data for JSON.

  Args:
    experiment: the planned experiment.
    cost: its compiled step.
    stage: name of the stage, '' if the config has none.
    topology: name of the TPU slice; '' for the local devices.
  """
  config, total_steps = experiment.config, experiment.total_steps
  epochs = total_steps * config.batch_size / experiment.dataset.num_examples
  estimate = roofline.estimate(cost, total_steps=total_steps)
  return {
      'stage': stage, 'topology': topology,
      'sizes_from': 'table' if experiment.dataset.planned else 'data',
      'model': config.model.describe(),
      'dataset': experiment.dataset.name, 'epochs': epochs,
      'total_steps': total_steps,
      'settings': {
          'resolution': config.data.size, 'batch_size': config.batch_size,
          'accumulation': config.num_microbatches, 'dtype': config.model.dtype,
          'remat': config.model.remat, 'attention': config.model.attention},
      'cost': {
          **dataclasses.asdict(cost), 'fits': cost.fits,
          'collectives': {
              kind: dataclasses.asdict(total)
              for kind, total in collectives.total(cost.collectives).items()}},
      'estimate': estimate and dataclasses.asdict(estimate),
      'paper': paper_costs.find(
          config, dataset=experiment.dataset.name, epochs=epochs)}


def show(plan: Mapping[str, Any], cost: step_cost.StepCost) -> None:
  """Prints the `figures` of a plan."""
  print(_header(plan, cost) + '\n')
  _show_memory(cost)
  _show_work(cost)
  estimate = roofline.estimate(cost, total_steps=plan['total_steps'])
  if estimate:
    _show_estimate(plan, estimate)
  else:
    print('No speed estimate: ' + (
        f'the peak of {cost.device_kind!r} is unknown.' if cost.is_compiled
        else 'the step does not fit.'))


def unit(device_kind: str) -> str:
  """Returns the name of a device: 'core' in TPU v2 and v3, 'chip' in others."""
  if device_kind in ('TPU v2', 'TPU v3'):
    return 'core'
  return 'chip' if device_kind.startswith('TPU') else 'device'


def _header(plan: Mapping[str, Any], cost: step_cost.StepCost) -> str:
  s, dataset = plan['settings'], plan['dataset']
  height, width = s['resolution']
  stage = f'{plan["stage"]}: ' if plan['stage'] else ''
  lines = [f'{stage}{plan["model"]}, {dataset} at {height} x {width}']
  if plan['sizes_from'] == 'table':
    lines.append(
        f'{dataset} is not available: sizes are from the dataset table')
  n = s['accumulation']
  mesh = ' x '.join(f'{axis} {size}' for axis, size in cost.mesh.items())
  lines.append(
      f'batch {s["batch_size"]:,}' + f' in {n} microbatches' * (n > 1)
      + f' | remat {s["remat"]!r} | mesh {mesh}')
  topology = f' ({plan["topology"]})' if plan['topology'] else ''
  result = 'compiled' if cost.is_compiled else 'failed to compile'
  lines.append(
      f'{cost.devices:,} x {cost.device_kind}{topology} | {result} in '
      f'{cost.compile_secs:,.0f} s')
  return '\n'.join(lines)


def _show_memory(cost: step_cost.StepCost) -> None:
  memory = cost.memory
  rows = [(name, console.format_bytes(max(size, 0)), '')
          for field, name in _MEMORY_ROWS.items()
          if (size := getattr(memory, field)) is not None]
  limit = result = ''
  if memory.capacity_bytes and memory.fraction is not None:
    size = console.format_bytes(memory.capacity_bytes)
    limit = f', of {size} ({memory.capacity_source})'
    result = f'{console.format_percent(memory.fraction)} of {size}: ' + (
        'fits' if cost.fits else 'DOES NOT FIT')
  total = 'total' if cost.is_compiled else 'needed (compiler error)'
  console.table(
      f'Memory per {unit(cost.device_kind)}{limit}', ('', 'size', ''),
      [*rows, (total, console.format_bytes(memory.total_bytes), result)])


def _show_work(cost: step_cost.StepCost) -> None:
  amounts = {
      'forward + backward': console.format_flops(cost.training_flops),
      'recomputation (remat)': cost.recomputed_flops and console.format_flops(
          cost.recomputed_flops),
      'memory traffic': cost.traffic_bytes and console.format_bytes(
          cost.traffic_bytes)}
  rows = [(name, text, '') for name, text in amounts.items() if text]
  rows += [
      (kind, console.format_bytes(total.bytes), f'{total.count:,} operations, '
       f'sends {console.format_bytes(total.wire_bytes)}')
      for kind, total in collectives.total(cost.collectives).items()]
  console.table(
      f'Work per {unit(cost.device_kind)} and step', ('', 'amount', ''), rows)


def _show_estimate(plan: Mapping[str, Any], e: roofline.Estimate) -> None:
  console.table(
      'Roofline estimate: lower bounds of step time', ('', 'ms', 'peak'), [
          (name, bound.secs * 1e3,
           (f'{bound.per_sec / 1e12:,.1f} TFLOP/s' if name == 'compute'
            else f'{bound.per_sec / 1e9:,.0f} GB/s')
           + ' <- bottleneck' * (name == e.bottleneck))
          for name, bound in e.bounds.items()])
  print(textwrap.fill(
      f'Peaks: {e.source}', subsequent_indent='  ', width=80,
      break_on_hyphens=False) + '\n')
  speeds = e.full_overlap, e.no_overlap
  core = f'{e.core}-core' if e.core.startswith('TPU') else e.core
  console.table(
      f'Estimate for {plan["total_steps"]:,} steps ({plan["epochs"]:.1f} '
      'epochs), by overlap of the bounds', ('', 'full overlap', 'no overlap'), [
          ('steps/s', *(s.steps_per_sec for s in speeds)),
          ('images/s', *(s.images_per_sec for s in speeds)),
          ('MFU', *(console.format_percent(s.mfu) for s in speeds)),
          ('hours', *(s.hours for s in speeds)),
          (f'{core}-days', *(s.core_days for s in speeds))])
  if days := plan['paper']['paper_core_days']:
    print(f'Paper, Table 2: {days:,.0f} {paper_costs.DEVICE}-core-days')
