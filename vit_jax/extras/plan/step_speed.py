"""Speed of an experiment's training step and forward pass.

FLOPs are counted for the model, as in `flops` and `train/mfu`, without
recomputation. Utilisation is that of the peak in the data sheet, if the device
is known.
"""

from collections.abc import Callable
import dataclasses
from typing import Any

import jax
import numpy as np

from vit_jax import types
from vit_jax.experiment import build as build_lib
from vit_jax.experiment import fit_batch
from vit_jax.extras.plan import hardware
from vit_jax.extras.plan import interleaved_timing
from vit_jax.extras.plan import model_flops
from vit_jax.parallel import device_memory
from vit_jax.parallel import mesh as mesh_lib
from vit_jax.parallel import multihost
from vit_jax.parallel import sharding


@dataclasses.dataclass(frozen=True)
class Speed:
  """Speed of a training step or a forward pass, over all devices.

  Attributes:
    secs: seconds per batch.
    images_per_sec: images per second.
    flops_per_image: FLOPs of the model.
    flops_per_sec: FLOPs per second.
    utilisation: fraction of the data sheet's peak; None if unknown.
    needed_bytes: memory per device according to the compiler.
  """
  secs: interleaved_timing.Spread
  images_per_sec: float
  flops_per_image: int
  flops_per_sec: float
  utilisation: float | None
  needed_bytes: int


@dataclasses.dataclass(frozen=True)
class StepSpeed:
  """All measurements of an experiment."""
  device_kind: str
  devices: int
  num_microbatches: int
  train: Speed
  inference: Speed


def measure(
    experiment: build_lib.Experiment, *, rounds: int,
    repeats: int | None = None,
) -> StepSpeed:
  """Measures an experiment on its devices.

  Args:
    experiment: the experiment; its data are not read.
    rounds: number of measurements of each action.
    repeats: steps per round; None for at least one second.

  Raises:
    UserError: if the step does not fit the devices.
  """
  fitted = fit_batch.fit(
      experiment, free_bytes=device_memory.free_bytes(experiment.mesh))
  experiment, mesh = fitted.experiment, experiment.mesh
  device_kind = mesh_lib.device_kind(mesh)
  training = Training(experiment, fitted.step)
  infer, infer_memory = inference(experiment, training.params)
  secs = interleaved_timing.interleave(
      {'train': training.run, 'inference': infer}, rounds=rounds,
      repeats=repeats)

  def speed(name: str, flops_per_image: int, memory: Any) -> Speed:
    images_per_sec = experiment.config.batch_size / secs[name].median
    flops_per_sec = images_per_sec * flops_per_image
    return Speed(
        secs[name], images_per_sec, flops_per_image, flops_per_sec,
        hardware.utilisation(
            flops_per_sec, kind=device_kind, devices=mesh.size),
        fit_batch.needed_bytes(memory))

  return StepSpeed(
      device_kind, mesh.size, experiment.config.num_microbatches,
      speed('train', model_flops.per_image(experiment).training,
            fitted.memory),
      speed('inference', model_flops.inference(experiment), infer_memory))


class Training:
  """A training state that advances step by step."""

  def __init__(self, experiment: build_lib.Experiment, step: Callable):
    self._step = step
    self._state = experiment.init_state(random=True)
    self._batch = random_batch(experiment)

  @property
  def params(self) -> types.Params:
    """Parameters, valid until the next step, which donates them."""
    return self._state.params

  def train(self, batch: types.Batch) -> jax.Array:
    """Starts a training step and returns its loss."""
    self._state, loss = self._step(self._state, batch)
    return loss

  def run(self, count: int) -> None:
    """Trains on one batch `count` times and waits."""
    for _ in range(count):
      loss = self.train(self._batch)
    loss.block_until_ready()


def random_batch(experiment: build_lib.Experiment) -> types.Batch:
  """Returns a batch of noise with label 0."""
  shapes = experiment.abstract_batch
  host = {name: np.zeros(leaf.shape, leaf.dtype)
          for name, leaf in shapes.items()}
  image = shapes['image']
  host['image'] = np.random.default_rng(0).integers(
      0, 256, image.shape).astype(image.dtype)
  host['mask'] = np.ones_like(host['mask'])
  return {name: multihost.put(value, shapes[name].sharding)
          for name, value in host.items()}


def inference(
    experiment: build_lib.Experiment, params: types.Params,
) -> tuple[interleaved_timing.Action, Any]:
  """Returns the forward pass of a batch, and its memory analysis."""
  params = jax.tree.map(lambda x: x.copy(), params)
  batch = random_batch(experiment)['image']
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
