"""A training step part by part: what each must cost, and what it takes.

Each part is computed alone, there and back, from the model's own modules, at
the shapes of a batch on one device. A part must do its operations and must read
and write what goes in and out of it:

    bound = max(operations / peak, bytes / bandwidth)

with the peak of a large matrix product and the bandwidth of a large copy, both
measured in the same run (Williams et al., Roofline, CACM 52(4), 2009). What
stays in a cache may be faster than that; what is stored in between makes it
slower. Parts do not add up to a step: residual sums, dropout and what is
computed again are in none of them, and a compiler joins neighbours.
"""

from collections.abc import Callable, Sequence
import dataclasses
import math
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax

from vit_jax import losses
from vit_jax import models
from vit_jax import run as run_lib
from vit_jax import schema
from vit_jax import tree
from vit_jax.benchmarking import interleaved_timing as interleaved_timing_lib
from vit_jax.benchmarking import matmul_peak as matmul_peak_lib
from vit_jax.benchmarking import step as step_lib
from vit_jax.experiment import build as experiment_lib
from vit_jax.models import attention
from vit_jax.models import embed
from vit_jax.models import encoder
from vit_jax.models import heads
from vit_jax.models import vit_config
from vit_jax.plan import microbatches as microbatches_lib
from vit_jax.training import flops as flops_lib

COPY_BYTES = 2**28  # Beyond any cache.
_PRODUCT, _COPY, _STEP = 'product', 'copy', 'step'


@dataclasses.dataclass(frozen=True)
class Part:
  """What one part of a step costs a device, in all its layers.

  Attributes:
    name: of the part.
    times: how often a step computes it.
    flops: matrix products and convolutions, there and back.
    num_bytes: the least that is read and written.
    secs: by the clock.
    bound_secs: the least it could take.
  """
  name: str
  times: int
  flops: int
  num_bytes: int
  secs: interleaved_timing_lib.Spread
  bound_secs: float

  @property
  def share(self) -> float:
    """Of its bound: 1 is as fast as can be."""
    return self.bound_secs / self.secs.median


@dataclasses.dataclass(frozen=True)
class Roofline:
  """All parts, and the roofs above them.

  Attributes:
    parts: in the order of a step.
    flops_per_sec: of a large matrix product.
    bytes_per_sec: of a large copy.
    step_secs: of the whole step.
  """
  parts: tuple[Part, ...]
  flops_per_sec: float
  bytes_per_sec: float
  step_secs: interleaved_timing_lib.Spread


@dataclasses.dataclass(frozen=True)
class _Asked:
  """A part before it is measured.

  Attributes:
    run: all of its work.
    args: what it is given.
    times: how often a step does it.
    num_bytes: the least that is read and written.
  """
  run: Callable[..., Any]
  args: tuple[Any, ...]
  times: int
  num_bytes: int


def measure(
    experiment: experiment_lib.Experiment, *, turns: int,
    repeats: int | None = None,
) -> Roofline:
  """Measures the parts of a Vision Transformer's step, in turns.

  Args:
    experiment: of one device.
    turns: of each part.
    repeats: of a part in a turn; None for as many as take a second.

  Raises:
    ValueError: if the model is no Vision Transformer of patches, or the step
      does not fit the device.
  """
  model = _checked(models.for_devices(
      experiment.config.model, list(experiment.mesh.devices.flat)))
  fitted = microbatches_lib.fit(
      experiment, free_bytes=microbatches_lib.free_bytes(experiment.mesh),
      batches_ahead=run_lib.IN_FLIGHT)
  experiment = fitted.experiment
  asked = _parts(experiment, model)
  product = matmul_peak_lib.fastest(
      experiment.mesh, experiment.config.model.dtype)
  with jax.default_device(experiment.mesh.devices.flat[0]):
    timed = interleaved_timing_lib.alternate({
        _PRODUCT: product.run, _COPY: _copy(),
        _STEP: step_lib.Training(experiment, fitted.step).run,
        **{name: _action(part) for name, part in asked.items()},
    }, turns=turns, repeats=repeats)
  peak = product.flops / timed[_PRODUCT].secs.median
  bandwidth = 2 * COPY_BYTES / timed[_COPY].secs.median
  return Roofline(
      tuple(_measured(name, part, timed[name], peak, bandwidth)
            for name, part in asked.items()),
      peak, bandwidth, timed[_STEP].secs)


def _checked(model: models.ModelConfig) -> vit_config.ViTConfig:
  if isinstance(model, vit_config.ViTConfig) and not (
      model.backbone or model.axial):
    return model
  raise ValueError(
      'The parts are those of a Vision Transformer that cuts the image itself '
      'and whose tokens all see each other, but the model is '
      f'{schema.to_plain(model)}. --what=step measures any.')


def _parts(
    experiment: experiment_lib.Experiment, config: vit_config.ViTConfig,
) -> dict[str, _Asked]:
  parts = experiment.config.parts
  images = experiment.config.batch_size // parts
  classes = config.num_classes or experiment.dataset.num_classes
  shape = (images, *experiment.config.data.image_shape)
  tokens = config.num_prefix + math.prod(
      experiment_lib.grid(experiment.config))
  layers = config.depth * parts
  norms = (1 if config.parallel else 2) * layers + parts * config.final_norm
  compute = config.compute_dtype
  of_layer = _array((images, tokens, config.width), compute)
  of_heads = _array(
      (images, tokens, config.num_heads, config.head_dim), compute)
  dense = {'dtype': compute}
  return {
      'patch embedding': _module(
          embed.PatchEmbedding(
              config.patch_shape, config.width, compute),
          _array(shape), times=parts, to_inputs=False),
      'layer norm': _module(
          encoder.layer_norm(config, 'norm'), of_layer, times=norms),
      'qkv': _module(
          nn.DenseGeneral((3, config.num_heads, config.head_dim),
                          use_bias=config.qkv_bias, **dense),
          of_layer, times=layers),
      'attention': _there_and_back(
          attention.fused_attention if config.attention == 'cudnn' else (
              lambda *qkv: attention.dot_product_attention(
                  *qkv)[0]),
          *[of_heads] * 3, times=layers),
      'attention out': _module(
          nn.DenseGeneral(config.width, axis=(-2, -1), **dense),
          of_heads, times=layers),
      'MLP': _module(
          encoder.Mlp(config, train=False), of_layer, times=layers),
      'head': _module(
          heads.Head(classes, config.head_bias),
          _array((images, config.width), compute), times=parts),
      'loss': _there_and_back(
          lambda logits: losses.softmax_cross_entropy(
              logits, jnp.zeros(images, jnp.int32)),
          _array((images, classes)), times=parts),
      'optimizer': _optimizer(experiment),
  }


def _array(shape: Sequence[int], dtype: Any = jnp.float32) -> np.ndarray:
  noise = np.random.default_rng(0).standard_normal(shape, np.float32)
  return noise.astype(dtype)


def _module(
    module: nn.Module, inputs: np.ndarray, *, times: int,
    to_inputs: bool = True,
) -> _Asked:
  """Returns a module there and back, to its parameters and its inputs."""
  params = nn.unbox(jax.jit(module.init)(jax.random.key(0), inputs))

  if to_inputs:
    return _there_and_back(module.apply, params, inputs, times=times)
  return _there_and_back(
      module.apply, params, times=times, constants=(inputs,))


def _there_and_back(
    function: Callable[..., Any], *args: Any, times: int,
    constants: tuple[Any, ...] = (),
) -> _Asked:
  """Returns a function, and its gradient to all of `args`.

  What goes in is read twice, what comes out is written and its gradient read,
  and the gradients of `args` are written.
  """
  outputs = jax.eval_shape(function, *args, *constants)
  cotangent = jax.tree.map(lambda x: _array(x.shape, x.dtype), outputs)

  def run(cotangent: Any, args: Any, constants: Any) -> Any:
    outputs, back = jax.vjp(lambda *args: function(*args, *constants), *args)
    return outputs, back(cotangent)

  return _Asked(
      run, (cotangent, args, constants), times,
      3 * tree.num_bytes(args) + 2 * tree.num_bytes((constants, outputs)))


def _optimizer(experiment: experiment_lib.Experiment) -> _Asked:
  state = experiment.abstract_state
  params, opt_state = jax.tree.map(
      lambda leaf: np.zeros(leaf.shape, leaf.dtype),
      (state.params, state.opt_state))
  tx = experiment.tx

  def run(grads: Any, params: Any, opt_state: Any) -> Any:
    updates, opt_state = tx.update(grads, opt_state, params)
    return optax.apply_updates(params, updates), opt_state

  return _Asked(run, (params, params, opt_state), 1,
                3 * tree.num_bytes(params) + 2 * tree.num_bytes(opt_state))


def _action(part: _Asked) -> interleaved_timing_lib.Action:
  run, args = jax.jit(part.run), jax.device_put(part.args)

  def repeat(count: int) -> None:
    for _ in range(count):
      result = run(*args)
    jax.block_until_ready(result)

  return repeat


def _copy() -> interleaved_timing_lib.Action:
  """Returns what reads and writes `COPY_BYTES`."""
  array = jnp.zeros(COPY_BYTES // 4, jnp.float32)
  add = jax.jit(lambda x: x + 1)

  def repeat(count: int) -> None:
    for _ in range(count):
      result = add(array)
    result.block_until_ready()

  return repeat


def _measured(
    name: str, part: _Asked, timed: interleaved_timing_lib.Timed, peak: float,
    bandwidth: float,
) -> Part:
  flops = part.times * flops_lib.count(part.run, *part.args)
  num_bytes = part.times * part.num_bytes
  return Part(
      name, part.times, flops, num_bytes, interleaved_timing_lib.Spread(*(
          part.times * secs for secs in dataclasses.astuple(timed.secs))),
      max(flops / peak, num_bytes / bandwidth))
