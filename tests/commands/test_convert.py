"""What `convert` writes is read back and is the same to the bit."""

import json

import numpy as np
import pytest

import main
from vit_jax import model as model_lib
from vit_jax import models
from vit_jax import tree
from vit_jax.checkpoints import export
from vit_jax.checkpoints import formats
from vit_jax.interop import names
from vit_jax.interop import npz


@pytest.fixture
def source(tmp_path):
  config = models.parse({'width': 12, 'depth': 2, 'mlp_dim': 20, 'patch': 8,
                         'num_heads': 2, 'num_classes': 5})
  rng = np.random.default_rng(0)
  params = {name: rng.normal(size=s.shape).astype(np.float32)
            for name, s in tree.flatten(
                formats.abstract_params(config, (32, 32))).items()}
  npz.write(tmp_path / 'source.npz',
            export.to_arrays(names.FAMILIES['npz'], params))
  return tmp_path / 'source.npz', params


@pytest.mark.parametrize('form', model_lib.FORMATS)
def test_each_format_is_written_read_back_and_reported(
    form, source, tmp_path, capsys):
  path, params = source
  assert main.main([
      'convert', f'--source={path}', f'--target={tmp_path / "out"}',
      f'--format={form}', '--set=mean=0.25',
      f'--json={tmp_path / "figures.json"}']) == 0
  output = capsys.readouterr().out
  assert 'the same to the bit' in output
  assert '-> final_norm/scale' in output
  again = model_lib.load(tmp_path / 'out', log=None, num_heads=2)
  for name, array in tree.flatten(again.params).items():
    np.testing.assert_array_equal(array, params[name])
  figures = json.loads((tmp_path / 'figures.json').read_text())
  assert figures['model']['width'] == 12
  assert figures['preprocess']['mean'] == [0.25] * 3


@pytest.mark.parametrize(('flags', 'words'), [
    (['--set=num_head=2'], "Did you mean 'num_heads'"),
    (['--set=num_heads'], 'KEY=VALUE'),
    (['--set=depth=3'], 'expected (3, 12), found (2, 12)')])
def test_a_mistake_writes_nothing(flags, words, source, tmp_path, capsys):
  assert main.main([
      'convert', f'--source={source[0]}', f'--target={tmp_path / "out"}',
      '--format=timm', *flags]) == 2
  assert words in capsys.readouterr().err
  assert not (tmp_path / 'out').exists()
