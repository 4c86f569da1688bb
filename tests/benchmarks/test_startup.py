"""A start measures its phases."""

import json
import time

import pytest
import startup

from vit_jax.experiment import config as config_lib
from vit_jax.extras.plan import workload


@pytest.mark.slow  # It trains a step.
def test_a_start_measures_its_phases(tmp_path, capsys):
  config = workload.config(
      'Ti/16', resolution=16, batch_size=8, source='imagenet2012', overrides=(
          'model.width=8', 'model.depth=1', 'model.num_heads=2',
          'model.mlp_dim=8'))
  path = tmp_path / 'config.json'
  path.write_text(json.dumps(config_lib.to_plain(config)))
  startup.run_phases(str(path), repr(time.time()))
  figures = json.loads(capsys.readouterr().out.splitlines()[-1])
  parts = ('import', 'build', 'compile', 'init', 'batch', 'step')
  assert figures['total_secs'] == pytest.approx(
      sum(figures[f'{name}_secs'] for name in parts))
  assert min(figures[f'{name}_secs'] for name in parts) > 0
  assert figures['host_bytes'] > 0
