"""Schedule-free AdamW."""

import dataclasses
from typing import Any, Literal

import jax
import optax
from optax import contrib

from vit_jax import fields
from vit_jax import schema
from vit_jax import types
from vit_jax.exceptions import UserError
from vit_jax.optim import config
from vit_jax.optim import schedules


@dataclasses.dataclass(frozen=True, kw_only=True)
class ScheduleFreeConfig(config.AdamConfig):
  """Schedule-free AdamW (arXiv:2405.15682): an average replaces the schedule.

  Three sequences of parameters: z, the steps of Adam without momentum; x, their
  mean, which is evaluated, saved and exported as the average; and
  beta1 x + (1 - beta1) z, where gradients are computed. Steps have the weight
  of their squared learning rate, so that those of the warm-up count little.
  """
  name: Literal['schedule_free'] = 'schedule_free'  # type: ignore[assignment]

  def __post_init__(self):
    super().__post_init__()
    fields.check_range(self, 'beta1', above=0)
    for key, found, needed in (
        ('schedule.name', self.schedule.name, 'constant'),
        ('schedule.cooldown', schema.to_plain(self.schedule.cooldown), None),
        ('momentum_dtype', self.momentum_dtype, 'float32'),
        # The average would move them by rounding errors; `frozen` is exact.
        ('frozen_layers', self.frozen_layers, 0)):
      if found != needed:
        raise UserError(
            f'{key} is {found!r}, but schedule_free needs {needed!r}.')

  def scale(self, params: Any) -> optax.GradientTransformation:
    return optax.scale_by_rms(
        decay=self.beta2, eps=self.epsilon, eps_in_sqrt=False,
        bias_correction=True)

  def with_average(
      self, tx: optax.GradientTransformation, schedule: schedules.Schedule,
  ) -> tuple[optax.GradientTransformation, config.Average]:
    return contrib.schedule_free(
        tx, schedule, b1=self.beta1), self._average  # type: ignore[arg-type]

  def _average(self, opt_state: Any, params: types.Params) -> types.Params:
    """Returns x for y = beta1 x + (1 - beta1) z; z is in the state."""
    return jax.tree.map(
        lambda z, y: y if isinstance(z, optax.MaskedNode) else (
            y - (1 - self.beta1) * z) / self.beta1,
        optax.tree_utils.tree_get(opt_state, 'z'), params,
        is_leaf=lambda z: isinstance(z, optax.MaskedNode))
