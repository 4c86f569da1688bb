"""The small experiments of docs/paper.md build and train."""

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

ROOT = pathlib.Path(__file__).parent.parent
FOLDER = ROOT / 'configs' / 'paper'
# Stages that cover the settings of a file.
CASES = {
    'figure4.py': ('ResNet,500,0', 'ResNet fine-tuned,500,0'),
    'figure5.py': ('hybrid,small,1',),
    'figure8.py': ('all,half,2',),
    'figure9.py': ('class token,1e-02,0',),
    'figure13.py': ('axial,1,0',),
    'table7.py': ('sgd,1e-01,0',),
}


def test_every_file_is_covered_and_short():
  files = {path.name for path in FOLDER.glob('*.py')}
  assert files == {*CASES, 'small.py', 'families.py', 'table2.py'}
  for name in files:
    assert len((FOLDER / name).read_text().splitlines()) <= 80, name


@pytest.mark.slow  # It trains models.
@pytest.mark.parametrize('case', [
    # Three models and stages each; others train each model. The notebook of the
    # paper trains those of figure 13.
    pytest.param(case, marks=[pytest.mark.large] * (case in (
        'figure4.py', 'figure5.py', 'figure8.py', 'figure9.py', 'figure13.py')))
    for case in CASES])
def test_stages_train(case, tmp_path):
  stages = load_config.load(f'{FOLDER}/{case}', [
      'total.steps=2', 'batch_size=8', 'data.shapes.num_examples=600',
      'data.shapes.num_test_examples=8', 'data.num_examples=16',
      'checkpoint.every.steps=1', 'log.every.steps=1'])
  for name in CASES[case]:
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
@pytest.mark.skipif(
    not leaves.has(registry.FLOPS), reason='It counts operations.')
def test_models_of_one_size_have_similar_cost():
  cost = {}
  for size in ('small', 'medium', 'large'):
    for family in ('ViT', 'hybrid', 'ResNet'):
      config = load_config.load(
          f'{FOLDER}/families.py:family={family},size={size}')['']
      cost[family] = registry.load(registry.FLOPS)(build_lib.build(
          config, devices=jax.devices()[:1])).forward
    assert max(cost.values()) / min(cost.values()) < 1.5, (size, cost)

