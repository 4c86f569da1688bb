"""Feature distillation: the loss, what teachers see, and a run."""

import dataclasses
import functools
import json
import re

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests import random_models
from tests import toy
from vit_jax import __main__ as main
from vit_jax import data
from vit_jax import load
from vit_jax import objectives
from vit_jax import run as run_lib
from vit_jax import tree
from vit_jax.checkpoints import items
from vit_jax.checkpoints import paths
from vit_jax.data import value_scale as value_scale_lib
from vit_jax.extras.distill import features as features_lib
from vit_jax.extras.distill import teachers as teachers_lib
from vit_jax.models import factory

RNG = np.random.default_rng(0)
IMAGES = jnp.asarray(RNG.uniform(size=(3, 16, 16, 3)), jnp.float32)
BATCH = {'image': IMAGES, 'mask': jnp.ones(3)}
KEY = jax.random.key(0)
STUDENT = {'width': 8, 'depth': 1, 'num_heads': 2, 'mlp_dim': 16, 'patch': 4}


def make_teacher(side=24, **settings):
  """Returns a teacher with a grid of 3 x 3 and classes of its own."""
  return random_models.make(
      {**random_models.TINY, **settings}, side=side, mean=(0.1, 0.2, 0.3),
      std=(0.4, 0.5, 0.6), labels=tuple('abcde'))


@pytest.fixture(scope='module')
def teachers():
  return make_teacher(), make_teacher(side=16, width=6, patch=4)


def build(teachers, num_classes=0, **section):
  """Returns the objective, and parameters of everything."""
  config = objectives.parse({
      'name': 'distill_features', 'teachers': ['x'] * len(teachers),
      **section})
  model = config.build_model(
      factory.parse(STUDENT), image_shape=(16, 16, 3), num_classes=num_classes)
  objective = config.build(objectives.Context(
      model, value_scale=value_scale_lib.ValueScale(0.5, 0.25),
      teachers=teachers, dataset=data.Metadata(num_classes=num_classes)))
  params = random_models.randomize(model, IMAGES, scale=0.5, seed=1)
  added = nn.unbox(objective.extra_params(
      params, KEY, jax.ShapeDtypeStruct(IMAGES.shape, 'uint8')))
  assert jax.tree.map(jnp.shape, added['teacher']) == {
      str(i): jax.tree.map(np.shape, teacher.params)
      for i, teacher in enumerate(teachers)}
  projector = jax.tree.map(
      lambda x: RNG.normal(size=x.shape), added['projector'])
  return objective, model, jax.tree.map(
      lambda x: jnp.asarray(x, jnp.float32), {
          **params, 'projector': projector, 'teacher': {
              str(i): teacher.params for i, teacher in enumerate(teachers)}})


def cosine(x, y):
  return 1 - (x * y).sum(-1) / (
      np.linalg.norm(x, axis=-1) * np.linalg.norm(y, axis=-1))


def smooth_l1(x, y):
  d = np.abs(x - y)
  return np.where(d < 1, d**2 / 2, d - 0.5).mean(-1)


def test_the_loss_equals_its_formula(teachers):
  objective, model, params = build(teachers, patch_weight=0.7, smooth_l1=0.2)
  loss, terms = jax.jit(functools.partial(objective, train=False))(
      params, BATCH, KEY)
  own = jax.jit(model.apply)({'params': params}, (IMAGES - 0.5) / 0.25)
  pooled, patches = np.zeros(3), np.zeros(3)
  for i, teacher in enumerate(teachers):
    scaled = (IMAGES - np.float32([0.1, 0.2, 0.3])) / np.float32(
        [0.4, 0.5, 0.6])
    taught = teacher(jax.image.resize(
        scaled, (3, *teacher.resolution, 3), 'bilinear'))
    layers = params['projector'][str(i)]
    pooled += cosine(
        own['representation'] @ layers['pooled']['kernel']
        + layers['pooled']['bias'], taught['representation'])
    rows = 24 // 8 if i == 0 else 16 // 4
    grid = jax.image.resize(
        taught['tokens'][:, 1:].reshape(3, rows, rows, -1),
        (3, 4, 4, taught['tokens'].shape[-1]), 'bilinear')
    found = own['tokens'][:, 1:].reshape(3, 4, 4, -1) @ (
        layers['patches']['kernel']) + layers['patches']['bias']
    patches += (0.8 * cosine(found, grid)
                + 0.2 * smooth_l1(found, grid)).mean((1, 2))
  np.testing.assert_allclose(terms['pooled'], pooled / 2, rtol=1e-4)
  np.testing.assert_allclose(terms['patches'], patches / 2, rtol=1e-4)
  np.testing.assert_allclose(loss, (pooled + 0.7 * patches) / 2, rtol=1e-4)
  assert sorted(terms) == sorted(objective.metrics)


def test_the_loss_of_the_labels_is_added(teachers):
  objective, _, params = build(
      teachers, 3, label_weight=0.5, label_smoothing=0.1)
  batch = {**BATCH, 'label': jnp.asarray([0, 2, 1])}
  loss, terms = objective(params, batch, KEY)
  logits = objective._context.apply(params, IMAGES, KEY)['logits']
  targets = 0.9 * jax.nn.one_hot(batch['label'], 3) + 0.1 / 3
  labels = -(targets * jax.nn.log_softmax(logits)).sum(-1)
  np.testing.assert_allclose(
      loss, terms['pooled'] + terms['patches'] + 0.5 * labels, rtol=1e-5)
  np.testing.assert_array_equal(
      terms['accuracy'], logits.argmax(-1) == batch['label'])
  assert objective.metrics == ('pooled', 'patches', 'accuracy')


@pytest.mark.parametrize(('several', 'loss'), [
    (False, 'softmax'), (True, 'sigmoid')])
def test_the_loss_of_the_labels_is_saved_with_a_run(several, loss):
  section = {'name': 'distill_features', 'teachers': ['x'], 'label_weight': 1.0}
  resolved = objectives.parse(section).resolve(
      data.Metadata(num_classes=3, multi_label=several))
  assert resolved.loss == resolved.label_loss == loss


def test_gradients_reach_the_model_and_the_projections_only(teachers):
  objective, _, params = build(teachers[:1])
  grads = tree.flatten(jax.jit(jax.grad(lambda p: objective(
      p, BATCH, KEY)[0].sum()))(params))
  for name, grad in grads.items():
    is_used = not name.startswith(('teacher/', 'head/'))
    assert bool(np.abs(grad).max(initial=0)) == is_used, name


def test_patches_without_weight_are_left_out(teachers):
  objective, _, params = build(teachers[:1], patch_weight=0)
  assert tuple(objective.metrics) == ('pooled',)
  assert params['projector']['0'].keys() == {'pooled'}
  loss, terms = jax.jit(objective)(params, BATCH, KEY)
  np.testing.assert_array_equal(loss, terms['pooled'])


@pytest.mark.parametrize('position', ['learned', 'sincos'])
def test_a_teacher_sees_images_of_a_resolution(position):
  teacher = make_teacher(width=12, position=position)
  resized = teachers_lib.resize(teacher, (16, 32))
  assert resized.resolution == (16, 32)
  assert jax.tree.map(np.shape, resized.read()) == jax.tree.map(
      lambda x: x.shape, resized.shapes)
  scaled = jax.image.resize(
      (IMAGES - np.float32([0.1, 0.2, 0.3])) / np.float32([0.4, 0.5, 0.6]),
      (3, 16, 32, 3), 'bilinear')
  np.testing.assert_allclose(
      jax.jit(functools.partial(teachers_lib.outputs, resized))(
          resized.read(), IMAGES)['tokens'],
      teacher(scaled)['tokens'], rtol=1e-4, atol=1e-4)


def test_teachers_have_their_own_resolution_by_default():
  weights = make_teacher()
  weights = dataclasses.replace(
      weights, preprocess=weights.preprocess.resized((16, 16)))
  for resolutions, side in (((), 16), ((32,), 32)):
    teacher, = objectives.parse({
        'name': 'distill_features', 'teachers': ['x'],
        'resolutions': resolutions}).open_teachers(lambda *_: weights)
    assert teacher.resolution == (side, side)


@pytest.mark.parametrize(('section', 'words'), [
    ({'teachers': ['x'], 'resolutions': [8, 8]}, '1 teachers, but 2 reso'),
    ({'teachers': ['x'], 'smooth_l1': 1.5}, 'smooth_l1 must be')])
def test_a_wrong_section_is_an_error(section, words):
  with pytest.raises(ValueError, match=re.escape(words)):
    objectives.parse({'name': 'distill_features', **section})


def test_teachers_or_their_outputs_are_required():
  with pytest.raises(ValueError, match=r'needs .*teachers=PATH.*--teacher='):
    toy.build(objective={'name': 'distill_features'})


def test_models_without_patches_need_no_weight_of_patches():
  teacher = random_models.make({**random_models.RESNET}, side=32)
  section = {'name': 'distill_features', 'teachers': ['x']}
  with pytest.raises(ValueError, match=r'(?s)teacher x.*patch_weight=0'):
    objectives.parse(section).open_teachers(lambda *_: teacher)
  opened, = objectives.parse(
      {**section, 'patch_weight': 0}).open_teachers(lambda *_: teacher)
  assert opened.resolution == (32, 32)
  with pytest.raises(ValueError, match=r'no patches.*patch_weight=0'):
    objectives.parse(section).build_model(
        factory.parse(random_models.RESNET), image_shape=(8, 8, 3),
        num_classes=0)


def test_an_unsuitable_resolution_names_the_teacher(tmp_path):
  make_teacher().save(tmp_path / 'teacher')
  with pytest.raises(ValueError, match='The teacher .*teacher: '):
    toy.build(objective={
        'name': 'distill_features', 'teachers': [str(tmp_path / 'teacher')],
        'resolutions': [20]})


@pytest.fixture(scope='module')
def trained(tmp_path_factory):
  """A run of 20 steps from two teachers, one with classes of its own."""
  path = tmp_path_factory.mktemp('distill_features')
  for name, settings in (
      ('first', {'num_classes': 3, 'patch': 4, 'resolution': 12}),
      ('second', {'num_classes': 0, 'patch': 8, 'resolution': 16})):
    random_models.save_near_initial(
        path / name, width=16, depth=1, num_heads=4, mlp_dim=16, **settings)
  experiment = toy.build(
      devices=2, mesh={'fsdp': 2}, averaging=0.5, total={'steps': 20},
      objective={
          'name': 'distill_features', 'teachers': [
              str(path / 'first'), str(path / 'second')]},
      optimizer={'learning_rate': 1e-2},
      evals={'loss': {'name': 'objective', 'batch_size': 120},
             'knn': {'name': 'knn', 'train_split': 'train[:200]',
                     'batch_size': 120}},
      log={'every': {'steps': 1}},
      checkpoint={'every': {'steps': 5}, 'keep': 4, 'best': ''})
  return path, experiment, run_lib.train(experiment, path / 'run')


@pytest.mark.slow  # It trains a model.
def test_the_loss_falls(trained):
  path, _, summary = trained
  losses = [row['train/loss'] for row in toy.rows(path / 'run')
            if 'train/loss' in row]
  assert np.mean(losses[-3:]) < 0.8 * np.mean(losses[:3])
  metrics = summary['metrics']
  assert metrics['loss/loss'] == pytest.approx(
      metrics['loss/pooled'] + metrics['loss/patches'], rel=1e-4)
  assert 'knn/accuracy' in metrics


@pytest.mark.slow  # It trains a model.
def test_the_student_is_a_model_like_any_other(trained):
  path, _, _ = trained
  model = load(path / 'run', log=None)
  assert not {'teacher', 'projector'} & model.params.keys()
  assert model.features(
      np.zeros((2, 8, 8, 3), np.uint8), layer='patches').shape == (2, 2, 2, 8)
  tuned = toy.build(init={'checkpoint': str(path / 'run')}, data={
      'mean': (0.5,) * 3, 'std': (0.5,) * 3})
  state = tree.flatten(tuned.init_state().params)
  for name, array in tree.flatten(model.params).items():
    if not name.startswith('head/'):
      np.testing.assert_array_equal(state[name], array, err_msg=name)
  stored = items.read_params(paths.find(path / 'run'))
  assert 'teacher' not in stored
  assert 'projector' in stored


@pytest.mark.slow  # It trains a model.
def test_a_resumed_run_equals_an_uninterrupted_one(trained, tmp_path):
  path, experiment, _ = trained
  resumed = toy.copy_at(path / 'run', tmp_path / 'run', step=15)
  run_lib.train(experiment, resumed)
  random_models.assert_same(*(
      items.read_params(paths.find(run)) for run in (path / 'run', resumed)))


@pytest.mark.slow  # It trains a model.
def test_evaluation_of_features_needs_no_teacher(trained, capsys):
  path, _, summary = trained
  moved = (path / 'first').rename(path / 'moved')
  try:
    assert main.main(['evaluate', f'--workdir={path / "run"}',
                      '--evaluators=knn']) == 0
  finally:
    moved.rename(path / 'first')
  assert f'{100 * summary["metrics"]["knn/accuracy"]:.2f} %' in (
      capsys.readouterr().out)


@pytest.mark.slow  # It evaluates a model.
def test_evaluation_reports_the_loss_with_teachers(trained):
  path, _, summary = trained
  assert main.main(['evaluate', f'--workdir={path / "run"}',
                    '--evaluators=loss', f'--json={path}/found.json']) == 0
  found = json.loads((path / 'found.json').read_text())['metrics']
  assert found == pytest.approx({
      name: value for name, value in summary['metrics'].items()
      if name.startswith('loss/')}, rel=1e-4)


def test_vectors_on_the_same_grid_are_not_resized():
  features = jnp.ones((2, 3, 3, 5))
  assert features_lib.match_grid(features, (2, 3, 3, 8)) is features
