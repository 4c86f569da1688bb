"""A distillation run: its teacher is neither trained nor saved."""

import dataclasses
import json
import shutil

import jax
import numpy as np
import pytest

from tests import leaves
from tests import random_models
from tests import toy
from vit_jax import __main__ as main
from vit_jax import run as run_lib
from vit_jax import tree
from vit_jax.checkpoints import items
from vit_jax.checkpoints import paths
from vit_jax.inference import load as load_lib
from vit_jax.weights import open as open_lib

pytestmark = pytest.mark.slow  # It trains models.


@pytest.fixture(scope='module')
def trained(tmp_path_factory):
  path = tmp_path_factory.mktemp('distill')
  teacher = random_models.save_near_initial(
      path / 'teacher', num_classes=10, resolution=12, width=16, depth=1,
      num_heads=4, mlp_dim=16, patch=4)
  experiment = toy.build(
      devices=2, total={'steps': 6}, averaging=0.5, mesh={'fsdp': 2},
      objective={'name': 'distill', 'teacher': str(teacher), 'weight': 0.5,
                 'feature_weight': 0.1},
      data={'mixup': leaves.MIXUP},
      evals={'test': {'split': 'test', 'batch_size': 120},
             'loss': {'name': 'objective', 'batch_size': 120}},
      checkpoint={'every': {'steps': 3}, 'keep': 2})
  return teacher, path / 'run', experiment, run_lib.train(
      experiment, path / 'run')


def test_the_teacher_is_neither_trained_nor_saved(trained):
  teacher, workdir, experiment, summary = trained
  model = tree.flatten(experiment.model_params)
  assert tree.flatten(open_lib.open(workdir).shapes).keys() == model.keys()
  assert experiment.num_trainable == summary['parameters'] == (
      tree.num_elements(model))
  state = experiment.init_state()
  batch = next(experiment.batches(start_step=0))
  state, _ = experiment.train_step(state, batch)
  for params in (state.params, state.average):
    jax.tree.map(np.testing.assert_array_equal, params['teacher']['0'],
                 load_lib.load(teacher, log=None).params)
  assert 0 <= summary['metrics']['loss/agreement'] <= 1


def test_the_projection_and_the_head_learn(trained):
  _, workdir, experiment, summary = trained
  initial, final = (tree.flatten(params) for params in (
      experiment.init_state().params, items.read_params(paths.find(workdir))))
  for name in ('head/dense/kernel', 'projector/kernel'):
    assert np.abs(final[name] - initial[name]).max() > 1e-4, name
  assert summary['metrics']['loss/features'] > 0


def test_a_resumed_run_equals_an_uninterrupted_one(trained, tmp_path):
  resumed = toy.copy_at(trained[1], tmp_path / 'run', step=3)
  run_lib.train(trained[2], resumed)
  jax.tree.map(np.testing.assert_array_equal, *(
      items.read_params(paths.find(path)) for path in (trained[1], resumed)))


def test_a_run_does_not_resume_with_another_teacher(trained, tmp_path):
  resumed = toy.copy_at(trained[1], tmp_path / 'run', step=3)
  (teacher,) = trained[2].teachers
  other = dataclasses.replace(
      teacher, read=lambda: jax.tree.map(lambda x: x + 1, teacher.read()))
  with pytest.raises(ValueError, match='not those that the run'):
    run_lib.train(dataclasses.replace(trained[2], teachers=(other,)), resumed)


def test_evaluation_reports_the_loss_of_the_training(trained, tmp_path):
  _, workdir, _, summary = trained
  assert main.main(['evaluate', f'--workdir={workdir}', '--evaluators=loss',
                    f'--json={tmp_path}/found.json']) == 0
  found = json.loads((tmp_path / 'found.json').read_text())['metrics']
  assert found == pytest.approx({
      name: value for name, value in summary['metrics'].items()
      if name.startswith('loss/')}, rel=1e-4)


def test_evaluation_notes_another_teacher(trained, capsys):
  teacher, workdir, *_ = trained
  model = load_lib.load(teacher, log=None)
  kept = teacher.rename(teacher.with_name('kept'))
  try:
    model.with_params(jax.tree.map(lambda x: x + 1, model.params)).save(teacher)
    assert main.main(['evaluate', f'--workdir={workdir}',
                      '--evaluators=loss']) == 0
  finally:
    shutil.rmtree(teacher)
    kept.rename(teacher)
  assert 'note: The teachers' in capsys.readouterr().out


def test_evaluation_of_predictions_needs_no_teacher(trained, capsys):
  teacher, workdir, _, summary = trained
  moved = teacher.rename(teacher.with_name('moved'))
  try:
    assert main.main(['evaluate', f'--workdir={workdir}',
                      '--evaluators=test']) == 0
  finally:
    moved.rename(teacher)
  printed = capsys.readouterr().out
  assert f'{100 * summary["metrics"]["test/accuracy"]:.2f} %' in printed
  assert 'note: The teachers' not in printed
