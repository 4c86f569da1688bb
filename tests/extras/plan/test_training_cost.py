"""Counts of training FLOPs agree with the paper's."""

import pytest

from vit_jax.extras.plan import paper_costs
from vit_jax.extras.plan import training_cost


def test_the_counts_agree_with_table_6():
  counted = {(row['variant'], row['epochs']): row['exaflops']
             for row in training_cost.table_6()}
  for variant, epochs, paper in paper_costs.TABLE_6:
    assert counted[variant, epochs] == pytest.approx(
        paper, rel=0.05 if variant.startswith('R') else 0.03), variant
