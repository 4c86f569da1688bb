"""configs/finetune.py matches Tables 2 and 4 of the paper."""

import functools
import pathlib

import jax
import pytest

from vit_jax import sweep as sweep_lib
from vit_jax import tree
from vit_jax.experiment import build as experiment_lib
from vit_jax.experiment import config as config_lib

FILE = str(pathlib.Path(__file__).parent.parent / 'configs' / 'finetune.py')
TOY = ('model.width=8', 'model.depth=2', 'model.num_heads=2',
       'model.mlp_dim=16', 'model.patch=8', 'model.variant=', 'batch_size=8',
       'data.resolution=16', 'total.steps=2')


def load(arguments, *flags):
  return config_lib.load(f'{FILE}:{arguments}', flags)['']


@pytest.mark.parametrize(('dataset', 'steps', 'rates', 'held_out'), [
    ('imagenet2012', 20_000, [0.003, 0.01, 0.03, 0.06], 1),
    ('cifar100', 10_000, [0.001, 0.003, 0.01, 0.03], 2),
    ('cifar10', 10_000, [0.001, 0.003, 0.01, 0.03], 2),
    ('oxford_iiit_pet', 500, [0.001, 0.003, 0.01, 0.03], 10),
    ('oxford_flowers102', 500, [0.001, 0.003, 0.01, 0.03], 10)])
def test_sweeps_match_table_4(dataset, steps, rates, held_out):
  sweep = sweep_lib.plan(f'{FILE}:model=B/16,dataset={dataset}')
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
  config = load(f'model={model},dataset=imagenet2012,resolution={resolution}')
  assert config.averaging == 0.9999
  assert experiment_lib.grid(config) == grid


def test_lora_trains_adapters_of_attention_and_the_head():
  config = load('method=lora,rank=4', *TOY)
  experiment = experiment_lib.build(config, expected_data=True)
  assert {name for name, trained in tree.flatten(
      experiment.trainable).items() if trained} == {
          'head/dense/bias', 'head/dense/kernel', *(
              f'lora/encoder/layers/attention/{kernel}/{matrix}' for kernel in (
                  'out/kernel', 'qkv_kernel') for matrix in 'ab')}
  assert config.lora.rank == 4 and config.optimizer.name == 'adam'
  assert load('method=full', *TOY).lora.rank == 0


@pytest.mark.parametrize(('model', 'side'), [
    ('L/16', 384), ('B/32', 384), ('H/14', 392), ('R50x1', 384)])
def test_the_default_resolution_is_384_or_a_multiple_of_the_patch(model, side):
  vtab = FILE.replace('finetune', 'vtab')
  for config in (load(f'model={model}'),
                 config_lib.load(f'{vtab}:model={model}')['']):
    assert config.data.resolution == side
    assert config.averaging is None
  assert load('model=H/14,dataset=imagenet2012').averaging is None


@functools.cache
def build(method):
  config = load(f'dataset=digits,method={method}', *TOY)
  return experiment_lib.build(config, devices=jax.devices()[:1])


def test_a_probe_trains_only_the_head():
  probe, full = build('probe'), build('full')
  names = tree.flatten(probe.abstract_state.params)
  head = sum(leaf.size for name, leaf in names.items()
             if name.startswith('head/'))
  assert probe.num_trainable == head == 8 * 10 + 10
  assert full.num_trainable == tree.num_elements(full.abstract_state.params)
  # Frozen parameters have no optimizer state.
  assert tree.num_elements(probe.abstract_state.opt_state) < head + 10


def test_methods_are_layer_decay_or_an_error_for_unknown_names():
  assert load('dataset=digits,method=layer_decay',
              *TOY).optimizer.layer_decay == 0.75
  with pytest.raises(ValueError, match=r"finetune.py: Unknown method 'prob'"):
    load('method=prob')
