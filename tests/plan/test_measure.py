"""What a step needs: against sums by hand, and the compiler's own count."""

import dataclasses

import jax
import pytest

from vit_jax.experiment import build as experiment_lib
from vit_jax.experiment import config as config_lib
from vit_jax.plan import measure
from vit_jax.plan.compiled import collectives

DEPTH = 4
CONFIG = {
    'total': {'steps': 4}, 'batch_size': 16, 'accumulation': 1,
    'model': {'width': 64, 'depth': DEPTH, 'num_heads': 1, 'mlp_dim': 256,
              'patch': 2, 'pooling': 'average', 'remat': 'none'},
    'data': {'source': 'digits', 'resolution': 8},
    'optimizer': {'name': 'adam', 'learning_rate': 0.1,
                  'schedule': {'name': 'constant'}},
}


def build(**model):
  config = config_lib.resolve(
      {**CONFIG, 'model': {**CONFIG['model'], **model}})
  return experiment_lib.build(config, devices=jax.devices()[:2])


@pytest.fixture(scope='module')
def scanned():
  return measure.measure(build())


@pytest.fixture(scope='module')
def unrolled():
  return measure.measure(build(unroll=DEPTH))


def test_memory_is_that_of_shapes_by_hand(scanned):
  width, mlp_dim, patch, classes = 64, 256, 2 * 2 * 3, 10
  layer = (4 * (width * width + width)  # Query, key, value, out.
           + 2 * width * mlp_dim + mlp_dim + width + 4 * width)
  params = 4 * (DEPTH * layer + (patch + 1 + 16) * width + 2 * width
                + (width + 1) * classes)
  memory = scanned.memory
  assert memory.params_bytes == params
  # Two moments, and some numbers: counters, running metrics.
  assert 2 * params < memory.optimizer_bytes < 2 * params + 1000
  # Of two devices: eight images of 8 x 8, their labels and their mask.
  assert memory.batch_bytes == 8 * (8 * 8 * 3 + 4 + 4)
  assert memory.total_bytes == sum((
      memory.params_bytes, memory.optimizer_bytes, memory.batch_bytes,
      memory.activations_bytes, memory.outputs_bytes, memory.other_bytes))
  assert scanned.fits
  assert memory.share == memory.total_bytes / memory.capacity_bytes


def test_our_count_is_the_compilers_of_an_unrolled_step(unrolled):
  # It counts what is added and compared as well.
  assert unrolled.compiler_flops == pytest.approx(unrolled.flops, rel=0.08)
  # Products alone. The gradient of the images is not computed, and small.
  assert unrolled.work.flops == pytest.approx(unrolled.flops, rel=0.02)


def test_the_compiler_counts_a_scanned_layer_once_and_we_as_often_as_it_runs(
    scanned, unrolled):
  assert scanned.compiler_flops < 0.4 * unrolled.compiler_flops
  assert scanned.work.flops == pytest.approx(unrolled.work.flops, rel=0.01)
  assert scanned.flops == unrolled.flops
  assert scanned.work.unknown_loops == 0


def test_bytes_are_about_as_many_as_the_compiler_counts(unrolled):
  assert unrolled.work.bytes == pytest.approx(unrolled.compiler_bytes, rel=0.2)


def test_gradients_are_what_two_replicas_share(unrolled):
  (kind, total), = collectives.total(unrolled.collectives).items()
  assert kind == 'all-reduce'
  assert total.bytes == pytest.approx(unrolled.memory.params_bytes, rel=0.01)


@pytest.mark.parametrize(('remat', 'again'), [
    ('none', 0),
    # Queries times keys, and weights times values, of each layer.
    ('dots', DEPTH * 2 * 2 * 16 * 16 * 64),
])
def test_what_rematerialisation_adds_is_its_products(remat, again):
  assert measure.recomputed_flops_per_image(build(remat=remat)) == again


class Refused:
  """Stands where a jitted step is compiled, and is not."""

  def __init__(self, message):
    self._message = message

  def lower(self, *_):
    return self

  def compile(self):
    raise jax.errors.JaxRuntimeError(self._message)


def test_a_step_that_the_compiler_refuses_does_not_fit_by_what_it_says():
  refusing = Refused(
      'RESOURCE_EXHAUSTED: Ran out of memory on HBM, the total memory required '
      'for HLO temporaries (103.61G) exceeds available HBM (15.48G).')
  experiment = dataclasses.replace(build(), build_step=lambda _: refusing)
  refused = measure.measure(experiment)
  assert refused.fits is False
  assert refused.memory.total_bytes == round(103.61 * 2**30)
  assert refused.memory.share == pytest.approx(103.61 / 15.48)
  assert (refused.work, refused.memory.activations_bytes) == (None, None)
  assert refused.flops > 0  # Which needs no compiler.


def test_another_refusal_stays_an_error():
  refusing = Refused('INTERNAL: something else')
  experiment = dataclasses.replace(build(), build_step=lambda _: refusing)
  with pytest.raises(jax.errors.JaxRuntimeError, match='something else'):
    measure.measure(experiment)
