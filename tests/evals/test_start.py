"""Evaluators that the data do not suit are found before training."""

import re

import pytest

from tests import toy

FEWSHOT = {'name': 'fewshot', 'batch_size': None}


def build(section, devices=1):
  return toy.build(devices=devices, evals={
      'val': {'batch_size': 25, **section}})


@pytest.mark.parametrize(('section', 'devices', 'message'), [
    ({'name': 'knn', 'split': 'train[90%:]'}, 1,
     "'train' shares examples with it. Use a disjoint split: "
     '--config.evals.val.train_split'),
    ({'batch_size': 12}, 8,
     'evals.val.batch_size 12 does not divide over data x fsdp = 8 devices'),
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
    build(section, devices)


def test_default_shots_are_limited_by_the_smallest_class(capsys):
  built = build({**FEWSHOT, 'train_split': 'train[:160]', 'seeds': 1})
  assert ('evals.val leaves out the shots 25: a class of train[:160] has '
          in capsys.readouterr().out)
  result = built.evaluate('val', built.init_state().params).metrics
  assert [name for name in result if name.endswith('_shot')] == [
      '1_shot', '5_shot', '10_shot']
