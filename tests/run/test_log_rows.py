"""Rows of metrics are printed as short lines."""

import subprocess
import sys

from vit_jax import metrics
from vit_jax.run import log_rows


def test_a_line_has_no_metrics_of_single_outputs_and_at_most_three_lines():
  row = {'test/r2': 0.5, 'test/r2_red': 0.4, 'test/r2_1': 0.6}
  assert log_rows.evaluation_line(
      row, step=7, outputs=('red', '1'), declared={},
  ) == 'step 7: test/r2 0.500'
  declared = {'test/precision_at_1': metrics.PRECISION_AT_1}
  assert log_rows.evaluation_line(
      {'test/precision_at_1': 0.5}, step=7, outputs=('0', '1'),
      declared=declared) == 'step 7: test/precision_at_1 50.00 %'
  line = log_rows.evaluation_line(
      {f'a_long_name/of_metric_{i}': 0.5 for i in range(20)}, step=7,
      outputs=(), declared={})
  assert len(line) < 3 * 80 and line.endswith(', and 15 more')


def test_fractions_are_shown_in_percent_and_numbers_of_images_are_not_shown():
  assert log_rows.evaluation_line(
      {'val/accuracy': 0.9722, 'val/loss': 0.113, 'val/examples': 100.0},
      step=7, outputs=(), declared={'val/accuracy': metrics.ACCURACY},
  ) == 'step 7: val/accuracy 97.22 %, val/loss 0.113'


def test_host_memory_includes_child_processes():
  block = 'b = bytearray(200 * 2**20); b[::4096] = b"x" * len(b[::4096])'
  before = log_rows.host_memory_bytes()
  with subprocess.Popen(
      [sys.executable, '-c', f'{block}; print(1, flush=True); input()'],
      stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
    child.stdout.readline()
    assert log_rows.host_memory_bytes() - before > 150 * 2**20
    child.kill()
