"""A plan is printed and written, of devices that are here or only named."""

import importlib.metadata
import json
import math
import pathlib
import re
import shlex

import jax
import pytest

import main
from vit_jax.experiment import config as config_lib
from vit_jax.parallel import topology
from vit_jax.plan import max_batch

CONFIG = """
from ml_collections import ConfigDict

def get_config(batch_size=16):
  return ConfigDict({
      'total': {'epochs': 90}, 'batch_size': batch_size, 'accumulation': 1,
      'model': {'width': 32, 'depth': 2, 'num_heads': 2, 'mlp_dim': 64,
                'patch': 16, 'remat': 'full'},
      'data': {'source': 'imagenet21k', 'split': 'full[51200:]',
               'resolution': 32},
      'objective': {'loss': 'sigmoid'},
      'optimizer': {'name': 'adam', 'learning_rate': 0.1,
                    'schedule': {'name': 'constant'}},
      'evals': {'val': {'every': {'percent': 2}}},
  })
"""


@pytest.fixture(autouse=True)
def settings_of_this_process():
  """The command changes how JAX starts, which is over in a process of tests."""
  names = ('jax_enable_compilation_cache', 'jax_platforms')
  before = {name: getattr(jax.config, name) for name in names}
  yield
  for name, value in before.items():
    jax.config.update(name, value)


@pytest.fixture
def config(tmp_path):
  path = tmp_path / 'toy.py'
  path.write_text(CONFIG)
  return path


def plan(tmp_path, capsys, *arguments):
  path = tmp_path / 'plan.json'
  status = main.main(['plan', *map(str, arguments), f'--json={path}',
                      f'--config.data.data_dir={tmp_path}'])
  (stage,) = json.loads(path.read_text())['stages']
  return status, stage, capsys.readouterr().out


def test_the_devices_that_are_here_are_planned_for_without_the_data(
    tmp_path, capsys, config):
  status, stage, output = plan(
      tmp_path, capsys, f'--config={config}', '--sharding',
      '--config.model.dtype=bfloat16', '--config.model.attention=cudnn')
  assert status == 0
  lines = output.splitlines()
  (row,) = [line for line in lines
            if line.startswith('encoder/layers/mlp/hidden/kernel ')]
  assert '2 x 32 x 64' in row
  # The plan itself comes after the table's last line.
  end = [line.startswith('all ') for line in lines].index(True)
  output = '\n'.join(lines[end + 1:])
  assert "\nattention 'cudnn', which is plain here: it is for " in output
  measured = stage['measured']
  assert (measured['devices'], measured['device_kind']) == (8, 'cpu')
  assert measured['fits'] is True
  assert measured['recomputed_flops'] > 0
  assert 'all-reduce' in measured['collectives']
  assert stage['sizes_from'] == 'table'
  assert stage['epochs'] == pytest.approx(90, rel=1e-3)
  assert stage['estimate'] is None
  lines = output.splitlines()
  assert "batch 16 | remat 'full' | mesh data 8 x fsdp 1 x tensor 1" in lines
  assert any(line.split()[:1] == ['total'] and line.endswith('fits')
             for line in lines)
  assert "the peak of 'cpu' is not known" in output
  assert all(len(line) <= 80 for line in lines)


def test_a_slice_without_its_compiler_is_told_how_to_get_it(
    config, monkeypatch, capsys):
  def missing(name):
    raise importlib.metadata.PackageNotFoundError(name)

  monkeypatch.setattr(importlib.metadata, 'version', missing)
  assert main.main(['plan', f'--config={config}', '--topology=v3-8']) == 2
  said = capsys.readouterr().err
  name, = re.findall(r'pip install -r (\S+)', said)
  assert 'jax[tpu]' in (ROOT / name).read_text()  # Which brings libtpu.


def test_the_largest_batches_are_printed_written_and_drawn(
    tmp_path, capsys, monkeypatch, config):
  asked = {}

  def table(path, devices, **keywords):
    asked.update(keywords, path=path, devices=len(devices))
    for resolution in keywords['resolutions']:
      yield max_batch.Cell(
          model='B/16', resolution=resolution, used_resolution=resolution,
          batch=64, total_bytes=9 * 2**30, too_large=128,
          too_large_bytes=17 * 2**30, capacity_bytes=16 * 2**30, fsdp=1,
          compilations=2, compile_secs=3.0)

  monkeypatch.setattr(max_batch, 'table', table)
  written, picture = tmp_path / 'batch.json', tmp_path / 'batch.png'
  status = main.main([
      'plan', f'--config={config}', '--max-batch', '--models=B/16',
      '--resolutions=224,384', f'--json={written}', f'--picture={picture}',
      '--config.model.dtype=bfloat16'])
  output = capsys.readouterr().out
  assert status == 0
  assert asked == {
      'path': str(config), 'devices': 8, 'models': ['B/16'],
      'resolutions': [224, 384], 'overrides': ['model.dtype=bfloat16']}
  assert 'B/16 at 224: 64 fit (9.0 of 16.0 GiB), 128 do not (17.0)' in output
  cells = json.loads(written.read_text())['cells']
  assert [(c['resolution'], c['batch']) for c in cells] == [
      (224, 64), (384, 64)]
  assert picture.read_bytes().startswith(b'\x89PNG')


def test_sizes_that_are_no_numbers_are_an_error(capsys, config):
  status = main.main(['plan', f'--config={config}', '--max-batch',
                      '--resolutions=224px'])
  assert status != 0
  assert "got '224px'" in capsys.readouterr().err


def test_an_unknown_slice_is_an_error_before_anything_is_built(config, capsys):
  assert main.main(['plan', f'--config={config}', '--topology=v3-9']) == 2
  assert 'Slices of v3: v3-8' in capsys.readouterr().err


@pytest.mark.parametrize(('slice_', 'kind', 'name', 'gib'), [
    # What the compiler grants of 16, 32, 16, 95 and 32 GiB.
    ('v3-8', 'TPU v3', 'TPUv3', 15.48), ('v4-8', 'TPU v4', 'TPUv4', 30.75),
    ('v5e-8', 'TPU v5 lite', 'TPUv5e', 15.75),
    ('v5p-8', 'TPU v5', 'TPUv5p', 95.74),
    ('v6e-8', 'TPU v6 lite', 'TPUv6e', 31.25)])
def test_a_slice_is_planned_for(
    tmp_path, capsys, config, slice_, kind, name, gib):
  pytest.importorskip('libtpu')
  status, stage, output = plan(
      tmp_path, capsys, f'--config={config}', f'--topology={slice_}')
  assert status == 0
  measured = stage['measured']
  assert measured['device_kind'] == kind
  assert measured['fits'] is True
  assert measured['memory']['capacity_bytes'] / 2**30 == pytest.approx(
      gib, abs=0.25)
  # The products of the compiled program are those of the model.
  flops = measured['training_flops'] + measured['recomputed_flops']
  assert measured['work']['flops'] == pytest.approx(flops, rel=0.1)
  assert measured['collectives']['all-reduce']['count'] > 0
  e = stage['estimate']
  assert set(e['roof_secs']) == {'compute', 'memory', 'interconnect'}
  assert e['at_best']['step_secs'] == max(e['roof_secs'].values()) > 0
  assert 0 < e['at_best']['utilisation'] < 1
  assert f'{name}-core-days' in output
  assert all(len(line) <= 80 for line in output.splitlines())


def test_what_does_not_fit_says_so_and_fails(tmp_path, capsys, config):
  pytest.importorskip('libtpu')
  status, stage, output = plan(
      tmp_path, capsys, f'--config={config}:batch_size=8388608',
      '--topology=v3-8')
  assert status == 1
  assert stage['measured']['fits'] is False
  assert 'DOES NOT FIT' in output


ROOT = pathlib.Path(main.__file__).parent
# Of docs/plans.md.
PLANNED = {
    ('B/16', 'imagenet21k', 'v3-8'), ('L/16', 'imagenet21k', 'v3-8'),
    ('L/16', 'jft', 'v3-512'), ('H/14', 'jft', 'v3-512'),
    ('L/16', 'jft', 'v3-2048'), ('H/14', 'jft', 'v3-2048'),
    ('H/14', 'imagenet21k', 'v3-8'),
    ('G/14', 'jft', 'v5p-512'), ('22B/14', 'jft', 'v5p-1024')}


def published(name):
  """Yields of each command: model, data, slice, its config, what it printed."""
  text = (ROOT / name).read_text().replace('\\\n', ' ')
  for block, output in re.findall(
      r'^```bash\n(.*?)^```\n(?:\n^```\n(.*?)^```)?', text,
      re.DOTALL | re.MULTILINE):
    for line in block.splitlines():
      if not line.startswith('python main.py plan'):
        continue
      _, _, _, config, slice_, *overrides = shlex.split(line, comments=True)
      path, arguments = config.removeprefix('--config=').split(':')
      (resolved,) = config_lib.load(
          f'{ROOT}/{path}:{arguments}',
          [o.removeprefix('--config.') for o in overrides]).values()
      words = dict(pair.split('=') for pair in arguments.split(','))
      slice_ = slice_.removeprefix('--topology=')
      yield words['model'], words['dataset'], slice_, resolved, output


def test_plans_of_the_models_are_published_with_what_was_printed():
  plans = list(published('docs/plans.md'))
  assert {plan[:3] for plan in plans if plan[-1]} == PLANNED
  assert len(plans) == len(PLANNED)


def test_a_published_plan_is_what_its_command_plans():
  plans = [plan for plan in published('docs/plans.md') if plan[-1]]
  assert plans
  for model, dataset, slice_, config, output in plans:
    topology.parse(slice_)
    lines = output.splitlines()
    assert lines[0].startswith(f'{model}, {dataset} at 224 x 224')
    settings = next(line for line in lines if line.startswith('batch '))
    parts = f', in {config.num_microbatches} parts' if config.num_microbatches > 1 else ''
    assert settings.startswith(
        f'batch {config.batch_size:,}{parts} | '
        f'remat {config.model.remat!r} | ')
    num_devices, = re.findall(
        rf'^([\d,]+) x .* \({slice_}\) \|', output, re.MULTILINE)
    sizes = re.findall(r'(?:data|fsdp|tensor) (\d+)', settings)
    assert math.prod(map(int, sizes)) == int(num_devices.replace(',', ''))
