"""Configs have the hyperparameters of the papers, row by row."""

import functools
import pathlib

import jax
import pytest

from vit_jax import data
from vit_jax import sweep as sweep_lib
from vit_jax import tree
from vit_jax.experiment import build as build_lib
from vit_jax.experiment import fit_weights
from vit_jax.experiment import load_config

pytestmark = pytest.mark.slow  # It trains models.

CONFIGS = pathlib.Path(__file__).parent.parent / 'configs'


def load(case, *flags):
  return load_config.load(f'{CONFIGS}/{case}', flags, read_weights=False)


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
    (config,) = load(f'pretrain.py:model={model},dataset={dataset}').values()
    optimizer = config.optimizer
    assert config.total.epochs == epochs
    assert config.batch_size == 4096 and config.data.size == (224, 224)
    assert (optimizer.name, optimizer.beta1, optimizer.beta2) == (
        'adam', 0.9, 0.999)
    assert optimizer.learning_rate == learning_rate
    assert optimizer.weight_decay == weight_decay
    assert optimizer.schedule.name == decay
    assert optimizer.schedule.warmup.steps == 10_000
    assert optimizer.clip_norm == (1.0 if dataset == 'imagenet2012' else None)
    assert getattr(config.model, 'dropout', 0.0) == dropout
    if '/' in model:
      assert config.model.representation_layer


@pytest.mark.parametrize('dataset', ['jft', 'imagenet21k'])
def test_multi_label_data_trains_with_either_loss(dataset):
  for loss, bias in (('sigmoid', -10.0), ('softmax', 0.0)):
    (config,) = load(f'pretrain.py:dataset={dataset},loss={loss}').values()
    assert (config.objective.loss, config.model.head_bias) == (loss, bias)
    experiment = build_lib.build(config, data_optional=True)
    # The host sends 32 labels per image, not 21,843 or 18,291 classes.
    assert experiment.abstract_batch['label'].shape == (4096, 32)
  assert load(f'pretrain.py:dataset={dataset}')[''].objective.loss == 'sigmoid'
  assert load('pretrain.py')[''].objective.loss == 'softmax'


# arXiv 2106.10270: (layers, magnitude, mixup).
@pytest.mark.parametrize('aug,expected', [
    ('none', (0, 0, 0.0)), ('light1', (2, 0, 0.0)), ('light2', (2, 10, 0.2)),
    ('medium1', (2, 15, 0.2)), ('medium2', (2, 15, 0.5)),
    ('strong1', (2, 20, 0.5)), ('strong2', (2, 20, 0.8))])
def test_augreg_has_seven_augmentations(aug, expected):
  (config,) = load(f'augreg.py:aug={aug}').values()
  ops = config.data.train_ops
  found = [op for op in ops if op['op'] == 'randaugment'] or [
      {'num_layers': 0, 'magnitude': 0, 'ranges': 'published'}]
  assert [op['op'] for op in ops[:2]] == ['inception_crop', 'flip']
  assert found[0]['ranges'] == 'published' and len(found) == 1
  assert expected == (
      found[0]['num_layers'], found[0]['magnitude'], config.data.mixup)


@pytest.mark.parametrize('dataset', ['imagenet2012', 'imagenet21k'])
@pytest.mark.parametrize('regularize,rate', [('true', 0.1), ('false', 0.0)])
def test_augreg_has_one_schedule_for_all_models(dataset, regularize, rate):
  for model in ('Ti/16', 'S/32', 'L/16', 'R+Ti/16', 'R50+L/32'):
    (config,) = load(
        f'augreg.py:model={model},dataset={dataset},regularize={regularize},'
        'weight_decay=0.03').values()
    optimizer = config.optimizer
    assert config.total.epochs == 300 and config.batch_size == 4096
    assert (optimizer.learning_rate, optimizer.weight_decay) == (1e-3, 0.03)
    assert (optimizer.beta1, optimizer.beta2) == (0.9, 0.999)
    assert optimizer.clip_norm == 1.0
    assert optimizer.schedule.name == 'cosine'
    assert optimizer.schedule.warmup.steps == 10_000
    assert config.model.dropout == config.model.stochastic_depth == rate
    assert config.model.representation_layer == (dataset == 'imagenet2012')
    assert optimizer.momentum_dtype == 'bfloat16'
  (short,) = load('augreg.py:epochs=30').values()
  assert short.total.epochs == 30


@pytest.mark.parametrize(('case', 'mixup', 'weight_decay'), [
    ('model=B/16', 0.2, 0.1), ('model=Ti/16', 0.0, 0.03),
    ('model=L/16', 0.5, 0.1), ('model=S/16,dataset=imagenet2012', 0.5, 0.1),
    ('model=S/32,dataset=imagenet2012', 0.2, 0.1)])
def test_augreg_defaults_match_the_recommended_checkpoints(
    case, mixup, weight_decay):
  (config,) = load(f'augreg.py:{case}').values()
  assert (config.data.mixup, config.optimizer.weight_decay) == (
      mixup, weight_decay)


@pytest.mark.parametrize('loss,found,bias', [
    ('', 'sigmoid', -6.9), ('softmax', 'softmax', 0.0)])
def test_augreg_on_imagenet_is_big_visions_config(loss, found, bias):
  (config,) = load(f'augreg.py:dataset=imagenet2012,model=S/32,loss={loss}'
                   ).values()
  assert (config.objective.loss, config.model.head_bias) == (found, bias)
  assert config.data.split == 'train[:99%]'
  assert config.evals['minival'].split == 'train[99%:]'
  assert config.data.train_ops[2]['magnitude'] == 15  # medium1
  (other,) = load('augreg.py:dataset=digits').values()
  assert (other.objective.loss, other.data.split) == ('auto', 'train')
  assert not other.model.representation_layer


@pytest.mark.parametrize('case', [
    'pretrain.py', 'masked_patch.py', 'augreg.py', 'augreg.py:aug=none',
    'vit_s16_imagenet.py', 'data_study.py:sizes=all',
    'finetune.py:model=B/16'])
def test_recipes_of_google_crop_as_tensorflow_does(case):
  (config,) = load(case).values()
  assert config.data.train_ops[0] == {
      'op': 'inception_crop', 'sampler': 'tf', 'aspect': [0.75, 1.33]}


def test_the_s16_baseline_matches_its_paper():
  (config,) = load('vit_s16_imagenet.py').values()
  optimizer, model = config.optimizer, config.model
  assert config.total.epochs == 90 and config.batch_size == 1024
  assert (optimizer.learning_rate, optimizer.weight_decay) == (1e-3, 0.1)
  assert optimizer.clip_norm == 1.0 and optimizer.schedule.name == 'cosine'
  assert optimizer.schedule.warmup.steps == 10_000
  assert (model.variant, model.pooling, model.position) == (
      'S/16', 'average', 'sincos')
  assert not model.has_cls
  assert model.dropout == config.objective.label_smoothing == 0
  assert config.objective.loss == 'softmax' and config.data.mixup == 0.2
  assert config.data.train_ops[2] == {
      'op': 'randaugment', 'num_layers': 2, 'magnitude': 10,
      'ranges': 'published'}
  assert config.data.split == 'train[:99%]'
  (linear,) = load('vit_s16_imagenet.py:head=linear,epochs=300').values()
  assert linear.total.epochs == 300 and not linear.model.representation_layer


def test_the_data_study_has_nested_sizes_and_equal_steps():
  stages = load('data_study.py')
  assert [stage.data.num_examples for stage in stages.values()] == [
      9_000_000, 30_000_000, 90_000_000, None]
  # Seven epochs of all 303 M images for every size.
  assert {stage.total.steps for stage in stages.values()} == {517_822}
  for stage in stages.values():
    assert stage.checkpoint.best == 'val/precision_at_1'
    assert stage.checkpoint.patience.percent == 10
    assert stage.evals['fewshot'].shots == (5,)


def test_the_data_study_trains_on_nested_subsets_without_its_test_data():
  stages = load('data_study.py:dataset=digits,sizes=10%+500+all')
  chosen = []
  for config in stages.values():
    dataset = data.open_dataset(config.data)
    chosen.append({dataset.source.key(i) for i in range(len(dataset))})
  assert [len(keys) for keys in chosen] == [129, 500, 1_293]
  assert chosen[0] < chosen[1] < chosen[2]
  held_out = data.open_dataset(
      config.data, split=config.evals['val'].split).source
  assert not chosen[2] & {held_out.key(i) for i in range(len(held_out))}


@pytest.mark.parametrize('case,words', [
    ('augreg.py:aug=heavy', "aug is 'heavy'.*strong2"),
    ('vit_s16_imagenet.py:head=deep', "head is 'deep'"),
    ('data_study.py:sizes=9X', "'9X'.*9M, 500k"),
    ('pretrain.py:loss=hinge', "'hinge'"),
    ('finetune.py:method=prob', "finetune.py: Unknown method 'prob'")])
def test_wrong_arguments_are_errors(case, words):
  with pytest.raises(ValueError, match=words):
    load(case)


# arXiv 2111.06377, tables 8 to 10: (learning rate for 256 images, batch size,
# weight decay, epochs, epochs of warm-up).
@pytest.mark.parametrize('case,expected', [
    ('model=L/16', (1.5e-4, 4096, 0.05, 800, 40)),
    ('model=B/16,method=finetune', (1e-3, 1024, 0.05, 100, 5)),
    ('model=L/16,method=finetune', (1e-3, 1024, 0.05, 50, 5)),
    ('model=B/16,method=probe', (0.1, 16384, 0.0, 90, 10))])
def test_mae_has_the_settings_of_the_paper(case, expected):
  (config,) = load(f'mae.py:{case}').values()
  # The authors' code trains the embeddings of its checkpoints in fine-tuning.
  assert config.model.position == ('learned' if 'method=' in case else 'sincos')
  optimizer = config.optimizer
  assert expected == pytest.approx((
      optimizer.learning_rate * 256 / config.batch_size, config.batch_size,
      optimizer.weight_decay, config.total.epochs,
      optimizer.schedule.warmup.percent * config.total.epochs / 100))


@pytest.mark.parametrize('case,area', [
    ('mae.py', 0.2), ('mae.py:method=finetune', 0.08),
    ('mae.py:method=probe', 0.08)])
def test_mae_has_the_pixels_of_its_authors(case, area):
  (config,) = load(case).values()
  assert config.data.mean == (0.485, 0.456, 0.406)
  assert config.data.std == (0.229, 0.224, 0.225)
  assert config.data.train_ops[0] == {
      'op': 'inception_crop', 'sampler': 'torch', 'method': 'bicubic',
      'area': [area, 1.0]}
  assert config.data.eval_ops[0] == {
      'op': 'resize', 'shorter': 256, 'method': 'bicubic'}
  assert (config.data.train_ops[2:] == ({
      'op': 'randaugment', 'num_layers': 2, 'magnitude': 9,
      'magnitude_std': 0.5},)) == ('finetune' in case)


def test_mae_fine_tunes_the_average_of_patches_with_a_new_norm():
  toy = (*TOY, 'data.source=digits', 'data.split=train')
  small = [f'objective.decoder_{s}' for s in ('width=8', 'depth=1', 'heads=2')]
  before, after = (
      build_lib.build(config, devices=jax.devices()[:1]) for config in (
          load('mae.py', *toy, *small)[''],
          load('mae.py:method=finetune', *toy)['']))
  _, rows = fit_weights.start(
      after, after.init_state(), fit_weights.weights_of(
          before, jax.device_get(before.init_state().params)))
  status = {row.name: row.status for row in rows}
  assert {n for n, s in status.items() if s == 'new'} == {
      'head/dense/kernel', 'head/dense/bias', 'pool_norm/scale',
      'pool_norm/bias'}
  assert {n.split('/')[0] for n, s in status.items() if s == 'ignored'} == {
      'final_norm', 'masked_patch'}
  assert status['cls'] == 'loaded'


TOY = ('model.width=8', 'model.depth=2', 'model.num_heads=2',
       'model.mlp_dim=16', 'model.patch=8', 'model.variant=', 'batch_size=8',
       'data.resolution=16', 'total.steps=2')


@pytest.mark.parametrize(('dataset', 'steps', 'rates', 'held_out'), [
    ('imagenet2012', 20_000, [0.003, 0.01, 0.03, 0.06], 1),
    ('cifar100', 10_000, [0.001, 0.003, 0.01, 0.03], 2),
    ('cifar10', 10_000, [0.001, 0.003, 0.01, 0.03], 2),
    ('oxford_iiit_pet', 500, [0.001, 0.003, 0.01, 0.03], 10),
    ('oxford_flowers102', 500, [0.001, 0.003, 0.01, 0.03], 10)])
def test_sweeps_match_table_4(dataset, steps, rates, held_out):
  sweep = sweep_lib.plan(
      f'{CONFIGS}/finetune.py:model=B/16,dataset={dataset}')
  assert sweep.config.total.steps == steps
  assert sweep.config.batch_size == 512
  assert sweep.config.data.resolution == 384
  assert sweep.config.optimizer.name == 'sgd'
  assert sweep.config.optimizer.momentum == 0.9
  assert sweep.config.optimizer.weight_decay == 0
  assert sweep.config.optimizer.clip_norm == 1
  assert sweep.config.optimizer.schedule.name == 'cosine'
  assert sweep.config.averaging is None
  assert [p.config.optimizer.learning_rate for p in sweep.points] == rates
  assert sweep.section.seeds == 3
  for point in sweep.points:
    splits = point.development.data.split.split('+')
    assert {s[s.index('['):] for s in splits} == {f'[:{100 - held_out}%]'}


@pytest.mark.parametrize(('model', 'resolution', 'grid'), [
    ('L/16', 512, (32, 32)), ('H/14', 518, (37, 37))])
def test_table_2_averages_the_parameters_on_imagenet(model, resolution, grid):
  config = load(f'finetune.py:model={model},dataset=imagenet2012,'
                f'resolution={resolution}')['']
  assert config.averaging == 0.9999
  assert config.model.grid(config.data.size) == grid


def test_methods_are_lora_of_attention_and_the_head_and_layer_decay():
  config = load('finetune.py:method=lora,rank=4', *TOY)['']
  experiment = build_lib.build(config, data_optional=True)
  assert {name for name, trained in tree.flatten(
      experiment.optimizer.trainable).items() if trained} == {
          'head/dense/bias', 'head/dense/kernel', *(
              f'lora/encoder/layers/attention/{kernel}/{matrix}' for kernel in (
                  'out/kernel', 'qkv_kernel') for matrix in 'ab')}
  assert config.lora.rank == 4 and config.optimizer.name == 'adam'
  assert load('finetune.py:method=full', *TOY)[''].lora.rank == 0
  config = load('finetune.py:dataset=digits,method=layer_decay', *TOY)['']
  assert config.optimizer.layer_decay == 0.75


@pytest.mark.parametrize(('model', 'side'), [
    ('L/16', 384), ('B/32', 384), ('H/14', 392), ('R50x1', 384)])
def test_the_default_resolution_is_384_or_a_multiple_of_the_patch(model, side):
  for file in ('finetune.py', 'vtab.py'):
    config = load(f'{file}:model={model}')['']
    assert config.data.resolution == side
    assert config.averaging is None
  assert load('finetune.py:model=H/14,dataset=imagenet2012')[
      ''].averaging is None


@functools.cache
def build(method):
  config = load(f'finetune.py:dataset=digits,method={method}', *TOY)['']
  return build_lib.build(config, devices=jax.devices()[:1])


def test_a_probe_trains_only_the_head():
  probe, full = build('probe'), build('full')
  names = tree.flatten(probe.abstract_state.params)
  head = sum(leaf.size for name, leaf in names.items()
             if name.startswith('head/'))
  assert probe.num_trainable == head == 8 * 10 + 10
  assert full.num_trainable == tree.num_elements(full.abstract_state.params)
