"""Input pipelines are timed alternately and separately."""

import json
import sys

import input_speed
import psutil
import pytest

PROGRAM = """
import json, sys
for line in sys.stdin:
  sum(range(300_000))
  print(json.dumps({'images': 3 * int(line)}), flush=True)
"""


def test_pipelines_are_timed_alternately():
  done = []

  def read(count):
    done.append(count)
    return count

  with input_speed.program([sys.executable, '-c', PROGRAM]) as other:
    speeds = input_speed.interleave(
        {'other': other, 'ours': input_speed.Pipeline(read, psutil.Process())},
        batches=4, rounds=2, prefetched=7)
  assert done == [7, 4, 4]
  assert [s.images for s in speeds['other']] == [12, 12]
  assert [s.images for s in speeds['ours']] == [4, 4]


def test_speeds_are_medians_over_rounds():
  assert input_speed.medians([
      input_speed.Measurement(8, secs, cpu_secs)
      for secs, cpu_secs in ((2.0, 4.0), (1.0, 2.0), (4.0, 1.0))
  ]) == {'images_per_sec': 4.0, 'images_per_cpu_sec': 4.0}


@pytest.mark.slow  # It starts workers.
def test_prepared_input_is_measured_too(tmp_path, capsys, monkeypatch):
  monkeypatch.setattr(input_speed, 'NUM_PHOTOS', 2)
  monkeypatch.setattr(input_speed, 'NUM_LINKS', 2)
  assert input_speed.main([
      '--rounds=1', '--batches=1', '--batch-size=2', '--prepared=64',
      '--workers=0', f'--json={tmp_path}/rows.json']) == 0
  assert 'synthetic JPEGs' in capsys.readouterr().out
  rows = json.loads((tmp_path / 'rows.json').read_text())
  assert [row['pipeline'] for row in rows] == ['ours', 'ours, prepared']
  assert all(row['images_per_cpu_sec'] > 0 for row in rows)
