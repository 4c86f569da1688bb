"""Shardings follow from the rules table."""

import flax.linen as nn
import jax
from jax.sharding import PartitionSpec as P
import optax

from vit_jax import tree
from vit_jax import types
from vit_jax.models import factory
from vit_jax.parallel import mesh as mesh_lib
from vit_jax.parallel import sharding

TINY = {'width': 32, 'depth': 2, 'mlp_dim': 64, 'num_heads': 4, 'patch': 4}


def mesh(**sizes):
  return mesh_lib.build(mesh_lib.MeshConfig(**sizes))


def boxed(**section):
  model = factory.build(factory.parse({**TINY, **section}), num_classes=10)
  return jax.eval_shape(lambda: factory.init(
      model, jax.random.key(0), jax.ShapeDtypeStruct((1, 8, 8, 3), 'float32')))


def placed(tx):
  params = boxed()
  on = mesh(data=2, fsdp=2, tensor=2)
  plain, specs = nn.unbox(params), sharding.param_specs(params, on)
  state = types.TrainState(
      step=jax.ShapeDtypeStruct((), 'int32'), params=plain,
      opt_state=jax.eval_shape(tx.init, plain), average=plain,
      metrics={'loss': jax.ShapeDtypeStruct((), 'float32')})
  return state, sharding.state_shardings(state, specs, on), specs


def test_moments_and_average_are_sharded_like_parameters():
  tx = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(1e-3))
  _, shardings, specs = placed(tx)
  adam = shardings.opt_state[1][0]
  for part in (shardings.params, shardings.average, adam.mu, adam.nu):
    assert {name: leaf.spec for name, leaf in
            tree.flatten(part).items()} == specs
  assert adam.count.spec == shardings.step.spec == P()
  assert shardings.metrics['loss'].spec == P()


def test_factored_moments_are_replicated():
  state, shardings, params = placed(
      optax.adafactor(1e-3, min_dim_size_to_factor=8, momentum=0.9))
  shapes, specs = tree.flatten(state.opt_state), tree.flatten(
      shardings.opt_state)
  name = 'encoder/layers/mlp/hidden/kernel'
  row, column = (next(n for n in shapes if n.endswith(f'/{kind}/{name}'))
                 for kind in ('v_row', 'v_col'))
  assert shapes[row].shape != shapes[column].shape
  assert specs[row].spec == specs[column].spec == P()
  # Momentum has the shape of the parameter, and its sharding.
  mirrors = [n for n, s in shapes.items() if n.endswith(f'/{name}')
             and s.shape == (2, 32, 64)]
  assert mirrors
  assert {specs[n].spec for n in mirrors} == {params[name]}
