"""Adafactor for Vision Transformers."""

import dataclasses
from typing import Any, Literal

import jax
import jax.numpy as jnp
import optax

from vit_jax import fields
from vit_jax import tree
from vit_jax.optim import config


@dataclasses.dataclass(frozen=True, kw_only=True)
class AdafactorConfig(config.CommonConfig):
  """Adafactor for Vision Transformers (arXiv:2106.04560, sec. 3.4).

  Differences from the original (arXiv:1804.04235): bfloat16 momentum, no
  scaling by parameter norms, no clipping of updates by default, and a second
  moment whose decay, 1 - step ** -decay_rate, is capped at `beta2_cap` because
  a decay that approaches 1 made long runs unstable.

  Attributes:
    momentum: decay for scaled gradients, m = momentum * m + (1 - momentum) * u,
      without bias correction; 0 keeps no momentum.
    momentum_dtype: bfloat16 by default.
    decay_rate: exponent of the decay of the second moment.
    beta2_cap: upper limit of the decay of the second moment.
    factored: regular expression of parameters with a factored second moment: a
      row and a column over the two largest axes. Kernels only: biases of
      scanned layers are [depth, width], which is not a matrix. The default may
      match nothing.
    min_factored_size: second moments are factored if both of these axes have at
      least this length.
    clip_rms: maximum root mean square of the scaled gradient of a parameter; 1
      in the original, None disables it.
    epsilon: added to the squared gradient.
  """
  name: Literal['adafactor'] = 'adafactor'  # type: ignore[assignment]
  momentum: float = 0.9
  momentum_dtype: Literal['float32', 'bfloat16'] = 'bfloat16'
  decay_rate: float = 0.8
  beta2_cap: float = 0.999
  factored: str = config.KERNELS
  min_factored_size: int = 32
  clip_rms: float | None = None
  epsilon: float = 1e-30

  def __post_init__(self):
    super().__post_init__()
    fields.check_range(self, 'momentum', 'beta2_cap', end=1)
    fields.check_range(self, 'decay_rate', 'epsilon')
    fields.check_range(self, 'clip_rms', above=0)

  def scale(self, params: Any) -> optax.GradientTransformation:
    labels = tree.map_rules(
        params, [(self.factored, 'factored')], default='whole',
        where='optimizer.factored', optional=[config.KERNELS])
    steps = [('second_moment', optax.partition(
        {'factored': self._scale_by_rms(factored=True),
         'whole': self._scale_by_rms(factored=False)}, labels))]
    if self.clip_rms is not None:
      steps.append(('clip_rms', optax.clip_by_block_rms(self.clip_rms)))
    if self.momentum:
      steps.append(('momentum', optax.ema(
          self.momentum, debias=False,
          accumulator_dtype=self.momentum_dtype)))
    return optax.named_chain(*steps)

  def _scale_by_rms(self, *, factored: bool) -> optax.GradientTransformation:
    def beta2(count: Any, decay_rate: float) -> jax.Array:
      step = jnp.asarray(count, jnp.float32) + 1.0
      return jnp.minimum(self.beta2_cap, 1.0 - step ** -decay_rate)

    return optax.scale_by_factored_rms(
        factored=factored, decay_rate=self.decay_rate,
        min_dim_size_to_factor=self.min_factored_size,
        epsilon=self.epsilon, decay_rate_fn=beta2)
