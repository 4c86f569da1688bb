"""An own objective may compare images, and add inputs and parameters."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from tests import toy
from vit_jax import objectives
from vit_jax import registry
from vit_jax.experiment import config as config_lib
from vit_jax.objectives import objective


@dataclasses.dataclass(frozen=True)
class SimclrConfig(objective.ObjectiveConfig):
  """Two views of an image agree, as in SimCLR (arXiv 2002.05709)."""

  def metrics(self):
    return (objective.Metric('matched', is_fraction=True),)

  def build(self, context):
    return Simclr(context)


class Simclr(objective.CoupledObjective):
  """InfoNCE of projections of two brightnesses of each image."""
  metrics = ('matched',)

  def __init__(self, context):
    self._context = context

  def draw(self, images, key):
    factors = jax.random.uniform(key, (len(images), 2, 1, 1, 1), minval=0.5)
    return {'views': factors * images[:, None]}

  def extra_params(self, params, key, images):
    return {objectives.PROJECTOR: jax.random.normal(key, (8, 6))}

  def extra_inputs(self, image):
    return {'images': jax.ShapeDtypeStruct((2, *image.shape[1:]), image.dtype)}

  def embed(self, params, batch, key, *, train=True):
    views = (batch | self.draw(batch['image'], key) | batch)['views']
    outputs = self._context.apply(
        params, views.reshape(-1, *views.shape[2:]), key, train=train)
    projected = outputs['representation'] @ params[objectives.PROJECTOR]
    return projected.reshape(*views.shape[:2], -1)

  def compare(self, embeddings, mask, key):
    one, other = jnp.moveaxis(embeddings, 1, 0)
    logits = jnp.where(mask > 0, one @ other.T, -jnp.inf)
    matched = logits.argmax(-1) == jnp.arange(len(one))
    return (-jnp.diag(jax.nn.log_softmax(logits)),
            {'matched': matched.astype(jnp.float32)})


def test_it_trains_evaluates_and_is_counted():
  losses = []
  for accumulation in (1, 2):
    experiment = toy.build(
        objective={'name': f'{__name__}:SimclrConfig'},
        accumulation=accumulation, evals={
            'test': {'name': 'objective', 'split': 'test[:16]'}})
    state = experiment.init_state()
    before = jax.device_get(state.params)
    after, found = toy.take_steps(experiment, state, last=3)
    losses.append(found)
  # Microbatches are compared with each other.
  np.testing.assert_allclose(*losses, rtol=1e-4)
  for leaf in (objectives.PROJECTOR, 'patches'):
    assert (jax.tree.leaves(before[leaf])[0]
            != jax.tree.leaves(after.params[leaf])[0]).any(), leaf
  assert set(experiment.evaluate('test', after.params).metrics) == {
      'loss', 'matched', 'examples'}
  assert config_lib.metric_mode(
      experiment.config, 'test/matched', setting='checkpoint.best') == 'max'
  # Both views pass through the encoder.
  if count := registry.optional(registry.FLOPS):
    ours, supervised = (count(built).forward
                        for built in (experiment, toy.build()))
    assert ours == 2 * supervised
