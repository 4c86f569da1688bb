"""Learning-rate schedules: warm-up, then constant or decreasing.

A schedule maps the number of earlier updates to a learning rate: the first
update uses `schedule(0)`, which is 0 with a warm-up, and the last one
`schedule(total_steps - 1)`.
"""

from collections.abc import Callable
import dataclasses
from typing import Literal

import jax
import jax.numpy as jnp
import optax

from vit_jax import fields
from vit_jax import schema
from vit_jax.exceptions import UserError

# Learning rate as a function of the number of earlier updates.
Schedule = Callable[[jax.typing.ArrayLike], jax.Array]
ToSteps = Callable[[schema.Duration], int]

# Default timescale of `rsqrt`, as in big_vision.
_RSQRT_TIMESCALE = schema.Duration(steps=10_000)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ScheduleConfig:
  """Learning-rate schedule relative to its peak.

  With t steps since the end of the warm-up and T steps from there to the end of
  the run, the peak is multiplied by

    constant    1
    linear      end + (1 - end) (1 - t / T)
    polynomial  end + (1 - end) (1 - t / T)^power
    cosine      end + (1 - end) (1 + cos(pi t / T)) / 2
    rsqrt       1 / sqrt(1 + t / timescale)        (arXiv:2106.04560, sec. 3.5)
    stair       the product of the factors of `stairs` that have begun

  Attributes:
    name: constant, linear, polynomial, cosine, rsqrt (1 / sqrt(1 + step /
      timescale)) or stair.
    warmup: duration of the linear increase from 0.
    warmup_limit: upper limit of `warmup`, for short runs of a recipe with a
      fixed number of warm-up steps.
    end: final fraction of the peak for linear, polynomial and cosine. The
      paper's code ends at a learning rate of 1e-5, which is 1e-5 / peak here.
    power: exponent of polynomial; 1 by default.
    stairs: for stair, pairs of a time since the start of the run and a factor
      from there on: `(({'epochs': 30}, 0.1), ({'epochs': 60}, 0.1))`. In
      big_vision's `mults`, each includes the factors before it.
    timescale: timescale of rsqrt; 10,000 steps by default.
    cooldown: duration of the final linear decrease to 0 for constant, rsqrt and
      stair; none by default.
  """
  name: Literal['constant', 'linear', 'polynomial', 'cosine', 'rsqrt', 'stair']
  warmup: schema.Duration | None = None
  warmup_limit: schema.Duration | None = None
  end: float = 0.0
  power: float | None = None
  stairs: tuple[tuple[schema.Duration, float], ...] = ()
  timescale: schema.Duration | None = None
  cooldown: schema.Duration | None = None

  def __post_init__(self):
    # A key of another schedule would be ignored silently.
    readers = {'end': ('linear', 'polynomial', 'cosine'),
               'power': ('polynomial',), 'stairs': ('stair',),
               'timescale': ('rsqrt',),
               'cooldown': ('constant', 'rsqrt', 'stair')}
    for key, names in readers.items():
      if getattr(self, key) and self.name not in names:
        raise UserError(
            f'the schedule {self.name!r} has no {key}; only '
            f'{" and ".join(names)} do. Remove it or change the name.')
    fields.check_range(self, 'power', above=0)
    fields.check_range(self, 'end', most=1)
    if (self.name == 'stair') != bool(self.stairs) or (
        min([0.0, *(factor for _, factor in self.stairs)]) < 0):
      raise UserError(
          'stair needs stairs, pairs of a time and a factor that is not '
          f'negative; got {schema.to_plain(self.stairs)}.')
    if self.warmup_limit and not self.warmup:
      raise UserError(
          'warmup_limit needs a warm-up, but there is none. Set warmup too.')


def build(
    config: ScheduleConfig, *, peak: float, total_steps: int, to_steps: ToSteps,
) -> Schedule:
  """Returns the schedule of a run of `total_steps` updates, in float32.

  Raises:
    UserError: if warm-up and cool-down are longer than the run.
  """
  warmup = to_steps(config.warmup) if config.warmup else 0
  if config.warmup_limit:
    warmup = min(warmup, to_steps(config.warmup_limit))
  cooldown = to_steps(config.cooldown) if config.cooldown else 0
  _check_lengths(config, warmup, cooldown, total_steps)
  # A run that ends with its warm-up never reaches the body.
  decay_steps = max(1, total_steps - warmup)
  body: optax.Schedule
  stairs = [(to_steps(start), factor) for start, factor in config.stairs]
  if config.name in ('constant', 'stair'):
    body = optax.constant_schedule(peak)
  elif config.name in ('linear', 'polynomial'):
    body = optax.polynomial_schedule(
        peak, peak * config.end, config.power or 1.0, decay_steps)
  elif config.name == 'cosine':
    body = optax.cosine_decay_schedule(peak, decay_steps, alpha=config.end)
  else:
    timescale = to_steps(config.timescale or _RSQRT_TIMESCALE)
    if timescale < 1:
      raise UserError(
          'optimizer.schedule.timescale must be at least one step, but is '
          f'{timescale}.')
    # During the warm-up the count is negative and the result unused; a NaN
    # would trip `jax_debug_nans`.
    body = lambda count: peak * jax.lax.rsqrt(
        1.0 + jnp.maximum(count, 0) / timescale)
  if warmup:
    rise = optax.linear_schedule(0.0, peak, warmup)
    body = optax.join_schedules([rise, body], [warmup])

  def schedule(step: jax.typing.ArrayLike) -> jax.Array:
    rate = jnp.asarray(body(step), jnp.float32)
    for start, factor in stairs:
      rate *= jnp.where(jnp.asarray(step) < start, 1.0, factor)
    if cooldown:
      rate *= jnp.clip((total_steps - step) / cooldown, 0.0, 1.0)
    return rate

  return schedule


def _check_lengths(
    config: ScheduleConfig, warmup: int, cooldown: int, total_steps: int,
) -> None:
  if warmup + cooldown <= total_steps:
    return
  parts = [
      f'optimizer.schedule.{key} is {steps:,} steps '
      f'({schema.to_plain(getattr(config, key))})'
      for key, steps in (('warmup', warmup), ('cooldown', cooldown)) if steps]
  raise UserError(
      f'{" and ".join(parts)}, but the whole run is {total_steps:,} steps. '
      'Lengthen the run, or use a percentage, such as {"percent": 5}.')
