"""Command `benchmark` measures each alternative separately, in turn."""

import json

import pytest

from tests import toy
from vit_jax import __main__ as main
from vit_jax.extras.plan import interleaved_timing
from vit_jax.extras.plan import model_flops


@pytest.fixture(scope='module')
def figures(tmp_path_factory):
  """JSON of the step of a tiny model."""
  folder = tmp_path_factory.mktemp('step')
  config, path = toy.write(folder / 'toy.py'), folder / 'figures.json'
  assert main.main([
      'benchmark', f'--config={config}', '--rounds=2', '--batches=1',
      f'--json={path}']) == 0
  return json.loads(path.read_text())


@pytest.mark.slow  # It trains a model.
def test_figures_follow_from_times_and_the_flops_of_the_experiment(figures):
  counted = model_flops.per_image(toy.build(devices=8))
  assert figures['train']['flops_per_image'] == (
      counted.training)
  assert figures['inference']['flops_per_image'] == counted.forward
  assert figures['devices'] == 8
  for name in ('train', 'inference'):
    part = figures[name]
    secs = part['secs']
    assert 0 < secs['lowest'] <= secs['median'] <= secs['highest']
    assert part['images_per_sec'] == pytest.approx(8 / secs['median'])
    assert part['flops_per_sec'] == pytest.approx(
        part['images_per_sec'] * part['flops_per_image'])
    assert part['utilisation'] is None  # Unknown for CPUs.
  # Training also needs gradients and Adam's moments.
  assert figures['train']['needed_bytes'] > 2 * (
      figures['inference']['needed_bytes'])


@pytest.mark.slow  # It trains a model.
def test_a_model_is_measured_without_a_config(tmp_path):
  path = tmp_path / 'figures.json'
  assert main.main([
      'benchmark', '--model=Ti/16', '--rounds=1', '--batches=1',
      '--config.data.resolution=16', '--config.model.width=8',
      '--config.model.depth=1', '--config.model.num_heads=2',
      '--config.model.mlp_dim=8', f'--json={path}']) == 0
  figures = json.loads(path.read_text())
  assert (figures['model'], figures['batch_size']) == ('Ti/16', 8)
  # Patch, block of two tokens, and head of ImageNet's classes.
  forward = 2 * 768 * 8 + (768 + 256 + 128 + 512) + 2 * 8 * 1000
  assert figures['inference']['flops_per_image'] == forward
  assert figures['train']['flops_per_image'] == 3 * forward


@pytest.mark.parametrize(('flags', 'words'), [
    ([], 'requires either --model'),
    (['--model=B/16', '--rounds=0'], 'rounds must be at least 1')])
def test_wrong_flags_are_errors(flags, words, capsys):
  assert main.main(['benchmark', *flags]) == 2
  assert words in capsys.readouterr().err


def test_actions_are_interleaved():
  done = []
  interleaved_timing.interleave(
      {'a': lambda n: done.append(('a', n)),
       'b': lambda n: done.append(('b', n))}, rounds=2, repeats=3)
  assert done == [('a', 1), ('b', 1), *2 * [('a', 3), ('b', 3)]]
