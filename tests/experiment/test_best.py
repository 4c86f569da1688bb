"""The default metric of the best checkpoint needs a validation split."""

import dataclasses

import pytest

from tests import toy
from vit_jax import data
from vit_jax.experiment import config as config_lib
from vit_jax.experiment import evaluators

TEST = {'every': {'steps': 1}}


def _choose(splits, *, split='train', evals=None, multi_label=False, **section):
  config = config_lib.resolve(toy.config(
      evals={'test': TEST} if evals is None else evals, checkpoint=section))
  dataset = dataclasses.replace(
      data.open_dataset(config.data), splits=splits, split=split,
      multi_label=multi_label)
  chosen = evaluators.choose_best(config, dataset, objective_metrics=())
  return chosen.checkpoint.best, {
      name: one.split for name, one in chosen.evals.items()}


@pytest.mark.parametrize(('splits', 'options', 'best'), [
    (('train', 'test'), {}, ''),
    (('train', 'val', 'test'), {}, 'val/accuracy'),
    (('train', 'val', 'test'), {'multi_label': True}, 'val/precision_at_1'),
    (('train', 'val', 'test'), {'split': 'train+val[:50%]'}, ''),
    (('train', 'val', 'test'), {'best': ''}, ''),
    (('train', 'val', 'test'), {'best': 'test/loss'}, 'test/loss'),
    (('train', 'val', 'test'), {'evals': {'test': {}}}, ''),
    (('train', 'val', 'test'), {'evals': {'val': TEST}}, 'val_split/accuracy'),
    (('train', 'validation', 'test'), {'evals': {
        'few': {'name': 'fewshot', **TEST},
        'dev': {'split': 'validation', **TEST}}}, 'dev/accuracy')])
def test_the_best_checkpoint_is_chosen_on_a_validation_split(
    splits, options, best):
  chosen, evals = _choose(splits, **options)
  assert chosen == best
  if chosen and not options.get('best'):
    assert evals[best.split('/')[0]] in ('val', 'validation')


def test_patience_without_a_validation_split_is_an_error():
  with pytest.raises(ValueError, match='checkpoint.best=EVALUATOR/METRIC'):
    _choose(('train', 'test'), patience=2)
