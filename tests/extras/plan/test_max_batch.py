"""The largest batch fits, and twice as many images do not."""

import pathlib

import jax
import pytest

from vit_jax.extras.plan import max_batch
from vit_jax.extras.plan import step_cost

CONFIGS = pathlib.Path(__file__).parents[3] / 'configs'
GIB = 2**30


def fake_cost(total, capacity=15.5):
  """Returns the cost of a step that needs `total` GiB per device.

  A step that does not fit fails to compile, with an error that leaves out the
  GiB of the state.
  """
  fails = bool(capacity) and total > capacity
  memory = step_cost.Memory(
      params_bytes=GIB // 2, optimizer_bytes=GIB // 2, batch_bytes=0,
      activations_bytes=None, outputs_bytes=None, other_bytes=None,
      total_bytes=round((total - fails) * GIB),
      capacity_bytes=capacity and round(capacity * GIB), capacity_source='fake')
  return step_cost.StepCost(
      device_kind='fake', devices=1, images=1, mesh={'data': 8}, memory=memory,
      training_flops=3.0, recomputed_flops=0.0, traffic_bytes=None,
      collectives=[], compile_secs=2.0, is_compiled=not fails)


@pytest.mark.parametrize('guess', [1, 3, 64, 100_000])
@pytest.mark.parametrize(('per_image', 'fixed', 'expected'), [
    (0.1, 1.5, 128),  # (15.5 - 1.5) / 0.1 = 140.
    (0.9, 3.0, 8), (14.0, 1.5, 1), (15.0, 1.5, 0), (1e-3, 1.0, 8192)])
def test_the_search_finds_the_largest_batch(guess, per_image, fixed, expected):
  tried = []

  def cost_of(batch):
    tried.append(batch)
    return fake_cost(fixed + per_image * batch)

  found = max_batch.largest(cost_of, guess=guess)
  assert found['batch'] == expected
  assert {expected, max(1, 2 * expected)} <= {0, *tried}
  assert len(set(tried)) == len(tried) <= 5
  assert found['compile_secs'] == 2.0 * len(tried)


def test_unknown_memory_is_an_error():
  with pytest.raises(ValueError, match="memory of 'fake' is unknown"):
    max_batch.largest(lambda _: fake_cost(1.0, None), guess=8)


@pytest.fixture(scope='module')
def cells():
  def compile_step(experiment):
    """Takes half a GiB per image of 32 x 32 pixels."""
    assert experiment.config.accumulation == 1
    height, width = experiment.config.data.size
    share = experiment.config.batch_size / experiment.mesh.size
    return fake_cost(1.0 + share * height * width / 2**11)

  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(max_batch.step_cost, 'compile_step', compile_step)
    return list(max_batch.table(
        f'{CONFIGS}/finetune.py:dataset=digits', jax.devices()[:2],
        models=('Ti/16', 'Ti/14'), resolutions=(32, 64),
        overrides=['model.dtype=bfloat16', 'model.depth=1']))


def test_the_table_has_a_cell_per_model_and_resolution(cells, capsys):
  batches = {(c['model'], c['resolution']): c['batch'] for c in cells}
  # 14.5 GiB hold 29 images of 32 pixels; Ti/14 takes 28 and 70 pixels.
  assert batches == {
      ('Ti/16', 32): 16, ('Ti/16', 64): 4, ('Ti/14', 32): 32, ('Ti/14', 64): 4}
  max_batch.show(cells, device_kind='TPU v3', unit='core')
  text = capsys.readouterr().out
  assert ['Ti/16', '16', '4'] in [line.split() for line in text.splitlines()]
  assert 'Ti/14 at 28 instead of 32, Ti/14 at 70 instead of 64' in text
  assert max_batch.line(cells[0]).startswith(
      'Ti/16 at 32: 16 fit (9.0 GiB of 15.5 GiB) | compiled in')
