"""Every evaluator in a real experiment: one device, eight, and two hosts."""

import json
import os
import pathlib
import socket
import subprocess
import sys

import jax
import numpy as np
import pytest

from vit_jax import evals
from vit_jax.experiment import build as experiment_lib
from vit_jax.experiment import config as config_lib

ROOT = pathlib.Path(__file__).parents[2]
FEW = {'train_split': 'train[:200]'}
SECTIONS = {kind: {'name': kind, 'split': 'test[:50]', **({
    'fewshot': {**FEW, 'shots': [1, 3]}, 'knn': FEW}.get(kind, {}))}
            # That of numbers is refused here: digits are classes.
            for kind in evals.KINDS if kind != 'regression'}

HOST = """
import json, sys
import jax
jax.config.update('jax_num_cpu_devices', 4)
jax.config.update('jax_cpu_collectives_implementation', 'gloo')
jax.distributed.initialize(sys.argv[1], 2, int(sys.argv[2]))
from tests.evals import test_devices
print(json.dumps(test_devices.evaluate(None, batch_size=16)))
"""


def evaluate(devices, *, batch_size, **change):
  """Returns what all evaluators measure of one model, 50 images."""
  config = config_lib.resolve({
      'total': {'steps': 1}, 'batch_size': 8,
      'model': {'width': 16, 'depth': 1, 'mlp_dim': 16, 'num_heads': 2,
                'patch': 4, 'dropout': 0.5},
      'data': {'source': 'digits', 'resolution': 8},
      'optimizer': {'name': 'adam', 'learning_rate': 1e-3,
                    'schedule': {'name': 'constant'}},
      'evals': {name: {**section, 'batch_size': batch_size}
                for name, section in SECTIONS.items()}, **change})
  built = experiment_lib.build(config, devices=devices)
  params = built.init_state().params
  # The head starts at zero: it would hide the model.
  kernel = params['head']['dense']['kernel']
  values = np.random.default_rng(0).normal(size=kernel.shape)
  params['head']['dense']['kernel'] = jax.make_array_from_callback(
      kernel.shape, kernel.sharding, lambda i: values[i].astype(np.float32))
  return {f'{name}/{key}': value
          for name, evaluator in built.evaluators.items()
          for key, value in evaluator(params).items()}


@pytest.fixture(scope='module')
def one():
  return evaluate(jax.devices()[:1], batch_size=25)  # No padding.


def assert_same(got, one):
  assert got == pytest.approx(one, rel=1e-4)
  assert all(value == 50 for name, value in got.items()
             if name.endswith('/examples'))
  assert 0 < one['classification/accuracy'] < one['knn/accuracy'] < 1


def test_one_device_is_eight(one):
  # Three batches and an eighth of another.
  assert_same(evaluate(jax.devices(), batch_size=16), one)


@pytest.mark.slow
def test_one_host_is_two(one):
  with socket.socket() as free:
    free.bind(('localhost', 0))
    address = f'localhost:{free.getsockname()[1]}'
  hosts = [
      subprocess.Popen(
          [sys.executable, '-c', HOST, address, str(i)], cwd=ROOT, text=True,
          stdout=subprocess.PIPE, env={**os.environ, 'JAX_PLATFORMS': 'cpu'})
      for i in range(2)]
  for host in hosts:
    out, _ = host.communicate(timeout=300)
    assert host.returncode == 0
    assert_same(json.loads(out.splitlines()[-1]), one)


def test_masked_patches_are_watched_without_labels():
  got = evaluate(
      jax.devices()[:1], batch_size=25, objective={'name': 'masked_patch'},
      evals={'held_out': {'name': 'objective', 'split': 'test[:50]'},
             'knn': SECTIONS['knn']})
  assert got['held_out/examples'] == 50
  assert {'held_out/loss', 'held_out/color_accuracy'} <= set(got)
  assert got['knn/accuracy'] > 0.2


@pytest.mark.parametrize('kind', ['knn', 'fewshot'])
def test_an_image_is_not_measured_by_itself(kind):
  """As in a sweep whose development data is a part of `train`."""
  section = {'name': kind, 'split': 'train[90%:]'}
  with pytest.raises(ValueError, match="'train' has examples.*dev.train_split"):
    evaluate(jax.devices()[:1], batch_size=25, evals={'dev': section})
