"""Command-line mistakes are one-line errors with exit status 2."""

import pathlib
import subprocess
import sys

import pytest

import main

ROOT = pathlib.Path(__file__).parent.parent


def test_help_lists_each_command(capsys):
  assert main.main(['--help']) == 0
  output = capsys.readouterr().out
  for name, text in main.COMMANDS.items():
    assert f'{name} ' in output
    assert text in output


@pytest.mark.parametrize('command', main.COMMANDS)
def test_each_command_explains_its_flags(command, capsys):
  with pytest.raises(SystemExit) as stop:
    main.main([command, '--help'])
  assert stop.value.code == 0
  assert '--json' in capsys.readouterr().out


@pytest.mark.parametrize(('argv', 'words'), [
    (['trian'], "Did you mean 'train'?"),
    (['train', '--config=c.py', '--wrkdir=x', '--workdir=x'],
     "Did you mean '--workdir'?"),
    (['--config=configs/cifar.py', '--workdir=x'],
     "Did you mean 'configs/cifar10.py'?"),
    (['--config=configs/cifar10.py:epoch=1', '--workdir=x'],
     "Did you mean 'epochs'?"),
    (['--config=configs/cifar10.py', '--workdir=x',
      '--config.optimizer.lerning_rate=1'], "Did you mean 'learning_rate'?"),
    (['evaluate', '--workdir=nowhere'], '/nowhere.'),
    (['--confg=configs/cifar10.py'], "Did you mean '--config'?"),
    (['doctor', '--config.seed=1'], 'takes no config'),
    (['doctor', '--', '--region=x'], 'doctor takes no arguments after --'),
])
def test_a_mistake_is_one_line_and_status_2(argv, words, capsys):
  assert main.main(argv) == 2
  error = capsys.readouterr().err
  assert error.startswith('main.py: error: ')
  assert words in error
  assert 'Traceback' not in error


def test_an_error_of_a_library_keeps_its_traceback(monkeypatch):
  def run(command, argv):
    del command, argv
    return int('not ours')

  monkeypatch.setattr(main, 'run', run)
  with pytest.raises(ValueError, match='invalid literal'):
    main.main(['doctor'])


def test_a_missing_package_is_named_with_the_install_command(
    monkeypatch, capsys):
  def missing(name):
    raise ModuleNotFoundError("No module named 'rich'", name='rich')

  monkeypatch.setattr(main.importlib, 'import_module', missing)
  assert main.main(['predict']) == 2
  error = capsys.readouterr().err
  assert 'rich is not installed' in error
  assert 'pip install -r requirements.txt' in error


def test_help_needs_no_jax():
  program = (
      'import sys, main; main.main(["--help"]); sys.exit("jax" in sys.modules)')
  subprocess.run([sys.executable, '-c', program], cwd=ROOT, check=True,
                 capture_output=True)
