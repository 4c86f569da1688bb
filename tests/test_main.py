"""Command-line mistakes are one-line errors with exit status 2."""

import argparse
import itertools
import os
import pathlib
import platform
import re
import signal
import subprocess
import sys
import types

import pytest

from tests import leaves
import vit_jax
from vit_jax import __main__ as main
from vit_jax import exceptions
from vit_jax import registry
from vit_jax.checkpoints import paths
from vit_jax.models import feature_layers
from vit_jax.run import signals
from vit_jax.weights import save as save_lib

LARGE = {'jax', 'flax', 'numpy', 'optax', 'orbax', 'grain', 'PIL', 'scipy',
         'jaxtyping', 'ml_collections', 'tensorflow', 'torch', 'rich'}
ROOT = pathlib.Path(__file__).parent.parent


def test_help_lists_each_command_and_its_flags(capsys):
  with pytest.raises(SystemExit):
    main.main(['--help'])
  output = capsys.readouterr().out
  assert 'Converts weights to another format and verifies' in output
  for name in leaves.COMMANDS:
    assert re.search(rf'^ +{name}\s', output, re.MULTILINE)
    with pytest.raises(SystemExit) as stop:
      main.main([name, '--help'])
    assert stop.value.code == 0
    assert '--json' in capsys.readouterr().out


def test_the_version_is_that_of_the_package(capsys):
  with pytest.raises(SystemExit) as stop:
    main.main(['--version'])
  assert stop.value.code == 0
  assert capsys.readouterr().out == f'vit_jax {vit_jax.__version__}\n'
  assert {*dir(vit_jax)} == {*vit_jax.__all__, '__version__'}


@pytest.mark.parametrize(('argv', 'words'), [
    (['trian'], "Did you mean 'train'?"),
    (['train', '--config=c.py', '--wrkdir=x', '--workdir=x'],
     'Did you mean --workdir?'),
    (['--config=configs/cifar.py', '--workdir=x'],
     "Did you mean 'configs/cifar10.py'?"),
    (['--config=configs/cifar10.py', '--workdir=x',
      '--config.optimizer.lr=1'], "Did you mean 'learning_rate'?"),
    (['evaluate', '--workdir=fotos'], "/fotos. Did you mean 'photos'?"),
    (['evaluate', '--workdir=no/fotos'], '/no/fotos. Expected'),
    (['--confg=configs/cifar10.py'], 'Did you mean --config?'),
    (['predict', '--model=x', '--steps=3', 'a.png'], "'--steps'"),
    (['train', '--config=c.py', '--workdir=x', '--epochs=3'], 'c.py'),
    (['convert', '--source=x', '--target=y', '--format=npz',
      '--config.seed=1'], 'takes no config'),
])
def test_a_mistake_is_one_line_and_status_2(argv, words, capsys):
  assert main.main(argv) == 2
  error = capsys.readouterr().err
  assert error.startswith('main.py: error: ')
  assert words in error
  assert 'Traceback' not in error


def test_help_and_misspelt_flags_import_no_large_library():
  program = f"""
import sys
from vit_jax import __main__ as main
for argv in ([], *([name] for name in {leaves.COMMANDS})):
  assert main.main([*argv, '--hlp']) == 2
  try: main.main([*argv, '--help'])
  except SystemExit: pass
  if found := sys.modules.keys() & {LARGE}:
    sys.exit(f'{{argv}}: {{found}}')"""
  done = subprocess.run([sys.executable, '-c', program], cwd=ROOT, check=False,
                        capture_output=True, text=True)
  assert not done.returncode, done.stderr


@pytest.mark.parametrize(('program', 'signum', 'status', 'module'), [
    (['main.py'], signal.SIGTERM, 75, 'numpy'),
    (['-m', 'vit_jax'], signal.SIGINT, 130, 'argparse')])
def test_a_signal_during_the_imports_ends_with_the_documented_status(
    program, signum, status, module, tmp_path):
  # Tests in the background of a script ignore SIGINT, and so would the child.
  ours = signal.signal(signal.SIGINT, signal.default_int_handler)
  process = subprocess.Popen(
      [sys.executable, '-X', 'importtime', *program, 'train',
       '--config=configs/quickstart.py', f'--workdir={tmp_path}/run'],
      cwd=ROOT, text=True, stderr=subprocess.PIPE)
  signal.signal(signal.SIGINT, ours)
  lines = itertools.takewhile(
      lambda line: line.split('|')[-1].strip() != module, process.stderr)
  assert list(lines)
  process.send_signal(signum)
  _, rest = process.communicate(timeout=120)
  assert process.returncode == status, rest
  assert 'Traceback' not in rest


def test_sigterm_keeps_its_default_for_commands_that_do_not_resume(monkeypatch):
  found = {}

  def run(args):
    del args
    found[command] = signal.getsignal(signal.SIGTERM)
    return 0, None

  module = types.ModuleType('fake')
  module.add_arguments, module.run = (lambda parser: None), run
  monkeypatch.setattr(main, 'module_of', lambda _: module)
  before = {s: signal.getsignal(s) for s in signals.EXIT_CODES}
  try:
    for command in leaves.COMMANDS:
      signals.catch_early()
      assert main.main([command]) == 0
  finally:
    for signum, handler in before.items():
      signal.signal(signum, handler)
  resuming = {'train', 'sweep'}
  assert {name for name, handler in found.items()
          if handler != signal.SIG_DFL} == resuming & {*leaves.COMMANDS}


@pytest.mark.parametrize(('error', 'shown'), [
    (exceptions.UserError('Use a multiple of 8.'), 'Use a multiple of 8.'),
    (exceptions.NotFoundError('There is no x.'), 'There is no x.'),
    (registry.DeletedError('Restore its folder.'), 'Restore its folder.'),
    (PermissionError(13, 'Permission denied', '/x'), '/x: Permission denied'),
    (ModuleNotFoundError('no rich', name='rich'), 'rich is not installed for '),
    (ModuleNotFoundError('a bug', name='vit_jax.x'), None),
    (ValueError('invalid literal'), None), (KeyError('width'), None),
    (OSError('of a library'), None)])
def test_only_errors_that_the_user_can_repair_have_no_traceback(error, shown):
  message = main.message_for_user(error)
  assert message is None if shown is None else shown in message


def test_a_bug_keeps_its_traceback_and_waits_for_no_thread_of_a_save():
  program = """
import threading
from vit_jax import __main__ as main
class Waiting(threading.Thread):
  __module__ = 'orbax.checkpoint'
Waiting(target=threading.Event().wait).start()
def fail(argv):
  raise ZeroDivisionError('a bug')
main.run = fail
main.exit_code(['train'])"""
  done = subprocess.run([sys.executable, '-c', program], cwd=ROOT, check=False,
                        capture_output=True, text=True, timeout=60)
  assert done.returncode == 1
  assert 'ZeroDivisionError: a bug' in done.stderr


def flags(*names):
  """Returns the flags of a command, or of one of its tasks, by name."""
  parser = main.build_parser(names[0])
  for name in names:
    commands, = (each for each in parser._actions
                 if isinstance(each, argparse._SubParsersAction))
    parser = commands.choices[name]
  return {flag: action for action in parser._actions
          for flag in action.option_strings}


def test_commands_offer_the_choices_of_the_library():
  # Commands repeat them, because the library takes seconds to import.
  for name in save_lib.FORMATS:
    assert name in flags('convert')['--format'].help
  assert flags('convert')['--which'].choices == paths.WHICH
  for name in (*feature_layers.FEATURES, *feature_layers.TOKEN_FEATURES):
    assert f'{name}: ' in flags('features')['--layer'].help


def test_paths_of_flags_may_begin_with_a_tilde(monkeypatch, tmp_path):
  monkeypatch.setenv('HOME', str(tmp_path))
  args = main.parse(['predict', '--model=x', '--json=~/x.json', 'a.png'])
  assert args.json == f'{tmp_path}/x.json'


ALLOCATE = """
import os, resource
from vit_jax import __main__ as main

main.keep_freed_memory()
for i in range(11):
  if i == 1:
    start = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
  bytearray(2**25)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - start)
"""


def page_faults(**environ):
  """Returns the page faults of ten allocations of 8,192 pages."""
  done = subprocess.run(
      [sys.executable, '-c', ALLOCATE], check=True, capture_output=True,
      env={**os.environ, **environ})
  return int(done.stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != 'glibc', reason='needs glibc')
def test_freed_memory_is_reused_unless_turned_off():
  pages = 2**25 // os.sysconf('SC_PAGE_SIZE')
  assert page_faults() < pages
  assert page_faults(VIT_JAX_ALLOCATOR='system') > 5 * pages
