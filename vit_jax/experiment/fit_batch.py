"""Fits a batch into device memory by splitting it into microbatches.

The compiler reports the memory of a step before anything runs, so the number
of microbatches is settled before training starts. The step that was compiled
to find out is the step that trains.
"""

from collections.abc import Generator, Sequence
import contextlib
import dataclasses
import functools
import gc
import math
import re
from typing import Any

import jax
from jax.experimental import multihost_utils
import numpy as np

from vit_jax import console
from vit_jax.experiment import config as config_lib
from vit_jax.experiment import evaluators
from vit_jax.experiment import experiment as experiment_lib
from vit_jax.parallel import coordination
from vit_jax.parallel import host_memory
from vit_jax.parallel import mesh as mesh_lib
from vit_jax.parallel import sharding

MIB = 2**20
_ADVICE = (
    'Use a smaller --config.batch_size, --config.model.remat, '
    '--config.mesh.fsdp or --config.optimizer.momentum_dtype=bfloat16; '
    '`python main.py plan` reports the memory of each.')
# The TPU compiler writes binary units: '40.1G' is 40.1 * 2**30 bytes.
_UNITS = {'': 1, 'K': 2**10, 'M': 2**20, 'G': 2**30, 'T': 2**40, 'P': 2**50}
_SIZE = r'(\d+(?:\.\d+)?)([KMGTP]?)i?B?'
_OUT_OF_MEMORY = (
    rf'Used {_SIZE} of {_SIZE} hbm',
    rf'temporaries \({_SIZE}\) exceeds available HBM \({_SIZE}\)',
    rf'allocate {_SIZE}.*?(?:limit|available|only)[^0-9]*{_SIZE}',
)


@dataclasses.dataclass(frozen=True)
class FittedStep:
  """A training step that fits the devices.

  Attributes:
    experiment: the experiment with a fixed number of microbatches.
    step: its compiled training step.
    memory: the compiler's memory analysis, or None if unavailable.
    message: why the number of microbatches was changed; '' if it was not.
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
  memory: Any
  needed_bytes: int
  limit: float

  @property
  def fits(self) -> bool:
    return self.step is not None and self.needed_bytes <= self.limit


def fit(
    experiment: experiment_lib.Experiment, *, free_bytes: int | None,
    previous: int | None = None, batches_ahead: int = 0,
) -> FittedStep:
  """Compiles the training step with the fewest microbatches that fit.

  The gradient does not depend on the number of microbatches, but dropout masks
  do: a resumed run keeps its number of microbatches if they still fit.

  Args:
    experiment: what to train. A fixed `accumulation` is used or is an error.
    free_bytes: free memory of a device before the state is allocated; None if
      unknown, in which case every step that compiles is assumed to fit.
    previous: number of microbatches before a restart.
    batches_ahead: batches on the device that wait for their step.

  Raises:
    ValueError: if no number of microbatches fits, or the fixed one does not.
      All processes follow the decision of process 0.
  """
  auto = experiment.config.accumulation == 'auto'
  first = (previous or 1) if auto else experiment.config.num_microbatches
  options = microbatch_options(experiment)
  # The previous number may not divide the batch on another set of devices.
  options = [n for n in options if n >= first] or options
  limit = math.inf if free_bytes is None else free_bytes
  trials: list[_Trial] = []
  n: int | None = options[0]
  while n is not None:
    trial = _compile(experiment, n, batches_ahead, limit)
    trials.append(trial)
    limit = trial.limit
    following = n if trial.fits else (next_num_microbatches(
        options, n, needed_bytes=trial.needed_bytes, limit=limit,
        fixed_bytes=sharding.device_bytes(experiment.abstract_state))
                                      if auto else None)
    # Processes that run different programs would wait for each other forever.
    following = coordination.run_on_first(
        'fit', functools.partial(int, following or 0)) or None
    if following == n:
      return _fitted(experiment, trials, previous)
    n = following
  raise ValueError(_does_not_fit(experiment, trials[-1]))


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
    fixed_bytes: the part that does not shrink with the microbatch, at least.
    limit: memory of a device.
  """
  larger = [n for n in options if n > last]
  shrinking = max(0, needed_bytes - fixed_bytes) * last
  return next((n for n in larger if fixed_bytes + shrinking / n <= limit),
              larger[-1] if larger else None)


def check_state_fits(
    experiment: experiment_lib.Experiment, *, free_bytes: int | None,
) -> None:
  """Raises `ValueError` if the training state exceeds the device memory."""
  state = sharding.device_bytes(experiment.abstract_state)
  if free_bytes is not None and state > free_bytes:
    raise ValueError(
        'The training state (parameters, optimizer, average) needs '
        f'{console.format_bytes(state)} per device, '
        f'{console.format_bytes(state - free_bytes)} more than the available '
        f'{console.format_bytes(free_bytes)}. {_ADVICE}')


def free_bytes(mesh: jax.sharding.Mesh) -> int | None:
  """Returns the free memory per device of a mesh; None if unknown.

  Every process must call it; all get the minimum over the processes.
  """
  gc.collect()  # Frees arrays of an earlier stage held by reference cycles.
  devices = mesh.local_devices
  if mesh.devices.flat[0].platform == 'cpu':
    free: list[int | None] = [host_memory.free_bytes(max(1, len(devices)))]
  else:
    free = [_free_on(device) for device in devices]
  known = [size for size in free if size is not None]
  least = min(known) if len(known) == len(free) else None
  if jax.process_count() == 1:
    return least
  # The collective has 32-bit integers, too small for bytes.
  everywhere = multihost_utils.process_allgather(
      np.asarray(-1 if least is None else least // MIB, np.int32))
  return None if everywhere.min() < 0 else int(everywhere.min()) * MIB


def _free_on(device: jax.Device) -> int | None:
  stats = device.memory_stats() or {}
  if 'bytes_limit' not in stats:
    return None
  return max(0, stats['bytes_limit'] - stats.get('bytes_in_use', 0))


def needed_bytes(
    experiment: experiment_lib.Experiment, memory: Any, *,
    batches_ahead: int = 0,
) -> int:
  """Returns the memory of a step per device, from the compiler's analysis.

  Args:
    experiment: the experiment of the step.
    memory: `memory_analysis()` of the compiled step.
    batches_ahead: batches on the device that wait for their step.
  """
  waiting = batches_ahead * sharding.device_bytes(experiment.abstract_batch)
  return (memory.argument_size_in_bytes + memory.temp_size_in_bytes
          + memory.output_size_in_bytes - memory.alias_size_in_bytes
          + memory.generated_code_size_in_bytes + waiting)


def parse_out_of_memory(message: str) -> tuple[int, int] | None:
  """Parses the needed and available bytes from a compiler error.

  Returns:
    (needed, available), or None if the error is not about memory.
  """
  if 'RESOURCE_EXHAUSTED' not in message:
    return None
  for pattern in _OUT_OF_MEMORY:
    match = re.search(pattern, message, flags=re.DOTALL | re.IGNORECASE)
    if match:
      needed, unit, limit, limit_unit = match.groups()
      return (round(float(needed) * _UNITS[unit.upper()]),
              round(float(limit) * _UNITS[limit_unit.upper()]))
  return None


@contextlib.contextmanager
def out_of_memory_advice(
    what: str, *, advice: str) -> Generator[None, None, None]:
  """Turns an out-of-memory error of the devices into a `ValueError`.

  Args:
    what: the operation, such as 'Training'.
    advice: what to change, as a sentence.
  """
  try:
    yield
  except jax.errors.JaxRuntimeError as error:
    if 'RESOURCE_EXHAUSTED' not in str(error):
      raise
    raise ValueError(
        f'{what} ran out of device memory. {advice} '
        f'({str(error).splitlines()[0]})') from error


def evaluator_memory_advice(
    config: config_lib.Config, name: str,
) -> contextlib.AbstractContextManager[None]:
  """Returns `out_of_memory_advice` for one of the config's evaluators."""
  size = (config.evals[name].batch_size
          or evaluators.eval_batch_size(config))
  return out_of_memory_advice(f'The evaluator {name}', advice=(
      f'Its batch size is {size:,}: set --config.evals.{name}.batch_size to a '
      'smaller number.'))


def _compile(
    experiment: experiment_lib.Experiment, num_microbatches: int,
    batches_ahead: int, limit: float,
) -> _Trial:
  lowered = experiment.build_step(num_microbatches).lower(
      experiment.abstract_state, experiment.abstract_batch)
  try:
    step = lowered.compile()
  except jax.errors.JaxRuntimeError as error:
    sizes = parse_out_of_memory(str(error))
    if sizes is None:
      raise
    return _Trial(
        num_microbatches, None, None, sizes[0], min(limit, sizes[1]))
  memory = step.memory_analysis()
  needed = 0 if memory is None else needed_bytes(
      experiment, memory, batches_ahead=batches_ahead)
  return _Trial(num_microbatches, step, memory, needed, limit)


def _fitted(
    experiment: experiment_lib.Experiment, trials: Sequence[_Trial],
    previous: int | None,
) -> FittedStep:
  last = trials[-1]
  if last.step is None:
    raise ValueError(
        f'Process {jax.process_index()}: {_does_not_fit(experiment, last)} It '
        'fits on process 0: check that all devices are of one kind and free.')
  return FittedStep(
      experiment.with_microbatches(last.num_microbatches), last.step,
      last.memory, _message(experiment.config, trials, previous))


def _message(
    config: config_lib.Config, trials: Sequence[_Trial], previous: int | None,
) -> str:
  """Explains the number of microbatches, or '' if it is as expected."""
  first, n, lines = trials[0], trials[-1].num_microbatches, []
  if first.num_microbatches != n:
    lines.append(
        f'The batch of {config.batch_size:,}'
        + (f' in {first.num_microbatches} microbatches'
           if first.num_microbatches > 1 else '')
        + f' needs {console.format_bytes(first.needed_bytes)} per device, but '
        f'{console.format_bytes(first.limit)} are available: computed in {n} '
        f'microbatches (accumulation={n}).')
  if previous is not None and previous != n:
    lines.append(
        f'The run used {previous} microbatches until now. The gradient is the '
        'same, but dropout masks differ from here on.')
  return '\n'.join(lines)


def _does_not_fit(
    experiment: experiment_lib.Experiment, trial: _Trial) -> str:
  config, n = experiment.config, trial.num_microbatches
  excess = trial.needed_bytes - trial.limit
  # A compiler error may name less than the whole need.
  compared = (
      f'{console.format_bytes(excess)} more than the available '
      f'{console.format_bytes(trial.limit)}' if excess > 0 else
      f'or more: the compiler rejected it with '
      f'{console.format_bytes(trial.limit)} available')
  text = (f'A step of {config.batch_size:,} images in {n} microbatch'
          f'{"es" * (n > 1)} needs {console.format_bytes(trial.needed_bytes)} '
          f'per device, {compared}')
  if config.accumulation != 'auto' and n != microbatch_options(experiment)[-1]:
    return (f'{text} (accumulation={n}). Use --config.accumulation=auto for '
            'as many microbatches as necessary.')
  return f'{text}, and the batch cannot be split further. {_ADVICE}'
