"""Implementations are compared by round; missing ones are skipped."""

import argparse
import importlib
import json

import pytest

from vit_jax.models import attention
from vit_jax.models import factory

SETTING = {'task': 'train', 'dtype': 'float32', 'model': 'Ti/16',
           'resolution': 16, 'batch_size': 2}


@pytest.fixture(scope='module')
def compare():
  return importlib.import_module('compare')


def speeds(*secs):
  measurement = importlib.import_module('input_speed').Measurement
  return [measurement(8, s, 2 * s) for s in secs]


def test_a_ratio_is_the_median_over_rounds(compare):
  # The ratio of medians would be 2.
  rounds = {'ours': speeds(1, 4, 2), 'timm': speeds(3, 4, 8)}
  figures = compare.row('timm', rounds, SETTING)
  assert figures['ratio_per_sec'] == figures['ratio_per_cpu_sec'] == 3
  assert figures['images_per_sec'] == 2 == (
      2 * figures['images_per_cpu_sec'])
  assert compare.row('ours', rounds, SETTING)['ratio_per_sec'] == 1


def test_missing_implementations_are_skipped(
    compare, monkeypatch, tmp_path, capsys):
  started = {}

  def measure(commands, setting, **_):
    started.update(commands)
    return [compare.row(n, {n: speeds(1), 'ours': speeds(1)}, setting)
            for n in commands]

  nothing = tmp_path / 'python'
  nothing.write_text('#!/bin/sh\nexit 1\n')
  nothing.chmod(0o755)
  monkeypatch.setattr(compare, 'measure', measure)
  assert compare.main([
      '--task=train', f'--python=timm={nothing}', '--rounds=1',
      '--also=remat=model.remat=full --xla_some_flag=1',
      f'--json={tmp_path}/rows.json']) == 0
  printed = capsys.readouterr().out
  assert 'timm-compiled: skipped' in printed
  assert list(started) == ['ours', 'plain-flax', 'remat']
  assert '--xla_some_flag=1' in started['remat'][1]
  assert json.loads(started['remat'][-1])['overrides'] == ['model.remat=full']
  assert [row['implementation'] for row in json.loads(
      (tmp_path / 'rows.json').read_text())] == list(started)


@pytest.mark.parametrize(
    'name,task', [('ours', 'inference'), ('ours-unpadded', 'train'),
                  ('plain-flax', 'train')])
def test_our_implementations_run(monkeypatch, name, task):
  padded = attention.fused_attention
  monkeypatch.setattr(attention, 'fused_attention', padded)  # To restore it.
  tiny = {'width': 8, 'depth': 1, 'num_heads': 2, 'mlp_dim': 8}
  parse = factory.parse
  monkeypatch.setattr(factory, 'parse', lambda section: parse({
      **section, **tiny}))
  overrides = [f'model.{key}={value}' for key, value in tiny.items()]
  _, build = importlib.import_module(
      'implementations').IMPLEMENTATIONS[name]
  run, facts = build(argparse.Namespace(
      **{**SETTING, 'task': task, 'overrides': overrides}))
  run(2)
  assert ('flops_per_image' in facts) == name.startswith('ours')
  assert (attention.fused_attention is padded) == (name != 'ours-unpadded')
