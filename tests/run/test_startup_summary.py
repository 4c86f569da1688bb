"""The summary at the start of a run."""

import pytest

from tests import toy
from vit_jax.run import counters as counters_lib
from vit_jax.run import startup_summary


@pytest.mark.parametrize(('batch_size', 'times'), [
    (1437, None), (2874, '2.0 times'), (8, None)])
def test_a_batch_larger_than_the_data_is_noted(batch_size, times):
  experiment = toy.build(batch_size=batch_size)
  text = startup_summary.describe(
      experiment, None, None, '', counters_lib.Counters())
  assert ('note: a batch holds each image' in text) == bool(times)
  assert (times or '') in text
