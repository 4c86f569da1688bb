"""Every evaluator in a real experiment, on one device and on eight."""

import re

import jax
import numpy as np
import pytest

from tests import leaves
from tests import toy
from vit_jax import registry

pytestmark = pytest.mark.slow  # It trains models.

FEW = {'train_split': 'train[:200]'}
SECTIONS = {kind: {'name': kind, 'split': 'test[:50]', **({
    'fewshot': {**FEW, 'shots': [1, 3]}, 'knn': FEW,
    'segmentation': {**FEW, 'source': 'shapes'}}.get(kind, {}))}
            for kind in registry.available(registry.EVALUATORS)
            if kind not in ('regression', 'segmentation_head')}
SECTIONS['layer'] = {**SECTIONS['knn'], 'feature': 'mean:1'}


def build(devices, *, batch_size=25, sections=None, **change):
  return toy.build(
      devices=devices, model={'width': 16, 'dropout': 0.5},
      evals={name: {'batch_size': batch_size, **section}
             for name, section in (sections or SECTIONS).items()}, **change)


def evaluate(devices, **options):
  """Returns the metrics of all evaluators for one model on 50 images."""
  built = build(devices, **options)
  params = built.init_state().params
  # The zero-initialised head would hide the model.
  kernel = params['head']['dense']['kernel']
  values = np.random.default_rng(0).normal(size=kernel.shape)
  params['head']['dense']['kernel'] = jax.make_array_from_callback(
      kernel.shape, kernel.sharding, lambda i: values[i].astype(np.float32))
  return {f'{name}/{key}': value
          for name in built.evaluators
          for key, value in built.evaluate(name, params).metrics.items()}


def test_eight_devices_give_the_metrics_of_one():
  one = evaluate(1)  # Without padding.
  result = evaluate(8, batch_size=16)  # With padding.
  assert result == pytest.approx(one, rel=1e-4)
  assert all(value == 50 for name, value in result.items()
             if name.endswith('/examples'))
  assert 0 < one['classification/accuracy'] < one['knn/accuracy'] < 1


FEWSHOT = {'name': 'fewshot', 'batch_size': None}


@pytest.mark.parametrize(('section', 'devices', 'message'), [
    ({'name': 'knn', 'split': 'train[90%:]'}, 1,
     "'train' shares examples with it. Use a disjoint split: "
     '--config.evals.val.train_split'),
    ({'batch_size': 12}, 8,
     'evals.val.batch_size 12 does not divide over data x fsdp = 8 devices'),
    *[({'source': 'shapes'}, 1, 'The data has other classes than the model')]
    * leaves.has(registry.SOURCES['shapes']),
    ({'source': 'ciphar10'}, 1, 'No dataset'),
    ({**FEWSHOT, 'shots': [1000]}, 1,
     'evals.val needs 1000 images of each class (shots), but a '
     "class of train_split 'train' has 139."),
    ({**FEWSHOT, 'shots': [1], 'train_split': 'train[:3]'}, 1,
     'evals.val: digits train[:3] has no examples of some of the 10 classes'),
])
def test_data_that_does_not_fit_stops_a_run_at_its_start(
    section, devices, message):
  with pytest.raises(ValueError, match=re.escape(message)):
    build(devices, sections={'val': section})


def test_default_shots_are_limited_by_the_smallest_class(capsys):
  built = build(1, sections={'few': {
      **FEWSHOT, 'train_split': 'train[:160]', 'seeds': 1}})
  assert ('evals.few leaves out the shots 25: a class of train[:160] has '
          in capsys.readouterr().out)
  result = built.evaluate('few', built.init_state().params).metrics
  assert [name for name in result if name.endswith('_shot')] == [
      '1_shot', '5_shot', '10_shot']
