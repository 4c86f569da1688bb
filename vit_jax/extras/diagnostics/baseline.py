"""Baseline of fine-tuning: k-NN accuracy of the initial, frozen features.

A run that ends below it has lost more than it learned.
"""

from collections.abc import Callable
import dataclasses

import numpy as np

from vit_jax import console
from vit_jax import data
from vit_jax import types
from vit_jax.data.splits import split_strings
from vit_jax.evals import knn
from vit_jax.experiment import evaluators
from vit_jax.experiment import experiment as experiment_lib
from vit_jax.parallel import device_memory

MOST = 5_000  # Training images, and test images.


def describe(
    experiment: experiment_lib.Experiment, params: types.Params,
    on_batch: Callable[[], None] = lambda: None) -> str:
  """Returns a line for the start of a run from weights, or ''.

  Only for runs with one label per image, and an evaluator of their accuracy on
  images that are not trained on.
  """
  config, train = experiment.config, experiment.dataset
  name = next((name for name, section in config.evals.items() if (
      section.name == 'classification' and not section.source)), None)
  if name is None or train.multi_label or train.masks or train.is_unlabelled:
    return ''
  test = experiment.data_of(name)
  if train.overlaps(test):
    return ''
  samples = {one.split: _sample(one) for one in (train, test)}
  section = knn.KnnConfig(
      split=test.split, train_split=train.split,
      k=min(knn.KnnConfig.k, len(samples[train.split])),
      batch_size=config.evals[name].batch_size)
  evaluate = evaluators.build(dataclasses.replace(
      experiment, open_data=lambda split, source, **_: (samples[split], None),
      config=dataclasses.replace(config, evals={'baseline': section})))
  with device_memory.explain_shortage('The baseline', advice=(
      f'Set --config.evals.{name}.batch_size to a smaller number.')):
    found = evaluate['baseline'](params, on_batch).metrics
  accuracy = console.format_percent(found['accuracy'], digits=2)
  images = console.format_count(int(found['examples']), 'image')
  return (f'baseline: {accuracy} of {images} '
          f'of {test.split} by k-NN among '
          f'{console.format_count(len(samples[train.split]), "training image")}'
          ', from the frozen features')


def _sample(dataset: data.Dataset) -> data.Dataset:
  """Returns at most `MOST` examples, evenly spaced."""
  count = dataset.num_examples
  if count <= MOST:
    return dataset
  return dataclasses.replace(dataset, source=split_strings.Subset(
      ((dataset.source, np.linspace(0, count - 1, MOST).astype(int)),)))
