"""Summary printed before the first step: batch, epochs, FLOPs and memory."""

from typing import Any

import jax

from vit_jax import console
from vit_jax import escape
from vit_jax import tree
from vit_jax.experiment import experiment as experiment_lib
from vit_jax.experiment import model_flops
from vit_jax.parallel import hardware
from vit_jax.parallel import mesh as mesh_lib

_flops, _bytes = console.format_flops, console.format_bytes


def describe(
    experiment: experiment_lib.Experiment, flops: model_flops.PerImage,
    memory: Any, title: str,
) -> str:
  """Returns the summary; `memory` is the compiler's analysis of the step."""
  config, state = experiment.config, experiment.abstract_state
  dataset, mesh = experiment.dataset, experiment.mesh
  scale = config.data.value_scale
  _, height, width, channels = experiment.abstract_batch['image'].shape
  hosts, per_host = jax.process_count(), mesh.size // jax.process_count()
  share = config.batch_size // mesh_lib.data_parallelism(mesh)
  per_step = flops.training * config.batch_size
  epochs = experiment.total_steps / experiment.steps_per_epoch
  lines = [
      f'{title or "run"}: {dataset.name} {dataset.split}, '
      f'{dataset.num_examples:,} images of {height}x{width}x{channels}, '
      + _labels(experiment),
      *([dataset.description] if dataset.description else []),
      *([dataset.excluded] if dataset.excluded else []),
      f'pixels: mean {console.format_numbers(scale["mean"])}, std '
      f'{console.format_numbers(scale["std"])} of images in [0, 1]',
      f'batch {config.batch_size:,} = {hosts} host(s) x {per_host} '
      f'{device_kind(mesh)} device(s), {share:,} images each'
      + (f' in {config.num_microbatches} microbatches'
         if config.num_microbatches > 1 else '')
      + ' | mesh '
      + mesh_lib.describe(config.mesh, mesh, tree.num_elements(state.params)),
      f'{dataset.num_examples:,} images / {config.batch_size:,} = '
      f'{experiment.steps_per_epoch:,.1f} steps per epoch | '
      f'{epochs:,.1f} epochs = {experiment.total_steps:,} steps',
      f'{tree.num_elements(state.params):,} parameters'
      + (f', {experiment.num_trainable:,} trained'
         if experiment.num_trainable < tree.num_elements(state.params) else '')
      + f' | {_flops(flops.forward)} per image forward, '
      f'{_flops(per_step)} per step',
      _expected_cost(experiment, flops),
      f'memory: parameters {_bytes(tree.num_bytes(state.params))}, optimizer '
      f'{_bytes(tree.num_bytes(state.opt_state))}'
      + (f', step temporaries {_bytes(memory.temp_size_in_bytes)} per device'
         if memory is not None else '')]
  return '\n'.join(map(escape.line, lines))


def _labels(experiment: experiment_lib.Experiment) -> str:
  """Returns the kind of labels, their sampling and weighting."""
  dataset, section = experiment.dataset, experiment.config.data
  if dataset.targets:
    return 'target' + 's' * (len(dataset.targets) > 1) + ' ' + ', '.join(
        f'{name} ({mean:.4g} ± {std:.4g})' for name, mean, std in zip(
            dataset.targets, section.target_mean, section.target_std))
  weights = getattr(experiment.config.objective, 'class_weights', 'none')
  text = f'{dataset.num_classes} classes'
  if section.sampling != 'natural':
    text += (f', {section.sampling} sampling (an epoch draws '
             f'{dataset.num_examples:,} images)')
  return text if weights == 'none' else f'{text}, weighted ({weights})'


def _expected_cost(
    experiment: experiment_lib.Experiment, flops: model_flops.PerImage,
) -> str:
  images = experiment.total_steps * experiment.config.batch_size
  total = flops.training * images
  per_image = (
      f'3 x {_flops(flops.forward)}' if flops.training == 3 * flops.forward
      else _flops(flops.training))
  line = f'cost: {per_image} x {images:,} images = {_flops(total)}'
  mesh = experiment.mesh
  row = hardware.find(device_kind(mesh))
  if row is None:
    return line
  hours = console.format_number(total / row.peak_flops_per_core / 3600)
  return line + (
      f' | {mesh.size} x {row.name} at {_flops(row.peak_flops)}/s: at least '
      f'{hours} core-hours')


def device_kind(mesh: jax.sharding.Mesh) -> str:
  """Returns the kind of the devices of a mesh."""
  return mesh.devices.flat[0].device_kind
