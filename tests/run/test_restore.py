"""Starts of runs: class names and kept heads."""

import dataclasses
import re
import typing

from etils import epath
import flax.traverse_util
import numpy as np
import pytest

from tests import in_memory
from tests import random_models
from tests import toy
from vit_jax import data
from vit_jax import fields
from vit_jax import registry
from vit_jax import schema
from vit_jax.checkpoints import config as checkpoint_config
from vit_jax.checkpoints import manager
from vit_jax.data.splits import split_strings
from vit_jax.experiment import config as config_lib
from vit_jax.experiment import config_file
from vit_jax.experiment import fit_weights
from vit_jax.run import counters as counters_lib
from vit_jax.run import evaluation
from vit_jax.run import restore

DIGITS = tuple(map(str, range(10)))
OTHER = ('x', *DIGITS[1:])
SCALE = {'mean': 0.5, 'std': 0.5}  # Otherwise that of the weights.


@pytest.fixture(scope='module')
def experiment():
  return toy.build(init={'checkpoint': 'weights', 'new': []}, data=SCALE)


def checkpoints_of(workdir):
  return manager.Checkpoints(workdir, checkpoint_config.CheckpointConfig())


def start(experiment, workdir, weights=None):
  """Returns the state and what is known of it."""
  with checkpoints_of(workdir) as checkpoints:
    return restore.restore_or_init(
        experiment, checkpoints, epath.Path(workdir), weights)


def change(experiment, *overrides):
  return dataclasses.replace(experiment, config=config_lib.resolve_with(
      config_lib.to_plain(experiment.config), overrides))


def rename(experiment, names=OTHER):
  return dataclasses.replace(experiment, dataset=dataclasses.replace(
      experiment.dataset, class_names=names))


def model_of(names=OTHER):
  model = random_models.make(
      toy.CONFIG['model'] | {'num_classes': 10}, side=8, labels=names)
  return dataclasses.replace(model, address='weights')


@pytest.mark.parametrize(('call', 'message'), [
    (lambda run, root: start(rename(run), root), '(?s)here: x.*here: 0.*new'),
    (lambda run, root: start(run, root / 'x', model_of()), 'checkpoint has ot'),
    (lambda run, _: fit_weights.check(run, rename(run)), 'earlier stage has')])
def test_other_classes_are_errors(experiment, tmp_path, call, message):
  toy.save(experiment, tmp_path, progress={'origin': 'weights'})
  with pytest.raises(ValueError, match=message):
    call(experiment, tmp_path)


def test_a_run_resumes_with_the_classes_of_its_checkpoint(experiment, tmp_path):
  toy.save(experiment, tmp_path, progress={'origin': 'weights'})
  # TFDS calls classes without names 0, 1, ...
  for same in (DIGITS, None):
    assert 'class names' not in start(
        rename(experiment, same), tmp_path)[1].message


def test_a_resumed_run_numbers_the_classes_as_its_checkpoint(
    tmp_path, monkeypatch):
  """Another file system, or an order of numbers as text, may change them."""
  def build():
    return toy.build(evals={'val': {}}, data={
        'mixture': [{'source': 'digits'}, {
            'source': 'shapes', 'split': 'train[:9]'}],
        'shapes': {'label': 'single', 'num_examples': 9}})

  def labels(experiment):
    return [list(split_strings.labels(dataset.source)) for dataset in (
        experiment.dataset, experiment.open_data('', '')[0],
        experiment.open_data('train', 'digits')[0])]

  before = build()
  toy.save(before, tmp_path)
  in_memory.number_classes_backwards(monkeypatch)
  changed = build()
  assert labels(changed) != labels(before)
  _, resumed = start(changed, tmp_path)
  assert labels(resumed.experiment) == labels(before)
  assert resumed.experiment.dataset.class_names == before.dataset.class_names
  assert 'label' not in resumed.message and not resumed.changed_evaluators
  assert data.images_seen(
      changed.config.data.mixture, resumed.experiment.dataset.source, 1446
      ) == {'digits': 1437, 'shapes': 9}


def test_a_kept_head_is_reordered_to_the_classes_of_the_data(
    experiment, tmp_path):
  names = ('3', '1', '4', '0', '5', '9', '2', '6', '8', '7')
  model, bias = model_of(names), np.float32([*map(int, names)])
  model = model.with_params({**model.params, 'head': {
      'dense': {**model.params['head']['dense'], 'bias': bias}}})
  state, _ = start(experiment, tmp_path, model)
  assert state.params['head']['dense']['bias'].tolist() == [*range(10)]


def test_the_best_is_forgotten_if_its_evaluator_measures_otherwise(tmp_path):
  experiment = toy.build(
      evals={'val': {}, 'other': {}}, checkpoint={'best': 'val/loss'})
  toy.save(experiment, tmp_path, progress={
      'best': 0.5, 'best_step': 0,
      'evals': {'val/loss': 0.5, 'removed/loss': 1.0}})
  for forgets, *changes in (
      (True, 'data.eval_ops=[]'),
      (True, 'objective.loss=sigmoid'), (True, 'evals.val.split=train'),
      (True, 'checkpoint.best=val/accuracy'),
      (False, 'data.fraction=0.5', 'data.split=train[:50%]',
       'evals.other.split=train', 'evals.val.batch_size=8', 'seed=1')):
    _, resumed = start(change(experiment, *changes), tmp_path)
    assert (resumed.counters.best is None) == forgets, changes
    assert ('The best val/loss so far, of step 0, is forgotten' in
            resumed.message) == forgets, changes
    assert resumed.counters.evals == (
        {} if 'val' in resumed.changed_evaluators else {'val/loss': 0.5})


# Keys and sections, by what their change means: `fields.NOTED` for all others.
MEANINGS = {
    fields.FREE: r'accumulation|card|checkpoint|init|log|mesh|data\.(cache_mib|'
    r'data_dir|divided_groups|num_threads|num_workers|prefetch)|evals\.val\.'
    r'(at_start|batch_size|every)|model\.(remat|unroll)|objective\.teachers?',
    fields.MEASURED: r'evals|data\.eval_ops',
    fields.REFUSED: r'data\.(holdout|mean|mixture|resolution|std|target_mean|'
    r'target_std|value_range)|objective\.resolutions',
    fields.BOTH: r'data\.(channels|dtype|group|shapes|source|table|target|'
    'val_source)'}


def blank(record, **values):
  """Returns a record with these values; others are None or such records."""
  found, hints = object.__new__(record), typing.get_type_hints(record)
  for name in (field.name for field in dataclasses.fields(record)):
    sections = [one for one in typing.get_args(hints[name] | None)
                if dataclasses.is_dataclass(one) and one is not schema.Duration]
    object.__setattr__(found, name, values.get(
        name, blank(sections[0]) if sections else None))
  return found


@pytest.mark.parametrize(('section', 'names'), [
    ('model', registry.MODELS), ('objective', registry.OBJECTIVES),
    ('optimizer', registry.OPTIMIZERS), ('evals', registry.EVALUATORS)])
def test_a_change_of_any_key_means_what_its_field_declares(
    experiment, section, names):
  for record in filter(None, map(registry.optional, names.values())):
    config = blank(config_lib.Config, **{'evals': {}, section: (
        {'val': blank(record)} if section == 'evals' else blank(record))})
    for path in flax.traverse_util.flatten_dict(config_lib.to_plain(config)):
      key, meaning = '.'.join(path), fields.on_change(config, path)
      assert meaning == next((
          each for each, pattern in MEANINGS.items()
          if re.match(rf'({pattern})\b', key)), fields.NOTED), key
      changed = config_file.Difference(path, 'old', 'new'), meaning
      for step, problems in ((0, {fields.REFUSED}), (experiment.total_steps, {
          fields.REFUSED, fields.NOTED, fields.BOTH})):
        problem = restore._problem(
            experiment, counters_lib.Counters(step=step), [changed],
            data_problem='', weights=None)
        assert bool(problem) == (meaning in problems), key
        assert (f"--config.{key}='\"old\"'" in problem) == (
            meaning == fields.REFUSED)
      assert restore._changes_metrics(*changed, name='val') == (
          meaning in (fields.MEASURED, fields.BOTH)
          or (path[0] == 'objective' and meaning != fields.FREE)), key


def test_a_run_that_stopped_early_has_ended_whatever_its_evaluator_measures(
    tmp_path):
  experiment = toy.build(
      evals={'val': {'every': {'steps': 1}}},
      checkpoint={'best': 'val/loss', 'patience': 2})
  toy.save(experiment, tmp_path, progress={
      'best': 0.5, 'best_step': 0, 'unimproved': 2})
  changed = change(experiment, 'evals.val.split=train')
  _, resumed = start(changed, tmp_path)
  assert resumed.changed_evaluators == ('val',)
  assert evaluation.is_finished(changed, resumed.counters)
  assert resumed.counters.best == 0.5


def test_only_a_kept_head_has_the_classes_of_the_data(experiment, tmp_path):
  for names in ((), DIGITS):
    assert start(experiment, tmp_path, model_of(names))[1].message.count(
        'the checkpoint (weights) has no class names') == (not names)
  assert start(toy.build(
      init={'checkpoint': 'weights'}, data=SCALE), tmp_path, model_of())
  fit_weights.check(experiment, experiment)  # Of an earlier stage.
