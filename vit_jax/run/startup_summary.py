"""Summary printed before the first step: batch, epochs, FLOPs and memory."""

from typing import Any

import jax

from vit_jax import console
from vit_jax import data
from vit_jax import escape
from vit_jax import tree
from vit_jax.experiment import experiment as experiment_lib
from vit_jax.parallel import mesh as mesh_lib
from vit_jax.run import counters as counters_lib

_flops, _bytes = console.format_flops, console.format_bytes


def describe(
    experiment: experiment_lib.Experiment, flops: Any, memory: Any,
    title: str, counters: counters_lib.Counters,
) -> str:
  """Returns the summary.

  Args:
    experiment: the experiment.
    flops: operations of the model for one image, if the leaf `plan` exists.
    memory: the compiler's analysis of the step.
    title: name of the run, or ''.
    counters: those of earlier starts, whose batch size may have been another.
  """
  config, state = experiment.config, experiment.abstract_state
  dataset, mesh = experiment.dataset, experiment.mesh
  scale, size = config.data.value_scale, config.batch_size
  _, height, width, channels = experiment.abstract_batch['image'].shape
  hosts, count = jax.process_count(), tree.num_elements(state.params)
  images = counters.images + size * (experiment.total_steps - counters.step)
  lines = [
      f'{title or "run"}: {dataset.title}, '
      f'{dataset.num_examples:,} images of {height}x{width}x{channels}, '
      + _labels(experiment),
      dataset.description, dataset.excluded,
      *data.describe_mixture(config.data.mixture, dataset.source, images),
      *map(experiment.describe_evaluator, config.evals),
      f'pixels: mean {console.format_numbers(scale.mean)}, std '
      f'{console.format_numbers(scale.std)} of images in [0, 1]',
      f'batch {size:,} = {hosts} host(s) x {mesh.size // hosts} '
      f'{mesh_lib.device_kind(mesh)} device(s), '
      f'{size // mesh_lib.data_parallelism(mesh):,} images each'
      + f' in {config.num_microbatches} microbatches' * (
          config.num_microbatches > 1)
      + f' | mesh {mesh_lib.describe(config.mesh, mesh, count)}',
      f'{dataset.num_examples:,} images / {size:,} = '
      f'{experiment.steps_per_epoch:,.1f} steps per epoch | '
      f'{images / dataset.num_examples:,.1f} epochs = '
      f'{experiment.total_steps:,} steps',
      *[f'note: a batch holds each image {size / dataset.num_examples:.1f} '
        'times, because the data have fewer images than batch_size: '
        'use a smaller --batch-size'] * (size > dataset.num_examples),
      f'{count:,} parameters'
      + f', {experiment.num_trainable:,} trained' * (
          experiment.num_trainable < count)
      + (f' | {_flops(flops.forward)} per image forward, '
         f'{_flops(flops.training)} in training' if flops else ''),
      *([_cost(mesh, flops.training, images)] if flops else []),
      f'memory: parameters {_bytes(tree.num_bytes(state.params))}, optimizer '
      f'{_bytes(tree.num_bytes(state.opt_state))}'
      + (f', step temporaries {_bytes(memory.temp_size_in_bytes)} per device'
         if memory is not None else '')]
  return '\n'.join(map(escape.line, filter(None, lines)))


def _cost(mesh: jax.sharding.Mesh, flops: int, images: int) -> str:
  """Returns the operations of a run, and the shortest time that they take."""
  text = f'cost: {_flops(flops)} x {images:,} images = {_flops(flops * images)}'
  row = counters_lib.hardware(mesh_lib.device_kind(mesh))
  return text if row is None else (
      f'{text} | {mesh.size} x {row.name}: at least ' + console.format_number(
          flops * images / (3600 * row.peak_flops_per_core)) + ' core-hours')


def _labels(experiment: experiment_lib.Experiment) -> str:
  """Returns the kind of labels, their sampling and weighting."""
  dataset, section = experiment.dataset, experiment.config.data
  if dataset.targets:
    return 'target' + 's' * (len(dataset.targets) > 1) + ' ' + ', '.join(
        f'{name} ({mean:.4g} ± {std:.4g})' for name, mean, std in zip(
            dataset.targets, section.target_mean, section.target_std))
  weights = getattr(experiment.config.objective, 'class_weights', 'none')
  text = ('no labels' if dataset.is_unlabelled and not dataset.masks else
          f'{dataset.num_classes} classes' + ' of pixels' * dataset.masks)
  if section.sampling != 'natural':
    text += (f', {section.sampling} sampling (an epoch draws '
             f'{dataset.num_examples:,} images)')
  if isinstance(weights, tuple):
    weights = ', '.join(f'{name}: {weight:g}' for name, weight in zip(
        dataset.classes.names or range(dataset.num_classes), weights))
  return text if weights in ('none', '') else f'{text}, weighted ({weights})'
