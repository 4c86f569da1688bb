"""Loss of a model with low-rank adapters."""

import dataclasses
from typing import Any

import jax

from vit_jax import types
from vit_jax.models import lora
from vit_jax.training import step as step_lib


@dataclasses.dataclass(frozen=True)
class _MergedLoss:
  """Loss of the model with the adapters added to its kernels."""
  loss: Any  # The objective.
  config: lora.LoraConfig

  @property
  def measures(self) -> tuple[str, ...]:
    return self.loss.measures

  def __call__(self, params: types.Params, *args: Any, **options: Any) -> Any:
    return self.loss(lora.merge(params, self.config), *args, **options)

  def draw(self, images: jax.Array, key: jax.Array) -> dict[str, jax.Array]:
    return self.loss.draw(images, key)


class _MergedCoupledLoss(_MergedLoss):
  """`_MergedLoss` of a loss that compares the examples of a batch."""

  def embed(self, params: types.Params, *args: Any) -> jax.Array:
    return self.loss.embed(lora.merge(params, self.config), *args)

  def compare(self, *args: Any) -> Any:
    return self.loss.compare(*args)


def merged(loss: Any, config: lora.LoraConfig) -> step_lib.Loss:
  """Returns the objective `loss` of parameters with adapters."""
  if isinstance(loss, step_lib.CoupledLoss):
    return _MergedCoupledLoss(loss, config)
  return _MergedLoss(loss, config)
