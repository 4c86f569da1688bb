"""A plan is printed and written, for local devices and for TPU slices."""

import json
import re
from unittest import mock

import jax
import pytest

from tests import toy
from vit_jax import __main__ as main
from vit_jax.extras.plan import max_batch


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


@pytest.mark.parametrize(('flags', 'message'), [
    (['--max-batch', '--resolutions=224px'], "got '224px'"),
    (['--topology=v3-9'], 'Slices of v3: v3-8')])
def test_wrong_flags_are_errors(config, capsys, flags, message):
  assert main.main(['plan', f'--config={config}', *flags]) == 2
  assert message in capsys.readouterr().err


@pytest.mark.parametrize(('slice_', 'kind', 'name', 'gib'), [
    # The compiler's limits, of 16 and 95 GiB.
    ('v3-8', 'TPU v3', 'TPUv3', 15.48),
    ('v5p-8', 'TPU v5', 'TPUv5p', 95.74)])
def test_slices_are_planned(
    tmp_path, capsys, config, slice_, kind, name, gib):
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


def test_a_step_that_does_not_fit_fails_with_advice(
    tmp_path, capsys, config):
  pytest.importorskip('libtpu')
  status, stage, output = plan(
      tmp_path, capsys, f'--config={config}', '--topology=v3-8',
      '--config.batch_size=8388608')
  assert status == 1
  assert stage['cost']['fits'] is False
  assert 'DOES NOT FIT' in output
  assert '--config.accumulation=auto' in output
