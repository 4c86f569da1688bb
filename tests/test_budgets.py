"""Bounds on the code that one must read: trunk, step, ViT and tests.

Code lines have no blank lines, comments and docstrings. A bound may be lowered
to what was reached, never raised.
"""

import ast
import json
import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[1]
RUN = """
import vit_jax
from tests import toy
vit_jax.train(vit_jax.build(toy.config(evals={'test': {}})), 'run')
"""
LIST = """
import json, sys
print(json.dumps([m.__file__ for name, m in sys.modules.items()
                  if name.split('.')[0] == 'vit_jax']))
"""


def code_lines(path):
  text = path.read_text()
  documented = set()
  for node in ast.walk(ast.parse(text)):
    if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and (
        ast.get_docstring(node, clean=False) is not None):
      documented |= {*range(node.body[0].lineno, node.body[0].end_lineno + 1)}
  return sum(
      bool(line.strip()) and not line.strip().startswith('#')
      and number not in documented
      for number, line in enumerate(text.splitlines(), start=1))


def loaded(program, tmp_path):
  """Returns the code lines of our modules that a program loads."""
  done = subprocess.run(
      [sys.executable, '-c', program + LIST], cwd=tmp_path, check=True,
      capture_output=True, text=True, env={
          **os.environ, 'PYTHONPATH': str(ROOT), 'HOME': str(tmp_path)})
  lines = {path: code_lines(path) for path in map(
      pathlib.Path, json.loads(done.stdout.splitlines()[-1]))}
  # To ask whether a leaf exists, its empty packages are imported. A run counts
  # its operations, stores the keys of its examples, writes events for
  # TensorBoard, and ends with curves and a model card.
  assert not any(
      count for path, count in lines.items() if 'extras' in path.parts
      and path.parent.name not in (
          'cards', 'changes', 'extras', 'figures', 'plan', 'tracking'))
  return sum(lines.values())


@pytest.mark.parametrize(('program', 'most'), [
    ('import vit_jax.models.vit', 850), ('import vit_jax.training.step', 490),
    pytest.param(RUN, 10_600, marks=pytest.mark.slow)],
                         ids=['vit', 'step', 'run'])
def test_a_program_loads_at_most(program, most, tmp_path):
  assert 0 < loaded(program, tmp_path) <= most


def test_the_trunk_and_the_benchmarks_are_bounded():
  modules = (ROOT / 'vit_jax').rglob('*.py')
  trunk = sum(code_lines(path) for path in modules
              if 'extras' not in path.parts)
  assert 0 < trunk <= 15_000
  benchmarks = (ROOT / 'benchmarks').glob('*.py')
  assert 0 < sum(map(code_lines, benchmarks)) <= 1_200
  assert code_lines(ROOT / 'vit_jax' / 'models' / 'vit.py') <= 300


def test_tests_have_at_most_three_quarters_of_the_lines_of_the_library():
  tests, library = (sum(map(code_lines, (ROOT / name).rglob('*.py')))
                    for name in ('tests', 'vit_jax'))
  # The trunk alone has a few more for its size.
  assert tests <= 0.75 * library or not (ROOT / 'tests' / 'extras').exists()


def test_a_command_has_at_most_80_code_lines():
  lines = {path: code_lines(path)
           for path in (ROOT / 'vit_jax').rglob('commands/*.py')
           if path.stem != 'arguments'}  # Flags of all commands.
  assert lines and max(lines.values()) <= 80, lines
