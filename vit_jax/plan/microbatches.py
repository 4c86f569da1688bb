"""How many parts a batch is computed in, so that its step fits the memory.

    what is free ─▶ compile ─▶ fits? ─▶ train
                       ▲        no │
                       └── more ◀──┘

Known before the first step: the compiler says what a step needs. Where the
whole batch fits, the step that was compiled to ask is the step that trains.
"""

from collections.abc import Generator, Mapping, Sequence
import contextlib
import dataclasses
import functools
import gc
import math
from typing import Any

import humanize
import jax
from jax.experimental import multihost_utils
import numpy as np

from vit_jax.experiment import build as experiment_lib
from vit_jax.experiment import config as config_lib
from vit_jax.experiment import evaluators
from vit_jax.parallel import coordination
from vit_jax.parallel import mesh as mesh_lib
from vit_jax.plan import host_memory
from vit_jax.plan import measure

MIB = 2**20
_WAYS_OUT = (
    '`python main.py plan` tries what would make it fit: a smaller batch, '
    '--config.model.remat, --config.mesh.fsdp, '
    '--config.optimizer.momentum_dtype=bfloat16.')


@dataclasses.dataclass(frozen=True)
class Fitted:
  """A training step that fits the devices.

  Attributes:
    experiment: whose `accumulation` is now a number.
    step: its compiled training step.
    memory: the compiler's analysis of it, or None if it gives none.
    note: what to tell, if the parts are not what was expected; else ''.
  """
  experiment: experiment_lib.Experiment
  step: Any
  memory: Any
  note: str


def fit(
    experiment: experiment_lib.Experiment, *, free_bytes: int | None,
    earlier: int | None = None, batches_ahead: int = 0,
) -> Fitted:
  """Compiles the training step, in as few parts as fit.

  The gradient is that of the whole batch whatever the parts, but each part
  draws its own dropout masks: a run goes on in the parts it was begun in, if
  they fit.

  Args:
    experiment: what is to be trained. Where `accumulation` is a number, that is
      taken, or it is an error.
    free_bytes: memory of a device, as it was before the state was there; None
      if that is not known, and all that compiles is then taken to fit.
    earlier: parts of the steps made so far.
    batches_ahead: batches that wait on the devices while another is trained on.

  Raises:
    ValueError: if it fits in no parts, or not in those that were asked for; of
      several processes, as the first one finds it.
  """
  asked = experiment.config.accumulation
  first = (earlier or 1) if asked == 'auto' else asked
  every = options(experiment)
  # A run that goes on on other devices may not divide as it did.
  choices = [n for n in every if n >= first] or every
  limit = math.inf if free_bytes is None else free_bytes
  tried: dict[int, int] = {}
  parts: int | None = choices[0]
  while parts is not None:
    step, memory, tried[parts], most = _compile(
        experiment, parts, batches_ahead)
    limit = min(limit, most)
    fits = step is not None and tried[parts] <= limit
    following = parts if fits else (
        next_parts(choices, tried, limit) if asked == 'auto' else None)
    # The first one's word: they would wait for ever in different programs.
    following = coordination.on_first(
        'fit', functools.partial(int, following or 0)) or None
    if following == parts:
      if step is None:
        raise ValueError(
            f'process {jax.process_index()}: '
            f'{_refusal(experiment, tried, limit)} It fits on process 0: are '
            'all devices of one kind, and free?')
      fitted = experiment.in_parts(parts)
      return Fitted(fitted, step, memory, _note(
          fitted, tried, limit=limit, earlier=earlier))
    parts = following
  raise ValueError(_refusal(experiment, tried, limit))


def check_state(
    experiment: experiment_lib.Experiment, *, free_bytes: int | None,
) -> None:
  """Raises if the state alone does not fit, which no parts would help.

  Raises:
    ValueError: with by how much.
  """
  state = device_bytes(experiment.abstract_state)
  if free_bytes is not None and state > free_bytes:
    raise ValueError(
        f'The state (parameters, optimizer, average) takes {_size(state)} a '
        f'device, {_size(state - free_bytes)} more than the '
        f'{_size(free_bytes)} that are there. {_WAYS_OUT}')


def device_bytes(shapes: Any) -> int:
  """Returns what a device holds of arrays, from shapes with shardings."""
  return sum(
      math.prod(leaf.sharding.shard_shape(leaf.shape)) * leaf.dtype.itemsize
      for leaf in jax.tree.leaves(shapes))


def free_bytes(mesh: jax.sharding.Mesh) -> int | None:
  """Returns the memory that is free on each device of a mesh; None if unknown.

  The same in every process: the least of all. A CPU's is a share of its host's
  (`plan.host`).
  """
  gc.collect()  # Arrays of an earlier stage that only a cycle still holds.
  local = mesh.local_devices
  if mesh.devices.flat[0].platform == 'cpu':
    free: list[int | None] = [host_memory.free_bytes(max(1, len(local)))]
  else:
    free = [_free_on(device) for device in local]
  known = [number for number in free if number is not None]
  least = min(known) if len(known) == len(free) else None
  if jax.process_count() == 1:
    return least
  # Of 32 bits, which are too few for bytes.
  everywhere = multihost_utils.process_allgather(
      np.asarray(-1 if least is None else least // MIB, np.int32))
  return None if everywhere.min() < 0 else int(everywhere.min()) * MIB


@contextlib.contextmanager
def explained(what: str, *, advice: str) -> Generator[None, None, None]:
  """Says in words that the devices' memory did not suffice after all.

  Args:
    what: was done.
    advice: a sentence, of what would need less.

  Raises:
    ValueError: in place of the devices' own error.
  """
  try:
    yield
  except jax.errors.JaxRuntimeError as error:
    if 'RESOURCE_EXHAUSTED' not in str(error):
      raise
    reason = str(error).splitlines()[0]
    raise ValueError(
        f"{what} ran out of the devices' memory. {advice} ({reason})"
    ) from error


def explained_evaluation(
    config: config_lib.Config, name: str,
) -> contextlib.AbstractContextManager[None]:
  """Returns `explained` for one of the config's evaluators."""
  size = (config.evals[name].batch_size
          or evaluators.eval_batch_size(config))
  return explained(f'The evaluator {name}', advice=(
      f'Its batches are of {size:,} images: set '
      f'--config.evals.{name}.batch_size to less.'))


def needed_bytes(
    experiment: experiment_lib.Experiment, memory: Any, *,
    batches_ahead: int = 0,
) -> int:
  """Returns what a step needs of each device, by the compiler's analysis.

  Args:
    experiment: whose step it is.
    memory: the analysis.
    batches_ahead: batches that wait on the devices beside the one in use.
  """
  waiting = batches_ahead * device_bytes(experiment.abstract_batch)
  return (memory.argument_size_in_bytes + memory.temp_size_in_bytes
          + memory.output_size_in_bytes - memory.alias_size_in_bytes
          + memory.generated_code_size_in_bytes + waiting)


def _compile(
    experiment: experiment_lib.Experiment, parts: int, batches_ahead: int,
) -> tuple[Any, Any, int, float]:
  """Returns the compiled step, its analysis, what it needs and what there is.

  The step is None where the compiler refused it for want of memory; else it
  does not say what there is.
  """
  lowered = experiment.build_step(parts).lower(
      experiment.abstract_state, experiment.abstract_batch)
  try:
    step = lowered.compile()
  except jax.errors.JaxRuntimeError as error:
    figures = measure.needed(str(error))
    if figures is None:
      raise
    return None, None, *figures
  memory = step.memory_analysis()
  needed = 0 if memory is None else needed_bytes(
      experiment, memory, batches_ahead=batches_ahead)
  return step, memory, needed, math.inf


def options(experiment: experiment_lib.Experiment) -> list[int]:
  """Returns into how many parts the batch divides, the fewest first."""
  share = experiment.config.batch_size // mesh_lib.data_parallelism(
      experiment.mesh)
  return [parts for parts in range(1, share + 1) if share % parts == 0]


def next_parts(
    choices: Sequence[int], tried: Mapping[int, int], limit: float,
) -> int | None:
  """Returns the parts to try after those that did not fit; None if none is.

  What a step needs is some bytes, and others that shrink as its parts get more.
  How many of which is seen from the last two; before there are two, all shrink,
  so that no number of parts that fits is passed over.
  """
  *before, last = tried
  rest = [parts for parts in choices if parts > last]
  if not rest:
    return None
  fixed = 0.0
  if before:
    slope = ((tried[before[-1]] - tried[last]) / (1 / before[-1] - 1 / last))
    if slope <= 0:  # A refusal may tell less than all that is needed.
      return next((parts for parts in rest if parts >= 2 * last), rest[-1])
    fixed = max(0.0, tried[last] - slope / last)
  shrinking = tried[last] - fixed
  fitting = (parts for parts in rest
             if fixed + shrinking * last / parts <= limit)
  return next(fitting, rest[-1])


def _free_on(device: jax.Device) -> int | None:
  stats = device.memory_stats() or {}
  if 'bytes_limit' not in stats:
    return None
  return max(0, stats['bytes_limit'] - stats.get('bytes_in_use', 0))


def _note(
    experiment: experiment_lib.Experiment, tried: Mapping[int, int], *,
    limit: float, earlier: int | None,
) -> str:
  """Returns what to say of the parts that were taken; '' if it is nothing."""
  parts, lines = experiment.config.parts, []
  first = next(iter(tried))
  if parts != first:
    lines.append(
        f'The batch of {experiment.config.batch_size:,}'
        + f' in {first} parts' * (first > 1)
        + f' takes {_size(tried[first])} a device and {_size(limit)} are '
        f'there: computed in {parts} parts (accumulation={parts}).')
  if earlier is not None and earlier != parts:
    lines.append(
        f'Until here it was computed in {earlier}: the gradient is the same, '
        'but dropout, if there is any, draws other masks from here on.')
  return '\n'.join(lines)


def _refusal(
    experiment: experiment_lib.Experiment, tried: Mapping[int, int],
    limit: float,
) -> str:
  """Returns what to say where nothing fits, or not what was asked for."""
  config = experiment.config
  parts = list(tried)[-1]
  over = tried[parts] - limit
  # A compiler may say less than all; or it is another process that refuses.
  what = (f'{_size(over)} more than the {_size(limit)} that are there'
          if over > 0 else
          f'or more: it was refused, though {_size(limit)} are there')
  text = (f'A step of {config.batch_size:,} images in {parts} part(s) takes '
          f'{_size(tried[parts])} a device, {what}')
  if config.accumulation != 'auto' and parts != options(experiment)[-1]:
    return (f'{text} (accumulation={parts}). Leave accumulation out, or write '
            '--config.accumulation=auto, to have it computed in as many parts '
            'as fit.')
  return f'{text}, and it divides into no more parts. {_WAYS_OUT}'


def _size(count: float) -> str:
  return humanize.naturalsize(count, binary=True)
