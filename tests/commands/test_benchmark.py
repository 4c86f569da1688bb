"""Readers take turns, and what is counted is their own."""

import json
import sys

import pytest

import main
from vit_jax.benchmarking import reading

READER = """
import json, sys
for line in sys.stdin:
  sum(range(300_000))
  print(json.dumps({'images': 3 * int(line)}), flush=True)
"""


def test_readers_take_turns_and_are_counted_apart():
  turns = []

  def idle(count):
    turns.append('idle')
    return count

  with reading.program([sys.executable, '-c', READER]) as other:
    speeds = reading.alternate(
        {'idle': idle, 'other': other}, batches=4, turns=2)
  assert turns == ['idle'] * 3
  assert [s.images for s in speeds['other']] == [12, 12]
  assert [s.images for s in speeds['idle']] == [4, 4]


def test_the_median_is_of_turns():
  (row,) = reading.medians({'a': [
      reading.Speed(8, 2.0, 4.0), reading.Speed(8, 1.0, 2.0),
      reading.Speed(8, 4.0, 1.0)]})
  assert (row.images_per_sec, row.images_per_core_sec) == (4.0, 4.0)


def test_a_reader_that_ends_is_an_error():
  with reading.program([sys.executable, '-c', '']) as gone:
    with pytest.raises((RuntimeError, BrokenPipeError)):
      gone(1)


CONFIG = """
from ml_collections import ConfigDict

def get_config():
  return ConfigDict({
      'total': {'steps': 1}, 'batch_size': 8,
      'model': {'width': 8, 'depth': 1, 'num_heads': 2, 'mlp_dim': 8,
                'patch': 4},
      'data': {'source': 'digits', 'resolution': 8},
      'optimizer': {'name': 'sgd', 'learning_rate': 0.1,
                    'schedule': {'name': 'constant'}}})
"""


def test_the_input_of_a_config_is_measured(tmp_path, capsys):
  (tmp_path / 'config.py').write_text(CONFIG)
  command = ['benchmark', '--what=input', '--workers=0', '--turns=1',
             f'--config={tmp_path}/config.py', '--batches=2',
             f'--json={tmp_path}/rows.json']
  assert main.main(command) == 0
  assert 'Input: digits' in capsys.readouterr().out
  (row,) = json.loads((tmp_path / 'rows.json').read_text())
  assert row['reader'] == 'ours' and row['images_per_core_sec'] > 0
  assert main.main([*command, '--rival=tf']) == 2
  assert 'Leave out --config' in capsys.readouterr().err
