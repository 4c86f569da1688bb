"""One pass over a split: a sum or mean, or one value per example.

All passes compare the number of examples with the split's size: a lost or
repeated example is an error on any number of devices and hosts.
"""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from vit_jax import metrics
from vit_jax import types
from vit_jax.evals import evaluator
from vit_jax.exceptions import UserError
from vit_jax.parallel import multihost

T = TypeVar('T')
Values = dict[str, np.ndarray]


def mean(
    split: evaluator.Split,
    function: Callable[
        [types.Params, types.Batch], Mapping[str, metrics.Mean]],
) -> evaluator.Evaluate:
  """Returns the evaluation that averages `function`, which will be jitted."""
  sums = total(split, function)

  def run(
      params: types.Params, on_batch: evaluator.OnBatch) -> evaluator.Result:
    means = sums(params, on_batch)
    return evaluator.Result({
        **{name: float(value.compute()) for name, value in means.items()},
        'examples': int(next(iter(means.values())).count)})

  return run


def total(
    split: evaluator.Split, function: Callable[[Any, types.Batch], Any],
) -> Callable[[Any, evaluator.OnBatch], Any]:
  """Returns a function that sums `function` over all batches, on every host.

  `function` (params, batch) returns arrays that do not depend on padding, and
  will be jitted.
  """
  @jax.jit
  def of_batch(params: Any, batch: types.Batch) -> Any:
    mask = batch['mask']
    return function(params, batch), metrics.Mean.from_model_output(mask, mask)

  def run(params: Any, on_batch: evaluator.OnBatch) -> Any:
    sums = None
    for batch in split.batches():
      values = of_batch(params, batch)
      sums = values if sums is None else jax.tree.map(jnp.add, sums, values)
      on_batch()
    result, examples = multihost.fetch(sums) or (None, None)
    check_count(int(examples.count) if examples else 0, split)
    return result

  return run


def average_mirrored(
    predict: Callable[[types.Params, Any], T],
) -> Callable[[types.Params, Any], T]:
  """Returns `predict` averaged over each image and its mirror image.

  `predict` takes images [batch, height, width, channels]. Outputs of their
  number of axes, such as logits of pixels, are mirrored back.
  """
  def average(one: jax.Array, other: jax.Array) -> jax.Array:
    return (one + (other[:, :, ::-1] if other.ndim == 4 else other)) / 2

  def averaged(params: types.Params, images: Any) -> T:
    return jax.tree.map(
        average, predict(params, images), predict(params, images[:, :, ::-1]))

  return averaged


def gather(
    split: evaluator.Split,
    function: Callable[[types.Params, types.Batch], types.Outputs],
    finish: Callable[[Values], T],
) -> Callable[[types.Params, evaluator.OnBatch], T]:
  """Returns a function that collects the values of all examples, on every host.

  It returns what `finish` makes of them.

  Args:
    split: the examples.
    function: values of a batch [batch, ...]; will be jitted.
    finish: takes the values of all examples [examples, ...].
  """
  @jax.jit
  def of_batch(params: types.Params, batch: types.Batch) -> Any:
    return function(params, batch), batch['mask']

  def run(params: types.Params, on_batch: evaluator.OnBatch) -> T:
    # Filled in place: joining the batches would double the memory.
    arrays: Values = {}
    count = 0
    for batch in split.batches():
      values, mask = multihost.fetch(of_batch(params, batch))
      end = count + int((mask > 0).sum())
      for name, value in values.items():
        if name not in arrays:
          arrays[name] = np.empty(
              (split.dataset.num_examples, *value.shape[1:]), value.dtype)
        rows = arrays[name][count:end]
        rows[...] = value[mask > 0][:len(rows)]
      count = end
      on_batch()
    check_count(count, split)
    return finish({name: array[:count] for name, array in arrays.items()})

  return run


def check_count(count: int, split: evaluator.Split) -> None:
  """Raises if `count` is not the number of examples of the split."""
  if not count:
    raise UserError(
        f'The evaluation split {split.dataset.title} has no examples.')
  missing = split.dataset.num_examples - count
  if missing < 0 or (missing and not split.may_miss):
    raise RuntimeError(
        f'The evaluation counted {count} examples, but its split '
        f'has {split.dataset.num_examples}: the input pipeline lost or '
        'repeated some.')
