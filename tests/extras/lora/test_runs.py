"""A LoRA run: what it trains and saves, its resumption and its base."""

import shutil

import jax
import numpy as np
import pytest

from tests import random_models
from tests import toy
from vit_jax import __main__ as main
from vit_jax import run as run_lib
from vit_jax import tree
from vit_jax.checkpoints import items
from vit_jax.checkpoints import paths
from vit_jax.inference import load as load_lib
from vit_jax.parallel import multihost
from vit_jax.weights import open as open_lib

pytestmark = pytest.mark.slow  # It trains models.

FROZEN = '(?!head/|lora/).*'


@pytest.fixture(scope='module')
def base(tmp_path_factory):
  """A model with other classes and position embeddings than the run."""
  return random_models.save_near_initial(
      tmp_path_factory.mktemp('base') / 'model', num_classes=7, resolution=16,
      **toy.CONFIG['model'])


def train(workdir, base, *, steps=6, **changes):
  """Trains adapters of `base` on 4 devices, sharded; returns the experiment."""
  experiment = toy.build(devices=4, **{
      'total': {'steps': steps}, 'lora': {'rank': 2}, 'averaging': 0.5,
      'optimizer': {'learning_rate': 0.05, 'frozen': [FROZEN]},
      'mesh': {'fsdp': 2, 'tensor': 2},
      'evals': {'test': {'split': 'test', 'batch_size': 120,
                         'every': {'steps': 3}}},
      'init': {'checkpoint': str(base)}, 'data': {'mean': 0.5, 'std': 0.5},
      'checkpoint': {'every': {'steps': 3}, 'keep': 2,
                     'best': 'test/accuracy'},
      **changes})
  summary = run_lib.train(
      experiment, workdir, weights=base and open_lib.open(base))
  return experiment, summary


@pytest.fixture(scope='module')
def trained(tmp_path_factory, base):
  workdir = tmp_path_factory.mktemp('lora')
  experiment, summary = train(workdir, base)
  return workdir, experiment, summary


def test_checkpoints_hold_what_is_trained(trained):
  workdir, experiment, _ = trained
  saved = tree.flatten(items.read_shapes(paths.find(workdir) / 'params'))
  attention = 'lora/encoder/layers/attention'
  assert sorted(saved) == [
      'head/dense/bias', 'head/dense/kernel', f'{attention}/out/kernel/a',
      f'{attention}/out/kernel/b', f'{attention}/qkv_kernel/a',
      f'{attention}/qkv_kernel/b']
  assert experiment.num_trainable == tree.num_elements(saved)
  moments = [leaf for leaf in jax.tree.leaves(
      experiment.abstract_state.opt_state) if leaf.shape]
  assert tree.num_elements(moments) == 2 * experiment.num_trainable


def test_a_loaded_model_has_the_merged_parameters(trained, base, tmp_path):
  workdir, _, summary = trained
  model = load_lib.load(workdir, log=None)
  adapted = tree.flatten(model.params)
  original = tree.flatten(load_lib.load(base, log=None).params)
  changed = {name for name, value in adapted.items() if
             value.shape != original[name].shape
             or (value != original[name]).any()}
  assert changed == {  # The position embedding is resized.
      'head/dense/bias', 'head/dense/kernel', 'positions',
      'encoder/layers/attention/out/kernel',
      'encoder/layers/attention/qkv_kernel'}
  # Evaluation does not need the adapters either.
  assert main.main(['convert', f'--source={workdir}', '--format=npz',
                    f'--target={tmp_path}/merged.npz']) == 0
  for path in (workdir, tmp_path / 'merged.npz'):
    weights = open_lib.open(path)
    plain = toy.build(**{
        **open_lib.open(workdir).run, 'lora': {},
        'optimizer': {}, 'mesh': {}})
    params = multihost.put(weights.read(), plain.shardings.params)
    result = plain.evaluate('test', params)
    assert result.metrics['loss'] == pytest.approx(
        summary['metrics']['test/loss'], rel=1e-5)


def test_a_resumed_run_equals_an_uninterrupted_one(trained, base, tmp_path):
  resumed = toy.copy_at(trained[0], tmp_path / 'run', step=3)
  train(resumed, base)
  jax.tree.map(np.testing.assert_array_equal, *(
      items.read_params(paths.find(path)) for path in (trained[0], resumed)))


def test_other_or_missing_weights_are_not_adapted(trained, base, tmp_path):
  workdir, *_ = trained
  run, moved = tmp_path / 'run', tmp_path / 'moved'
  shutil.copytree(workdir, run)
  shutil.copytree(base, moved)
  with pytest.raises(ValueError, match='holds no.*Leave it out'):
    load_lib.load(base, log=None, base=str(moved))
  hidden = base.with_name('hidden')
  base.rename(hidden)
  try:
    with pytest.raises(ValueError, match='holds LoRA adapters of .*base=PATH'):
      load_lib.load(run, log=None)
    jax.tree.map(np.testing.assert_array_equal, *(
        load_lib.load(run, log=None, base=str(path)).params
        for path in (moved, hidden)))
    load_lib.create(
        num_classes=7, resolution=16, **toy.CONFIG['model']).save(base)
    for read in (lambda: load_lib.load(run, log=None),
                 lambda: train(run, base, steps=9)):
      with pytest.raises(ValueError, match='holds other weights than when'):
        read()
  finally:
    shutil.rmtree(base, ignore_errors=True)
    hidden.rename(base)
  with pytest.raises(ValueError, match='no weights to adapt'):
    train(tmp_path / 'new', None, init={})
