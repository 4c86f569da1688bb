"""The objective itself on examples that are not trained on.

What a run without labels, such as masked patch prediction, is watched by. No
dropout; what else is random in the objective, such as which patches are
masked, is drawn from a key of the batch's number: the same at each evaluation
with the same batch size.
"""

import dataclasses
import itertools
from typing import Literal

import jax

from vit_jax import metrics
from vit_jax import schema
from vit_jax import types
from vit_jax.evals import evaluator as evaluator_lib
from vit_jax.evals import split_means

USES_HEAD = True


@dataclasses.dataclass(frozen=True)
class ObjectiveConfig:
  """An entry of the section `evals`, for `name: 'objective'`.

  Attributes:
    name: always 'objective'.
    split: see `ClassificationConfig`, as for what follows.
    source: data set.
    every: how often during training.
    batch_size: global.
  """
  name: Literal['objective'] = 'objective'
  split: str = ''
  source: str = ''
  every: schema.Duration | None = None
  batch_size: int | None = None


def metrics_of(config: ObjectiveConfig) -> dict[str, evaluator_lib.Mode]:
  """Returns the metrics that there may be, and whether high or low is good."""
  del config
  return {'loss': 'min', 'accuracy': 'max', 'precision_at_1': 'max',
          'color_accuracy': 'max'}


def build(
    config: ObjectiveConfig, context: evaluator_lib.Context,
) -> evaluator_lib.Measure:
  """Wires the evaluator."""
  split = context.open_as_trained(
      config.split, config.source, batch_size=config.batch_size)

  def numbered():
    for number, batch in zip(itertools.count(), split.batches()):
      yield {**batch, 'number': number}

  def measure(
      params: types.Params, batch: types.Batch) -> dict[str, metrics.Mean]:
    key = jax.random.fold_in(jax.random.key(0), batch['number'])
    batch = {name: x for name, x in batch.items() if name != 'number'}
    loss, measures = context.objective(params, batch, key, train=False)
    return {name: metrics.Mean.from_model_output(value, batch['mask'])
            for name, value in {'loss': loss, **measures}.items()}

  over = split_means.mean(dataclasses.replace(split, batches=numbered), measure)

  def run(
      params: types.Params, between: evaluator_lib.Between,
  ) -> evaluator_lib.Measured:
    total = over(params, between)
    return evaluator_lib.Measured({
        **{name: float(value.compute()) for name, value in total.items()},
        'examples': int(total['loss'].count)})

  return run
