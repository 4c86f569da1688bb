"""An experiment -> what its training step needs, from the compiler itself.

Nothing runs and nothing is allocated: the step is compiled for the devices of
the experiment's mesh, which may be those of a machine that is not there
(`parallel/topology.py`). What the compiler says of a program is what the
program does; what is derived from it, such as a speed, is an estimate and
stands elsewhere (`plan/roofline.py`).
"""

from collections.abc import Mapping, Sequence
import dataclasses
import functools
import math
import time
from typing import Any

import jax
import numpy as np

from vit_jax.experiment import build as experiment_lib
from vit_jax.experiment import fit_batch
from vit_jax.parallel import hardware
from vit_jax.parallel import host_memory
from vit_jax.parallel import sharding
from vit_jax.plan.compiled import collectives
from vit_jax.plan.compiled import program


@dataclasses.dataclass(frozen=True)
class Memory:
  """Bytes of one device during a step.

  Attributes:
    params_bytes: of its share of the parameters.
    optimizer_bytes: of the optimizer's state, the average and the metrics.
    batch_bytes: of its share of the batch, as the pipeline gives it.
    activations_bytes: the most that is held at once while a step runs:
      activations, gradients, whatever else is temporary. None if the compiler
      refused the step.
    outputs_bytes: of what a step returns beside the state, which takes the
      place of the old one.
    other_bytes: the program itself, and what padding adds to the arrays.
    total_bytes: all of them; where the compiler refused the step, what it said
      that is needed, which may be less than all.
    capacity_bytes: what there is, or None if that is not known.
    capacity_source: where the capacity is from.
  """
  params_bytes: int
  optimizer_bytes: int
  batch_bytes: int
  activations_bytes: int | None
  outputs_bytes: int | None
  other_bytes: int | None
  total_bytes: int
  capacity_bytes: int | None
  capacity_source: str

  @property
  def share(self) -> float | None:
    """How much of the capacity is needed; None if that is not known."""
    return self.total_bytes / self.capacity_bytes if self.capacity_bytes else (
        None)


@dataclasses.dataclass(frozen=True)
class Measured:
  """What a training step needs, for each device.

  Attributes:
    device_kind: as JAX calls it.
    devices: of the mesh.
    mesh: their number along each axis.
    images: of a global batch.
    memory: bytes of a device.
    training_flops: operations of the model on a device's share of the batch, as
      papers count them: matrix products, forwards and backwards.
    recomputed_flops: those that rematerialisation does again.
    compiler_flops: as the compiler counts, which takes the body of a loop once;
      None if it refused or does not count.
    compiler_bytes: bytes read and written, counted likewise.
    work: what the program does, its loops counted; None if it was refused.
    collectives: what the devices say to each other.
    compile_secs: that compiling took on this machine.
    refusal: the compiler's words if it refused the step for want of memory.
    compile_cpu_secs: of all its processors' time; where others share the
      machine, the better figure.
  """
  device_kind: str
  devices: int
  mesh: Mapping[str, int]
  images: int
  memory: Memory
  training_flops: float
  recomputed_flops: float
  compiler_flops: float | None
  compiler_bytes: float | None
  work: program.Work | None
  collectives: Sequence[collectives.Collective]
  compile_secs: float
  refusal: str
  compile_cpu_secs: float = 0.0

  @property
  def fits(self) -> bool | None:
    """Whether the step fits the device; None where its memory is not known."""
    if self.refusal:
      return False
    share = self.memory.share
    return None if share is None else share <= 1

  @property
  def flops(self) -> float:
    """Operations that a device does in a step, by our count."""
    return self.training_flops + self.recomputed_flops


def measure(experiment: experiment_lib.Experiment) -> Measured:
  """Compiles the training step of an experiment and says what it needs.

  Args:
    experiment: built on devices that are here, or on those of a topology.

  Raises:
    jax.errors.JaxRuntimeError: if the step does not compile, for another reason
      than its memory.
  """
  devices = experiment.mesh.devices.flatten()
  device = devices[0]
  lowered = experiment.train_step.lower(
      experiment.abstract_state, experiment.abstract_batch)
  compiled, refusal = None, ''
  start, cpu_start = time.monotonic(), time.process_time()
  try:
    compiled = lowered.compile()
  except jax.errors.JaxRuntimeError as error:
    refusal = str(error)
    if fit_batch.parse_out_of_memory(refusal) is None:
      raise
  compile_secs = time.monotonic() - start
  compile_cpu_secs = time.process_time() - cpu_start
  costs = _costs(compiled)
  text = compiled.as_text() if compiled else None
  images = experiment.config.batch_size
  return Measured(
      device_kind=device.device_kind, devices=len(devices),
      mesh=dict(experiment.mesh.shape), images=images,
      memory=_memory(experiment, compiled, refusal, device),
      training_flops=(
          experiment.training_flops_per_image * images / len(devices)),
      recomputed_flops=(
          recomputed_flops_per_image(experiment) * images / len(devices)),
      compiler_flops=costs.get('flops'),
      compiler_bytes=costs.get('bytes accessed'),
      work=program.work(text) if text else None,
      collectives=collectives.find(text) if text else [],
      compile_secs=compile_secs, compile_cpu_secs=compile_cpu_secs,
      refusal=refusal)


def capacity(device: Any, *, sharing: int = 1) -> tuple[int | None, str]:
  """Returns the bytes that a device offers, and where the figure is from.

  Args:
    device: that is here, or of a topology.
    sharing: devices of the mesh that share the memory of this process, if they
      are its processors.
  """
  if device.platform == 'cpu':
    # What a run would take: all that is not in use now, but for a reserve.
    return (host_memory.free_bytes(sharing),
            f'{host_memory.USABLE_FRACTION:.0%} of what is free here'
            + f', by {sharing} devices' * (sharing > 1))
  try:
    limit = (device.memory_stats() or {}).get('bytes_limit')
  except (jax.errors.JaxRuntimeError, NotImplementedError, AttributeError):
    # A device that is not here.
    limit = _compiler_limit(device)
    if limit:
      return limit, "the compiler's limit"
  if limit:
    return limit, 'what JAX may take of the device'
  row = hardware.find(device.device_kind)
  if row is None:
    return None, 'not known'
  return row.memory_bytes, row.source


def _compiler_limit(device: Any) -> int | None:
  """Returns what a compiler lets a program use, or None if it does not say.

  It says so when it refuses one that needs more.
  """
  too_much = jax.ShapeDtypeStruct(
      (2**40,), np.float32, sharding=jax.sharding.SingleDeviceSharding(device))
  try:
    jax.jit(lambda x: x + 1).lower(too_much).compile()
  except jax.errors.JaxRuntimeError as error:
    figures = fit_batch.parse_out_of_memory(str(error))
    return figures[1] if figures else None
  return None


def recomputed_flops_per_image(experiment: experiment_lib.Experiment) -> int:
  """Returns the operations that rematerialisation does again for an image."""
  remat = getattr(experiment.config.model, 'remat', 'none')
  if remat == 'none':
    return 0
  with_it, without = (
      experiment.gradient_flops(experiment.countable_model(remat=name))
      for name in (remat, 'none'))
  return with_it - without


def _memory(
    experiment: experiment_lib.Experiment, compiled: Any, refusal: str,
    device: Any,
) -> Memory:
  state, batch = experiment.abstract_state, experiment.abstract_batch
  params, whole = sharding.device_bytes(state.params), sharding.device_bytes(state)
  held = whole + sharding.device_bytes(batch)
  capacity_bytes, source = capacity(
      device, sharing=len(experiment.mesh.local_devices) or 1)
  known = functools.partial(
      Memory, params_bytes=params, optimizer_bytes=whole - params,
      batch_bytes=held - whole, capacity_source=source)
  if compiled is None:
    figures = fit_batch.parse_out_of_memory(refusal)
    assert figures is not None, 'only a refusal for memory comes here'
    return known(
        activations_bytes=None, outputs_bytes=None, other_bytes=None,
        total_bytes=figures[0], capacity_bytes=figures[1])
  stats = compiled.memory_analysis()
  outputs = stats.output_size_in_bytes - stats.alias_size_in_bytes
  other = (stats.argument_size_in_bytes - held
           + stats.generated_code_size_in_bytes)
  return known(
      activations_bytes=stats.temp_size_in_bytes, outputs_bytes=outputs,
      other_bytes=other, capacity_bytes=capacity_bytes,
      total_bytes=held + stats.temp_size_in_bytes + outputs + other)


def _costs(compiled: Any) -> Mapping[str, float]:
  """Returns the compiler's count of operations and bytes; {} if there is none.
  """
  if compiled is None:
    return {}
  costs = compiled.cost_analysis()
  # Older versions of JAX give a list, of one for each program.
  return (costs[0] if isinstance(costs, list) else costs) or {}


def measure_fitting(
    experiment: experiment_lib.Experiment,
) -> tuple[experiment_lib.Experiment, Measured]:
  """Measures the step with the fewest microbatches that fit.

  If none fits, or `accumulation` is fixed, returns the first step measured.
  """
  first = experiment, measure(experiment)
  if experiment.config.accumulation != 'auto':
    return first
  found = first
  while found[1].fits is False:
    memory = found[1].memory
    more = fit_batch.next_num_microbatches(
        fit_batch.microbatch_options(experiment),
        found[0].config.num_microbatches,
        needed_bytes=memory.total_bytes,
        fixed_bytes=memory.params_bytes + memory.optimizer_bytes,
        limit=memory.capacity_bytes or math.inf)
    if more is None:
      return first
    candidate = experiment.with_microbatches(more)
    found = candidate, measure(candidate)
  return found
