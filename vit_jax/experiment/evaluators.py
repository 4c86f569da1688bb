"""The evaluators of a config, wired to their data, the model and the mesh.

Each becomes a function of parameters to numbers. An evaluator asks for no more
than `evals.Context`; here it is decided what that is: which data, how many
images at once, which loss.
"""

from collections.abc import Callable, Generator
import contextlib
import dataclasses
import functools
from typing import Any

import flax.linen as nn
import jax
from jax.sharding import NamedSharding
import numpy as np

from vit_jax import data
from vit_jax import evals
from vit_jax import objectives
from vit_jax import types
from vit_jax.data.splits import overlap
from vit_jax.experiment import batches as batches_lib
from vit_jax.experiment import config as config_lib
from vit_jax.parallel import multihost
from vit_jax.parallel import sharding

# (split, source, per_class, seeds, real_labels) of `evals.context.Open` to the
# examples, and their ranks in the draws of a few of each class.
OpenData = Callable[..., tuple[data.Dataset, np.ndarray | None]]


def opener(config: config_lib.Config, *, expected: bool) -> OpenData:
  """Returns what opens the data of evaluators, each but once.

  Args:
    config: the experiment's.
    expected: whether only sizes are known; see `experiment.build`.
  """
  return functools.cache(
      functools.partial(_open_data, config, expected=expected))


def build(
    config: config_lib.Config, *, model: nn.Module, objective: Any,
    trained_on: data.Dataset, mesh: jax.sharding.Mesh,
    unreadable: data.UnreadableLog, open_data: OpenData,
) -> dict[str, evals.Evaluator]:
  """Returns the evaluators by name.

  Args:
    config: the experiment's; as many images are evaluated at once as a part of
      its batch has.
    model: the linen module.
    objective: what is trained on.
    trained_on: the data of training.
    mesh: devices.
    unreadable: takes what could not be read.
    open_data: see `opener`.

  Raises:
    ValueError: if the data has not what an evaluator needs.
  """
  return {name: _evaluator(
      name, config, model, objective, trained_on, mesh, unreadable, open_data)
          for name in config.evals}



def check_apart(config: config_lib.Config, open_data: OpenData) -> None:
  """Raises if what few-shot or k-NN measures on is among what they learn from.

  An image is its own nearest neighbour: every model would be right.
  """
  for name, section in config.evals.items():
    train_split = getattr(section, 'train_split', None)
    if train_split is None:
      continue
    train, test = (open_data(split, section.source, 0, (0,), '')[0]
                   for split in (train_split, section.split))
    if overlap.overlap(train, test):
      raise ValueError(
          f'evals.{name} measures on {test.split!r} of {test.name}, but has '
          f'examples of it in its train_split, {train.split!r}. Name one that '
          f'has none of them: --config.evals.{name}.train_split.')


def check_best(
    config: config_lib.Config, trained_on: data.Dataset, objective: Any, *,
    expected: bool,
) -> None:
  """Raises if the best checkpoint's metric is not one of this data.

  Raises:
    ValueError: with those that are.
  """
  name, _, metric = config.checkpoint.best.partition('/')
  section = config.evals.get(name)
  if section is None:
    return
  if section.name == 'objective':
    measured: tuple[str, ...] = ('loss', *objective.measures)
  elif section.name == 'classification' and not section.real_labels:
    dataset = trained_on
    if section.source:
      dataset = data.open_dataset(
          config.data, expected=expected, split=section.split,
          source=section.source)
    measured = evals.classification_metrics(
        multi_label=dataset.multi_label, num_classes=trained_on.num_classes)
  else:
    return
  if metric not in measured:
    raise ValueError(
        f'checkpoint.best is {config.checkpoint.best!r}, which is not measured '
        f'on this data: {name} gives {", ".join(measured)}. Use '
        f'--config.checkpoint.best={name}/{measured[-1]}.')


def _evaluator(
    name: str, config: config_lib.Config, model: nn.Module, objective: Any,
    trained_on: data.Dataset, mesh: jax.sharding.Mesh,
    unreadable: data.UnreadableLog, open_data: OpenData,
) -> evals.Evaluator:
  where = f'evals.{name}'

  def predict(params: types.Params, batch: types.Batch) -> types.Outputs:
    return model.apply({'params': params}, batch['image'])

  def open_split(
      split: str, source: str = '', *, batch_size: int | None = None,
      per_class: int = 0, seeds: tuple[int, ...] = (0,), real_labels: str = '',
  ) -> evals.Split:
    batch_size = batch_size or eval_batch_size(config)
    batches_lib.check_size(f'{where}.batch_size', batch_size, mesh, 1)
    dataset, ranks = open_data(split, source, per_class, seeds, real_labels)
    section = config.data
    if per_class:  # Places in a draw leave none out.
      section = dataclasses.replace(section, eval_unreadable='error')
    return evals.Split(
        name=f'{dataset.name} {dataset.split}', ranks=ranks,
        batches=_eval_batches(
            section, dataset, batch_size, mesh, unreadable),
        num_examples=dataset.num_examples,
        may_miss=_may_miss(section, dataset), num_classes=dataset.num_classes,
        class_names=dataset.class_names, multi_label=dataset.multi_label,
        targets=dataset.targets, target_mean=config.data.target_mean,
        target_std=config.data.target_std)

  # Smoothing is a means of training; what is measured is the labels' loss.
  labelled = _labelled_objective(config, trained_on)
  return evals.build(config.evals[name], evals.Context(
      where=where, open=open_split,
      predict=sharding.keep_batch_split(predict, mesh),
      objective=sharding.keep_batch_split(objective, mesh),
      loss=functools.partial(objectives.loss_of_logits, labelled),
      activation='sigmoid' if labelled.loss == 'sigmoid' else 'softmax',
      num_classes=trained_on.num_classes, targets=trained_on.targets,
      trained_on=trained_on.name))


def eval_batch_size(config: config_lib.Config) -> int:
  """Returns the images that an evaluator takes at once, if it does not say.

  What training computes at once, whose gradients take far more memory than an
  evaluation: where the whole batch does not fit, this does.
  """
  return config.batch_size // config.parts


def _labelled_objective(
    config: config_lib.Config, dataset: data.Dataset) -> Any:
  """Returns what a model's answers are measured by: without smoothing.

  That is the objective where it is one of labels, else the usual one.
  """
  if config.objective.name == 'supervised':
    return dataclasses.replace(config.objective, label_smoothing=0.0)
  usual = 'sigmoid' if dataset.multi_label else 'auto'
  return objectives.resolve(
      objectives.parse({'loss': usual}), targets=bool(dataset.targets),
      multi_label=dataset.multi_label)


def _open_data(
    config: config_lib.Config, split: str, source: str, per_class: int,
    seeds: tuple[int, ...], real_labels: str, *, expected: bool,
) -> tuple[data.Dataset, np.ndarray | None]:
  """Opens what an evaluator reads; see `evals.context.Open`.

  Returns:
    The examples, and their ranks in the draws of a few of each class.
  """
  dataset = data.open_dataset(
      config.data, expected=expected, split=split, source=source or None)
  ranks = None
  if per_class and not expected:
    dataset, ranks = data.draw_per_class(dataset, per_class, seeds=seeds)
  if real_labels and not expected:
    dataset = data.with_real_labels(dataset, real_labels)
  return dataset, ranks


def _eval_batches(
    config: data.DataConfig, dataset: data.Dataset, batch_size: int,
    mesh: jax.sharding.Mesh, unreadable: data.UnreadableLog,
) -> Callable[[], Generator[types.Batch, None, None]]:
  """Returns what yields an evaluator's batches: k-hot, images as numbers."""
  prepare = batches_lib.prepare(config, dataset)
  on_batch = NamedSharding(mesh, sharding.BATCH)
  parts, num_parts = multihost.batch_shards(mesh)
  # Evaluation has no randomness, and so no key.
  prepared = jax.jit(
      lambda batch: prepare(batch, None, train=False), in_shardings=on_batch,
      out_shardings=on_batch)

  def batches() -> Generator[types.Batch, None, None]:
    local = data.eval_batches(
        config, dataset, batch_size=batch_size, parts=parts,
        num_parts=num_parts, tally=data.Tally(
            max_share=config.max_unreadable, log=unreadable,
            of=dataset.num_examples))
    with contextlib.closing(batches_lib.sharded(local, mesh)) as whole:
      for batch in whole:
        yield prepared(batch)

  return batches


def _may_miss(config: data.DataConfig, dataset: data.Dataset) -> int:
  """Returns how many examples an evaluation may leave out, as unreadable."""
  if config.eval_unreadable == 'error':
    return 0
  return data.allowed_unreadable(config.max_unreadable, dataset.num_examples)
