"""The report names what is missing, and the line that mends it."""

import argparse
import ast
import json
import pathlib
import subprocess
import sys

import pytest

from vit_jax.commands import doctor


def run_doctor(*flags):
  parser = argparse.ArgumentParser()
  parser.add_argument('--json')  # As main.py does for every command.
  doctor.add_arguments(parser)
  return doctor.run(parser.parse_args(flags))


def test_a_working_machine_can_train(capsys, tmp_path):
  code = run_doctor(f'--json={tmp_path}/new/doctor.json')
  shown = capsys.readouterr().out
  assert code == 0
  assert shown.endswith('Training can start.\n')
  report = json.loads((tmp_path / 'new' / 'doctor.json').read_text())
  assert report['can_train'] is True
  assert {check['name'] for check in report['packages']} >= {'jax', 'flax'}
  assert report['devices'][0]['found'].startswith('cpu, 8 device(s)')
  assert not list(tmp_path.glob('**/*.new'))


def test_a_missing_package_fails_and_names_the_line(
    capsys, monkeypatch, tmp_path):
  monkeypatch.setattr(
      doctor, '_requirements', lambda: ['no-such-package>=1', 'numpy>=2'])
  assert run_doctor(f'--json={tmp_path}/doctor.json') == 1
  shown = capsys.readouterr().out
  assert 'FAIL  no-such-package  missing, needs >=1' in shown
  assert 'pip install -r requirements.txt -c constraints.txt' in shown
  assert 'Training cannot start' in shown
  report = json.loads((tmp_path / 'doctor.json').read_text())
  assert report['can_train'] is False


@pytest.mark.parametrize('version,status,words', [
    ('0.10.2', 'ok', ''), ('0.9.1', 'error', 'too old'),
    ('0.13.0', 'warning', 'newer than what was tested'),
    (None, 'error', 'missing')])
def test_a_version_is_held_against_what_is_required(version, status, words):
  check, = doctor.check_packages(['jax>=0.10,<0.13'], lambda name: version)
  assert (check.name, check.status) == ('jax', status)
  assert words in check.found
  assert bool(check.remedy) == (status != 'ok')


def test_an_extra_is_no_part_of_a_package_s_name():
  asked = []
  doctor.check_packages(
      ['etils[epath]>=1.12'], lambda name: asked.append(name) or '1.15')
  assert asked == ['etils']


def test_an_old_python_is_an_error():
  assert doctor.check_python((3, 10, 4)).status == 'error'
  assert doctor.check_python((3, 13, 0)).status == 'ok'


def test_a_gpu_that_another_program_fills_is_a_warning_with_the_share_left():
  full, free = doctor.check_gpus(
      '0, NVIDIA H200, 143771, 100000, 580.65.06\n'
      '1, NVIDIA H200, 143771, 4, 580.65.06\n')
  assert (full.status, free.status) == ('warning', 'ok')
  assert 'XLA_CLIENT_MEM_FRACTION=0.27' in full.remedy
  assert 'DNN library' in full.remedy


def test_a_driver_too_old_for_cuda_13_is_sent_to_cuda_12():
  check, = doctor.check_gpus('0, Tesla T4, 15360, 0, 535.104.05')
  assert check.status == 'warning'
  assert 'pip install "jax[cuda12]"' in check.remedy


@pytest.mark.parametrize('smi', [
    '', '0, NVIDIA GB10, [N/A], [N/A], 580.1', 'no devices were found'])
def test_a_gpu_that_tells_nothing_is_no_crash(smi):
  assert doctor.check_gpus(smi) == []


@pytest.mark.parametrize('there,expected', [
    (dict(backend='cpu', has_gpu=True, has_tpu=False, has_libtpu=False),
     'requirements-gpu.txt'),
    (dict(backend='cpu', has_gpu=False, has_tpu=True, has_libtpu=False),
     'requirements-tpu.txt'),
    (dict(backend='cpu', has_gpu=False, has_tpu=True, has_libtpu=True),
     'another process')])
def test_an_accelerator_that_lies_idle_is_told(there, expected, monkeypatch):
  monkeypatch.delenv('JAX_PLATFORMS')
  check, = doctor.check_accelerators(**there)
  assert check.status == 'warning'
  assert expected in check.remedy


@pytest.mark.parametrize('there', [
    dict(backend='gpu', has_gpu=True, has_tpu=False, has_libtpu=False),
    dict(backend='tpu', has_gpu=False, has_tpu=True, has_libtpu=True),
    dict(backend='cpu', has_gpu=False, has_tpu=False, has_libtpu=False)])
def test_a_machine_used_to_the_full_needs_nothing(there):
  assert doctor.check_accelerators(**there) == []


def test_a_device_that_fails_is_an_error_and_no_traceback(monkeypatch):
  import jax

  def fail(*args, **kwargs):
    raise RuntimeError('DNN library is not found.\nmore')

  monkeypatch.setattr(jax.lax, 'conv', fail)
  checks = doctor.check_devices()
  assert checks[-1].status == 'error'
  assert checks[-1].found == 'fails: DNN library is not found.'
  assert 'XLA_CLIENT_MEM_FRACTION' in checks[-1].remedy


def test_the_tfds_folder_lists_its_data_sets(tmp_path):
  (tmp_path / 'cifar10').mkdir()
  (tmp_path / 'downloads').mkdir()
  check = doctor.check_tfds_dir({'TFDS_DATA_DIR': str(tmp_path)})
  assert check.found == f'{tmp_path}: cifar10'
  missing = doctor.check_tfds_dir({'TFDS_DATA_DIR': f'{tmp_path}/none'})
  assert missing.status == 'note' and missing.remedy


def test_only_variables_that_change_jax_are_shown():
  checks = doctor.check_environment(
      {'XLA_FLAGS': '--a', 'HOME': '/root', 'MY_PASSWORD': 'x'})
  assert [check.name for check in checks] == ['XLA_FLAGS']


def test_a_remedy_shared_by_many_is_printed_once():
  checks = doctor.check_packages(['a>=1', 'b>=1'], lambda name: None)
  shown = doctor.render({'Packages': checks}, can_train=False, colour=False)
  assert shown.count('pip install') == 1
  assert 'FAIL a, b:' in shown


def test_colour_is_only_for_a_terminal():
  sections = {'Python': [doctor.check_python()]}
  plain = doctor.render(sections, can_train=True, colour=False)
  coloured = doctor.render(sections, can_train=True, colour=True)
  assert '\033' not in plain and '\033[32m' in coloured


def test_it_runs_with_the_standard_library_alone():
  # -S leaves out the installed packages, all of them.
  code = ('import argparse, sys; from vit_jax.commands import doctor; '
          'sys.exit(doctor.run(argparse.Namespace(json=None)))')
  result = subprocess.run(
      [sys.executable, '-S', '-c', code], cwd=doctor.ROOT,
      env={'PYTHONPATH': ''}, capture_output=True, text=True, check=False)
  assert result.returncode == 1, result.stderr
  assert 'FAIL  jax ' in result.stdout
  assert 'Training cannot start' in result.stdout


def test_every_package_that_vit_jax_imports_is_required():
  distribution_of = {
      'PIL': 'pillow', 'sklearn': 'scikit-learn', 'orbax': 'orbax-checkpoint',
      'absl': 'absl-py', 'google': 'protobuf', 'jaxlib': 'jax'}
  optional = {
      'tensorflow', 'torch', 'libtpu', 'apache_beam'}
  required = {
      doctor._split_requirement(line)[0].lower().replace('-', '_')
      for line in doctor._requirements()}
  imported = set()
  for path in pathlib.Path(doctor.ROOT, 'vit_jax').rglob('*.py'):
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
