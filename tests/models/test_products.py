"""Products of bfloat16 in the form that a CPU's matrix units have."""

from unittest import mock

import flax.linen as nn
import jax
from jax import lax
import jax.numpy as jnp
import numpy as np
import pytest

from vit_jax import models
from vit_jax import tree
from vit_jax.models import products

TINY = {'name': 'vit', 'width': 32, 'depth': 2, 'mlp_dim': 64, 'num_heads': 4,
        'patch': 8, 'dtype': 'bfloat16', 'pooling': 'attention',
        'representation_layer': True, 'position': 'relative'}
IMAGES = jax.ShapeDtypeStruct((2, 16, 16, 3), jnp.float32)

# Shapes, summed and batch axes: a dense layer, queries by keys, weights by
# values, values by the output's kernel, and axes in no order.
CASES = [
    ((2, 5, 8), (8, 3, 4), (((2,), (0,)), ((), ()))),
    ((2, 5, 3, 4), (2, 6, 3, 4), (((3,), (3,)), ((0, 2), (0, 2)))),
    ((2, 3, 5, 6), (2, 6, 3, 4), (((3,), (1,)), ((0, 1), (0, 2)))),
    ((2, 5, 3, 4), (3, 4, 7), (((2, 3), (0, 1)), ((), ()))),
    ((4, 2, 3), (3, 5, 2, 4), (((0, 2), (3, 0)), ((1,), (2,)))),
]
on_matrix_units = pytest.mark.skipif(
    not products.has_matrix_units(), reason='this CPU has no matrix units')


def random(*shape):
  rng = np.random.default_rng(len(shape) + sum(shape))
  return jnp.asarray(rng.normal(size=shape), jnp.bfloat16)


def dots(jaxpr):
  """Every matrix product in a jaxpr, as types of what it takes and gives."""
  for equation in jaxpr.eqns:
    if equation.primitive is lax.dot_general_p:
      yield (*(str(var.aval.dtype) for var in equation.invars),
             str(equation.outvars[0].aval.dtype))
    for inner in jax.tree.leaves(list(equation.params.values())):
      inner = getattr(inner, 'jaxpr', inner)
      if hasattr(inner, 'eqns'):
        yield from dots(inner)


def model(**section):
  return models.build(models.parse({**TINY, **section}), num_classes=3)


def loss(module):
  def of(params, images):
    return (module.apply({'params': params}, images)['logits'] ** 2).sum()
  return of


@on_matrix_units
@pytest.mark.parametrize('lhs, rhs, dims', CASES)
@pytest.mark.parametrize('wanted', [None, jnp.float32])
def test_product_and_gradients_are_those_of_lax(lhs, rhs, dims, wanted):
  lhs, rhs = random(*lhs), random(*rhs)

  def of(function, dtype):
    def scalar(a, b):
      out = function(a.astype(dtype), b.astype(dtype), dims,
                     preferred_element_type=wanted)
      assert dtype != jnp.bfloat16 or out.dtype == (wanted or jnp.bfloat16)
      weights = jnp.cos(jnp.arange(out.size)).reshape(out.shape)
      return (out.astype(jnp.float32) * weights).sum(), out
    (_, out), grads = jax.jit(jax.value_and_grad(
        scalar, argnums=(0, 1), has_aux=True))(lhs, rhs)
    return out, *grads

  got = of(products.dot_general, jnp.bfloat16)
  want = of(lax.dot_general, jnp.float32)
  for have, exact in zip(got, want, strict=True):
    assert have.shape == exact.shape
    exact = np.asarray(exact, np.float32)
    np.testing.assert_allclose(
        np.asarray(have, np.float32), exact, rtol=2e-2,
        atol=1e-2 * np.abs(exact).max())


def test_products_of_other_types_are_left_to_lax():
  def both(a, b):
    dims = (((1,), (0,)), ((), ()))
    return (products.dot_general(a, b, dims),
            products.dot_general(a.astype(jnp.bfloat16), b, dims,
                                 preferred_element_type=jnp.float32))
  jaxpr = jax.make_jaxpr(both)(jnp.ones((2, 3)), jnp.ones((3, 2)))
  assert list(dots(jaxpr.jaxpr)) == [
      ('float32',) * 3, ('bfloat16', 'float32', 'float32')]


def test_every_product_of_a_training_step_has_the_form():
  def of(products_of):
    module = model(products=products_of, position='learned')
    params = nn.unbox(jax.eval_shape(
        lambda: models.init(module, jax.random.key(0), IMAGES)))
    return list(dots(jax.make_jaxpr(jax.grad(loss(module)))(
        params, IMAGES).jaxpr))

  got, before = of('float32'), of('dtype')
  assert ('bfloat16',) * 3 in before
  assert set(got) == {('bfloat16', 'bfloat16', 'float32'), ('float32',) * 3}
  # The head, which is float32, and its gradients.
  assert got.count(('float32',) * 3) == before.count(('float32',) * 3) == 3


@on_matrix_units
def test_model_computes_the_same_but_for_rounding():
  images = jnp.asarray(
      np.random.default_rng(0).normal(size=IMAGES.shape), jnp.float32)
  module = model(dtype='float32')
  params = nn.unbox(models.init(module, jax.random.key(0), images))
  rng = np.random.default_rng(1)
  params = jax.tree.map(
      lambda leaf: leaf + 0.05 * rng.normal(size=leaf.shape).astype(np.float32),
      params)

  def flat(module):
    value, grads = jax.jit(jax.value_and_grad(loss(module)))(params, images)
    return value, np.concatenate(
        [leaf.ravel() for leaf in tree.flatten(grads).values()])

  value, exact = flat(module)
  errors = {}
  for of in ('dtype', 'float32'):
    got, grads = flat(model(products=of))
    assert abs(got - value) < 0.02 * value
    errors[of] = np.linalg.norm(grads - exact) / np.linalg.norm(exact)
  assert 0 < errors['float32'] < 1.2 * errors['dtype'] < 0.05


@pytest.mark.parametrize('flags, has', [
    ('flags : fpu avx512_bf16 amx_bf16 amx_tile\n', True),
    ('flags : fpu avx512_bf16\n', False), (None, False)])
def test_a_cpu_says_whether_it_has_matrix_units(
    tmp_path, monkeypatch, flags, has):
  path = tmp_path / 'cpuinfo'
  if flags:
    path.write_text(flags)
  monkeypatch.setattr(products, '_CPU_INFO', path)
  assert products.has_matrix_units.__wrapped__() is has


def test_only_where_it_runs_decides(monkeypatch):
  auto = models.parse(TINY)
  chosen = models.parse({**TINY, 'products': 'dtype'})
  resnet = models.parse({'variant': 'R50x1'})
  for has, platforms, want in [
      (True, ['cpu'], 'float32'), (True, ['tpu'], 'auto'),
      (True, ['gpu'], 'auto'), (True, ['cpu', 'cpu'], 'auto'),
      (False, ['cpu'], 'auto')]:
    monkeypatch.setattr(products, 'has_matrix_units', lambda: has)  # noqa: B023
    devices = [mock.Mock(spec=jax.Device, platform=name)
               for name in platforms]
    assert models.for_devices(auto, devices).products == want
    for other in (chosen, resnet):
      assert models.for_devices(other, devices) == other
  assert auto.dot_general is lax.dot_general
