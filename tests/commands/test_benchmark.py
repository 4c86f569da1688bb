"""Command `benchmark` measures each alternative separately, in turn."""

import json

import jax
import pytest

import main
from vit_jax.benchmarking import interleaved_timing
from vit_jax.benchmarking import matmul_peak
from vit_jax.benchmarking import workload
from vit_jax.commands import benchmark
from vit_jax.experiment import build as experiment_lib

TINY = ('model.width=8', 'model.depth=1', 'model.num_heads=2',
        'model.mlp_dim=8')


@pytest.fixture(scope='module')
def figures(tmp_path_factory):
  """JSON of the step of a tiny model."""
  path = tmp_path_factory.mktemp('step') / 'figures.json'
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(benchmark, 'NUM_PHOTOS', 2)
    patch.setattr(matmul_peak, 'SIZES', (64,))
    assert main.main([
        'benchmark', '--model=Ti/16', '--workers=0', '--rounds=2',
        '--config.data.resolution=16', '--batches=1', f'--json={path}',
        *(f'--config.{words}' for words in TINY)]) == 0
  return json.loads(path.read_text())


@pytest.mark.slow  # It trains a model.
def test_figures_follow_from_times_and_the_flops_of_the_experiment(figures):
  config = workload.config(
      'Ti/16', resolution=16, batch_size=8,
      source='imagenet2012', overrides=TINY)
  counted = experiment_lib.build(config, jax.devices(), expected_data=True)
  assert figures['train']['flops_per_image'] == (
      counted.training_flops_per_image)
  assert figures['inference']['flops_per_image'] == counted.flops_per_image
  assert figures['devices'] == 8
  assert figures['peak']['flops_per_sec'] == pytest.approx(
      8 * 2 * 64**3 / figures['peak']['timing']['secs']['median'])
  for name in ('train', 'inference'):
    part = figures[name]
    secs = part['timing']['secs']
    assert 0 < secs['lowest'] <= secs['median'] <= secs['highest']
    assert part['images_per_sec'] == pytest.approx(8 / secs['median'])
    assert part['matmul_utilisation'] == pytest.approx(
        part['images_per_sec'] * part['flops_per_image']
        / figures['peak']['flops_per_sec'])
    assert part['datasheet_utilisation'] is None  # Unknown for CPUs.
  # Training also needs gradients and Adam's moments.
  assert figures['train']['needed_bytes'] > 2 * (
      figures['inference']['needed_bytes'])
  assert 0 <= figures['input']['wait_share']['median'] <= 1


@pytest.mark.parametrize(('flags', 'words'), [
    ([], 'requires either --model'),
    (['--model=B/16', '--rounds=0'], '--rounds must be at least 1')])
def test_wrong_flags_are_errors(flags, words, capsys):
  assert main.main(['benchmark', *flags]) == 2
  assert words in capsys.readouterr().err


def test_actions_are_interleaved():
  done = []
  timed = interleaved_timing.interleave(
      {'a': lambda n: done.append(('a', n)),
       'b': lambda n: done.append(('b', n))}, rounds=2, repeats=3)
  assert done == [('a', 1), ('b', 1), *2 * [('a', 3), ('b', 3)]]
  assert timed['a'].repeats == 3 and timed['b'].rounds == 2
