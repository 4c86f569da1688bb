"""FLOPs agree with counts by hand."""

import jax
import jax.numpy as jnp
import pytest

from tests import random_models
from tests import toy
from vit_jax.extras.plan import flops
from vit_jax.extras.plan import model_flops
from vit_jax.models import factory


def shape(*sizes):
  return jax.ShapeDtypeStruct(sizes, jnp.float32)


def convolution(groups):
  return lambda x, k: jax.lax.conv_general_dilated(
      x, k, (2, 2), 'SAME', dimension_numbers=('NHWC', 'HWIO', 'NHWC'),
      feature_group_count=groups)


@pytest.mark.parametrize(('function', 'shapes', 'expected'), [
    (jnp.dot, [(3, 5), (5, 7)], 2 * 3 * 5 * 7),
    (lambda a, b: jnp.einsum('bijk,bjkl->bil', a, b),
     [(2, 3, 4, 5), (2, 4, 5, 6)], 2 * 2 * 3 * (4 * 5) * 6),
    *((convolution(groups), [(2, 8, 6, 4), (3, 3, 4 // groups, 10)],
       2 * (2 * 4 * 3 * 10) * (3 * 3 * 4 // groups)) for groups in (1, 2)),
    # A scanned body counts once per trip, and the most expensive branch.
    (lambda x, ws: jax.lax.scan(lambda x, w: (x @ w, None), x, ws)[0],
     [(2, 4), (9, 4, 4)], 9 * 2 * 2 * 4 * 4),
    (lambda p, x: jax.lax.cond(p > 0, lambda x: x @ x @ x, lambda x: x @ x, x),
     [(), (4, 4)], 2 * 2 * 4**3)], ids=[
         'product', 'two contracted axes', 'convolution', 'groups', 'scan',
         'branches'])
def test_products_are_counted_by_hand(function, shapes, expected):
  assert flops.count(function, *(shape(*sizes) for sizes in shapes)) == expected


def test_gradient_costs_its_products_and_remat_one_again():
  def loss(w1, w2, x):
    return ((x @ w1) @ w2).sum()
  product = 2 * 8 * 4 * 4
  args = (shape(4, 4), shape(4, 4), shape(8, 4))
  assert flops.count(loss, *args) == 2 * product
  # Backward: one for each of w1, w2 and x @ w1; that of x is not needed.
  plain = flops.count(jax.grad(loss, argnums=(0, 1)), *args)
  assert plain == (2 + 3) * product
  # x @ w1 again.
  remat = flops.count(jax.grad(jax.checkpoint(loss), argnums=(0, 1)), *args)
  assert remat == (2 + 3 + 1) * product


def count_vit(**section):
  model = factory.build(factory.parse(section), num_classes=1000)
  images = shape(1, 224, 224, 3)
  params = jax.eval_shape(
      lambda: factory.init(model, jax.random.key(0), images))
  return flops.count(
      lambda p, x: model.apply({'params': p}, x)['logits'], params, images)


@pytest.mark.parametrize(('variant', 'width', 'depth', 'published'), [
    # fvcore's count of the published models, as DeiT's and timm's tables have.
    ('B/16', 768, 12, 17.58e9), ('L/16', 1024, 24, 61.6e9)])
def test_vit_flops_equal_the_formula_and_published_counts(
    variant, width, depth, published):
  tokens = 197
  layer = 12 * tokens * width**2 + 2 * tokens**2 * width
  macs = 196 * (16 * 16 * 3) * width + depth * layer + width * 1000
  assert count_vit(variant=variant) == 2 * macs
  assert macs == pytest.approx(published, rel=0.01)


def test_training_counts_the_forward_pass_of_a_teacher(tmp_path):
  model = {**toy.CONFIG['model'], 'depth': 2}
  random_models.make(
      {**model, 'num_classes': 10}, side=8).save(tmp_path / 'teacher')
  found, teacher = map(model_flops.per_image, (
      toy.build(objective={
          'name': 'distill', 'teacher': str(tmp_path / 'teacher')}),
      toy.build(model=model)))
  assert found.training == 3 * found.forward + teacher.forward


def test_inference_does_not_count_the_decoder_of_an_objective():
  plain, mae = (toy.build(objective={'name': name})
                for name in ('supervised', 'mae'))
  assert model_flops.per_image(mae).forward > model_flops.inference(
      mae) == model_flops.per_image(plain).forward
