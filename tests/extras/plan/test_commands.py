"""Commands `plan`, `flops` and `benchmark` print and write what they count."""

import json
import pathlib
import re
from unittest import mock

import jax
import pytest

from tests import toy
from vit_jax import __main__ as main
from vit_jax.experiment import config as config_lib
from vit_jax.extras.plan import interleaved_timing
from vit_jax.extras.plan import max_batch
from vit_jax.extras.plan import model_flops
from vit_jax.extras.plan import paper_costs

CONFIGS = pathlib.Path(__file__).parents[3] / 'configs'
PRETRAIN, QUICKSTART = CONFIGS / 'pretrain.py', CONFIGS / 'quickstart.py'


@pytest.fixture(autouse=True)
def restore_jax_settings():
  """The command changes settings of its own process."""
  names = ('jax_enable_compilation_cache', 'jax_platforms')
  before = {name: getattr(jax.config, name) for name in names}
  yield
  for name, value in before.items():
    jax.config.update(name, value)


@pytest.fixture
def config(tmp_path):
  return toy.write(
      tmp_path / 'toy.py', total={'epochs': 90}, batch_size=16, accumulation=1,
      model={'width': 32, 'depth': 2, 'mlp_dim': 64, 'patch': 16,
             'remat': 'full'},
      data={'source': 'imagenet21k', 'split': 'train',
            'resolution': 32},
      objective={'loss': 'sigmoid'},
      evals={'val': {'every': {'percent': 2}}})


def plan(tmp_path, capsys, *arguments):
  path = tmp_path / 'plan.json'
  status = main.main(['plan', *map(str, arguments), f'--json={path}',
                      f'--config.data.data_dir={tmp_path}'])
  (stage,) = json.loads(path.read_text())['stages']
  return status, stage, capsys.readouterr().out


def test_local_devices_are_planned_without_the_data(tmp_path, capsys, config):
  status, stage, output = plan(
      tmp_path, capsys, f'--config={config}', '--sharding',
      '--config.model.dtype=bfloat16')
  assert status == 0
  (row,) = [line for line in output.splitlines()
            if 'encoder/layers/mlp/hidden/kernel ' in line]
  assert '(2, 32, 64)' in row and "'fsdp'" in row
  cost = stage['cost']
  assert (cost['devices'], cost['device_kind']) == (8, 'cpu')
  assert cost['fits'] is True
  assert cost['recomputed_flops'] > 0
  assert 'all-reduce' in cost['collectives']
  assert stage['settings']['dtype'] == 'bfloat16'
  assert stage['sizes_from'] == 'table'
  assert stage['epochs'] == pytest.approx(90, rel=1e-3)
  assert stage['estimate'] is None
  lines = output.splitlines()
  assert "batch 16 | remat 'full' | mesh data 8 x fsdp 1 x tensor 1" in lines
  assert re.search(r'total .*: fits', output)
  assert not re.search(r' -\d', output)
  assert "the peak of 'cpu' is unknown" in output


def test_largest_batches_are_printed_written_and_drawn(
    tmp_path, capsys, monkeypatch, config):
  cells = [{'model': 'B/16', 'resolution': side, 'used_resolution': side,
            'batch': 64, 'total_bytes': 9 * 2**30,
            'capacity_bytes': 16 * 2**30, 'compile_secs': 3.0}
           for side in (224, 384)]
  table = mock.Mock(return_value=cells)
  monkeypatch.setattr(max_batch, 'table', table)
  assert main.main([
      'plan', f'--config={config}', '--max-batch', '--models=B/16',
      '--resolutions=224,384', f'--json={tmp_path}/batch.json',
      f'--picture={tmp_path}/batch.png', '--config.model.dtype=bfloat16']) == 0
  table.assert_called_once_with(
      config, jax.devices(), models=['B/16'], resolutions=[224, 384],
      overrides=['model.dtype=bfloat16'])
  assert 'B/16 at 224: 64 fit (9.0 GiB of 16.0 GiB) |' in (
      capsys.readouterr().out)
  assert json.loads((tmp_path / 'batch.json').read_text())['cells'] == cells
  assert (tmp_path / 'batch.png').read_bytes().startswith(b'\x89PNG')


@pytest.mark.parametrize(('slice_', 'kind', 'name', 'gib'), [
    # The compiler's limits, of 16 and 95 GiB.
    ('v3-8', 'TPU v3', 'TPUv3', 15.48),
    ('v5p-8', 'TPU v5', 'TPUv5p', 95.74)])
def test_slices_are_planned(tmp_path, capsys, config, slice_, kind, name, gib):
  pytest.importorskip('libtpu')
  status, stage, output = plan(
      tmp_path, capsys, f'--config={config}', f'--topology={slice_}',
      '--config.model.dtype=auto')
  assert status == 0
  cost = stage['cost']
  assert cost['device_kind'] == kind
  assert stage['settings']['dtype'] == 'bfloat16'  # Not that of the host.
  assert cost['fits'] is True
  assert cost['memory']['capacity_bytes'] / 2**30 == pytest.approx(
      gib, abs=0.25)
  assert cost['traffic_bytes'] > cost['memory']['params_bytes']
  assert cost['collectives']['all-reduce']['count'] > 0
  e = stage['estimate']
  assert set(e['bounds']) == {'compute', 'memory', 'interconnect'}
  assert e['full_overlap']['step_secs'] == max(
      bound['secs'] for bound in e['bounds'].values()) > 0
  assert 0 < e['full_overlap']['mfu'] < 1
  assert f'{name}-core-days' in output


def test_a_step_that_does_not_fit_fails_with_advice(tmp_path, capsys, config):
  pytest.importorskip('libtpu')
  status, stage, output = plan(
      tmp_path, capsys, f'--config={config}', '--topology=v3-8',
      '--config.batch_size=8388608')
  assert status == 1
  assert stage['cost']['fits'] is False
  assert 'DOES NOT FIT' in output
  assert '--config.accumulation=auto' in output


def test_the_tables_are_printed_and_written(tmp_path, capsys, monkeypatch):
  # Other tests count all rows.
  monkeypatch.setattr(paper_costs, 'TABLE_6', [('B/16', 7, 224)])
  monkeypatch.setattr(paper_costs, 'TABLE_2', [
      row for row in paper_costs.TABLE_2 if row[:2] == ('L/16', 'jft')])
  path = tmp_path / 'new' / 'flops.json'
  assert main.main(['flops', f'--json={path}']) == 0
  lines = [line.split() for line in capsys.readouterr().out.splitlines()]
  assert ['B/16', '7', '17.56', '224', '224', '-0.2', '%'] in lines
  assert ['L/16', 'jft', '14', '1,567', '680', '43.4', '%'] in lines
  written = json.loads(path.read_text())
  assert [(r['variant'], r['epochs'], r['paper'])
          for r in written['table_6']] == paper_costs.TABLE_6
  assert len(written['table_2']) == 1


def count(tmp_path, capsys, *arguments):
  path = tmp_path / 'flops.json'
  assert main.main(['flops', *arguments, f'--json={path}']) == 0
  return json.loads(path.read_text()), capsys.readouterr().out


def test_a_config_is_counted_without_its_data(tmp_path, capsys):
  written, output = count(
      tmp_path, capsys, f'--config={PRETRAIN}:model=B/16,dataset=jft:1.0.0',
      f'--config.data.data_dir={tmp_path}')
  (stage,) = written['stages']
  assert stage['images'] == pytest.approx(7 * 303e6, rel=1e-5)
  assert stage['epochs'] == pytest.approx(7, rel=1e-5)
  assert stage['exaflops'] == pytest.approx(224, rel=0.01)
  assert (stage['paper_exaflops'], stage['paper_core_days']) == (224, None)
  assert stage['sizes_from'] == 'table'
  # 40 % of 61.5 TFLOP/s.
  assert stage['core_days'] == pytest.approx(
      stage['exaflops'] * 1e18 / (0.4 * 61.5e12 * 86400))
  assert 'jft:1.0.0 is not available' in output
  assert 'Paper, Table 6: 224 exaFLOPs' in output
  assert 'an assumption: see --utilisation' in output


@pytest.mark.slow
def test_each_stage_has_a_row(tmp_path, capsys):
  written, output = count(tmp_path, capsys, f'--config={QUICKSTART}',
                          '--config.mesh.fsdp=64')
  stages = {stage['stage']: stage for stage in written['stages']}
  assert next(iter(stages)) == 'pretrain'
  assert stages['finetune']['images'] == 240 * 32
  assert stages['finetune']['epochs'] == pytest.approx(240 * 32 / 1437)
  assert {stage['sizes_from'] for stage in stages.values()} == {'data'}
  assert written['exaflops'] == pytest.approx(
      sum(stage['exaflops'] for stage in stages.values()))
  first = {line.split()[0] for line in output.splitlines() if line.split()}
  assert {*stages, 'all'} <= first


def benchmark(folder, *flags):
  """Returns the figures that the command writes."""
  path = folder / 'figures.json'
  assert main.main(['benchmark', '--batches=1', *flags, f'--json={path}']) == 0
  return json.loads(path.read_text())


@pytest.mark.slow  # It trains a model.
def test_figures_follow_from_times_and_the_flops_of_the_experiment(tmp_path):
  figures = benchmark(
      tmp_path, f'--config={toy.write(tmp_path / "toy.py")}', '--rounds=2')
  counted = model_flops.per_image(toy.build(devices=8))
  assert figures['devices'] == 8
  for name, flops in (
      ('train', counted.training), ('inference', counted.forward)):
    part = figures[name]
    secs = part['secs']
    assert part['flops_per_image'] == flops
    assert 0 < secs['lowest'] <= secs['median'] <= secs['highest']
    assert part['images_per_sec'] == pytest.approx(8 / secs['median'])
    assert part['flops_per_sec'] == pytest.approx(
        part['images_per_sec'] * flops)
    assert part['utilisation'] is None  # Unknown for CPUs.
  # Training also needs gradients and Adam's moments.
  assert figures['train']['needed_bytes'] > 2 * (
      figures['inference']['needed_bytes'])


@pytest.mark.slow  # It trains a model.
def test_a_model_is_measured_without_a_config(tmp_path):
  figures = benchmark(
      tmp_path, '--model=Ti/16', '--rounds=1', '--config.data.resolution=16',
      '--config.model.width=8', '--config.model.depth=1',
      '--config.model.num_heads=2', '--config.model.mlp_dim=8')
  assert (figures['model'], figures['batch_size']) == ('Ti/16', 8)
  # Patch, block of two tokens, and head of ImageNet's classes.
  forward = 2 * 768 * 8 + (768 + 256 + 128 + 512) + 2 * 8 * 1000
  assert figures['inference']['flops_per_image'] == forward
  assert figures['train']['flops_per_image'] == 3 * forward


def test_actions_are_interleaved():
  done = []
  interleaved_timing.interleave(
      {'a': lambda n: done.append(('a', n)),
       'b': lambda n: done.append(('b', n))}, rounds=2, repeats=3)
  assert done == [('a', 1), ('b', 1), *2 * [('a', 3), ('b', 3)]]


@pytest.mark.parametrize(('command', 'flags', 'words'), [
    ('plan', ['--max-batch', '--resolutions=224px'], "got '224px'"),
    ('plan', ['--topology=v3-9'], 'Slices of v3: v3-8'),
    ('flops', ['--config.seed=3'], '--config is missing'),
    ('flops', ['--utilisation=40'], 'above 0 and at most 1, but is 40'),
    ('flops', [f'--config={PRETRAIN}:dataset=nowhere',
               '--config.data.data_dir=/no'], "No dataset 'nowhere'"),
    # The error is about the model, not about the missing data.
    ('flops', [f'--config={CONFIGS}/finetune.py:model=H/14,dataset=cifar10,'
               'resolution=384', '--config.data.data_dir=/no'], 'divide'),
    ('benchmark', [], 'requires either --model'),
    ('benchmark', ['--model=B/16', '--rounds=0'], 'rounds must be at least 1')])
def test_mistakes_are_errors(command, flags, words, config, capsys):
  flags = [f'--config={config}', *flags] if command == 'plan' else flags
  assert main.main([command, *flags]) == 2
  assert words in capsys.readouterr().err


@pytest.mark.parametrize(('changes', 'variant'), [
    ({}, 'Ti/16'), ({'depth': 2}, ''), ({'patch': 8}, '')])
def test_the_paper_reports_costs_of_its_own_models(changes, variant):
  config = config_lib.resolve({
      **toy.CONFIG, 'model': {'variant': 'Ti/16', **changes}})
  assert paper_costs.variant(config) == variant
