"""Memory, operations, traffic and collectives of a compiled training step.

Nothing runs and nothing is allocated. The step is compiled for the devices of
the experiment's mesh, which may belong to another machine
(`plan/topology.py`). Speeds are estimated in `plan/roofline.py`.
"""

from collections.abc import Mapping, Sequence
import dataclasses
import math
import time
from typing import Any

import jax
import numpy as np

from vit_jax.experiment import build as build_lib
from vit_jax.experiment import fit_batch
from vit_jax.extras.plan import hardware
from vit_jax.extras.plan import model_flops
from vit_jax.extras.plan.compiled import collectives
from vit_jax.extras.plan.compiled import memory_traffic
from vit_jax.parallel import device_memory
from vit_jax.parallel import sharding


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
    other_bytes: the program and the padding of arguments, less arguments that
      the step does not use.
    total_bytes: the sum; if the compiler ran out of memory, the amount in its
      error message, which may be incomplete.
    capacity_bytes: available memory, or None if unknown.
    capacity_source: source of `capacity_bytes`.
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
    """Fraction of the capacity in use; None if the capacity is unknown."""
    return (self.total_bytes / self.capacity_bytes if self.capacity_bytes
            else None)

  @property
  def state_bytes(self) -> int:
    """Parameters and optimizer state, which microbatches do not reduce."""
    return self.params_bytes + self.optimizer_bytes


@dataclasses.dataclass(frozen=True)
class StepCost:
  """Cost of a training step per device.

  Attributes:
    device_kind: `jax.Device.device_kind`.
    devices: number of devices in the mesh.
    mesh: number of devices along each axis.
    images: global batch size.
    memory: memory use.
    training_flops: FLOPs of the model, forward and backward.
    recomputed_flops: additional FLOPs of rematerialisation.
    traffic_bytes: bytes read from and written to device memory; None if the
      compiler ran out of memory.
    collectives: communication between devices.
    compile_secs: compilation time.
    is_compiled: whether the compilation succeeded; otherwise the compiler ran
      out of memory.
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
  is_compiled: bool = True

  @property
  def fits(self) -> bool | None:
    """Whether the step fits; None if the device memory is unknown."""
    if not self.is_compiled:
      return False
    fraction = self.memory.fraction
    return None if fraction is None else fraction <= 1

  @property
  def flops(self) -> float:
    """FLOPs of the model, including recomputation."""
    return self.training_flops + self.recomputed_flops


def compile_step(experiment: build_lib.Experiment) -> StepCost:
  """Compiles the training step of an experiment and returns its cost.

  Raises:
    jax.errors.JaxRuntimeError: if the compilation fails, unless it runs out of
      memory.
  """
  lowered = experiment.train_step.lower(
      experiment.abstract_state, experiment.abstract_batch)
  start = time.monotonic()
  compiled, sizes = device_memory.try_compile(lowered)
  compile_secs = time.monotonic() - start
  text = compiled.as_text() if compiled else None
  images = experiment.config.batch_size
  devices = experiment.mesh.size
  return StepCost(
      device_kind=experiment.mesh.devices.flat[0].device_kind, devices=devices,
      mesh=dict(experiment.mesh.shape), images=images,
      memory=_memory(experiment, compiled, sizes),
      training_flops=(
          model_flops.per_image(experiment).training * images / devices),
      recomputed_flops=(
          recomputed_flops_per_image(experiment) * images / devices),
      traffic_bytes=memory_traffic.count(text) if text else None,
      collectives=collectives.find(text) if text else [],
      compile_secs=compile_secs, is_compiled=compiled is not None)


def compile_fitting_step(
    experiment: build_lib.Experiment,
) -> tuple[build_lib.Experiment, StepCost]:
  """Compiles the step with the fewest microbatches that fit.

  Returns the first step if none fits or `accumulation` is fixed.
  """
  first = candidate, cost = experiment, compile_step(experiment)
  while cost.fits is False and experiment.config.accumulation == 'auto':
    n = fit_batch.next_num_microbatches(
        fit_batch.microbatch_options(experiment),
        candidate.config.num_microbatches,
        needed_bytes=cost.memory.total_bytes,
        fixed_bytes=cost.memory.state_bytes,
        limit=cost.memory.capacity_bytes or math.inf)
    if n is None:
      return first
    candidate = experiment.with_microbatches(n)
    cost = compile_step(candidate)
  return candidate, cost


def recomputed_flops_per_image(experiment: build_lib.Experiment) -> int:
  """Returns the FLOPs per image that rematerialisation adds."""
  remat = experiment.config.model.remat
  if remat == 'none':
    return 0
  with_remat, without = (
      model_flops.gradient(experiment, remat=name)
      for name in (remat, 'none'))
  return with_remat - without


def capacity(
    device: Any, *, num_devices: int = 1) -> tuple[int | None, str]:
  """Returns the memory of a device and the source of that figure.

  Args:
    device: a local device or one of a topology.
    num_devices: number of CPU devices that share the memory of this process.
  """
  if device.platform == 'cpu':
    share = f'{100 * device_memory.USABLE_FRACTION:.0f} % of the free host'
    return (device_memory.free_host_bytes(num_devices), f'{share} memory'
            + f', shared by {num_devices} devices' * (num_devices > 1))
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
  _, sizes = device_memory.try_compile(jax.jit(lambda x: x + 1).lower(huge))
  return sizes[1] if sizes else None


def _memory(
    experiment: build_lib.Experiment, compiled: Any,
    sizes: tuple[int, int] | None,
) -> Memory:
  params, state, batch = map(sharding.device_bytes, (
      experiment.abstract_state.params, experiment.abstract_state,
      experiment.abstract_batch))
  capacity_bytes, source = capacity(
      experiment.mesh.devices.flat[0],
      num_devices=len(experiment.mesh.local_devices) or 1)
  if sizes:
    return Memory(params, state - params, batch, None, None, None, *sizes,
                  source)
  stats = compiled.memory_analysis()
  return Memory(
      params, state - params, batch, stats.temp_size_in_bytes,
      stats.output_size_in_bytes - stats.alias_size_in_bytes,
      (stats.argument_size_in_bytes - state - batch
       + stats.generated_code_size_in_bytes),
      fit_batch.needed_bytes(stats), capacity_bytes, source)
