"""The paper's Table 6, counted from our own models."""

import json

import pytest

import main
from vit_jax.commands import flops


@pytest.fixture(scope='module')
def rows():
  return {(row.variant, row.epochs): row for row in flops.table()}


@pytest.mark.parametrize(('variant', 'epochs', 'paper'), flops.TABLE_6)
def test_cost_is_that_of_table_6(rows, variant, epochs, paper):
  is_vit = not variant.startswith('R')
  assert rows[variant, epochs].exaflops == pytest.approx(
      paper, rel=0.03 if is_vit else 0.05)


def test_vit_b16_costs_what_the_formula_says(rows):
  tokens, width, mlp_dim = 197, 768, 3072
  layer = tokens * (4 * width**2 + 2 * width * mlp_dim) + 2 * tokens**2 * width
  head = width  # Of one class.
  macs = 196 * (16 * 16 * 3) * width + 12 * layer + head
  assert rows['B/16', 7].multiply_adds == macs
  assert rows['B/16', 7].exaflops == pytest.approx(
      6 * macs * 303e6 * 7 / 1e18)


def test_twice_the_epochs_cost_twice(rows):
  assert rows['R50+L/16', 14].exaflops == 2 * rows['R50+L/16', 7].exaflops


def test_command_prints_the_table_and_writes_it(tmp_path, capsys):
  path = tmp_path / 'new' / 'flops.json'
  assert main.main(['flops', f'--json={path}']) == 0
  lines = capsys.readouterr().out.splitlines()
  assert len(lines) == 1 + len(flops.TABLE_6)
  assert lines[2].split() == ['B/16', '7', '17.56', '224', '224', '-0.2%']
  written = json.loads(path.read_text())
  assert [(r['variant'], r['epochs'], r['paper']) for r in written] == list(
      flops.TABLE_6)
