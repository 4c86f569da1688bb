"""Passes over a split: the mean over its examples, or the value of each.

Both count what they saw and hold it against what there is: an example that
was lost, or seen twice, is an error, on any number of devices and hosts.
"""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np

from vit_jax import metrics
from vit_jax import types
from vit_jax.evals import evaluator
from vit_jax.parallel import multihost

Means = Callable[[types.Params, types.Batch], Mapping[str, metrics.Mean]]
Values = Callable[[types.Params, types.Batch], Mapping[str, jax.Array]]

_SEEN = 'seen'


def mean(split: evaluator.Split, function: Means) -> Callable[
    [types.Params, evaluator.Between], dict[str, metrics.Mean]]:
  """Returns a pass that merges the means of the batches.

  Args:
    split: the examples.
    function: a batch's means; to be jitted.
  """
  @jax.jit
  def of_batch(
      params: types.Params, batch: types.Batch) -> dict[str, metrics.Mean]:
    mask = batch['mask']
    return {**function(params, batch),
            _SEEN: metrics.Mean.from_model_output(mask, mask)}

  def run(
      params: types.Params, between: evaluator.Between,
  ) -> dict[str, metrics.Mean]:
    total: dict[str, metrics.Mean] | None = None
    for batch in split.batches():
      part = of_batch(params, batch)
      total = part if total is None else {
          name: value.merge(part[name]) for name, value in total.items()}
      between()
    total = multihost.fetch(total) or {}
    _check_count(int(total.pop(_SEEN).count) if total else 0, split)
    return total

  return run


def collect(split: evaluator.Split, function: Values) -> Callable[
    [types.Params, evaluator.Between], dict[str, np.ndarray]]:
  """Returns a pass that brings a value of every example to every host.

  Args:
    split: the examples.
    function: a batch's values [batch, ...]; to be jitted.
  """
  @jax.jit
  def of_batch(params: types.Params, batch: types.Batch) -> Any:
    return function(params, batch), batch['mask']

  def run(
      params: types.Params, between: evaluator.Between,
  ) -> dict[str, np.ndarray]:
    parts = []
    for batch in split.batches():
      values, mask = multihost.fetch(of_batch(params, batch))
      parts.append({name: v[mask > 0] for name, v in values.items()})
      between()
    _check_count(
        sum(len(next(iter(part.values()))) for part in parts), split)
    return {name: np.concatenate([part[name] for part in parts])
            for name in parts[0]}

  return run


def _check_count(counted: int, split: evaluator.Split) -> None:
  if not counted:
    raise ValueError(
        f'The split to evaluate on, {split.name}, holds no example.')
  if not 0 <= split.num_examples - counted <= split.may_miss:
    raise RuntimeError(
        f'The evaluation counted {counted} examples, but its split has '
        f'{split.num_examples}: the input pipeline lost or repeated some.')
