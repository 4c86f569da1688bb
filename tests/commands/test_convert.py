"""`convert` writes a file that loads as the same model."""

import dataclasses
import json

import jax
import pytest

from tests import random_models
from vit_jax import __main__ as main
from vit_jax.commands import arguments
from vit_jax.inference import load as load_lib
from vit_jax.weights.formats import npz


@pytest.fixture
def source(tmp_path):
  npz.write(tmp_path / 'source.npz', random_models.arrays('npz'))
  return tmp_path / 'source.npz'


def convert(source, target, form, *flags):
  return main.main(['convert', f'--source={source}', f'--target={target}',
                    f'--format={form}', *flags])


def test_a_file_is_written_verified_and_reported(source, tmp_path, capsys):
  assert convert(
      source, tmp_path / 'out', 'npz', '--set=gelu=exact', '--set=mean=0.25',
      '--set=layer_norm_epsilon=1e-5', '--set=pooling=cls',
      '--set=ops=[{"op": "resize", "size": 40}, {"op": "central_crop"}]',
      '--set=positions=cubic',
      f'--json={tmp_path / "figures.json"}') == 0
  output = capsys.readouterr().out
  assert 'bitwise identical' in output
  again = load_lib.load(tmp_path / 'out', log=None)
  random_models.assert_same(
      again.params, random_models.params(random_models.config_of()))
  assert (again.config.gelu, again.config.layer_norm_epsilon,
          again.preprocess.mean, again.positions) == (
              'exact', 1e-5, (0.25,) * 3, 'cubic')
  assert [op.size for op in again.preprocess.ops] == [(40, 40), (32, 32)]
  figures = json.loads((tmp_path / 'figures.json').read_text())
  assert figures['model']['width'] == 12
  assert figures['preprocess']['mean'] == [0.25] * 3


@pytest.mark.parametrize('dtype', [
    pytest.param('float16', marks=pytest.mark.slow), 'bfloat16'])
def test_half_precision_halves_the_file_and_rounds_once(
    dtype, source, tmp_path):
  assert not convert(source, tmp_path / 'whole', 'npz')
  assert not convert(source, tmp_path / 'half', 'npz', f'--dtype={dtype}')
  rounded = jax.tree.map(
      lambda array: array.astype(dtype).astype('float32'),
      load_lib.load(tmp_path / 'whole', log=None).params)
  random_models.assert_same(
      load_lib.load(tmp_path / 'half', log=None).params, rounded)
  whole, half = ((tmp_path / name).stat().st_size for name in ('whole', 'half'))
  assert half < 0.7 * whole


def test_a_file_that_loads_as_another_model_is_an_error(
    source, tmp_path, capsys, monkeypatch):
  write = npz.write

  def change(path, arrays):
    write(path, {**arrays, 'cls': arrays['cls'] + 1})

  monkeypatch.setattr(npz, 'write', change)
  assert convert(source, tmp_path / 'out', 'npz') == 2
  assert 'loads with other cls. Do not use' in capsys.readouterr().err


@pytest.mark.parametrize(('flags', 'words'), [
    (['--set=num_head=2'], "Did you mean 'num_heads'"),
    (['--set=depth=3'], 'expected (3, 12), found (2, 12)'),
    (['--format=orbax', '--dtype=float16'], 'orbax stores float32, but dtype')])
def test_a_mistake_writes_nothing(flags, words, source, tmp_path, capsys):
  assert convert(source, tmp_path / 'out', 'npz', *flags) == 2
  assert words in capsys.readouterr().err
  assert not (tmp_path / 'out').exists()


def test_thresholds_that_are_not_converted_are_named(
    source, tmp_path, monkeypatch, capsys):
  model = load_lib.load(source, log=None)
  monkeypatch.setattr(
      arguments, 'load_model', lambda *_: dataclasses.replace(
          model, thresholds=(0.9,) * model.config.num_classes))
  assert convert(source, tmp_path / 'out', 'npz') == 0
  assert 'note: the thresholds of the classes' in capsys.readouterr().out
