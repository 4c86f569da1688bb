"""Every file in configs/ builds at full size; one trains at toy size."""

import pathlib

import jax
import pytest

from tests import leaves
from vit_jax import registry
from vit_jax import run as run_lib
from vit_jax import tree
from vit_jax.experiment import build as build_lib
from vit_jax.experiment import load_config

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
    'segmentation.py': tuple(
        f'model=B/16,source=shapes,classes=ground+shape,{rest}'
        for rest in ('train=lora', 'train=decoder,widths=')),
    'transfer.py': (
        'model=Ti/16,datasets=cifar10', 'model=S/16,datasets=digits+cifar100'),
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
    'optimizers.py': ('', 'source=cifar10'),
    'photos.py': tuple(
        f'source=cifar10,test_split=test,objective={name}'
        for name in ('supervised', 'mae', 'lejepa')),
    'continue.py': (
        'checkpoint=photos,data=cifar10,resolution=32,local_size=16',
        'checkpoint=photos,data=cifar10,resolution=32,objective=mae'),
    'cifar10.py': (
        '', 'recipe=best', 'recipe=resnet', 'recipe=photos', 'recipe=gpu'),
}
CASES = [f'{name}:{arguments}' for name in FILES
         for arguments in ARGUMENTS.get(name, ('',))]

TOY_MODEL = ('width=16', 'depth=1', 'num_heads=2', 'mlp_dim=32', 'patch=8',
             'unroll=1')


def load(case):
  with leaves.skip_deleted():
    return load_config.load(str(ROOT / 'configs' / case)).values()


@pytest.mark.parametrize('case', [
    case for case in CASES if leaves.has(
        registry.MODELS['backbone'] if '22B' in case else
        registry.LORA if 'lora' in case else
        registry.DECODER if 'segmentation' in case else
        registry.THRESHOLDS if 'continue' in case else
        registry.SOURCES['vtab/'] if 'vtab' in case else registry.TFDS)])
def test_configs_build_at_full_size_without_allocating(case):
  for config in load(case):
    experiment = build_lib.build(
        config, devices=jax.devices()[:1], data_optional=True)
    assert experiment.total_steps > 0
    assert set(experiment.evaluators) == set(experiment.config.evals)


@pytest.mark.parametrize(('recipe', 'count'), [
    ('resnet', 747_594), ('gpu', 3_721_738)])
def test_models_for_cifar10_have_the_documented_size(recipe, count):
  config, = load(f'cifar10.py:recipe={recipe}')
  experiment = build_lib.build(
      config, devices=jax.devices()[:1], data_optional=True)
  assert tree.num_elements(experiment.model_params) == count


# The recipes of the docs train mae.py and lejepa.py.
def test_a_config_trains_at_toy_size(tmp_path):
  flags = [
      *(f'model.{setting}' for setting in TOY_MODEL), 'model.variant=',
      'total.steps=1', 'batch_size=8', 'data.num_workers=0',
      'data.resolution=16', 'log.every.steps=1',
      'data.eval_ops=[{"op": "resize"}]']
  config, = load_config.load(
      f'{ROOT}/configs/pretrain.py:dataset=digits', flags).values()
  experiment = build_lib.build(config, devices=jax.devices()[:1])
  summary = run_lib.train(experiment, tmp_path)
  assert (summary['steps'], summary['images']) == (1, 8)
  assert summary['metrics']['train/loss'] > 0
  for evaluator in experiment.config.evals:
    assert summary['metrics'][f'{evaluator}/examples'] > 0
