"""Every config builds at full size, and experiments of the paper train."""

import dataclasses
import pathlib

import jax
import pytest

from tests import leaves
from vit_jax import registry
from vit_jax import run as run_lib
from vit_jax.experiment import build as build_lib
from vit_jax.experiment import load_config
from vit_jax.weights import open as open_lib

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
    'frontier.py': ('minutes=240,seeds=1',),
    'optimizers.py': ('', 'source=cifar10'),
    'photos.py': tuple(
        f'source=cifar10,test_split=test,objective={name}'
        for name in ('supervised', 'mae', 'lejepa')),
    'continue.py': (
        'checkpoint=photos,data=cifar10,resolution=32,local_size=16',
        'checkpoint=photos,data=cifar10,resolution=32,objective=mae'),
    'distil.py': tuple(
        f'data=cifar10,student=Ti/4,resolution=32,teacher={teacher}'
        for teacher in (
            'photos', 'photos+photos,teacher_resolution=48,labels=true')),
    'cifar10.py': (
        '', 'recipe=best', 'recipe=resnet', 'recipe=photos', 'recipe=gpu'),
}
CASES = [f'{name}:{arguments}' for name in FILES
         for arguments in ARGUMENTS.get(name, ('',))]

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


PAPER = ROOT / 'configs' / 'paper'
# Stages that cover the settings of a file.
STAGES = {
    'figure4.py': ('ResNet,500,0', 'ResNet on digits,500,0'),
    'figure5.py': ('hybrid,small,1',),
    'figure8.py': ('all,half,2',),
    'figure9.py': ('class token,1e-02,0',),
    'figure13.py': ('axial,1,0',),
    'table7.py': ('sgd,1e-01,0',),
}


def test_every_file_of_the_paper_is_covered_and_short():
  files = {path.name for path in PAPER.glob('*.py')}
  assert files == {*STAGES, 'small.py', 'families.py', 'table2.py'}
  for name in files:
    assert len((PAPER / name).read_text().splitlines()) <= 80, name


@pytest.mark.parametrize('case', [
    # Three models and stages each; others train each model. The notebook of the
    # paper trains those of figure 13.
    pytest.param(case, marks=[pytest.mark.large] * (case in (
        'figure4.py', 'figure5.py', 'figure8.py', 'figure9.py', 'figure13.py')))
    for case in STAGES])
def test_stages_of_the_paper_train(case, tmp_path):
  stages = load_config.load(f'{PAPER}/{case}', [
      'total.steps=2', 'batch_size=8', 'data.shapes.num_examples=600',
      'data.shapes.num_test_examples=8', 'data.num_examples=16',
      'checkpoint.every.steps=1', 'log.every.steps=1'])
  for name in STAGES[case]:
    config = dataclasses.replace(stages[name], evals={
        key: dataclasses.replace(evaluator, every=None)
        for key, evaluator in stages[name].evals.items()},
        checkpoint=dataclasses.replace(
            stages[name].checkpoint, best='', patience=None))
    origin = config.init.stage
    summary = run_lib.train(
        build_lib.build(config, devices=jax.devices()[:1]),
        tmp_path / name,
        weights=open_lib.open(tmp_path / origin) if origin else None)
    assert summary['steps'] == 2
    assert set(config.evals) <= {
        key.split('/')[0] for key in summary['metrics']}


@pytest.mark.large  # Nine models.
def test_models_of_one_size_have_similar_cost():
  cost = {}
  for size in ('small', 'medium', 'large'):
    for family in ('ViT', 'hybrid', 'ResNet'):
      config = load_config.load(
          f'{PAPER}/families.py:family={family},size={size}')['']
      cost[family] = registry.load(registry.FLOPS)(build_lib.build(
          config, devices=jax.devices()[:1])).forward
    assert max(cost.values()) / min(cost.values()) < 1.5, (size, cost)
