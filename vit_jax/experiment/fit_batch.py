"""Fits a batch into device memory by splitting it into microbatches.

The compiler reports the memory of a step before anything runs, so the number
of microbatches is known before training starts. Training uses the step that was
compiled for this check.
"""

from collections.abc import Sequence
import dataclasses
import math
from typing import Any

from vit_jax import console
from vit_jax.experiment import experiment as experiment_lib
from vit_jax.parallel import coordination
from vit_jax.parallel import device_memory
from vit_jax.parallel import mesh as mesh_lib
from vit_jax.parallel import sharding

ADVICE = (
    'Use --config.accumulation=auto, a smaller --config.batch_size, '
    '--config.model.remat=full, a larger --config.mesh.fsdp or '
    '--config.optimizer.momentum_dtype=bfloat16; `python main.py plan` reports '
    'the memory of each.')


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


def fit(
    experiment: experiment_lib.Experiment, *, free_bytes: int | None,
    previous: int | None = None,
) -> FittedStep:
  """Compiles the training step with the fewest microbatches that fit.

  The gradient does not depend on the number of microbatches, but dropout masks
  do: a resumed run keeps its number of microbatches if they still fit. The
  memory of process 0 decides for all.

  Args:
    experiment: the experiment; a fixed `accumulation` is never changed.
    free_bytes: free memory of a device before the state is allocated; None if
      unknown, in which case every step that compiles is assumed to fit.
    previous: number of microbatches before a restart.

  Raises:
    ValueError: if no number of microbatches fits, or the fixed one does not.
  """
  config = experiment.config
  auto = config.accumulation == 'auto'
  first = (previous or 1) if auto else config.num_microbatches
  options = microbatch_options(experiment)
  # The previous number may not divide the batch on another set of devices.
  options = [n for n in options if n >= first] or options
  # Processes that run different programs would wait for each other forever.
  limit = coordination.run_on_first('fit', lambda: free_bytes) or math.inf
  n, problems = options[0], []
  while True:
    step, needed, limit = _compile(experiment, n, limit)
    if step is not None and needed <= limit:
      break
    problems.append(
        f'The batch of {config.batch_size:,} '
        + f'in {n} microbatches ' * (n > 1)
        + f'needs {console.format_bytes(needed)} per device, but '
        f'{console.format_bytes(limit)} are available')
    following = next_num_microbatches(
        options, n, needed_bytes=needed, limit=limit,
        fixed_bytes=sharding.device_bytes(experiment.abstract_state))
    if not (auto and following):
      raise ValueError(f'{problems[-1]}. {ADVICE}')
    n = following
  message = '' if not problems else (
      f'{problems[0]}: computed in {n} microbatches (accumulation={n}).')
  if previous is not None and previous != n:
    message += (
        f'\nThe run used {previous} microbatches until now. The gradient is '
        'the same, but dropout masks differ from here on.')
  return FittedStep(experiment.with_microbatches(n), step,
                    step.memory_analysis(), message.lstrip())


def _compile(
    experiment: experiment_lib.Experiment, num_microbatches: int, limit: float,
) -> tuple[Any, int, float]:
  """Returns the step, the memory that it needs, and the memory of a device.

  The step is None if the compiler ran out of memory.
  """
  step, sizes = device_memory.try_compile(
      experiment.with_microbatches(num_microbatches).train_step.lower(
          experiment.abstract_state, experiment.abstract_batch))
  if sizes:
    return None, sizes[0], min(limit, sizes[1])
  memory = step.memory_analysis()
  return step, needed_bytes(memory) if memory else 0, limit


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
        f'{console.format_bytes(free_bytes)} are available. {ADVICE}')
