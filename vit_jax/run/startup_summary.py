"""What a run says before its first step: the arithmetic of it, in words."""

from typing import Any

import clu.parameter_overview
import humanize
import jax

from vit_jax import console as console_lib
from vit_jax import tree
from vit_jax.experiment import build as experiment_lib
from vit_jax.experiment import config as config_lib
from vit_jax.experiment import evaluators
from vit_jax.parallel import hardware
from vit_jax.parallel import mesh as mesh_lib


def describe(
    experiment: experiment_lib.Experiment, memory: Any, title: str, *,
    show_parameters: bool,
) -> str:
  """Returns the arithmetic of a run: what divides into what, what it costs.

  Args:
    experiment: the run's.
    memory: the compiler's analysis of the step, or None.
    title: name of the run.
    show_parameters: appends the table of parameters.
  """
  config, state = experiment.config, experiment.abstract_state
  dataset, mesh = experiment.dataset, experiment.mesh
  _, height, width, channels = experiment.abstract_batch['image'].shape
  hosts, per_host = jax.process_count(), mesh.size // jax.process_count()
  share = config.batch_size // mesh_lib.data_parallelism(mesh)
  forward = experiment.flops_per_image
  training = experiment.training_flops_per_image
  per_step = training * config.batch_size
  epochs = experiment.total_steps / experiment.steps_per_epoch
  lines = [
      f'{title or "run"}: {dataset.name} {dataset.split}, '
      f'{dataset.num_examples:,} images of {height}x{width}x{channels}, '
      + _labels(experiment),
      *([dataset.description] if dataset.description else []),
      *([str(dataset.excluded)] if dataset.excluded else []),
      f'batch {config.batch_size:,} = {hosts} host(s) x {per_host} '
      f'{device_kind(mesh)} device(s), {share:,} images each'
      + f' in {config.num_microbatches} parts' * (config.num_microbatches > 1)
      + ' | mesh '
      + mesh_lib.describe(config.mesh, mesh, tree.num_elements(state.params)),
      *_evaluation(config),
      f'{dataset.num_examples:,} images / {config.batch_size:,} = '
      f'{experiment.steps_per_epoch:,.1f} steps per epoch | '
      f'{epochs:,.1f} epochs = {experiment.total_steps:,} steps',
      f'{tree.num_elements(state.params):,} parameters'
      + (f', {experiment.num_trainable:,} of them trained'
         if experiment.num_trainable < tree.num_elements(state.params) else '')
      + f' | {_flops(forward)} per image forward, {_flops(per_step)} per step, '
      f'{_flops(per_step * experiment.total_steps)} in all',
      *_several_labels(experiment),
      _expected_cost(experiment, forward, training),
      f'memory: parameters {_bytes(tree.num_bytes(state.params))}, optimizer '
      f'{_bytes(tree.num_bytes(state.opt_state))}'
      + (f', temporaries of a step {_bytes(memory.temp_size_in_bytes)} a device'
         if memory is not None else '')]
  if show_parameters:
    lines.append(clu.parameter_overview.get_parameter_overview(
        state.params, include_stats=False))
  return '\n'.join(lines)


def _evaluation(config: config_lib.Config) -> list[str]:
  """Returns a line where evaluators take less than a batch at once."""
  names = [name for name, section in config.evals.items()
           if section.batch_size is None]
  if config.num_microbatches == 1 or not names:
    return []
  return [f'evaluated {evaluators.eval_batch_size(config):,} at once, as '
          f'many as a part of the batch: {", ".join(names)}']


def _labels(experiment: experiment_lib.Experiment) -> str:
  """Returns what is learned of the images, and how evenly, in a few words."""
  dataset, section = experiment.dataset, experiment.config.data
  if dataset.targets:
    return 'target' + 's' * (len(dataset.targets) > 1) + ' ' + ', '.join(
        f'{name} ({mean:.4g} ± {std:.4g})' for name, mean, std in zip(
            dataset.targets, section.target_mean, section.target_std))
  weights = getattr(experiment.config.objective, 'class_weights', 'none')
  said = f'{dataset.num_classes} classes'
  if section.sampling != 'natural':
    said += f', drawn {section.sampling} (an epoch is as many draws)'
  return said if weights == 'none' else f'{said}, weighed ({weights})'


def _several_labels(experiment: experiment_lib.Experiment) -> list[str]:
  """Returns a line where images with several labels are learned by softmax."""
  objective = experiment.config.objective
  is_softmax = objective.name == 'supervised' and objective.loss == 'softmax'
  if not (is_softmax and experiment.dataset.multi_label):
    return []
  return ['note: images have several labels, which share one softmax. To ask '
          'for each: --config.objective.loss=sigmoid, and of very many classes '
          '--config.model.head_bias=-10']


def _expected_cost(
    experiment: experiment_lib.Experiment, forward: int, training: int,
) -> str:
  images = experiment.total_steps * experiment.config.batch_size
  flops = training * images
  per_image = (f'3 x {_flops(forward)}' if training == 3 * forward else
               _flops(training))
  line = (f'cost: {per_image} x {images:,} images = '
          f'{console_lib.format_number(flops / 1e18)} exaFLOPs')
  mesh = experiment.mesh
  row = hardware.find(device_kind(mesh))
  if row is None:
    return line
  hours = console_lib.format_number(flops / row.peak_flops_per_core / 3600)
  return line + (
      f' | {mesh.size} x {row.name} at {_flops(row.peak_flops)}/s: at least '
      f'{hours} core-hours')


def device_kind(mesh: jax.sharding.Mesh) -> str:
  """Returns what the devices of a mesh are called."""
  return mesh.devices.flat[0].device_kind


def _flops(count: float) -> str:
  return humanize.metric(count, 'FLOP')


def _bytes(count: int) -> str:
  return humanize.naturalsize(count, binary=True)
