"""How fast an experiment's own training step is, and its forward pass.

Operations are those that `flops` and a run's `train/mfu` count: of the model,
there and back, nothing that is computed again. What share of the devices they
keep busy is said beside a large matrix product's, which takes turns with them,
and beside the data sheet's where that is known.
"""

import collections
from collections.abc import Callable
import contextlib
import dataclasses
from typing import Any

import jax
import numpy as np

from vit_jax import run as run_lib
from vit_jax import types
from vit_jax.benchmarking import interleaved_timing as interleaved_timing_lib
from vit_jax.benchmarking import matmul_peak as matmul_peak_lib
from vit_jax.experiment import build as experiment_lib
from vit_jax.experiment import fit_batch
from vit_jax.parallel import multihost
from vit_jax.parallel import sharding
from vit_jax.run import startup_summary
from vit_jax.training import clock as clock_lib
from vit_jax.training import cost


@dataclasses.dataclass(frozen=True)
class Part:
  """What is done with a batch: a step of training, or a forward pass.

  Attributes:
    timed: seconds of a batch.
    images_per_sec: of all devices.
    flops_per_image: operations of the model.
    flops_per_sec: of all devices.
    utilisation: the share of the measured product's.
    datasheet_utilisation: of the data sheet's; None where it is not known.
    needed_bytes: of a device, as the compiler has it: arguments, results, and
      the most of what lies between.
  """
  timed: interleaved_timing_lib.Timed
  images_per_sec: float
  flops_per_image: int
  flops_per_sec: float
  utilisation: float
  datasheet_utilisation: float | None
  needed_bytes: int


@dataclasses.dataclass(frozen=True)
class Peak:
  """A large matrix product.

  Attributes:
    size: of the matrices.
    timed: seconds of a product on every device.
    flops_per_sec: of all devices.
  """
  size: int
  timed: interleaved_timing_lib.Timed
  flops_per_sec: float


@dataclasses.dataclass(frozen=True)
class Input:
  """Training on images that are read meanwhile.

  Attributes:
    images_per_sec: trained on.
    wait_share: of the time, that was spent waiting for images.
  """
  images_per_sec: interleaved_timing_lib.Spread
  wait_share: interleaved_timing_lib.Spread


@dataclasses.dataclass(frozen=True)
class Measured:
  """All of it.

  Attributes:
    device_kind: of a device.
    devices: of the mesh.
    accumulation: parts that a batch is computed in.
    train: a step of training.
    inference: a forward pass.
    peak: what the devices do at best.
    input: None where the data are not here.
  """
  device_kind: str
  devices: int
  accumulation: int
  train: Part
  inference: Part
  peak: Peak
  input: Input | None


def made_up_batch(experiment: experiment_lib.Experiment) -> types.Batch:
  """Returns a batch of noise, each image of the first class."""
  rng = np.random.default_rng(0)
  shapes = experiment.abstract_batch
  host = {name: np.zeros(leaf.shape, leaf.dtype)
          for name, leaf in shapes.items()}
  image = shapes['image']
  host['image'] = rng.integers(0, 256, image.shape).astype(image.dtype)
  host['mask'] = np.ones_like(host['mask'])
  return {name: multihost.put(value, shapes[name].sharding)
          for name, value in host.items()}


def measure(
    experiment: experiment_lib.Experiment, *, turns: int,
    repeats: int | None = None, with_input: bool,
) -> Measured:
  """Measures an experiment on the devices it was built on.

  Args:
    experiment: its data need not be here.
    turns: of each part.
    repeats: of a part in a turn; None for as many as take a second.
    with_input: also trains on its data.

  Raises:
    ValueError: if the step does not fit the devices.
  """
  fitted = fit_batch.fit(
      experiment, free_bytes=fit_batch.free_bytes(experiment.mesh),
      batches_ahead=run_lib.IN_FLIGHT)
  experiment = fitted.experiment
  training = Training(experiment, fitted.step)
  infer, infer_memory = inference(experiment, training.params)
  product = matmul_peak_lib.fastest(
      experiment.mesh, experiment.config.model.dtype)
  timed = interleaved_timing_lib.alternate(
      {'train': training.run, 'inference': infer, 'product': product.run},
      turns=turns, repeats=repeats)
  peak = Peak(product.size, timed['product'],
              product.flops / timed['product'].secs.median)

  def part(name: str, flops_per_image: int, memory: Any) -> Part:
    return _part(
        experiment, timed[name], peak, flops_per_image=flops_per_image,
        needed_bytes=fit_batch.needed_bytes(experiment, memory))

  return Measured(
      startup_summary.device_kind(experiment.mesh), experiment.mesh.size,
      experiment.config.num_microbatches,
      part('train', experiment.training_flops_per_image, fitted.memory),
      part('inference', experiment.flops_per_image, infer_memory), peak,
      _input(experiment, training, turns=turns, repeats=timed['train'].repeats)
      if with_input else None)


class Training:
  """A state that is trained on, a step after the other."""

  def __init__(self, experiment: experiment_lib.Experiment, step: Callable):
    self._step = step
    self._state = experiment.init_state()
    self._batch = made_up_batch(experiment)

  @property
  def params(self) -> types.Params:
    """Parameters until the next step, which takes their memory."""
    return self._state.params

  def train(self, batch: types.Batch) -> jax.Array:
    """Trains on a batch; returns its loss, which need not be there yet."""
    self._state, loss = self._step(self._state, batch)
    return loss

  def run(self, count: int) -> None:
    """Trains on one batch so many times."""
    for _ in range(count):
      self.train(self._batch)
    self.wait()

  def wait(self) -> None:
    """Waits for the last step."""
    jax.block_until_ready(self._state)


def inference(
    experiment: experiment_lib.Experiment, params: types.Params,
) -> tuple[interleaved_timing_lib.Action, Any]:
  """Returns what computes a batch's logits, and the compiler's analysis."""
  params = jax.tree.map(lambda x: x.copy(), params)
  batch = made_up_batch(experiment)['image']
  images = jax.jit(lambda x: x.astype('float32') / 127.5 - 1)(batch)

  def predict(params: types.Params, images: jax.Array) -> jax.Array:
    return experiment.model.apply({'params': params}, images)['logits']

  compiled = jax.jit(sharding.keep_batch_split(
      predict, experiment.mesh)).lower(params, images).compile()

  def run(count: int) -> None:
    for _ in range(count):
      logits = compiled(params, images)
    logits.block_until_ready()

  return run, compiled.memory_analysis()


def _part(
    experiment: experiment_lib.Experiment, timed: interleaved_timing_lib.Timed, peak: Peak,
    *, flops_per_image: int, needed_bytes: int,
) -> Part:
  images_per_sec = experiment.config.batch_size / timed.secs.median
  flops_per_sec = images_per_sec * flops_per_image
  return Part(
      timed, images_per_sec, flops_per_image, flops_per_sec,
      flops_per_sec / peak.flops_per_sec,
      cost.utilisation(
          flops_per_sec, kind=startup_summary.device_kind(experiment.mesh),
          devices=experiment.mesh.size), needed_bytes)


def _input(
    experiment: experiment_lib.Experiment, training: Training, *, turns: int,
    repeats: int,
) -> Input:
  """Trains as a run does; the first turn, which fills the pipeline, is not one.
  """
  in_flight: collections.deque[jax.Array] = collections.deque()
  found = []
  clock = clock_lib.Clock(devices=experiment.mesh.size)
  with contextlib.closing(experiment.batches(start_step=0)) as batches:
    for _ in range(turns + 1):
      for _ in range(repeats):
        with clock.waiting():
          batch = next(batches)
        in_flight.append(training.train(batch))
        if len(in_flight) > run_lib.IN_FLIGHT:
          in_flight.popleft().block_until_ready()
      training.wait()
      found.append(clock.interval(
          images=repeats * experiment.config.batch_size))
  return Input(interleaved_timing_lib.spread(i.images_per_sec for i in found[1:]),
               interleaved_timing_lib.spread(i.wait_share for i in found[1:]))
