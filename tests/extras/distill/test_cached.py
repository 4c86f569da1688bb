"""Stored outputs of teachers replace the teachers, and fit their images."""

import io
import re

import jax
import jax.numpy as jnp
import numpy as np
from PIL import Image
import pytest

from tests import pictures
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
from vit_jax.data import examples
from vit_jax.data.splits import split_strings
from vit_jax.experiment import build as build_lib
from vit_jax.experiment import fit_weights
from vit_jax.experiment import load_config
from vit_jax.inference import load as load_lib

# The leaf that writes the outputs.
prepare = pytest.importorskip('vit_jax.extras.curation.prepare')
taught_lib = pytest.importorskip('vit_jax.extras.curation.taught')
OPS = [{'op': 'inception_crop', 'area': [0.3, 0.6]}, {'op': 'flip'}]
RESIZE = [{'op': 'resize'}]


@pytest.fixture(scope='module', name='path')
def _path(tmp_path_factory):
  """20 images, teachers with and without patches, and prepared data."""
  path = tmp_path_factory.mktemp('cached')
  pictures.save_all(path / 'photos', [
      f'{"test" if i < 4 else "train"}/{"ab"[i % 2]}/{i}.png'
      for i in range(20)], side=24)
  for name, side in (('first', 12), ('second', 8)):
    random_models.save_near_initial(
        path / name, width=8, depth=1, num_heads=2, mlp_dim=16, num_classes=3,
        patch=4, resolution=side)
  random_models.make({**random_models.RESNET}, side=32).save(path / 'resnet')
  assert run(path, '--crops=2') == 0
  return path


def run(path, *flags, to='tfds', teacher='first,second'):
  teachers = ','.join(str(path / name) for name in teacher.split(','))
  return main.main([
      'data', 'prepare', f'--source={path}/photos', f'--to={path / to}',
      '--name=mine', f'--teacher={teachers}', '--config.data.resolution=8',
      f'--set=train_ops={OPS}'.replace("'", '"'), *flags])


def build(path, to='tfds', section=(), **changes):
  return toy.build(**{
      'objective': {'name': 'distill_features', **dict(section)},
      'evals': {'held_out': {'name': 'objective', 'split': 'test'}}, **changes,
      'data': {'source': 'mine:1.0.0', 'data_dir': str(path / to),
               'train_ops': RESIZE, **changes.get('data', {})}})


def opened(path, to='tfds', split='train'):
  return data.open_dataset(data.parse({
      'source': 'mine', 'split': split, 'data_dir': str(path / to)}))


def rows(dataset):
  """Returns pixels and outputs of all examples."""
  name, = dataset.fields
  found = [dataset[i] for i in range(len(dataset))]
  return np.stack([np.asarray(Image.open(io.BytesIO(one['image'])))
                   for one in found]), np.stack([one[name] for one in found])


@pytest.mark.parametrize('weight', [1.0, 0.0])
def test_the_loss_is_that_of_running_teachers(path, weight):
  stored = build(path, section={'patch_weight': weight})
  assert not stored.teachers
  assert stored.config.objective.teachers == (
      str(path / 'first'), str(path / 'second'))
  assert stored.config.objective.resolutions == (12, 8)
  state = stored.init_state()
  assert 'teacher' not in state.params
  batches = stored.batches(start_step=0)
  batch = stored.prepare(next(batches), stored.key)
  batches.close()
  models = [load(path / name, log=None) for name in ('first', 'second')]
  running = objectives.parse({
      'name': 'distill_features', 'teachers': ['x', 'y'],
      'patch_weight': weight}).build(objectives.Context(
          stored.model, value_scale=stored.config.data.value_scale,
          teachers=tuple(models)))
  loss, terms = stored.objective(state.params, batch, stored.key)
  expected, others = running({**state.params, 'teacher': jax.tree.map(
      jnp.asarray, {str(i): model.params for i, model in enumerate(models)})},
                             batch, stored.key)
  np.testing.assert_allclose(loss, expected, rtol=2e-3)
  for name, values in others.items():
    np.testing.assert_allclose(terms[name], values, rtol=2e-3, atol=1e-4)


def test_crops_depend_on_seed_key_and_number_only(path):
  train = opened(path)
  images, outputs = rows(train)
  assert images.shape == (32, 8, 8, 3)
  assert len({image.tobytes() for image in images}) == 32
  assert len({row.tobytes() for row in outputs}) == 32
  assert run(path, '--crops=3', '--set=num_examples=5', to='fewer') == 0
  fewer = {image.tobytes() for image in rows(opened(path, 'fewer'))[0]}
  assert len(fewer & {image.tobytes() for image in images}) == 10
  assert run(path, '--crops=2', '--seed=1', to='seed') == 0
  assert not (rows(opened(path, 'seed'))[0] == images).all((1, 2, 3)).any()
  assert run(path, '--crops=3', '--set=split=all', to='all') == 0
  assert [len(opened(path, 'all', name)) for name in ('train', 'test')] == [
      48, 12]
  # Crops of an image are one group, on one side of a held-out part.
  groups = split_strings.groups(train.source)
  assert (groups[::2] == groups[1::2]).all()
  assert len({*groups.tolist()}) == 16


def test_one_image_is_that_of_evaluation(path):
  dataset = opened(path, split='test')
  config = data.parse({'source': str(path / 'photos'), 'split': 'test',
                       'resolution': 8})
  there = examples.LoadExample(data.open_dataset(config), config, train=False)
  for index, image in enumerate(rows(dataset)[0]):
    np.testing.assert_array_equal(image, there.image(index))
    assert dataset[index]['label'] == there.dataset[index]['label']


def test_an_interrupted_command_continues_with_the_next_shard(path, tmp_path):
  settings = {'source': str(path / 'photos'), 'resolution': 8}
  taught, outputs = taught_lib.open_outputs(
      settings, teachers=str(path / 'first'), resolutions='', patches=False,
      crops=1, seed=0, runner='local')

  def plan(to):
    return prepare.plan(
        settings, splits=[], to=str(to), name='mine', version='1.0.0',
        shard_bytes=1000, taught=taught)

  def write(to, function):
    prepare.begin(plan(to))
    prepare.write(plan(to), runner='local', flags=[], outputs=function)
    return prepare.finish(plan(to))

  calls = []

  def stop(images):
    calls.append(len(images))
    if len(calls) > 3:
      raise KeyboardInterrupt
    return outputs(images)

  stop.batch_size = outputs.batch_size
  with pytest.raises(KeyboardInterrupt):
    write(tmp_path / 'a', stop)
  assert prepare.begin(plan(tmp_path / 'a')) == 3
  write(tmp_path / 'a', outputs)
  write(tmp_path / 'b', outputs)
  for one, other in zip(*(rows(opened(tmp_path, to)) for to in 'ab')):
    np.testing.assert_array_equal(one, other)
  with pytest.raises(ValueError, match=r'no patch features.*patch_weight=0'):
    build(tmp_path, 'a')


@pytest.mark.slow  # It trains a model.
def test_a_resumed_run_is_exact(path, tmp_path):
  settings = {'total': {'steps': 6}, 'checkpoint': {
      'every': {'steps': 2}, 'keep': 3, 'best': ''}}
  experiment = build(path, **settings)
  summary = run_lib.train(experiment, tmp_path / 'run')
  assert summary['metrics']['held_out/examples'] == 4
  resumed = toy.copy_at(tmp_path / 'run', tmp_path / 'resumed', step=2)
  run_lib.train(experiment, resumed)
  random_models.assert_same(*(
      items.read_params(paths.find(one))
      for one in (tmp_path / 'run', resumed)))
  assert main.main(['evaluate', f'--workdir={resumed}']) == 0
  assert run(path, '--crops=2', '--teacher-resolution=12,8', to='swapped',
             teacher='second,first') == 0
  with pytest.raises(ValueError, match='not those that the run started with'):
    run_lib.train(build(path, 'swapped', **settings),
                  toy.copy_at(tmp_path / 'run', tmp_path / 'other', step=2))


@pytest.mark.parametrize(('changes', 'words'), [
    ({'data': {'train_ops': OPS}}, 'data.train_ops has InceptionCrop'),
    ({'data': {'train_ops': [*RESIZE, {'op': 'random_erasing'}]}},
     'data.train_ops has RandomErasing'),
    ({'data': {'eval_ops': [{'op': 'resize', 'shorter': 10},
                            {'op': 'central_crop'}]}}, 'data.eval_ops has'),
    ({'data': {'resolution': 12}}, '--config.data.resolution=8'),
    ({'data': {'mixup': 0.2}}, 'data.mixup and data.cutmix blend'),
    ({'section': {'teachers': ['x']}}, 'objective.teachers is x, but the data'),
    ({'section': {'teachers': ['x', 'y'], 'resolutions': [4, 4]}}, 'is x,y')])
def test_a_run_that_contradicts_the_data_is_an_error(path, changes, words):
  with pytest.raises(ValueError, match=re.escape(words)):
    build(path, **changes)


def test_all_stages_of_photos_learn_from_stored_outputs(path):
  stages = load_config.load(
      'configs/photos.py:source=mine:1.0.0,objective=distill_features,'
      'labelled=1', [
          f'data.data_dir={path}/tfds', 'data.resolution=8', 'model.patch=4',
          'data.split=train', 'evals.test.split=test', 'batch_size=16'])
  for config in stages.values():
    experiment = build_lib.build(config, devices=jax.devices()[:1])
    assert [*experiment.evaluators] == ['test']
    assert len(experiment.config.objective.teachers) == 2
    assert not experiment.teachers


def test_evaluation_needs_outputs_of_the_same_teachers_and_size(path):
  assert run(path, '--name=large', '--config.data.resolution=12') == 0
  for source in (str(path / 'photos'), 'large:1.0.0'):
    with pytest.raises(ValueError, match='held_out.*without the outputs of'):
      build(path, evals={'held_out': {
          'name': 'objective', 'source': source, 'split': 'test'}})
  mixed = data.open_dataset(data.parse({
      'data_dir': str(path / 'tfds'), 'resolution': 8, 'mixture': [
          {'source': f'{name}:1.0.0'} for name in ('mine', 'large')]}))
  assert not mixed.fields


def test_a_run_starts_from_weights_without_projections(path):
  weights = load_lib.create(num_classes=2, resolution=8, **toy.CONFIG['model'])
  experiment = build(path)
  state, _ = fit_weights.start(experiment, weights)
  expected = tree.flatten(weights.params)
  for name, found in tree.flatten(state.params).items():
    if not name.startswith(('projector/', 'head/')):
      np.testing.assert_array_equal(found, expected[name], err_msg=name)


def test_other_objectives_ignore_the_outputs(path):
  experiment = build(path, objective={'name': 'supervised'}, evals={},
                     data={'train_ops': [*RESIZE, {'op': 'flip'}]})
  assert experiment.abstract_batch.keys() == {'image', 'label', 'mask'}


@pytest.mark.parametrize(('flags', 'words'), [
    (['--teacher-resolution=8'], '2 teachers, but 1 resolutions'),
    (['--teacher-resolution=a,b'], 'takes pixels, one number'),
    (['--crops=2', '--set=train_ops=[{"op":"resize"}]'], 'needs random'),
    (['--crops=3', '--splits=test'], "--crops=3 applies to the split 'train'"),
    (['--crops=0'], 'crops must be'), (['--shorter-side=8'], 'exclude each'),
    (['--runner=DirectRunner'], 'Use --runner=local'),
    (['--teacher=', '--no-patches'], 'Add --teacher=ADDRESS'),
    (['--set=channels=1'], '3 channels')])
def test_wrong_flags_are_errors(path, capsys, flags, words):
  assert run(path, '--version=2.0.0', *flags) == 2
  assert words in capsys.readouterr().err


def test_a_teacher_without_patches_needs_the_flag(path, capsys):
  assert run(path, to='resnet', teacher='resnet') == 2
  assert 'Use --no-patches' in capsys.readouterr().err
  assert run(path, '--no-patches', to='resnet', teacher='resnet') == 0
  assert 'resolution=8 --config.objective.patch_weight=0' in (
      capsys.readouterr().out)
  build(path, 'resnet', section={'patch_weight': 0})
