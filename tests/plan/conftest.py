"""What the compiler would say, for tests that compile nothing."""

from collections.abc import Callable

import pytest

from vit_jax import types
from vit_jax.plan import measure as measure_lib

GIB = 2**30


@pytest.fixture(scope='session')
def measured() -> Callable[..., measure_lib.Measured]:
  """Makes what is measured of a step of so many GiB a device."""
  def make(total, capacity=15.5, *, held=0.0, recomputed=0.0, mesh=(8, 1, 1)):
    """A refusal counts no state, of which `held` GiB are.

    The model takes 3 operations.
    """
    is_refused = capacity is not None and total > capacity
    memory = measure_lib.Memory(
        params_bytes=int(held * GIB), optimizer_bytes=0, batch_bytes=0,
        activations_bytes=None, outputs_bytes=None, other_bytes=None,
        total_bytes=round((total - held * is_refused) * GIB),
        capacity_bytes=None if capacity is None else round(capacity * GIB),
        capacity_source='made up')
    return measure_lib.Measured(
        device_kind='fake', devices=1, images=1,
        mesh=dict(zip(types.MESH_AXES, mesh)), memory=memory,
        training_flops=3.0, recomputed_flops=recomputed, compiler_flops=None,
        compiler_bytes=None, work=None, collectives=[], compile_secs=2.0,
        refusal='RESOURCE_EXHAUSTED' if is_refused else '')
  return make
