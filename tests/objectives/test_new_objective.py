"""A new objective, SimCLR, takes one file, and its name is where it lives."""

import dataclasses

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from tests import toy
from vit_jax import objectives
from vit_jax import registry
from vit_jax import tree
from vit_jax.experiment import config as config_lib
from vit_jax.objectives import objective
from vit_jax.objectives import views as views_lib


@dataclasses.dataclass(frozen=True)
class SimclrConfig(objective.ObjectiveConfig):
  """SimCLR (arXiv 2002.05709): two views of an image agree."""
  temperature: float = 0.5
  embedding: int = 6
  views: views_lib.ViewsConfig = views_lib.ViewsConfig(num_local=0)

  def metrics(self):
    return (objective.Metric('matched', is_fraction=True),)

  def build(self, context):
    return Simclr(self, context)


class Simclr(objective.CoupledObjective):
  """NT-Xent, equation 1, of linear projections of representations."""

  def __init__(self, config, context):
    self._config, self._context = config, context
    self.metrics = ('matched',)

  def draw(self, images, key):
    views = views_lib.draw(self._config.views, images, key)
    return {'views': views['global_views']}

  def extra_params(self, params, key, images):
    width = params['head']['dense']['kernel'].value.shape[0]
    kernel = nn.initializers.lecun_normal()(
        key, (width, self._config.embedding))
    return {objectives.PROJECTOR: {
        'kernel': nn.LogicallyPartitioned(kernel, ('width', None))}}

  def extra_inputs(self, image):
    return {'images': jax.ShapeDtypeStruct((2, *image.shape[1:]), image.dtype)}

  def embed(self, params, batch, key, *, train=True):
    view_key, dropout_key = jax.random.split(key)
    views = (batch if 'views' in batch else self.draw(
        batch['image'], view_key))['views']
    outputs = self._context.apply(
        params, views.reshape(-1, *views.shape[2:]), dropout_key, train=train)
    projected = outputs['representation'] @ params['projector']['kernel']
    return projected.reshape(*views.shape[:2], -1)

  def compare(self, embeddings, mask, key):
    count = len(embeddings)
    rows = embeddings.swapaxes(0, 1).reshape(2 * count, -1)
    rows /= jnp.linalg.norm(rows, axis=-1, keepdims=True)
    others = jnp.tile(mask > 0, 2) & ~jnp.eye(2 * count, dtype=bool)
    logits = jnp.where(
        others, rows @ rows.T / self._config.temperature, -jnp.inf)
    partner = jnp.roll(jnp.arange(2 * count), count)
    found = jnp.take_along_axis(
        jax.nn.log_softmax(logits), partner[:, None], axis=1)
    matched = (logits.argmax(-1) == partner).astype(jnp.float32)
    return (-found.reshape(2, count).mean(0),
            {'matched': matched.reshape(2, count).mean(0)})


def build(**changes):
  return toy.build(
      objective={'name': f'{__name__}:SimclrConfig'}, total={'steps': 3},
      evals={'test': {'name': 'objective', 'split': 'test[:16]',
                      'every': {'steps': 1}}},
      checkpoint={'best': 'test/matched'}, **changes)


def nt_xent(embeddings, temperature):
  """Returns the loss of each image, pair by pair."""
  z = np.concatenate(np.moveaxis(np.asarray(embeddings, np.float64), 1, 0))
  z /= np.linalg.norm(z, axis=-1, keepdims=True)
  count, total = len(embeddings), np.zeros(len(embeddings))
  for i, a in enumerate(z):
    j = (i + count) % (2 * count)
    terms = [np.exp(a @ b / temperature) for k, b in enumerate(z) if k != i]
    total[i % count] -= np.log(np.exp(a @ z[j] / temperature) / sum(terms)) / 2
  return total


def test_the_loss_equals_the_formula():
  experiment = build()
  batch = {'image': jnp.asarray(np.random.default_rng(0).uniform(
      size=(4, 8, 8, 3)), jnp.float32), 'mask': jnp.ones(4)}
  params, key = experiment.init_state().params, jax.random.key(1)
  loss, _ = jax.jit(experiment.objective)(params, batch, key)
  embeddings = jax.jit(experiment.objective.embed)(params, batch, key)
  np.testing.assert_allclose(loss, nt_xent(embeddings, 0.5), rtol=1e-4)


def test_it_trains_evaluates_and_is_counted():
  losses = []
  for accumulation in (1, 2):
    experiment = build(accumulation=accumulation)
    state = first = experiment.init_state()
    before = tree.flatten(jax.device_get(first.params))
    batches = experiment.batches(start_step=0)
    for batch, _ in zip(batches, range(3)):
      state, loss = experiment.train_step(state, batch)
      losses.append(float(loss))
    batches.close()
  # Microbatches are compared with each other.
  np.testing.assert_allclose(losses[3:], losses[:3], rtol=1e-4)
  after = tree.flatten(jax.device_get(state.params))
  for name in ('projector/kernel', 'patches/kernel'):
    assert (before[name] != after[name]).any(), name
  assert set(experiment.evaluate('test', state.params).metrics) == {
      'loss', 'matched', 'examples'}
  assert config_lib.metric_mode(
      experiment.config, 'test/matched', setting='checkpoint.best') == 'max'
  # Both views pass through the encoder.
  if count := registry.optional(registry.FLOPS):
    ours, supervised = (count(built).forward
                        for built in (experiment, toy.build()))
    assert ours == 2 * supervised
