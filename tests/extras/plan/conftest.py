"""Faked step costs, for tests that compile nothing."""

import pytest

from vit_jax import types
from vit_jax.extras.plan import step_cost

GIB = 2**30


@pytest.fixture(scope='session')
def fake_cost():
  """Makes the cost of a step that needs `total` GiB per device.

  A step that does not fit fails to compile, with an error that leaves out the
  `state` GiB. The model takes 3 FLOPs.
  """
  def make(total, capacity=15.5, *, state=0.0, mesh=(8, 1, 1)):
    fails = capacity is not None and total > capacity
    memory = step_cost.Memory(
        params_bytes=int(state * GIB / 2), optimizer_bytes=int(state * GIB / 2),
        batch_bytes=0,
        activations_bytes=None, outputs_bytes=None, other_bytes=None,
        total_bytes=round((total - state * fails) * GIB),
        capacity_bytes=None if capacity is None else round(capacity * GIB),
        capacity_source='fake')
    return step_cost.StepCost(
        device_kind='fake', devices=1, images=1,
        mesh=dict(zip(types.MESH_AXES, mesh)), memory=memory,
        training_flops=3.0, recomputed_flops=0.0, traffic_bytes=None,
        collectives=[], compile_secs=2.0,
        is_compiled=not fails)
  return make
