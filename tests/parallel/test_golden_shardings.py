"""How every parameter of the published models lies, as tables kept in git.

A change of a rule, of a name of an axis or of a shape shows as a change of
`tests/golden/shardings/`, to be looked at and committed. To write them anew:

    REWRITE_GOLDEN=1 python -m pytest tests/parallel/test_golden_shardings.py
"""

import math
import os
import pathlib

import flax.linen as nn
import jax
import optax
import pytest

from vit_jax import models
from vit_jax import types
from vit_jax.parallel import mesh as mesh_lib
from vit_jax.parallel import sharding

FOLDER = pathlib.Path(__file__).parents[1] / 'golden' / 'shardings'
MESHES = ((1, 1, 1), (8, 1, 1), (1, 8, 1), (2, 2, 2))
VARIANTS = {
    'Ti/16': MESHES[:3],  # Its three heads do not divide in two.
    'B/16': MESHES, 'L/16': MESHES, 'H/14': MESHES, 'g/14': MESHES,
    'G/14': MESHES, '22B/14': MESHES, 'R50+B/16': MESHES, 'R50x1': MESHES}
# Where a file system takes g for G.
FILES = {'g/14': 'giant/14', 'G/14': 'gigantic/14'}


def tables(variant):
  model = models.build(
      models.parse({'variant': variant, 'num_classes': 1000}), num_classes=1000)
  boxed = jax.eval_shape(lambda: models.init(
      model, jax.random.key(0),
      jax.ShapeDtypeStruct((1, 224, 224, 3), 'float32')))
  params = nn.unbox(boxed)
  state = types.TrainState(
      step=jax.ShapeDtypeStruct((), 'int32'), params=params,
      opt_state=jax.eval_shape(optax.adam(1e-3).init, params), average=None,
      metrics={})
  for sizes in VARIANTS[variant]:
    mesh = mesh_lib.build(
        mesh_lib.MeshConfig(*sizes), jax.devices()[:math.prod(sizes)])
    shardings = sharding.state_shardings(
        state, sharding.param_specs(boxed, mesh), mesh)
    placed = jax.tree.map(
        lambda leaf, where: jax.ShapeDtypeStruct(
            leaf.shape, leaf.dtype, sharding=where), state, shardings)
    yield sharding.describe(
        sharding.table(placed, sharding.axis_names(boxed), mesh), mesh)


@pytest.mark.parametrize('variant', list(VARIANTS))
def test_parameters_lie_as_they_did(variant):
  found = '\n\n\n'.join(tables(variant)) + '\n'
  path = FOLDER / f'{FILES.get(variant, variant).replace("/", "_")}.txt'
  if os.environ.get('REWRITE_GOLDEN'):
    path.parent.mkdir(exist_ok=True)
    path.write_text(found)
  assert found == path.read_text(), (
      'To take these as right: REWRITE_GOLDEN=1 python -m pytest '
      'tests/parallel/test_golden_shardings.py')
