"""Rows of metrics are printed as short lines."""

import subprocess
import sys

from vit_jax import metrics
from vit_jax.run import log_rows


def test_a_line_has_the_mean_of_several_targets_only():
  row = {'test/r2': 0.5, 'test/r2_red': 0.4, 'test/r2_blue': 0.6}
  assert log_rows.evaluation_line(
      row, step=7, targets=('red', 'blue'), declared={},
  ) == 'step 7: test/r2 0.500'


def test_fractions_are_shown_in_percent_and_numbers_of_images_are_not_shown():
  assert log_rows.evaluation_line(
      {'val/accuracy': 0.9722, 'val/loss': 0.113, 'val/examples': 100.0},
      step=7, targets=(), declared={'val/accuracy': metrics.ACCURACY},
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
