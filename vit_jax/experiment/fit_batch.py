"""Fits a batch into device memory by splitting it into microbatches.

The compiler reports the memory of a step before anything runs, so the number
of microbatches is known before training starts. Training uses the step that was
compiled for this check.
"""

from collections.abc import Sequence
import contextlib
import dataclasses
import functools
import math
from typing import Any

import jax

from vit_jax import console
from vit_jax import exceptions
from vit_jax.experiment import config as config_lib
from vit_jax.experiment import experiment as experiment_lib
from vit_jax.parallel import coordination
from vit_jax.parallel import device_memory
from vit_jax.parallel import mesh as mesh_lib
from vit_jax.parallel import sharding

_ADVICE = (
    'Use a smaller --config.batch_size, --config.model.remat, '
    '--config.mesh.fsdp or --config.optimizer.momentum_dtype=bfloat16; '
    '`python main.py plan` reports the memory of each.')


@dataclasses.dataclass(frozen=True)
class FittedStep:
  """A training step that fits the devices.

  Attributes:
    experiment: the experiment with a fixed number of microbatches.
    step: its compiled training step.
    memory: the compiler's memory analysis, or None if unavailable.
    message: reason for changing the number of microbatches; '' if unchanged.
  """
  experiment: experiment_lib.Experiment
  step: Any
  memory: Any
  message: str


@dataclasses.dataclass(frozen=True)
class _Trial:
  """One compilation: `step` is None if the compiler ran out of memory."""
  num_microbatches: int
  step: Any
  needed_bytes: int
  limit: float

  @property
  def fits(self) -> bool:
    return self.step is not None and self.needed_bytes <= self.limit

  def __str__(self) -> str:
    n = self.num_microbatches
    split = f'in {n} microbatches ' * (n > 1)
    return (f'{split}needs {console.format_bytes(self.needed_bytes)} per '
            f'device, but {console.format_bytes(self.limit)} are available')


def fit(
    experiment: experiment_lib.Experiment, *, free_bytes: int | None,
    previous: int | None = None,
) -> FittedStep:
  """Compiles the training step with the fewest microbatches that fit.

  The gradient does not depend on the number of microbatches, but dropout masks
  do: a resumed run keeps its number of microbatches if they still fit. All
  processes follow the decision of process 0.

  Args:
    experiment: the experiment; a fixed `accumulation` is never changed.
    free_bytes: free memory of a device before the state is allocated; None if
      unknown, in which case every step that compiles is assumed to fit.
    previous: number of microbatches before a restart.

  Raises:
    ValueError: if no number of microbatches fits, or the fixed one does not.
  """
  auto = experiment.config.accumulation == 'auto'
  first = (previous or 1) if auto else experiment.config.num_microbatches
  options = microbatch_options(experiment)
  # The previous number may not divide the batch on another set of devices.
  options = [n for n in options if n >= first] or options
  limit = math.inf if free_bytes is None else free_bytes
  trials: list[_Trial] = []
  n = options[0]
  while True:
    trials.append(trial := _compile(experiment, n, limit))
    limit = trial.limit
    following = n if trial.fits else (next_num_microbatches(
        options, n, needed_bytes=trial.needed_bytes, limit=limit,
        fixed_bytes=sharding.device_bytes(experiment.abstract_state))
                                      if auto else None)
    # Processes that run different programs would wait for each other forever.
    following = coordination.run_on_first(
        'fit', functools.partial(int, following or 0))
    if following == n and trial.step is not None:
      return FittedStep(
          experiment.with_microbatches(n), trial.step,
          trial.step.memory_analysis(),
          _message(experiment.config, trials[0], n, previous))
    if not following or following == n:
      raise ValueError(_does_not_fit(experiment, trial))
    n = following


def _compile(
    experiment: experiment_lib.Experiment, num_microbatches: int, limit: float,
) -> _Trial:
  step, sizes = device_memory.try_compile(
      experiment.with_microbatches(num_microbatches).train_step.lower(
          experiment.abstract_state, experiment.abstract_batch))
  if sizes:
    return _Trial(num_microbatches, None, sizes[0], min(limit, sizes[1]))
  memory = step.memory_analysis()
  return _Trial(num_microbatches, step, needed_bytes(memory) if memory else 0,
                limit)


def microbatch_options(experiment: experiment_lib.Experiment) -> list[int]:
  """Returns the possible numbers of microbatches, in ascending order."""
  share = experiment.config.batch_size // mesh_lib.data_parallelism(
      experiment.mesh)
  return [n for n in range(1, share + 1) if share % n == 0]


def next_num_microbatches(
    options: Sequence[int], last: int, *, needed_bytes: int, fixed_bytes: int,
    limit: float,
) -> int | None:
  """Returns the next number of microbatches to try, or None if none is left.

  Args:
    options: possible numbers, in ascending order.
    last: the number that did not fit.
    needed_bytes: memory that it needs.
    fixed_bytes: lower bound of the part that microbatches do not reduce.
    limit: memory of a device.
  """
  larger = [n for n in options if n > last]
  shrinking = max(0, needed_bytes - fixed_bytes) * last
  return next((n for n in larger if fixed_bytes + shrinking / n <= limit),
              larger[-1] if larger else None)


def needed_bytes(memory: Any) -> int:
  """Returns bytes per device, from a function's `memory_analysis()`."""
  return (memory.argument_size_in_bytes + memory.temp_size_in_bytes
          + memory.output_size_in_bytes - memory.alias_size_in_bytes
          + memory.generated_code_size_in_bytes)


def check_state_fits(
    experiment: experiment_lib.Experiment, *, free_bytes: int | None,
) -> None:
  """Raises `ValueError` if the training state exceeds the device memory."""
  state = sharding.device_bytes(experiment.abstract_state)
  if free_bytes is not None and state > free_bytes:
    raise ValueError(
        'The training state (parameters, optimizer, average) needs '
        f'{console.format_bytes(state)} per device, but '
        f'{console.format_bytes(free_bytes)} are available. {_ADVICE}')


def out_of_memory_advice(
    what: str, *, advice: str) -> contextlib.AbstractContextManager[None]:
  """Turns an out-of-memory error of the devices into a `ValueError`.

  `what` is the operation, such as 'Training', and `advice` a remedy.
  """
  return exceptions.replaced_by(lambda error: ValueError(
      f'{what} ran out of device memory. {advice} '
      f'({exceptions.first_line(error)})') if (
          isinstance(error, jax.errors.JaxRuntimeError)
          and 'RESOURCE_EXHAUSTED' in str(error)) else None)


def evaluator_memory_advice(
    config: config_lib.Config, name: str,
) -> contextlib.AbstractContextManager[None]:
  """Returns `out_of_memory_advice` for one of the config's evaluators."""
  size = config.evals[name].batch_size or config.eval_batch_size
  return out_of_memory_advice(f'The evaluator {name}', advice=(
      f'Its batch size is {size:,}: set --config.evals.{name}.batch_size to a '
      'smaller number.'))


def _message(
    config: config_lib.Config, first: _Trial, n: int, previous: int | None,
) -> str:
  """Explains the number of microbatches, or '' if it is as expected."""
  lines = []
  if first.num_microbatches != n:
    lines.append(f'The batch of {config.batch_size:,} {first}: computed in {n} '
                 f'microbatches (accumulation={n}).')
  if previous is not None and previous != n:
    lines.append(
        f'The run used {previous} microbatches until now. The gradient is the '
        'same, but dropout masks differ from here on.')
  return '\n'.join(lines)


def _does_not_fit(
    experiment: experiment_lib.Experiment, trial: _Trial) -> str:
  config, n = experiment.config, trial.num_microbatches
  text = f'The batch of {config.batch_size:,} {trial}'
  if config.accumulation != 'auto' and n != microbatch_options(experiment)[-1]:
    return (f'{text} (accumulation={n}). Use --config.accumulation=auto for '
            'as many microbatches as necessary.')
  return f'{text}, and it cannot be split further. {_ADVICE}'
