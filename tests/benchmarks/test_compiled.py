"""Rows of the table of compiled steps are measured in the same way."""

import importlib
import json

import jax
import pytest

from vit_jax.models import factory
from vit_jax.parallel import topology

TINY = {'width': 8, 'depth': 2, 'num_heads': 2, 'mlp_dim': 8}
# As big_vision's model is called, on the encoder of `plain_flax.py`.
BIG_VISION = """
import plain_flax
import types

def Model(num_classes, *, variant, pool_type, dtype_mm, scan=False,
          remat_policy=None):
  sizes = types.SimpleNamespace(patch_shape=(16, 16), **TINY)
  model = plain_flax.ViT(sizes, num_classes, dtype_mm)
  return types.SimpleNamespace(
      init=model.init, apply=lambda params, images, train: (
          model.apply(params, images), {}))
""".replace('TINY', repr(TINY))


@pytest.mark.slow
def test_equal_models_have_equal_flops(monkeypatch, tmp_path, capsys):
  compiled = importlib.import_module('compiled')
  package = tmp_path / 'big_vision' / 'models'
  package.mkdir(parents=True)
  (package / 'vit.py').write_text(BIG_VISION)
  parse = factory.parse
  monkeypatch.setattr(
      factory, 'parse', lambda section: parse({**section, **TINY}))
  monkeypatch.setattr(topology, 'devices', lambda name: jax.devices())
  overrides = ' '.join(f'model.{key}={value}' for key, value in TINY.items())
  compiled.main([
      '--settings', 'Ti/16x2@32', '--chips', 'v4-8', f'--overrides={overrides}',
      f'--big-vision={tmp_path}', f'--json={tmp_path}/rows.json',
      '--rows', 'ours remat=none', 'plain Flax', 'big_vision'])
  ours, plain, other = json.loads((tmp_path / 'rows.json').read_text())
  assert ours['tflop'] == plain['tflop'] == other['tflop'] > 0
  assert plain['gb'] == other['gb'] > 0
  assert 'plain' in capsys.readouterr().out


def test_tables_break_no_words_at_80_columns(capsys):
  compiled = importlib.import_module('compiled')
  names = [*compiled.rows('big_vision'), 'plain Flax']
  figures = {key: 123.45 for part in compiled.COLUMNS for key in part}
  compiled.show('Title', dict.fromkeys(names, figures))
  shown = capsys.readouterr().out
  assert max(map(len, shown.splitlines())) <= 80
  words = ' '.join(names).replace('_saveable', '').split()
  assert {*words} <= {*shown.split()}


def test_a_malformed_setting_is_an_error(capsys):
  with pytest.raises(SystemExit):
    importlib.import_module('compiled').main(['--settings', 'L/16'])
  assert "MODELxIMAGES@PIXELS, such as B/16x256@224, but got 'L/16'" in (
      capsys.readouterr().err)
