"""Rows of metrics are printed as short lines."""

from vit_jax.run import log_rows


def test_a_line_has_the_mean_of_several_targets_only():
  row = {'test/r2': 0.5, 'test/r2_red': 0.4, 'test/r2_blue': 0.6}
  assert log_rows.evaluation_line(
      row, step=7, targets=('red', 'blue')) == 'step 7: test/r2 0.500'
