"""Shardings of the published models agree with tables kept in git.

To rewrite `tests/golden/shardings/` after an intended change:

    REWRITE_GOLDEN=1 python -m pytest tests/parallel/test_golden_shardings.py
"""

import math
import os
import pathlib

import flax.linen as nn
import jax
import optax
import pytest

from vit_jax import tree
from vit_jax import types
from vit_jax.models import factory
from vit_jax.parallel import mesh as mesh_lib
from vit_jax.parallel import sharding

FOLDER = pathlib.Path(__file__).parents[1] / 'golden' / 'shardings'
MESHES = ((1, 1, 1), (8, 1, 1), (1, 8, 1), (2, 2, 2))
VARIANTS = {
    'Ti/16': MESHES[:3],  # Three heads are not divisible by two.
    'B/16': MESHES, 'L/16': MESHES, 'H/14': MESHES, 'g/14': MESHES,
    'G/14': MESHES, '22B/14': MESHES, 'R50+B/16': MESHES, 'R50x1': MESHES}
# File names that still differ if the file system ignores case.
FILES = {'g/14': 'giant/14', 'G/14': 'gigantic/14'}


def tables(variant):
  model = factory.build(factory.parse(
      {'variant': variant, 'num_classes': 1000}), num_classes=1000)
  boxed = jax.eval_shape(lambda: factory.init(
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
    yield '\n'.join([
        'mesh: ' + ' x '.join(f'{name} {n}' for name, n in mesh.shape.items()),
        'parameter | shape | axes | sharded over | bytes | state bytes',
        *_rows(placed, sharding.axis_names(boxed), mesh)])


def _rows(state, axes, mesh):
  """Yields the sharding of each parameter, and its bytes per device."""
  params, others = tree.flatten(state.params), tree.flatten(state.opt_state)
  for name, leaf in params.items():
    moments = [moment for path, moment in others.items()
               if path.endswith(f'/{name}')]
    yield ' | '.join([
        name, ' x '.join(map(str, leaf.shape)),
        ' '.join(axis or '-' for axis in axes[name]),
        ' '.join(axis if axis and mesh.shape[axis] > 1 else '-'
                 for axis in leaf.sharding.spec),
        f'{sharding.device_bytes(leaf):,}',
        f'{sharding.device_bytes(moments):,}'])


# 22B is a model of the zoo, which tests it.
@pytest.mark.parametrize('variant', [v for v in VARIANTS if v != '22B/14'])
def test_shardings_are_unchanged(variant):
  found = '\n\n'.join(tables(variant)) + '\n'
  path = FOLDER / f'{FILES.get(variant, variant).replace("/", "_")}.txt'
  if os.environ.get('REWRITE_GOLDEN'):
    path.parent.mkdir(exist_ok=True)
    path.write_text(found)
  assert found == path.read_text(), (
      'To accept the new shardings: REWRITE_GOLDEN=1 python -m pytest '
      'tests/parallel/test_golden_shardings.py')
