"""The report names what is missing and the command that installs it."""

import argparse
import ast
import pathlib
import re
import subprocess
import sys
import types
from unittest import mock

import pytest

from vit_jax.extras.doctor import checks
from vit_jax.extras.doctor.commands import doctor


def test_a_working_machine_can_train(capsys):
  status, report = doctor.run(argparse.Namespace())
  assert status == 0
  assert capsys.readouterr().out.endswith('Training can start.\n')
  assert report['can_train'] is True
  assert {check['name'] for check in report['checks']} >= {
      'jax', 'flax', 'cpu:0', 'convolution', 'disk'}


@pytest.mark.parametrize(('version', 'status'), [
    ('0.10.2', 'ok'), ('0.9.1', 'WARN'), ('0.13.0', 'WARN'), (None, 'FAIL')])
def test_versions_are_compared_with_the_requirements(
    version, status, monkeypatch):
  monkeypatch.setattr(
      checks.importlib.metadata, 'distributions', lambda name: [
          types.SimpleNamespace(version=version)] * (version is not None))
  _, check = checks.check_packages(['jax[cpu]>=0.10,<0.13'])
  assert check.status == status
  assert ('pip install -r' in check.remedy) == (status != 'ok')


def test_an_installed_package_names_its_own_requirements(monkeypatch, tmp_path):
  monkeypatch.setattr(checks, 'ROOT', tmp_path)
  monkeypatch.setattr(checks.importlib.metadata, 'requires', lambda name: [
      'jax<0.13,>=0.10', 'torch; extra == "weights"'])
  assert checks.find_requirements() == ['jax<0.13,>=0.10']
  monkeypatch.setattr(
      checks.importlib.metadata, 'distributions', lambda name: [])
  check = checks.check_packages(['jax<0.13,>=0.10'])[1]
  assert check.remedy.endswith("pip install 'jax<0.13,>=0.10'")


def test_an_unused_gpu_is_a_warning():
  check = checks.check_devices(has_gpu=True)[-1]
  assert (check.name, check.status) == ('gpu', 'WARN')
  assert check.remedy.endswith("[gpu]'")


def test_a_failing_device_is_reported_without_traceback(monkeypatch):
  import jax

  monkeypatch.setattr(jax.lax, 'conv', mock.Mock(
      side_effect=RuntimeError('DNN library is not found.\nmore')))
  check, = checks.check_devices(has_gpu=True)
  assert check.status == 'FAIL'
  assert check.found == 'fails: DNN library is not found.'
  assert 'XLA_CLIENT_MEM_FRACTION' in check.remedy


def test_doctor_runs_with_the_standard_library_only():
  # -S hides all installed packages.
  result = subprocess.run(
      [sys.executable, '-S', 'main.py', 'doctor'], cwd=checks.ROOT,
      env={'PYTHONPATH': ''}, capture_output=True, text=True, check=False)
  assert result.returncode == 1, result.stderr
  assert 'FAIL  jax ' in result.stdout
  assert 'To fix jax, ' in result.stdout  # One remedy for all packages.
  assert result.stdout.count('requirements.txt') == 1
  assert 'Training cannot start' in result.stdout


def test_every_package_that_vit_jax_imports_is_required():
  distribution_of = {
      'PIL': 'pillow', 'sklearn': 'scikit-learn', 'orbax': 'orbax-checkpoint',
      'absl': 'absl-py', 'google': 'protobuf', 'jaxlib': 'jax'}
  optional = {'tensorflow', 'torch', 'libtpu', 'apache_beam', 'wandb'}
  required = {
      re.match(r'[\w.-]+', line)[0].lower().replace('-', '_')
      for line in (checks.ROOT / 'requirements.txt').read_text().splitlines()
      if re.match(r'\w', line)}
  imported = set()
  for path in pathlib.Path(checks.ROOT, 'vit_jax').rglob('*.py'):
    for node in ast.walk(ast.parse(path.read_text())):
      if isinstance(node, ast.Import):
        imported |= {alias.name.split('.')[0] for alias in node.names}
      elif isinstance(node, ast.ImportFrom) and not node.level:
        imported.add((node.module or '').split('.')[0])
  third_party = imported - set(sys.stdlib_module_names) - {'vit_jax'}
  missing = {
      name for name in third_party - optional
      if distribution_of.get(name, name).lower().replace('-', '_')
      not in required}
  assert not missing
