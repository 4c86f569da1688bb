"""Training objective on held-out examples, for runs without labels.

There is no dropout. Other randomness of the objective, such as the choice of
masked patches, takes its key from the batch's index, so that evaluations with
the same batch size are comparable.
"""

from collections.abc import Iterator
import dataclasses
from typing import Any, ClassVar, Literal

import jax

from vit_jax import metrics
from vit_jax import types
from vit_jax.evals import evaluator
from vit_jax.evals import passes
from vit_jax.exceptions import UserError


@dataclasses.dataclass(frozen=True)
class ObjectiveConfig(evaluator.EvaluatorConfig):
  """An entry of the section `evals` with `name: 'objective'`."""
  uses_labels: ClassVar[bool] = False
  reports_objective: ClassVar[bool] = True

  name: Literal['objective'] = 'objective'

  def metrics(self) -> tuple[evaluator.Metric, ...]:
    return (metrics.LOSS,)

  def build(self, context: evaluator.Context) -> evaluator.Evaluate:
    if self.flip:
      raise UserError(
          f'{context.where}.flip averages predictions, but the objective '
          'measures the training loss. Leave it out.')
    # Without labels, classes need not be those of the model.
    split = context.open(self) if context.objective_uses_labels else (
        context.open_split(
            self.split, self.source, batch_size=self.batch_size))

    def numbered() -> Iterator[dict[str, Any]]:
      for number, batch in enumerate(split.batches()):
        yield {**batch, 'number': number}

    def batch_means(
        params: types.Params, batch: types.Batch) -> dict[str, metrics.Mean]:
      key = jax.random.fold_in(jax.random.key(0), batch['number'])
      batch = {name: x for name, x in batch.items() if name != 'number'}
      loss, others = context.objective(params, batch, key, train=False)
      return {name: metrics.Mean.from_model_output(value, batch['mask'])
              for name, value in {'loss': loss, **others}.items()}

    return passes.mean(
        dataclasses.replace(split, batches=numbered), batch_means)
