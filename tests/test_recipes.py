"""Configs have the hyperparameters of the papers, row by row."""

import operator
import pathlib

import jax
import pytest

from tests import leaves
from vit_jax import registry
from vit_jax import tree
from vit_jax.experiment import build as build_lib
from vit_jax.experiment import fit_weights
from vit_jax.experiment import load_config

pytestmark = pytest.mark.slow  # It builds large models.

CONFIGS = pathlib.Path(__file__).parent.parent / 'configs'
TOY = ('model.width=8', 'model.depth=2', 'model.num_heads=2',
       'model.mlp_dim=16', 'model.patch=8', 'model.variant=', 'batch_size=8',
       'data.resolution=16', 'total.steps=2')


def load(case, *flags):
  with leaves.skip_deleted():
    return load_config.load(f'{CONFIGS}/{case}', flags, open_weights=None)


def assert_settings(config, expected):
  for name, value in expected.items():
    assert operator.attrgetter(name)(config) == value, name


# Google crops as TensorFlow does.
GOOGLE_CROP = {'op': 'inception_crop', 'sampler': 'tf', 'aspect': [0.75, 1.33]}
FLIP = {'op': 'flip'}


def google_ops(*layers):
  """Returns train_ops with RandAugment of (layers, magnitude), or without."""
  return (GOOGLE_CROP, FLIP, *({
      'op': 'randaugment', 'num_layers': number, 'magnitude': magnitude,
      'ranges': 'published'} for number, magnitude in layers))


# arXiv 2010.11929, Table 3, in its own order.
@pytest.mark.parametrize(
    'models,dataset,epochs,learning_rate,decay,weight_decay,dropout', [
        ('B/16 B/32', 'jft', 7, 8e-4, 'linear', 0.1, 0.0),
        ('L/32', 'jft', 7, 6e-4, 'linear', 0.1, 0.0),
        ('L/16', 'jft', 14, 4e-4, 'linear', 0.1, 0.0),
        ('H/14', 'jft', 14, 3e-4, 'linear', 0.1, 0.0),
        ('R50x1 R50x2', 'jft', 7, 1e-3, 'linear', 0.1, 0.0),
        ('R101x1', 'jft', 7, 8e-4, 'linear', 0.1, 0.0),
        ('R152x1 R152x2', 'jft', 7, 6e-4, 'linear', 0.1, 0.0),
        ('R200x3 R152x4', 'jft', 14, 8e-4, 'linear', 0.1, 0.0),  # Table 6.
        ('R50+B/16 R50+B/32', 'jft', 7, 8e-4, 'linear', 0.1, 0.0),
        ('R50+L/32', 'jft', 7, 2e-4, 'linear', 0.1, 0.0),
        ('R50+L/16', 'jft', 14, 4e-4, 'linear', 0.1, 0.0),
        ('B/16 B/32', 'imagenet21k', 90, 1e-3, 'linear', 0.03, 0.1),
        ('L/16 L/32', 'imagenet21k', 90, 1e-3, 'linear', 0.03, 0.1),
        ('B/16 B/32 L/16 L/32', 'imagenet2012', 300, 3e-3, 'cosine', 0.3, 0.1),
    ])
def test_pretraining_matches_table_3(
    models, dataset, epochs, learning_rate, decay, weight_decay, dropout):
  for model in models.split():
    config, = load(f'pretrain.py:model={model},dataset={dataset}').values()
    assert_settings(config, {
        'total.epochs': epochs, 'batch_size': 4096, 'data.size': (224, 224),
        'optimizer.name': 'adam', 'optimizer.beta1': 0.9,
        'optimizer.beta2': 0.999, 'optimizer.learning_rate': learning_rate,
        'optimizer.weight_decay': weight_decay,
        'optimizer.schedule.name': decay,
        'optimizer.schedule.warmup.steps': 10_000,
        'optimizer.clip_norm': 1.0 if dataset == 'imagenet2012' else None})
    assert getattr(config.model, 'dropout', 0.0) == dropout
    if '/' in model:
      assert config.model.representation_layer


@pytest.mark.parametrize('dataset', ['jft', 'imagenet21k'])
def test_multi_label_data_trains_with_either_loss(dataset):
  for loss, bias in (('sigmoid', -10.0), ('softmax', 0.0)):
    config, = load(f'pretrain.py:dataset={dataset},loss={loss}').values()
    assert (config.objective.loss, config.model.head_bias) == (loss, bias)
    experiment = build_lib.build(config, data_optional=True)
    # The host sends 32 labels per image, not 21,843 or 18,291 classes.
    assert experiment.abstract_batch['label'].shape == (4096, 32)
  assert load(f'pretrain.py:dataset={dataset}')[''].objective.loss == 'sigmoid'
  assert load('pretrain.py')[''].objective.loss == 'softmax'


def augreg(mixup, weight_decay):
  """Returns the settings of a recommended checkpoint of AugReg."""
  return {'data.mixup': mixup, 'optimizer.weight_decay': weight_decay}


def mae(rate, batch_size, weight_decay, epochs, warmup, area, *, ops=()):
  """Returns settings of arXiv 2111.06377, tables 8 to 10.

  `rate` is for 256 images, `warmup` in epochs, `area` the smallest of a crop.
  """
  return {
      'optimizer.learning_rate': pytest.approx(rate * batch_size / 256),
      'batch_size': batch_size, 'optimizer.weight_decay': weight_decay,
      'total.epochs': epochs, 'optimizer.schedule.warmup.percent':
          pytest.approx(100 * warmup / epochs),
      'data.mean': (0.485, 0.456, 0.406), 'data.std': (0.229, 0.224, 0.225),
      'data.train_ops': ({
          'op': 'inception_crop', 'sampler': 'torch', 'method': 'bicubic',
          'area': [area, 1.0]}, FLIP, *ops),
      'data.eval_ops': ({'op': 'resize', 'shorter': 256, 'method': 'bicubic'},
                        {'op': 'central_crop'})}


# arXiv 2106.10270.
AUGMENTATIONS = {
    'none': ([], 0.0), 'light1': ([(2, 0)], 0.0), 'light2': ([(2, 10)], 0.2),
    'medium1': ([(2, 15)], 0.2), 'medium2': ([(2, 15)], 0.5),
    'strong1': ([(2, 20)], 0.5), 'strong2': ([(2, 20)], 0.8)}
BIG_VISION = {
    'data.split': 'train[:99%]', 'data.train_ops': google_ops((2, 15))}
SETTINGS = {
    **{f'augreg.py:aug={name}': {
        'data.train_ops': google_ops(*layers), 'data.mixup': mixup}
       for name, (layers, mixup) in AUGMENTATIONS.items()},
    **{f'augreg.py:model={model},dataset={dataset},weight_decay=0.03,'
       f'regularize={regularize}': {
           'total.epochs': 300, 'batch_size': 4096,
           'optimizer.learning_rate': 1e-3, 'optimizer.weight_decay': 0.03,
           'optimizer.beta1': 0.9, 'optimizer.beta2': 0.999,
           'optimizer.clip_norm': 1.0, 'optimizer.schedule.name': 'cosine',
           'optimizer.schedule.warmup.steps': 10_000,
           'optimizer.momentum_dtype': 'bfloat16', 'model.dropout': rate,
           'model.stochastic_depth': rate,
           'model.representation_layer': dataset == 'imagenet2012'}
       for model, dataset, regularize, rate in (
           ('Ti/16', 'imagenet2012', 'true', 0.1),
           ('R50+L/32', 'imagenet21k', 'false', 0.0))},
    'augreg.py:epochs=30': {'total.epochs': 30},
    'augreg.py:model=B/16': augreg(0.2, 0.1),
    'augreg.py:model=Ti/16': augreg(0.0, 0.03),
    'augreg.py:model=L/16': augreg(0.5, 0.1),
    'augreg.py:model=S/16,dataset=imagenet2012': augreg(0.5, 0.1),
    # The config of Big Vision.
    'augreg.py:dataset=imagenet2012,model=S/32': {
        **augreg(0.2, 0.1), **BIG_VISION, 'objective.loss': 'sigmoid',
        'model.head_bias': -6.9},
    'augreg.py:dataset=imagenet2012,model=S/32,loss=softmax': {
        **BIG_VISION, 'objective.loss': 'softmax', 'model.head_bias': 0.0},
    'augreg.py:dataset=digits': {
        'objective.loss': 'auto', 'data.split': 'train',
        'model.representation_layer': False},
    # arXiv 2205.01580.
    'vit_s16_imagenet.py': {
        'total.epochs': 90, 'batch_size': 1024, 'optimizer.learning_rate': 1e-3,
        'optimizer.weight_decay': 0.1, 'optimizer.clip_norm': 1.0,
        'optimizer.schedule.name': 'cosine',
        'optimizer.schedule.warmup.steps': 10_000, 'model.variant': 'S/16',
        'model.pooling': 'average', 'model.position': 'sincos',
        'model.has_cls': False, 'model.dropout': 0,
        'objective.label_smoothing': 0, 'objective.loss': 'softmax',
        'data.mixup': 0.2, 'data.train_ops': google_ops((2, 10)),
        'data.split': 'train[:99%]'},
    'vit_s16_imagenet.py:head=linear,epochs=300': {
        'total.epochs': 300, 'model.representation_layer': False},
    # The authors' code trains the embeddings of its checkpoints in fine-tuning.
    'mae.py:model=L/16': {
        **mae(1.5e-4, 4096, 0.05, 800, 40, 0.2), 'model.position': 'sincos'},
    'mae.py:model=B/16,method=finetune': {
        **mae(1e-3, 1024, 0.05, 100, 5, 0.08, ops=[{
            'op': 'randaugment', 'num_layers': 2, 'magnitude': 9,
            'magnitude_std': 0.5}]), 'model.position': 'learned'},
    'mae.py:model=L/16,method=finetune': {'total.epochs': 50},
    'mae.py:model=B/16,method=probe': {
        **mae(0.1, 16384, 0.0, 90, 10, 0.08), 'model.position': 'learned'},
    # The default resolution is 384 or a multiple of the patch.
    **{f'{file}:model={model}': {'data.resolution': side, 'averaging': None}
       for file in ('finetune.py', 'vtab.py')
       for model, side in (('L/16', 384), ('H/14', 392), ('R50x1', 384))},
    # Table 2 averages the parameters on ImageNet.
    **{f'finetune.py:model={model},dataset=imagenet2012,resolution={side}': {
        'averaging': average, 'data.size': (side, side)}
       for model, side, average in (
           ('L/16', 512, 0.9999), ('H/14', 518, 0.9999), ('H/14', 392, None))},
    'finetune.py:model=B/16': {'data.train_ops': google_ops()},
    'finetune.py:model=B/16,dataset=digits,method=layer_decay': {
        'optimizer.layer_decay': 0.75},
    # Ours (docs/training.md).
    **{f'finetune.py:model=B/16,dataset=digits,resolution=224{method}': {
        'batch_size': 32, 'optimizer.learning_rate': 0.0003,
        'optimizer.learning_rate_rules': (('head/.*', 10.0),),
        'optimizer.layer_decay': 0.75, **row}
       for method, row in (
           ('', {'total.epochs': 20, 'data.mixup': 0.8}),
           (',method=few', {'total.steps': 200, 'data.mixup': 0.0}))},
    'pretrain.py': {'data.train_ops': google_ops()},
    'masked_patch.py': {'data.train_ops': google_ops()},
}


@pytest.mark.parametrize('case', SETTINGS)
def test_settings_are_those_of_the_paper_or_of_the_docs(case):
  config, = load(case).values()
  assert_settings(config, SETTINGS[case])


def test_the_data_study_has_nested_sizes_and_equal_steps():
  stages = load('data_study.py')
  assert [stage.data.num_examples for stage in stages.values()] == [
      9_000_000, 30_000_000, 90_000_000, None]
  for stage in stages.values():
    # Seven epochs of all 303 M images for every size.
    assert_settings(stage, {
        'total.steps': 517_822, 'checkpoint.best': 'val/precision_at_1',
        'checkpoint.patience.percent': 10, 'data.train_ops': google_ops()})
    assert stage.evals['fewshot'].shots == (5,)


@pytest.mark.parametrize('case,words', [
    ('augreg.py:aug=heavy', "aug is 'heavy'.*strong2"),
    ('vit_s16_imagenet.py:head=deep', "head is 'deep'"),
    ('data_study.py:sizes=9X', "'9X'.*9M, 500k"),
    ('frontier.py:models=30k', "models has '30k'. Known: 29k"),
    ('pretrain.py:loss=hinge', "'hinge'"),
    ('finetune.py:method=prob', "finetune.py: Unknown method 'prob'")])
def test_wrong_arguments_are_errors(case, words):
  with pytest.raises(ValueError, match=words):
    load(case)


def build(case, *flags):
  return build_lib.build(
      load(case, *TOY, *flags)[''], devices=jax.devices()[:1],
      data_optional=True)


def test_mae_fine_tunes_the_average_of_patches_with_a_new_norm():
  digits = ('data.source=digits', 'data.split=train')
  before = build('mae.py', *digits, *(
      f'objective.decoder_{size}' for size in ('width=8', 'depth=1', 'heads=2')
  ))
  after = build('mae.py:method=finetune', *digits)
  _, rows = fit_weights.fit(
      after, fit_weights.weights_of(
          before, jax.device_get(before.init_state().params)))
  status = {row.name: row.status for row in rows}
  assert {n for n, s in status.items() if s == 'new'} == {
      'head/dense/kernel', 'head/dense/bias', 'pool_norm/scale',
      'pool_norm/bias'}
  assert {n.split('/')[0] for n, s in status.items() if s == 'ignored'} == {
      'final_norm', 'masked_patch'}
  assert status['cls'] == 'loaded'


@pytest.mark.parametrize(('method', 'trained'), [
    *[('lora,rank=4', ('head', 'lora/encoder/layers/attention/'))]
    * leaves.has(registry.LORA),
    ('probe', ('head/',)), ('full', ('',))])
def test_methods_train_adapters_of_attention_the_head_or_all(method, trained):
  experiment = build(f'finetune.py:dataset=digits,method={method}')
  names = tree.flatten(experiment.optimizer.trainable)
  assert {name for name, is_trained in names.items() if is_trained} == {
      name for name in names if name.startswith(trained)}
  assert experiment.config.lora.rank == (4 if 'lora' in method else 0)
