"""Adafactor against its formula in NumPy."""

import jax
import numpy as np
import pytest

from tests.optim import test_optimizers as common
from vit_jax import tree


class NumpyAdafactor:
  """One parameter in float64; factored for matrices or stacks of matrices."""

  def __init__(self, factored, cap=0.999, momentum=0.9, clip_rms=None):
    self.factored, self.cap, self.momentum = factored, cap, momentum
    self.clip_rms = clip_rms
    self.row = self.col = self.whole = self.m = 0.0

  def __call__(self, g, step):
    beta2 = min(self.cap, 1 - (step + 1.0) ** -0.8)
    blend = lambda old, new: beta2 * old + (1 - beta2) * new
    square = g ** 2 + 1e-30
    if self.factored:
      self.row = blend(self.row, square.mean(-1))
      self.col = blend(self.col, square.mean(-2))
      second = (self.row[..., :, None] * self.col[..., None, :]
                / self.row.mean(-1)[..., None, None])
    else:
      second = self.whole = blend(self.whole, square)
    u = g / np.sqrt(second)
    if self.clip_rms:
      u = u / max(1.0, np.sqrt((u ** 2).mean()) / self.clip_rms)
    self.m = self.momentum * self.m + (1 - self.momentum) * u
    return self.m


@pytest.mark.parametrize('section', [
    {}, {'clip_rms': 0.5}, {'beta2_cap': 0.6, 'momentum': 0.0}])
def test_adafactor_follows_the_formula(section):
  shapes = {'kernel': (3, 32, 40), 'bias': (32, 40)}
  params = common.random(np.random.default_rng(0), shapes)
  grads = [common.random(np.random.default_rng(i), shapes) for i in range(1, 6)]
  optimizer = common.build(
      'adafactor', params, momentum_dtype='float32', **section)
  keywords = {'cap' if k == 'beta2_cap' else k: v for k, v in section.items()}
  got = common.run(optimizer, params, grads)
  for name in shapes:
    want = common.numpy_run(
        lambda: NumpyAdafactor(name == 'kernel', **keywords),  # noqa: B023
        params={name: params[name]}, grads=[{name: g[name]} for g in grads])
    np.testing.assert_allclose(got[name], want[name], rtol=1e-4, atol=1e-5)


def test_adafactor_factors_the_second_moment_of_kernels_per_layer():
  params = {'layers': {'kernel': np.zeros((40, 64, 48), np.float32),
                       'bias': np.zeros((40, 48), np.float32)}}
  shapes = jax.eval_shape(common.build('adafactor', params).tx.init, params)
  state = {key: (leaf.shape, str(leaf.dtype)) for key, leaf in
           tree.flatten(shapes).items()}
  second = [shape for shape, dtype in state.values() if dtype == 'float32']
  assert sorted(second) == sorted([
      (40, 64), (40, 48), (1,),  # Kernel: rows, columns, unused.
      (1,), (1,), (40, 48)])  # Bias: unused, unused, whole.
  assert state['adafactor/momentum/ema/layers/kernel'] == (
      (40, 64, 48), 'bfloat16')
