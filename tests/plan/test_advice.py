"""What would make a step fit is tried, the cheapest first."""

import dataclasses

import jax
import pytest

from vit_jax.experiment import config as config_lib
from vit_jax.parallel import mesh as mesh_lib
from vit_jax.plan import advice

GIB = 2**30
CONFIG = {
    'total': {'steps': 4}, 'batch_size': 64, 'accumulation': 1,
    'model': {'width': 8, 'depth': 1, 'num_heads': 2, 'mlp_dim': 16,
              'patch': 4, 'remat': 'none'},
    'data': {'source': 'digits', 'resolution': 8},
    'optimizer': {'name': 'adam', 'learning_rate': 1e-3,
                  'schedule': {'name': 'constant'}},
}
# GiB that the faked steps take of activations, by what is computed again.
ACTIVATIONS = {'none': 32.0, 'attention': 28.0, 'dots': 16.0, 'full': 4.0}
FLOPS = {'none': 3.0, 'attention': 3.1, 'dots': 3.2, 'full': 4.0}


def compiler(measured, capacity):
  """Returns a faked compiler: 4 GiB of parameters, 8 of optimizer."""
  def measure(experiment):
    config = experiment.config
    fsdp = experiment.mesh.shape['fsdp']
    momentum = 2.0 if config.optimizer.momentum_dtype == 'bfloat16' else 4.0
    share = config.batch_size / 64
    total = (4 + 4 + momentum) / fsdp + (
        ACTIVATIONS[config.model.remat] * share / config.parts)
    return measured(
        total, capacity, recomputed=FLOPS[config.model.remat] - 3)
  return measure


@pytest.fixture
def suggest(measured):
  def run(capacity, *, devices=8, **changes):
    config, said = config_lib.resolve({**CONFIG, **changes}), []
    rows = advice.suggest(
        config, jax.devices()[:devices], measured=measured(
            44.0, capacity, mesh=(devices, 1, 1)),
        measure=compiler(measured, capacity), say=said.append)
    assert sum('left out' not in line for line in said) == len(rows)
    return {row.overrides: row for row in rows}, said
  return run


def test_each_setting_is_tried_alone_and_said_as_it_is_pasted(suggest):
  rows, said = suggest(capacity=28.5)
  fits = {overrides: row.fits for overrides, row in rows.items()}
  assert fits.pop(('optimizer.momentum_dtype=bfloat16',)) is False
  assert fits.pop(('mesh.fsdp=8',)) is False
  assert fits.pop(('model.remat=full',)) is True
  assert fits.pop(('model.remat=dots',)) is True
  assert fits.pop(('accumulation=2',)) is True
  fits.pop(('model.remat=attention',), None)
  assert not fits
  dots = rows['model.remat=dots',]
  assert dots.total_bytes == 28 * GIB
  assert dots.extra_flops == pytest.approx(0.2 / 3)
  line = next(line for line in said if 'dots' in line)
  assert line.split() == ['28.0', 'yes', '+7%', '--config.model.remat=dots']


def test_a_best_checkpoint_by_an_evaluator_is_in_no_setting_s_way(suggest):
  rows, said = suggest(
      capacity=28.5, evals={'val': {}}, checkpoint={'best': 'val/accuracy'})
  assert rows['accumulation=2',].fits
  assert not any('left out' in line for line in said)


def test_parts_are_the_fewest_that_fit(suggest):
  rows, _ = suggest(capacity=17)
  parts = [o for (o, *_), row in rows.items()
           if o.startswith('accumulation') and row.fits]
  assert parts == ['accumulation=8']  # 12 + 32 / 8 = 16.


def test_what_does_not_fit_alone_is_tried_together_the_cheapest_first(
    suggest):
  rows, _ = suggest(capacity=6)
  both = ('optimizer.momentum_dtype=bfloat16', 'mesh.fsdp=8')
  assert [overrides for overrides, row in rows.items() if row.fits] == [
      (*both, 'accumulation=8')]  # 10 / 8 + 32 / 8 = 5.25.
  assert rows[both].total_bytes == (10 / 8 + 32) * GIB
  # Nothing dearer was tried after what fits.
  assert list(rows)[-1] == (*both, 'accumulation=8')


def test_what_is_set_already_is_not_tried_again(suggest):
  rows, _ = suggest(
      capacity=1, devices=1, model={**CONFIG['model'], 'remat': 'full'},
      optimizer={**CONFIG['optimizer'], 'momentum_dtype': 'bfloat16'})
  assert [key[0].split('=')[0] for key in rows] == ['accumulation']


@pytest.mark.parametrize(('capacity', 'expected', 'fits'), [
    # 12 / fsdp + 32 GiB.
    (38.5, 'mesh.fsdp=2', True), (35.5, 'mesh.fsdp=4', True),
    (34.0, 'mesh.fsdp=8', True), (30.0, 'mesh.fsdp=8', False)])
def test_parameters_are_split_over_the_fewest_devices_that_fit(
    suggest, capacity, expected, fits):
  rows, _ = suggest(capacity)
  found = [o for o in rows if len(o) == 1 and o[0].startswith('mesh.')]
  assert found == [(expected,)]
  assert rows[expected,].fits is fits


def test_no_more_devices_split_the_parameters_than_divide_them(suggest):
  # As H/14, of width 1,280, on 512 cores.
  rows, said = suggest(
      capacity=30, model={**CONFIG['model'], 'width': 12})
  assert ('mesh.fsdp=4',) in rows
  assert not any('left out' in line for line in said)


def test_a_setting_that_the_config_does_not_go_with_is_named_once(
    suggest, monkeypatch):
  build = advice.building.build

  def without_eight(config, devices):
    if config.mesh.fsdp == 8:
      raise ValueError('8 is not possible here.')
    return build(config, devices)

  monkeypatch.setattr(advice.building, 'build', without_eight)
  rows, said = suggest(capacity=6)
  line, = (line for line in said if 'left out' in line)
  assert line.endswith(
      'left out: --config.mesh.fsdp=8  (8 is not possible here.)')
  assert ('mesh.fsdp=4',) in rows  # The next best.


def test_an_fsdp_that_the_mesh_leaves_no_room_for_frees_it():
  config = config_lib.resolve({**CONFIG, 'mesh': {'data': 8}})
  splits = advice._splits(config, {'data': 8, 'fsdp': 1, 'tensor': 1})
  assert [setting.overrides for setting in splits] == [
      ('mesh.data=4', 'mesh.fsdp=2'), ('mesh.data=2', 'mesh.fsdp=4'),
      ('mesh.data=1', 'mesh.fsdp=8')]
  for setting in splits:
    changed = config_lib.resolve_with(
        config_lib.to_plain(config), setting.overrides)
    built = mesh_lib.build(changed.mesh, jax.devices()[:8])
    assert f'mesh.fsdp={built.shape["fsdp"]}' == setting.overrides[-1]


def test_by_how_much_and_what_to_do_is_said(measured):
  header = ' '.join(advice.header(measured(44.0, 15.0)).split())
  assert header.startswith(
      'Does not fit: 44.0 GiB a device, 29.0 more than the 15.0 that are there')
  row = advice.Row(
      overrides=('accumulation=2',), price='', fits=False, total_bytes=GIB,
      capacity_bytes=GIB, extra_flops=0.0)
  assert 'None of these fits' in advice.footer([row])
  assert 'add its flags' in advice.footer(
      [row, dataclasses.replace(row, fits=True)])
