"""Notebooks run from top to bottom, and their stored outputs are complete.

The tests run the cells with two training steps instead of hundreds.
"""

import json
import os
import pathlib
import re
import subprocess
import sys
import tomllib

import pytest

import vit_jax

ROOT = pathlib.Path(__file__).parent.parent
PATHS = sorted((ROOT / 'notebooks').glob('*.ipynb'))
MAX_BYTES = 400_000  # Including outputs, so that GitHub renders it quickly.
# Home directories and other paths of one machine, but not temporary folders.
LOCAL_PATHS = re.compile(
    r'(?<![\w.])/(home|root|Users|work|tmp(?!/tmp)|mnt|opt|usr)/')
STEPS = re.compile(r'\bSTEPS = \d+')


def cells(path, kind):
  """Returns the cells of type `kind`."""
  notebook = json.loads(path.read_text())
  assert notebook['nbformat'] == 4
  return [cell for cell in notebook['cells'] if cell['cell_type'] == kind]


def text_of(cell):
  return ''.join(cell['source'])


@pytest.mark.slow  # It trains models.
@pytest.mark.parametrize('path', PATHS, ids=lambda path: path.stem)
def test_notebooks_run_from_top_to_bottom(path, tmp_path, monkeypatch):
  nbformat = pytest.importorskip('nbformat')
  nbclient = pytest.importorskip('nbclient')
  notebook = nbformat.reads(
      STEPS.sub('STEPS = 2', path.read_text()), as_version=4)
  for name, value in {'JAX_PLATFORMS': 'cpu', 'TMPDIR': str(tmp_path)}.items():
    monkeypatch.setenv(name, value)
  client = nbclient.NotebookClient(
      notebook, timeout=600, kernel_name='python3',
      resources={'metadata': {'path': str(path.parent)}})
  client.execute()
  # Outputs go to temporary folders, not to the repository.
  assert list(tmp_path.glob('*/*'))
  assert sum('image/png' in str(cell.get('outputs'))
             for cell in notebook['cells']) >= 2


def test_notebooks_use_names_that_are_public():
  for path in PATHS:
    source = '\n'.join(map(text_of, cells(path, 'code')))
    assert not re.search(r'(from|import) (vit_jax\.|benchmarks|paper)', source)
    assert {*re.findall(r'vit_jax\.([a-z]\w*)', source)} <= {*vit_jax.__all__}


@pytest.mark.parametrize('path', PATHS, ids=lambda path: path.stem)
def test_notebooks_store_their_outputs_without_local_paths(path):
  code = cells(path, 'code')
  assert [cell['execution_count'] for cell in code] == [
      *range(1, len(code) + 1)]
  outputs = [output for cell in code for output in cell['outputs']]
  assert not [o for o in outputs if o['output_type'] == 'error'
              or o.get('name') == 'stderr']
  assert sum('image/png' in o.get('data', {}) for o in outputs) >= 2
  assert path.stat().st_size < MAX_BYTES
  assert not [line for line in path.read_text().split('\n') if
      LOCAL_PATHS.search(line) and '"image/png"' not in line]


@pytest.mark.slow  # It starts Python twice.
def test_without_the_library_notebooks_install_it(tmp_path):
  source, = {text_of(cells(path, 'code')[0]) for path in PATHS}
  address, = re.findall("REPOSITORY = '(.*)'", source)
  for path in PATHS:
    assert f'{address.split("/", 3)[3]}/blob/main/notebooks/{path.name}' in (
        text_of(cells(path, 'markdown')[0]))
  project = tomllib.loads((ROOT / 'pyproject.toml').read_text())['project']
  assert project['urls']['Repository'] == address
  # A program that makes the clone, since tests have no network.
  git = tmp_path / 'git'
  git.write_text(f'#!/bin/sh\ntest "$4" = {address} && mkdir "$5" && '
                 f'touch "$5/requirements.txt" && ln -s {ROOT}/vit_jax "$5"')
  git.chmod(0o755)
  program = source.replace("find_spec('vit_jax')", "find_spec('vit_jax_')")
  for _ in range(2):  # Again after a restart of the kernel.
    subprocess.run(
        [sys.executable, '-c', program], cwd=tmp_path, check=True, timeout=300,
        env={**os.environ, 'PATH': f'{tmp_path}:{os.environ["PATH"]}'})
  assert (tmp_path / 'vit-jax' / 'vit_jax' / '__init__.py').exists()
