"""Training from the command line: its files, its weights and its stages."""

import json
import os
import pathlib
import subprocess
import sys
from unittest import mock

import jax
import numpy as np
import pytest

from tests import leaves
from tests import own_data
from tests import pictures
from tests import toy
import vit_jax
from vit_jax import __main__ as main
from vit_jax import registry
from vit_jax import run as run_lib
from vit_jax import schema
from vit_jax import tree
from vit_jax.checkpoints import items
from vit_jax.checkpoints import paths
from vit_jax.experiment import build as build_lib
from vit_jax.experiment import load_config
from vit_jax.run import loop
from vit_jax.training import health
from vit_jax.weights import open as open_lib
from vit_jax.weights.formats import npz

pytestmark = [pytest.mark.slow,  # It trains models.
              pytest.mark.usefixtures('one_device')]

ROOT = pathlib.Path(__file__).parent.parent.parent

CONFIG = {
    'total': {'steps': 24}, 'batch_size': 16, 'accumulation': 2,
    'averaging': 0.9,
    'evals': {'test': {'every': {'steps': 8}, 'batch_size': 120}},
    'log': {'every': {'steps': 3}},
    'checkpoint': {'every': {'steps': 5}, 'best': 'test/loss'},
}
STAGES = {
    'total': {'steps': 1},
    'stages': {
        'pretrain': {
            'model': {'representation_layer': True},
            'data': {'source': 'shapes', 'shapes': {
                'num_examples': 32, 'num_test_examples': 16}},
            'objective': {'loss': 'sigmoid'}},
        'finetune': {
            # The second stage must not change the parameters.
            'optimizer': {'learning_rate': 0.0},
            'evals': {'test': {'batch_size': 120}},
            'data': {'resolution': [12, 8]}, 'init': {'stage': 'pretrain'}}},
}
OWN_DATA = {
    'total': {'steps': 4}, 'model': {'patch': 3},
    'data': {'resolution': 9, 'split': 'train', 'unreadable': 'skip'},
    'checkpoint': {'every': {'steps': 2}, 'keep': 2},
    'log': {'every': {'steps': 2}}, 'evals': {'test': {'batch_size': 8}},
}
NAMES = ('ant', 'bee', 'cow')
UNREADABLE = {'3.png', '8.png', '23.png', '28.png'}

PROGRAM = """
import sys
sys.path.insert(0, sys.argv[1])
from vit_jax import __main__ as main
code = main.exit_code(sys.argv[2:])
heavy = {'tensorflow', 'torch', 'tensorboard'} & set(sys.modules)
sys.exit(f'imported {heavy}' if heavy else code)
"""


@pytest.fixture(scope='module')
def config_file(tmp_path_factory):
  return toy.write(tmp_path_factory.mktemp('config') / 'toy.py', **CONFIG)


@pytest.fixture(scope='module')
def whole(config_file, tmp_path_factory):
  """The workdir and the output of a run in a process of its own."""
  workdir = tmp_path_factory.mktemp('whole')
  process = subprocess.run(
      [sys.executable, '-c', PROGRAM, str(ROOT), f'--config={config_file}',
       f'--workdir={workdir}', f'--json={workdir}/figures.json',
       *['--profile=2'] * leaves.has(registry.PROFILER)],
      env={**os.environ, 'JAX_PLATFORMS': 'cpu'}, text=True, check=False,
      stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
  assert process.returncode == 0, process.stdout
  return workdir, process.stdout


def build(config_file, *flags):
  config = load_config.load(config_file, flags)['']
  return build_lib.build(config, devices=jax.devices()[:1])


def test_a_finished_workdir_has_summary_curves_profile_and_checkpoints(
    whole, config_file):
  workdir, output = whole
  assert (workdir / 'curves.png').exists() == leaves.has(registry.CURVES)
  assert any(workdir.glob('events.out.tfevents.*')) == leaves.has(
      registry.TENSORBOARD)
  for name in ('*.xplane.pb', 'perfetto_trace.json.gz'):
    assert any((workdir / 'profile').rglob(name)) == leaves.has(
        registry.PROFILER)
  summary = json.loads((workdir / 'summary.json').read_text())
  assert summary == json.loads((workdir / 'figures.json').read_text())
  assert summary['steps'] == 24
  assert summary['images'] == 24 * 16
  assert summary['device_hours'] > 0
  assert summary['core_hours_by_kind'] == {'cpu': summary['device_hours']}
  if count := registry.optional(registry.FLOPS):
    per_image = count(build(config_file)).forward
    assert summary['flops'] == 3 * per_image * 24 * 16
  last = {**toy.rows(workdir)[-2], **toy.rows(workdir)[-1]}
  assert summary['metrics']['test/accuracy'] == last['test/accuracy']
  assert summary['best']['value'] == min(
      row['test/loss'] for row in toy.rows(workdir) if 'test/loss' in row)
  best = paths.find(workdir, which='best')
  assert best.name == str(summary['best']['step'])
  assert items.read_config(best / 'config') == json.loads(
      (workdir / 'config.json').read_text())
  for words in ('1,437 images / 16', 'parameters', 'memory:', 'Summary',
                ' core-hours on cpu', 'of step'):
    assert words in output
  assert 'test/examples' not in output.split('Summary')[1]
  assert 'qkv_kernel' in (workdir / 'parameters.txt').read_text()


def test_evaluate_repeats_the_metrics_of_training(whole, tmp_path, capsys):
  command = ['evaluate', f'--workdir={whole[0]}',
             f'--json={tmp_path}/new/figures.json']
  summary = json.loads((whole[0] / 'summary.json').read_text())
  assert main.main(command) == 0
  assert 'the best checkpoint; for the last, --which' in capsys.readouterr().out
  found = json.loads((tmp_path / 'new/figures.json').read_text())
  assert found['metrics']['test/loss'] == pytest.approx(
      summary['best']['value'], rel=1e-6)
  assert main.main([*command, '--which=latest']) == 0
  found = json.loads((tmp_path / 'new/figures.json').read_text())
  assert found['parameters'] == 'average'
  assert found['metrics']['test/examples'] == 360
  for name, value in found['metrics'].items():
    assert value == pytest.approx(summary['metrics'][name], rel=1e-6)


def test_a_run_reads_and_describes_foreign_weights_once(
    whole, tmp_path, capsys, monkeypatch):
  read = mock.Mock(wraps=npz._load)
  path = tmp_path / 'weights.npz'
  vit_jax.load(whole[0], log=None).save(path, form='npz')
  monkeypatch.setattr(npz, '_load', read)
  file = toy.write(tmp_path / 'tune.py', total={'steps': 1})
  assert main.main([
      f'--config={file}', f'--workdir={tmp_path}/run',
      f'--config.init.checkpoint={path}',
      '--config.data.resolution=[12, 8]']) == 0
  assert capsys.readouterr().out.count('\n  model: ') == 1
  assert read.call_count == len(npz.open_file(path).shapes)
  trained = open_lib.open(tmp_path / 'run')
  assert trained.shapes['positions'].shape == (7, 8)
  assert trained.run['init']['checkpoint'] == str(path)


def test_a_non_finite_loss_stops_and_names_the_parameters(
    config_file, tmp_path):
  diverging = build(
      config_file, 'optimizer.learning_rate=1e37', 'log.every.steps=1',
      'checkpoint.every.steps=1')
  with pytest.raises(health.NonFiniteError, match='qkv_kernel') as error:
    run_lib.train(diverging, tmp_path)
  step = int(str(error.value).split('Step ')[1].split(':')[0])
  kept = paths.find(tmp_path)
  assert int(kept.name) < step
  assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(
      items.read_params(kept)))


def test_a_stage_starts_from_the_parameters_of_an_earlier_one(
    tmp_path, capsys, monkeypatch):
  file = toy.write(tmp_path / 'stages.py', **STAGES)
  train, live, held = loop.train, toy.Live(), []

  def counting(experiment, *args, **kwargs):
    held.append(live.count_with(experiment))
    return train(experiment, *args, **kwargs)

  monkeypatch.setattr(loop, 'train', counting)
  assert main.main([f'--config={file}', f'--workdir={tmp_path}/run']) == 0
  output = capsys.readouterr().out
  lines = [line.split() for line in output.splitlines()]
  action = {line[1]: line[0] for line in lines if len(line) > 1 and line[0] in (
      'resized:', 'new:', 'ignored:')}
  assert action['positions'] == 'resized:'
  assert action['head/dense/kernel'] == 'new:'
  assert action['representation/dense/kernel'] == 'ignored:'
  before, after = (tree.flatten(items.read_params(paths.find(
      tmp_path / 'run' / stage))) for stage in ('pretrain', 'finetune'))
  for name in after.keys() - {'positions'}:
    assert name.startswith('head/') or (after[name] == before[name]).all()
  summary = json.loads((tmp_path / 'run' / 'summary.json').read_text())
  assert set(summary['stages']) == {'pretrain', 'finetune'}
  assert (tmp_path / 'run/curves.png').exists() == leaves.has(registry.CURVES)
  assert summary['stages']['finetune']['metrics']['test/examples'] == 360
  assert 'pretrain' in output.split('Summary')[1]
  assert held == [1, 1]  # A finished stage is freed.


def test_all_stages_are_checked_before_the_first_trains(tmp_path, capsys):
  file = toy.write(tmp_path / 'stages.py', **STAGES)
  status = main.main([f'--config={file}', f'--workdir={tmp_path}/run',
                      '--config.stages.finetune.model.width=32'])
  assert status == 2
  assert 'does not fit the model' in capsys.readouterr().err
  assert not (tmp_path / 'run').exists()


def test_short_flags_set_keys_of_the_config(config_file):
  args = main.parse([
      'train', f'--config={config_file}', '--workdir=x', '--epochs=2', '--lr',
      '1e-3', '--batch-size=8', '--config.seed=4', '--resolution=16'])
  assert args.overrides == [
      'total.epochs=2.0', 'batch_size=8', 'optimizer.learning_rate=0.001',
      'data.resolution=16', 'seed=4']
  for config in load_config.load(args.config, args.overrides).values():
    assert config.total == schema.Duration(epochs=2)


def test_a_restarted_run_names_classes_and_counts_unreadable_images(
    tmp_path, capsys):
  for i in range(40):
    file = pictures.encode(pictures.picture(i, side=9))
    (tmp_path / f'{i}.png').write_bytes(
        file[:99] if f'{i}.png' in UNREADABLE else file)
  own_data.write_table(tmp_path, 'file_name,kind,weight,split', [
      (f'{i}.png', NAMES[i % 3], i, 'train' if i < 20 else 'test')
      for i in range(40)], name='table.csv', images=False)
  train = ['train', f'--config={toy.write(tmp_path / "config.py", **OWN_DATA)}',
           f'--config.data.source={tmp_path}/table.csv',
           '--config.data.table.label=kind']
  calm, workdir = tmp_path / 'calm', tmp_path / 'run'
  assert not main.main([*train, f'--workdir={calm}'])
  toy.copy_at(calm, workdir, step=2)
  assert not main.main([*train, f'--workdir={workdir}'])
  printed = ' '.join(capsys.readouterr().out.split())
  assert 'table.csv: single-label, 3 classes: ant, bee, cow (kind)' in printed
  assert printed.count('of 32 images were unreadable') == 2
  section = json.loads((workdir / 'config.json').read_text())['data']
  assert section['table']['label'] == 'kind'
  assert vit_jax.load(str(workdir)).preprocess.labels == NAMES
  expected, found = (json.loads((folder / 'summary.json').read_text())
                     for folder in (calm, workdir))
  assert found['unreadable'] == expected['unreadable'] > 2
  assert found['metrics']['test/examples'] == 18
  with (workdir / 'unreadable.jsonl').open() as file:
    assert {json.loads(line)['key'] for line in file} == UNREADABLE
