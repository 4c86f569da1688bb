"""A new objective takes one file, and its name is where it lives."""

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


@dataclasses.dataclass(frozen=True)
class SimclrConfig(objective.ObjectiveConfig):
  """Two views of an image agree, as in SimCLR (arXiv 2002.05709)."""
  temperature: float = 0.5
  embedding: int = 6

  def metrics(self):
    return (objective.Metric('matched', is_fraction=True),)

  def build(self, context):
    return Simclr(self, context)


class Simclr(objective.CoupledObjective):
  """InfoNCE of linear projections of representations."""

  def __init__(self, config, context):
    self._config, self._context = config, context
    self.metrics = ('matched',)

  def draw(self, images, key):
    # Two random brightnesses of each image.
    factors = jax.random.uniform(key, (len(images), 2, 1, 1, 1), minval=0.5)
    return {'views': factors * images[:, None]}

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
    one, other = jnp.moveaxis(embeddings / jnp.linalg.norm(
        embeddings, axis=-1, keepdims=True), 1, 0)
    logits = jnp.where(
        mask > 0, one @ other.T / self._config.temperature, -jnp.inf)
    matched = logits.argmax(-1) == jnp.arange(len(one))
    return (-jnp.diag(jax.nn.log_softmax(logits)),
            {'matched': matched.astype(jnp.float32)})


def build(**changes):
  return toy.build(
      objective={'name': f'{__name__}:SimclrConfig'}, total={'steps': 3},
      evals={'test': {'name': 'objective', 'split': 'test[:16]',
                      'every': {'steps': 1}}},
      checkpoint={'best': 'test/matched'}, **changes)


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
