"""What `convert` writes is read back and is the same to the bit."""

import json

import numpy as np
import pytest

import main
from vit_jax import models
from vit_jax import tree
from vit_jax.inference import load
from vit_jax.weights import convert as convert_lib
from vit_jax.weights import names
from vit_jax.weights import npz
from vit_jax.weights import save
from vit_jax.weights import write as write_lib


@pytest.fixture
def source(tmp_path):
  config = models.parse({'width': 12, 'depth': 2, 'mlp_dim': 20, 'patch': 8,
                         'num_heads': 2, 'num_classes': 5})
  rng = np.random.default_rng(0)
  params = {name: rng.normal(size=s.shape).astype(np.float32)
            for name, s in tree.flatten(
                convert_lib.abstract_params(config, (32, 32))).items()}
  npz.write(tmp_path / 'source.npz',
            write_lib.to_arrays(names.FAMILIES['npz'], params))
  return tmp_path / 'source.npz', params


@pytest.mark.parametrize('form', save.FORMATS)
def test_each_format_is_written_read_back_and_reported(
    form, source, tmp_path, capsys):
  path, params = source
  assert main.main([
      'convert', f'--source={path}', f'--target={tmp_path / "out"}',
      f'--format={form}', '--set=mean=0.25', '--report',
      f'--json={tmp_path / "figures.json"}']) == 0
  output = capsys.readouterr().out
  assert 'the same to the bit' in output
  assert '-> final_norm/scale' in output
  again = load.load(tmp_path / 'out', log=None)
  for name, array in tree.flatten(again.params).items():
    np.testing.assert_array_equal(array, params[name])
  figures = json.loads((tmp_path / 'figures.json').read_text())
  assert figures['model']['width'] == 12
  assert figures['preprocess']['mean'] == [0.25] * 3
  assert any('-> final_norm/scale' in line for line in figures['report'])


def convert(source, target, form, capsys, *flags):
  assert main.main(['convert', f'--source={source}', f'--target={target}',
                    f'--format={form}', *flags]) == 0
  return capsys.readouterr().out


def test_the_report_is_printed_where_it_is_asked_for(source, tmp_path, capsys):
  assert '-> final_norm' not in convert(
      source[0], tmp_path / 'out', 'npz', capsys)


@pytest.mark.parametrize('form', ['timm', 'huggingface', 'orbax'])
def test_what_a_format_can_say_needs_nothing_to_be_given(
    form, source, tmp_path, capsys):
  output = convert(
      source[0], tmp_path / 'out', form, capsys, '--set=gelu=exact',
      '--set=layer_norm_epsilon=1e-5', '--set=crop=0.8', '--set=mean=0.25',
      '--set=positions=linear')
  assert 'parameters, read back and compared: the same' in output
  again = load.load(tmp_path / 'out', log=None)
  assert (again.config.layer_norm_epsilon, again.preprocess.crop,
          again.positions) == (1e-5, 0.8, 'linear')


def test_what_an_npz_cannot_say_is_given_in_words_that_load_takes(
    source, tmp_path, capsys):
  output = convert(
      source[0], tmp_path / 'out', 'npz', capsys, '--set=gelu=exact',
      '--set=pooling=average', '--set=resolution=32', '--set=crop=0.8')
  assert ("note: npz does not say pooling='average' and reads back as "
          "pooling='cls': load it with pooling='average'\n") in output
  assert "with gelu='exact' pooling='average' crop=0.8 and" in output
  assert load.load(tmp_path / 'out', log=None).config.pooling == 'cls'
  flags = ['--set=pooling=average', '--set=gelu=exact', '--set=crop=0.8']
  assert 'crop=0.8' in convert(
      tmp_path / 'out', tmp_path / 'again', 'npz', capsys, *flags)


def test_a_file_that_reads_back_as_another_is_an_error(
    source, tmp_path, capsys, monkeypatch):
  write = npz.write

  def change(path, arrays):
    write(path, {**arrays, 'cls': arrays['cls'] + 1})

  monkeypatch.setattr(npz, 'write', change)
  assert main.main([
      'convert', f'--source={source[0]}', f'--target={tmp_path / "out"}',
      '--format=npz']) == 2
  assert 'reads back with another cls. Do not use' in capsys.readouterr().err


@pytest.mark.parametrize(('flags', 'words'), [
    (['--set=num_head=2'], "Did you mean 'num_heads'"),
    (['--set=num_heads'], 'KEY=VALUE'),
    (['--set=depth=3'], 'depth: expected 3, found 2')])
def test_a_mistake_writes_nothing(flags, words, source, tmp_path, capsys):
  assert main.main([
      'convert', f'--source={source[0]}', f'--target={tmp_path / "out"}',
      '--format=timm', *flags]) == 2
  assert words in capsys.readouterr().err
  assert not (tmp_path / 'out').exists()
