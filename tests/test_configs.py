"""Every file in configs/ builds at full size and trains at toy size."""

import inspect
import pathlib
import runpy

import jax
import numpy as np
import pytest

import vit_jax
from vit_jax import __main__ as main
from vit_jax import run as run_lib
from vit_jax import tree
from vit_jax.checkpoints import source as checkpoint_source
from vit_jax.experiment import build as experiment_lib
from vit_jax.experiment import config as config_lib

pytestmark = pytest.mark.slow  # It trains models.

ROOT = pathlib.Path(__file__).parent.parent
FILES = sorted(p.name for p in (ROOT / 'configs').glob('*.py'))

# Arguments that cover the branches of a file.
ARGUMENTS = {
    'pretrain.py': (
        '', 'model=L/16,dataset=imagenet21k', 'model=H/14,dataset=jft',
        'model=22B/14,dataset=jft', 'model=R50x1,dataset=jft',
        'model=R50+B/16,dataset=jft,loss=softmax,epochs=1'),
    'augreg.py': (
        '', 'model=R+Ti/16,dataset=imagenet2012,aug=strong2,regularize=true'),
    'vit_s16_imagenet.py': ('', 'epochs=300,head=linear'),
    'data_study.py': (
        'sizes=9M+all', 'model=R50x1,dataset=imagenet21k,sizes=1M'),
    'finetune.py': (
        'model=B/16,dataset=cifar10,resolution=384',
        'model=L/16,dataset=imagenet2012,resolution=512',
        'model=H/14,dataset=imagenet2012,resolution=518',
        'model=L/32,dataset=oxford_flowers102,method=probe',
        'model=B/16,dataset=oxford_iiit_pet,method=layer_decay'),
    'vtab.py': (
        'model=B/16', 'model=L/16,task=clevr_closest_object_distance',
        'model=R50+B/16,task=smallnorb_label_azimuth'),
    'masked_patch.py': (
        '', 'dataset=imagenet2012,target=patch,corrupted=0.15',
        'model=H/14,dataset=imagenet21k,target=downsampled'),
    'masked_patch_small.py': (
        '', 'dataset=digits,target=patch', 'objective=mae,labels=10+100',
        'dataset=digits,objective=lejepa', 'objective=lejepa'),
    'mae.py': (
        '', 'model=H/14,method=finetune', 'model=L/16,method=probe',
        'dataset=imagenet21k'),
    'position_ablation.py': ('dataset=cifar10',),
    'cifar10.py': ('', 'recipe=best', 'recipe=resnet', 'recipe=gpu'),
}
# Stages to run of files with many similar stages.
STAGES = {'position_ablation.py': ('none', '2d-layers', 'relative'),
          'quickstart.py': ('pretrain', 'finetune', 'finetune_10'),
          'data_study.py': ('10%',)}
CASES = [f'{name}:{arguments}' for name in FILES
         for arguments in ARGUMENTS.get(name, ('',))]

TOY_MODEL = ('width=16', 'depth=2', 'num_heads=2', 'mlp_dim=32', 'patch=8',
             'unroll=1')
TOY_OBJECTIVE = {
    'mae.py': ('decoder_width=16', 'decoder_depth=1', 'decoder_heads=2'),
    'lejepa.py': ('hidden=16', 'directions=16', 'views.local_size=8')}


@pytest.mark.parametrize('case', CASES)
def test_configs_build_at_full_size_without_allocating(case):
  for config in config_lib.load(str(ROOT / 'configs' / case)).values():
    experiment = experiment_lib.build(
        config, devices=jax.devices()[:1], data_optional=True)
    state, loss = jax.eval_shape(
        experiment.train_step, experiment.abstract_state,
        experiment.abstract_batch)
    assert loss.shape == ()
    assert jax.tree.structure(state) == jax.tree.structure(
        experiment.abstract_state)
    assert experiment.total_steps > 0
    assert set(experiment.evaluators) == set(config.evals)


@pytest.mark.parametrize(('recipe', 'count'), [
    ('resnet', 747_594), ('gpu', 3_721_738)])
def test_models_for_cifar10_have_the_documented_size(recipe, count):
  config, = config_lib.load(
      f'{ROOT}/configs/cifar10.py:recipe={recipe}').values()
  experiment = experiment_lib.build(
      config, devices=jax.devices()[:1], data_optional=True)
  assert tree.num_elements(experiment.model_params) == count


# The stages of masked_patch_small.py train in a test of their own below.
@pytest.mark.parametrize('name', sorted({*FILES} - {'masked_patch_small.py'}))
def test_configs_train_at_toy_size(name, tmp_path):
  flags = [f'model.{setting}' for setting in TOY_MODEL] + [
      'model.variant=', 'total.steps=2', 'batch_size=8', 'data.num_workers=0',
      'data.resolution=16', 'log.every.steps=1',
      'data.shapes.num_examples=500', 'data.shapes.num_test_examples=16']
  case = ARGUMENTS.get(name, ('',))[0]
  stages = config_lib.load(f'{ROOT}/configs/{name}:{case}', [])
  embedded = {c.data.source for c in stages.values()} <= {'digits', 'shapes'}
  argument = ''
  if not embedded:
    # The file adapts other settings to its dataset.
    scope = runpy.run_path(f'{ROOT}/configs/{name}')
    takes = inspect.signature(scope['get_config']).parameters
    argument = ':dataset=digits' if 'dataset' in takes else ''
    flags.append('data.source=digits')
    flags.append('data.split=train')
    flags.append('data.eval_ops=[{"op": "resize"}]')
  flags += [f'objective.{s}' for s in TOY_OBJECTIVE.get(name, ())]
  path = str(ROOT / 'configs' / name) + argument
  for stage, config in config_lib.load(path, flags).items():
    if stage not in STAGES.get(name, (stage,)):
      continue
    experiment = experiment_lib.build(config, devices=jax.devices()[:1])
    summary = run_lib.train(experiment, tmp_path / stage)
    assert summary['steps'] == 2
    assert summary['images'] == 16
    assert summary['metrics']['train/loss'] > 0
    for evaluator in config.evals:
      assert summary['metrics'][f'{evaluator}/examples'] > 0


@pytest.mark.parametrize(('model', 'flags'), [
    ('R50x1', ()),
    ('R50+B/16', ('model.width=16', 'model.depth=1', 'model.num_heads=2',
                  'model.mlp_dim=32')),
])
def test_hybrids_and_resnets_train_with_the_same_file(model, flags, tmp_path):
  path = f'{ROOT}/configs/pretrain.py:model={model},dataset=digits'
  config = config_lib.load(path, [
      'model.backbone={"depths": [1], "width": 32}', *flags, 'total.steps=2',
      'batch_size=8', 'data.num_workers=0', 'data.resolution=16',
      'log.every.steps=1', 'data.eval_ops=[{"op": "resize"}]'])['']
  assert config.model.backbone.depths == (1,)
  experiment = experiment_lib.build(config, devices=jax.devices()[:1])
  assert run_lib.train(experiment, tmp_path)['steps'] == 2


def test_finetuning_starts_from_masked_patch_prediction(one_device, tmp_path):
  assert main.main([
      'train', f'--config={ROOT}/configs/masked_patch_small.py:dataset=digits',
      f'--workdir={tmp_path}',
      *(f'--config.model.{setting}' for setting in TOY_MODEL),
      '--config.total.steps=1', '--config.data.resolution=16',
      # The second stage must not change the parameters.
      '--config.stages.finetune_10.optimizer.learning_rate=0.0',
      '--config.stages.pretrain.total.steps=3']) == 0
  learned, begun, scratch = (
      tree.flatten(checkpoint_source.find(tmp_path / stage).load())
      for stage in ('pretrain', 'finetune_10', 'scratch_10'))
  assert set(begun) == set(scratch) == {
      name for name in learned if not name.startswith('masked_patch/')}
  for name, values in begun.items():
    np.testing.assert_array_equal(values, learned[name])
  model = vit_jax.load(tmp_path / 'pretrain', log=None)
  assert set(tree.flatten(model.params)) == set(begun)
  assert (scratch['patches/kernel'] != begun['patches/kernel']).any()
