"""The trunk works without the leaves: `vit_jax/extras` can be deleted."""

import pathlib
import re
import shutil
import subprocess
import sys

import pytest

from tests import pictures

ROOT = pathlib.Path(__file__).parent.parent

PROGRAM = """
import importlib, pkgutil
import numpy
import vit_jax
for module in pkgutil.walk_packages(vit_jax.__path__, 'vit_jax.'):
  if not module.name.endswith('__main__'):
    importlib.import_module(module.name)
experiment = vit_jax.build({
    'total': {'steps': 2}, 'batch_size': 8,
    'model': {'variant': 'Ti/4', 'depth': 1, 'width': 12, 'mlp_dim': 8},
    'data': {'source': 'digits', 'resolution': 8},
    'optimizer': {'name': 'adam', 'learning_rate': 1e-3,
                  'schedule': {'name': 'constant'}},
    'evals': {'test': {'split': 'test[:64]', 'batch_size': 32}}})
summary = vit_jax.train(experiment, 'run')
assert vit_jax.evaluate('run')['test/accuracy'] == (
    summary['metrics']['test/accuracy'])
model = vit_jax.load('photos')
assert model.predict('image.png')
model.save('photos.npz', form='npz')
again = vit_jax.load('photos.npz')
assert again.config == model.config
assert again.preprocess == model.preprocess
numpy.testing.assert_array_equal(
    again.params['patches']['kernel'], model.params['patches']['kernel'])
"""


@pytest.fixture(scope='module', name='copy')
def copy_without_extras(tmp_path_factory):
  folder = tmp_path_factory.mktemp('trunk')
  shutil.copytree(ROOT / 'vit_jax', folder / 'vit_jax', symlinks=True,
                  ignore=shutil.ignore_patterns('extras', '__pycache__'))
  shutil.copy(ROOT / 'main.py', folder)
  pictures.picture(0).save(folder / 'image.png')
  return folder


def run(folder, *command):
  done = subprocess.run(
      [sys.executable, *command], cwd=folder, capture_output=True, text=True,
      check=False)
  assert not done.returncode, done.stdout[-9999:] + done.stderr
  return done.stdout


@pytest.mark.slow
def test_the_trunk_trains_evaluates_and_predicts_without_the_leaves(copy):
  run(copy, '-c', PROGRAM)


@pytest.mark.large  # Runs all quick tests of the trunk.
def test_the_tests_of_the_trunk_pass_without_the_leaves(tmp_path):
  shutil.copytree(
      ROOT, tmp_path / 'clone', symlinks=True, ignore=shutil.ignore_patterns(
          '.*', '__pycache__', 'extras', 'libraries', 'runs', pathlib.Path(
              __file__).name))
  run(tmp_path / 'clone', '-m', 'pytest', '-q', '-m', 'not slow and not large',
      '-p', 'no:cacheprovider', 'tests')


def test_tests_of_the_trunk_import_no_leaf():
  importing = re.compile(r'^\s*(from|import) (vit_jax|tests)\.extras\b', re.M)
  folders = {'extras', 'libraries'}
  assert not [
      path.name for path in (ROOT / 'tests').rglob('*.py')
      if not folders & {*path.parts} and importing.search(path.read_text())]
