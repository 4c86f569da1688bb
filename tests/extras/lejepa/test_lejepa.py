"""LeJEPA against NumPy and the closed form of the statistic."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests import random_models
from tests import toy
from tests.experiment import test_steps
from tests.objectives import test_config
from vit_jax import objectives
from vit_jax.extras.lejepa import lejepa
from vit_jax.models import factory
from vit_jax.models import positions as positions_lib

SECTION = {'width': 8, 'depth': 1, 'num_heads': 2, 'mlp_dim': 16, 'patch': 4}
RNG = np.random.default_rng(0)
BATCH = {'image': jnp.asarray(RNG.normal(size=(4, 16, 16, 3)), jnp.float32),
         'mask': jnp.ones(4)}
KEY = jax.random.key(3)


def build(**section):
  """Returns objective, model and random parameters."""
  config = objectives.parse({
      'name': 'lejepa', 'hidden': 8, 'embedding': 4, 'directions': 6,
      'views': {'num_local': 3, 'local_size': 8}, **section})
  module = config.build_model(
      factory.parse(SECTION), image_shape=(16, 16, 3), num_classes=5)
  params = random_models.randomize(module, BATCH['image'], scale=0.5, seed=4)
  return config.build(objectives.Context(module)), module, params


def epps_pulley(values):
  """N int |phi_N - phi|^2 w dt over all t, in closed form."""
  n = len(values)
  pairs = np.exp(-np.square(values[:, None] - values) / 2).sum()
  single = np.exp(-np.square(values) / 4).sum()
  return np.sqrt(2 * np.pi) * (pairs / n - np.sqrt(2) * single + n / np.sqrt(3))


@pytest.mark.parametrize('scale', [0.0, 0.5, 1.0, 1.5])
def test_sigreg_equals_the_closed_form(scale):
  rng = np.random.default_rng(0)
  z = scale * rng.normal(size=(20, 2, 3))
  directions = rng.normal(size=(3, 5))
  directions /= np.linalg.norm(directions, axis=0)
  mask = np.r_[np.ones(17), np.zeros(3)]
  expected = np.mean([epps_pulley(z[:17, view] @ directions[:, a])
                      for view in range(2) for a in range(5)])
  found = jax.jit(lejepa.sigreg)(
      jnp.asarray(np.where(mask[:, None, None], z, 0), jnp.float32),
      jnp.asarray(mask, jnp.float32), jnp.asarray(directions, jnp.float32))
  assert float(found) == pytest.approx(expected, rel=2e-3)


def test_loss_combines_the_distance_to_the_global_views_and_sigreg():
  objective, _, _ = build(weight=0.2)
  compare = jax.jit(objective.compare)
  z = RNG.normal(size=(4, 5, 4)).astype(np.float32)
  loss, measures = compare(jnp.asarray(z), jnp.ones(4), KEY)
  distance = np.square(z - z[:, :2].mean(1, keepdims=True)).mean((1, 2))
  np.testing.assert_allclose(measures['prediction'], distance, rtol=1e-5)
  np.testing.assert_allclose(
      loss, 0.8 * distance + 0.2 * measures['sigreg'], rtol=1e-5)
  assert set(measures) == set(objective.metrics)
  # Directions have length 1 and change with the key.
  collapsed, _ = compare(jnp.zeros((4, 5, 4)), jnp.ones(4), KEY)
  np.testing.assert_allclose(
      collapsed, 0.2 * epps_pulley(np.zeros(4)), rtol=2e-3)
  other, _ = compare(jnp.asarray(z), jnp.ones(4), jax.random.key(4))
  assert not np.allclose(other, loss)


def test_padding_has_no_effect():
  objective, _, _ = build()
  z = jnp.asarray(RNG.normal(size=(4, 5, 4)), jnp.float32)
  compare = jax.jit(objective.compare)
  expected, _ = compare(z[:3], jnp.ones(3), KEY)
  found, _ = compare(z.at[3].set(jnp.nan), jnp.asarray([1., 1, 1, 0]), KEY)
  np.testing.assert_allclose(found[:3], expected, rtol=1e-5)


def test_embeddings_are_those_of_each_view():
  """Positions of local views are interpolated; each view is independent."""
  objective, module, params = build()
  drawn = jax.jit(objective.draw)(BATCH['image'], KEY)
  found = jax.jit(objective.embed)(params, {**BATCH, **drawn}, KEY)
  assert found.shape == (4, 5, 4)
  vit = factory.build(factory.parse(SECTION), num_classes=5)

  def embed(params, images, grid):
    own = {**{k: v for k, v in params.items() if k != 'projector'},
           'positions': positions_lib.resize_positions(
               params['positions'], old_grid=(4, 4), new_grid=grid,
               method='bilinear')}
    hidden = vit.apply({'params': own}, images)['representation']
    for layer in ('first', 'second'):
      weights = params['projector'][layer]
      hidden = nn.gelu(hidden @ weights['kernel'] + weights['bias'])
    out = params['projector']['out']
    return hidden @ out['kernel'] + out['bias']

  embed = jax.jit(embed, static_argnums=2)
  for number, (name, grid) in enumerate(
      [('global_views', (4, 4)), ('local_views', (2, 2))]):
    for view in range(2):
      np.testing.assert_allclose(
          found[:, 2 * number + view],
          embed(params, drawn[name][:, view], grid), rtol=2e-3, atol=1e-4)
  # Without views, the model is the ViT.
  outputs = jax.eval_shape(module.apply, {'params': params}, BATCH['image'])
  assert outputs['logits'].shape == (4, 5)


TOY = {'name': 'lejepa', 'hidden': 8, 'embedding': 4, 'directions': 16,
       'views': {'num_local': 2, 'local_size': 4}}


@pytest.mark.slow  # Compiles training steps.
def test_devices_and_microbatches_do_not_change_the_steps():
  test_steps.test_devices_and_microbatches_do_not_change_the_steps(
      TOY, devices=4, accumulation=2)


@pytest.mark.slow
def test_adapters_train_in_microbatches_of_a_compared_batch():
  built = toy.build(
      objective=TOY, accumulation=2, lora={'rank': 2},
      optimizer={'frozen': ['(?!head/|lora/).*']})
  state, loss = jax.eval_shape(
      built.train_step, built.abstract_state, built.abstract_batch)
  assert loss.shape == ()
  assert jax.tree.structure(state) == jax.tree.structure(built.abstract_state)


@pytest.mark.parametrize(('section', 'words'), [
    ({'weight': 1.0}, 'weight must be above 0 and below 1'),
    ({'views': {'num_global': 1, 'num_local': 0}},
     'num_global must be at least 2'),
    ({'views': {'local_area': (0.5, 0.1)}}, 'low <= high, but is 0.5, 0.1'),
    ({'views': {'global_area': (0.5, 2.0)}}, 'global_area must be above 0 and')
])
def test_a_wrong_section_is_an_error(section, words):
  test_config.test_a_wrong_section_is_an_error(
      {'name': 'lejepa', **section}, words)


VIT = test_config.VIT


@pytest.mark.parametrize(('section', 'model', 'words'), [
    ({}, {'variant': 'R50x1'}, "unlike those of model.name='resnet'"),
    ({}, {**VIT, 'position': 'relative'}, "model.position='relative'"),
    ({}, {**VIT, 'position_at': 'layers'}, "model.position_at='layers'"),
    ({'views': {'local_size': 6}}, VIT, 'views.local_size')])
def test_a_model_that_does_not_suit_the_objective_is_an_error(
    section, model, words):
  test_config.test_a_model_that_does_not_suit_the_objective_is_an_error(
      {'name': 'lejepa', **section}, model, words)


def test_changes_of_colour_need_three_channels():
  with pytest.raises(ValueError, match='have 4 channels.*grayscale=0'):
    objectives.parse({'name': 'lejepa'}).build_model(
        factory.parse(VIT), image_shape=(8, 12, 4), num_classes=5)
