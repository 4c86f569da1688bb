"""Memory, operations, traffic and collectives of a compiled training step.

Nothing runs and nothing is allocated. The step is compiled for the devices of
the experiment's mesh, which may belong to another machine
(`parallel/topology.py`). Speeds are estimated in `plan/roofline.py`.
"""

from collections.abc import Mapping, Sequence
import dataclasses
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
from vit_jax.plan.compiled import memory_traffic


@dataclasses.dataclass(frozen=True)
class Memory:
  """Bytes per device during a step.

  Attributes:
    params_bytes: parameters.
    optimizer_bytes: optimizer state, averaged parameters and metrics.
    batch_bytes: the batch as delivered by the input pipeline.
    activations_bytes: all temporaries, such as activations and gradients; None
      if the compiler ran out of memory.
    outputs_bytes: outputs other than the donated state.
    other_bytes: the program and the padding of arguments.
    total_bytes: the sum; if the compiler ran out of memory, the need according
      to its error, which may be incomplete.
    capacity_bytes: available memory, or None if unknown.
    capacity_source: origin of `capacity_bytes`.
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
  def fraction(self) -> float | None:
    """Needed fraction of the capacity; None if the capacity is unknown."""
    return self.total_bytes / self.capacity_bytes if self.capacity_bytes else (
        None)


@dataclasses.dataclass(frozen=True)
class StepCost:
  """Cost of a training step per device.

  Attributes:
    device_kind: `jax.Device.device_kind`.
    devices: number of devices in the mesh.
    mesh: number of devices along each axis.
    images: global batch size.
    memory: bytes held.
    training_flops: FLOPs of the model, forward and backward.
    recomputed_flops: additional FLOPs of rematerialisation.
    traffic_bytes: bytes read from and written to device memory; None if the
      compiler ran out of memory.
    collectives: communication between devices.
    compile_secs: compilation time.
    compile_cpu_secs: CPU time of the compilation.
    compile_error: the compiler's out-of-memory error, or ''.
  """
  device_kind: str
  devices: int
  mesh: Mapping[str, int]
  images: int
  memory: Memory
  training_flops: float
  recomputed_flops: float
  traffic_bytes: int | None
  collectives: Sequence[collectives.Collective]
  compile_secs: float
  compile_cpu_secs: float = 0.0
  compile_error: str = ''

  @property
  def fits(self) -> bool | None:
    """Whether the step fits; None if the device memory is unknown."""
    if self.compile_error:
      return False
    fraction = self.memory.fraction
    return None if fraction is None else fraction <= 1

  @property
  def flops(self) -> float:
    """FLOPs of the model, including recomputation."""
    return self.training_flops + self.recomputed_flops


def compile_step(experiment: experiment_lib.Experiment) -> StepCost:
  """Compiles the training step of an experiment and returns its cost.

  Raises:
    jax.errors.JaxRuntimeError: if the compilation fails for another reason
      than memory.
  """
  devices = experiment.mesh.devices.flatten()
  lowered = experiment.train_step.lower(
      experiment.abstract_state, experiment.abstract_batch)
  compiled, error_message = None, ''
  start, cpu_start = time.monotonic(), time.process_time()
  try:
    compiled = lowered.compile()
  except jax.errors.JaxRuntimeError as error:
    error_message = str(error)
    if fit_batch.parse_out_of_memory(error_message) is None:
      raise
  compile_secs = time.monotonic() - start
  compile_cpu_secs = time.process_time() - cpu_start
  text = compiled.as_text() if compiled else None
  images = experiment.config.batch_size
  return StepCost(
      device_kind=devices[0].device_kind, devices=len(devices),
      mesh=dict(experiment.mesh.shape), images=images,
      memory=_memory(experiment, compiled, error_message, devices[0]),
      training_flops=(
          experiment.training_flops_per_image * images / len(devices)),
      recomputed_flops=(
          recomputed_flops_per_image(experiment) * images / len(devices)),
      traffic_bytes=memory_traffic.count(text) if text else None,
      collectives=collectives.find(text) if text else [],
      compile_secs=compile_secs, compile_cpu_secs=compile_cpu_secs,
      compile_error=error_message)


def compile_fitting_step(
    experiment: experiment_lib.Experiment,
) -> tuple[experiment_lib.Experiment, StepCost]:
  """Compiles the step with the fewest microbatches that fit.

  Returns the first step if none fits or `accumulation` is fixed.
  """
  first = experiment, compile_step(experiment)
  if experiment.config.accumulation != 'auto':
    return first
  candidate, cost = first
  while cost.fits is False:
    memory = cost.memory
    n = fit_batch.next_num_microbatches(
        fit_batch.microbatch_options(experiment),
        candidate.config.num_microbatches,
        needed_bytes=memory.total_bytes,
        fixed_bytes=memory.params_bytes + memory.optimizer_bytes,
        limit=memory.capacity_bytes or math.inf)
    if n is None:
      return first
    candidate = experiment.with_microbatches(n)
    cost = compile_step(candidate)
  return candidate, cost


def capacity(device: Any, *, sharing: int = 1) -> tuple[int | None, str]:
  """Returns the memory of a device and the source of that figure.

  Args:
    device: a local device or one of a topology.
    sharing: number of CPU devices that share the memory of this process.
  """
  if device.platform == 'cpu':
    return (host_memory.free_bytes(sharing),
            f'{host_memory.USABLE_FRACTION:.0%} of the free host memory'
            + f', shared by {sharing} devices' * (sharing > 1))
  try:
    limit = (device.memory_stats() or {}).get('bytes_limit')
    source = 'limit of the JAX allocator'
  except (jax.errors.JaxRuntimeError, NotImplementedError, AttributeError):
    # The device of a topology has no allocator.
    limit, source = _compiler_limit(device), "the compiler's limit"
  if limit:
    return limit, source
  row = hardware.find(device.device_kind)
  return (None, 'unknown') if row is None else (row.memory_bytes, row.source)


def _compiler_limit(device: Any) -> int | None:
  """Returns the compiler's memory limit, from its error for a huge array."""
  huge = jax.ShapeDtypeStruct(
      (2**40,), np.float32, sharding=jax.sharding.SingleDeviceSharding(device))
  try:
    jax.jit(lambda x: x + 1).lower(huge).compile()
  except jax.errors.JaxRuntimeError as error:
    sizes = fit_batch.parse_out_of_memory(str(error))
    return sizes[1] if sizes else None
  return None


def recomputed_flops_per_image(experiment: experiment_lib.Experiment) -> int:
  """Returns the FLOPs per image that rematerialisation adds."""
  remat = getattr(experiment.config.model, 'remat', 'none')
  if remat == 'none':
    return 0
  with_remat, without = (
      experiment.gradient_flops(experiment.countable_model(remat=name))
      for name in (remat, 'none'))
  return with_remat - without


def _memory(
    experiment: experiment_lib.Experiment, compiled: Any, error_message: str,
    device: Any,
) -> Memory:
  params = sharding.device_bytes(experiment.abstract_state.params)
  state = sharding.device_bytes(experiment.abstract_state)
  batch = sharding.device_bytes(experiment.abstract_batch)
  capacity_bytes, source = capacity(
      device, sharing=len(experiment.mesh.local_devices) or 1)
  if compiled is None:
    sizes = fit_batch.parse_out_of_memory(error_message)
    assert sizes is not None, error_message
    return Memory(params, state - params, batch, None, None, None,
                  sizes[0], sizes[1], source)
  stats = compiled.memory_analysis()
  outputs = stats.output_size_in_bytes - stats.alias_size_in_bytes
  other = (stats.argument_size_in_bytes - state - batch
           + stats.generated_code_size_in_bytes)
  temporaries = stats.temp_size_in_bytes
  return Memory(
      params, state - params, batch, temporaries, outputs, other,
      state + batch + temporaries + outputs + other, capacity_bytes, source)
