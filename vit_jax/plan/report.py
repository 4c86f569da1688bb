"""A plan as text and as figures."""

from collections.abc import Mapping
import dataclasses
import textwrap
from typing import Any

import humanize

from vit_jax import models
from vit_jax.experiment import build as experiment_lib
from vit_jax.parallel import hardware
from vit_jax.plan import measure as measure_lib
from vit_jax.plan import paper_costs as paper_costs_lib
from vit_jax.plan import roofline
from vit_jax.plan.compiled import collectives

GIB, MIB = 2**30, 2**20
HOUR_SECS = 3600


@dataclasses.dataclass(frozen=True)
class Plan:
  """What one stage of a config needs on some devices.

  Attributes:
    stage: its name, '' where the config has none.
    model: the variant, or its dimensions.
    dataset: what is trained on.
    sizes_from: 'data' where it was there, else 'table': the table of data sets.
    epochs: over the training split.
    total_steps: of the schedule.
    topology: as it was asked for; '' for the devices that are here.
    settings: those of the config that change what is needed.
    measured: what the compiler says.
    estimate: what follows, or None where the devices' speeds are not known.
    paper: what its tables say of the same training.
  """
  stage: str
  model: str
  dataset: str
  sizes_from: str
  epochs: float
  total_steps: int
  topology: str
  settings: Mapping[str, Any]
  measured: measure_lib.Measured
  estimate: roofline.Estimate | None
  paper: Mapping[str, float | None]


def plan(
    experiment: experiment_lib.Experiment, *, stage: str, sizes_from: str,
    topology: str, measured: measure_lib.Measured,
) -> Plan:
  """Puts together what is known of a stage.

  Args:
    experiment: of the stage.
    stage: its name.
    sizes_from: where the sizes of the data are from.
    topology: name of the devices that are not here.
    measured: the experiment, compiled.
  """
  config = experiment.config
  images = experiment.total_steps * config.batch_size
  epochs = images / experiment.dataset.num_examples
  variant = config.model.variant
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
          'attention_here': getattr(models.for_devices(
              config.model, experiment.mesh.devices.flatten().tolist()),
                                    'attention', 'plain')},
      measured=measured, estimate=roofline.estimate(measured),
      paper=paper_costs_lib.find(
          variant=variant, dataset=experiment.dataset.name, epochs=epochs,
          resolution=config.data.size))


def figures(plan: Plan) -> dict[str, Any]:
  """Returns a plan as plain data, for a file."""
  row: dict[str, Any] = dataclasses.asdict(plan)
  row['measured'] |= {
      'fits': plan.measured.fits,
      'collectives': {
          kind: dataclasses.asdict(total) for kind, total in collectives.total(
              plan.measured.collectives).items()}}
  e = plan.estimate
  if plan.measured.refusal:  # No step, no speed.
    row['estimate'] = None
  elif e is not None:
    row['estimate'] |= {
        'bound': e.bound.name,
        'roof_secs': {name: roof.secs for name, roof in e.roofs.items()},
        **{name: {
            'step_secs': secs, 'steps_per_sec': 1 / secs,
            'images_per_sec': e.images_per_sec(secs),
            'utilisation': e.utilisation(secs),
            'hours': secs * plan.total_steps / HOUR_SECS,
            'core_days': e.core_days(secs, steps=plan.total_steps)}
           for name, secs in (('at_best', e.step_secs),
                              ('one_after_the_other', e.serial_secs))}}
  return row


def render(plan: Plan) -> str:
  """Returns a plan as text, 80 columns wide."""
  parts = [_head(plan), _memory(plan), _work(plan)]
  if plan.measured.refusal:
    parts.append('No estimate of the speed: the step does not fit.')
  elif plan.estimate is not None:
    parts += [_roofs(plan), _schedule(plan)]
  else:
    parts.append(
        f'No estimate of the speed: the peak of {plan.measured.device_kind!r} '
        'is not known.')
  return '\n\n'.join(parts)


def unit(device_kind: str) -> str:
  """Returns what a device is: a 'core' of a TPU v2 or v3, a 'chip', a 'device'.
  """
  if device_kind in ('TPU v2', 'TPU v3'):
    return 'core'
  return 'chip' if device_kind.startswith('TPU') else 'device'


def _head(plan: Plan) -> str:
  m, s = plan.measured, plan.settings
  height, width = s['resolution']
  mesh = ' x '.join(f'{axis} {size}' for axis, size in m.mesh.items())
  accumulation = s['accumulation']
  parts = f', in {accumulation} parts' if accumulation != 1 else ''
  name = f'{plan.stage}: ' if plan.stage else ''
  expected = [] if plan.sizes_from == 'data' else [
      f'{plan.dataset} could not be opened: its sizes are those of the table '
      'of data sets']
  fused = [] if s['attention'] == 'plain' else [
      f'attention {s["attention"]!r}' + (
          '' if s['attention_here'] == s['attention'] else
          ", which is plain here: it is for NVIDIA's GPUs")]
  took = 'compiled' if not m.refusal else 'refused by the compiler'
  return '\n'.join([
      f'{name}{plan.model}, {plan.dataset} at {height} x {width}', *expected,
      f'batch {s["batch_size"]:,}{parts} | remat {s["remat"]!r} | mesh {mesh}',
      *fused,
      f'{m.devices:,} x {m.device_kind}'
      + (f' ({plan.topology})' if plan.topology else '')
      + f' | {took} in {m.compile_secs:,.0f} s'
      f' ({m.compile_cpu_secs:,.0f} s of processors)'])


def _memory(plan: Plan) -> str:
  m, memory = plan.measured, plan.measured.memory
  capacity = memory.capacity_bytes
  of = f', of {_gib(capacity)} ({memory.capacity_source})' if capacity else ''
  rows = [
      ('parameters', memory.params_bytes),
      ('optimizer and average', memory.optimizer_bytes),
      ('batch', memory.batch_bytes),
      ('activations, gradients', memory.activations_bytes),
      ('results, program, padding',
       None if memory.outputs_bytes is None or memory.other_bytes is None
       else memory.outputs_bytes + memory.other_bytes)]
  lines = [f'Memory of a {unit(m.device_kind)}{of}']
  lines += [f'  {name:26} {_gib(size):>12}' for name, size in rows
            if size is not None]
  share = '' if memory.share is None else (
      f'  {memory.share:.0%}: ' + ('fits' if m.fits else 'DOES NOT FIT'))
  total = 'needed, says the compiler' if m.refusal else 'total'
  return '\n'.join([*lines, f'  {total:26} {_gib(memory.total_bytes):>12}'
                    + share])


def _work(plan: Plan) -> str:
  m = plan.measured
  lines = [f'Work of a {unit(m.device_kind)} in a step']
  rows = [('model, there and back', _flops(m.training_flops), '')]
  if m.recomputed_flops:
    rows.append(('computed again (remat)', _flops(m.recomputed_flops), ''))
  if m.work is not None:
    counted = '' if m.compiler_flops is None else (
        f'the compiler, loops once: {_flops(m.compiler_flops)}')
    rows += [
        ('products as compiled', _flops(m.work.flops), counted),
        ('memory read and written', _size(m.work.bytes), '')]
    for kind, total in collectives.total(m.collectives).items():
      rows.append((
          kind, _size(total.bytes),
          f'in {total.count:,}; sends {_size(total.wire_bytes)}'))
  return '\n'.join(lines + [
      f'  {name:26} {amount:>12}  {note}'.rstrip()
      for name, amount, note in rows])


def _roofs(plan: Plan) -> str:
  e = plan.estimate
  assert e is not None
  lines = ['Roofline, an estimate: a step takes at least']
  for roof in e.roofs.values():
    speed = (f'{roof.per_sec / 1e12:,.1f} TFLOP/s' if roof.name == 'compute'
             else f'{roof.per_sec / 1e9:,.0f} GB/s')
    mark = '  <- the bound' if roof is e.bound else ''
    lines.append(f'  {roof.name:26} {_number(roof.secs * 1e3):>9} ms  at '
                 f'{speed}{mark}')
  for source in dict.fromkeys(roof.source for roof in e.roofs.values()):
    lines += textwrap.wrap(
        hardware.describe_source(source), width=80, initial_indent='  ',
        subsequent_indent='    ', break_on_hyphens=False)
  return '\n'.join(lines)


def _schedule(plan: Plan) -> str:
  e = plan.estimate
  assert e is not None
  lines = [
      f'The whole schedule, {plan.total_steps:,} steps ({plan.epochs:.1f} '
      'epochs), estimated',
      f'  {"":26} {"at best":>12}  one after the other']
  bounds = (e.step_secs, e.serial_secs)
  rows = [
      ('steps/s', [f'{1 / s:,.3g}' for s in bounds]),
      ('images/s', [f'{e.images_per_sec(s):,.0f}' for s in bounds]),
      ('utilisation', [f'{e.utilisation(s):.0%}' for s in bounds]),
      ('hours', [_number(s * plan.total_steps / HOUR_SECS) for s in bounds]),
      (f'{e.core}-core-days'
       if unit(plan.measured.device_kind) != 'device' else (
          f'{e.core}-days'),
       [_number(e.core_days(s, steps=plan.total_steps)) for s in bounds])]
  lines += [f'  {name:26} {best:>12}  {serial:>12}'
            for name, (best, serial) in rows]
  if plan.paper['paper_core_days']:
    lines.append(f'  the paper (its Table 2): '
                 f'{plan.paper["paper_core_days"]:,.0f} '
                 f'{paper_costs_lib.DEVICE}-core-days')
  return '\n'.join(lines)


def _dimensions(model: Any) -> str:
  names = ('width', 'depth', 'mlp_dim', 'num_heads', 'patch')
  return ', '.join(f'{name} {getattr(model, name)}' for name in names
                   if hasattr(model, name)) or model.name


def _gib(size: int) -> str:
  return f'{size / GIB:,.2f} GiB' if size >= GIB / 10 else (
      f'{size / MIB:,.2f} MiB')


def _number(value: float) -> str:
  """Returns '1,035.6', '42.0' or '0.0213'."""
  return f'{value:,.1f}' if value >= 1 else f'{value:.3g}'


def _size(size: float) -> str:
  return humanize.naturalsize(size)


def _flops(count: float) -> str:
  return humanize.metric(count, 'FLOP', precision=4)
