"""Command-line mistakes are one-line errors with exit status 2."""

import pathlib
import subprocess
import sys

import pytest

from vit_jax import __main__ as main
from vit_jax import registry
from vit_jax.checkpoints import paths
from vit_jax.extras.curation import beam_runner
from vit_jax.extras.curation import hash_index
from vit_jax.extras.curation import output
from vit_jax.extras.curation import similarity
from vit_jax.extras.serve import export
from vit_jax.models import feature_layers
from vit_jax.weights import save as save_lib

LARGE = {'jax', 'flax', 'numpy', 'optax', 'orbax', 'grain', 'PIL', 'scipy',
         'jaxtyping', 'ml_collections', 'tensorflow', 'torch', 'rich'}
ROOT = pathlib.Path(__file__).parent.parent


def test_help_lists_each_command(capsys):
  assert main.main(['--help']) == 0
  output = capsys.readouterr().out
  for name in registry.COMMANDS:
    assert f'{name} ' in output
  assert '  data         Checks a dataset, or prepares it' in output


@pytest.mark.parametrize('command', registry.COMMANDS)
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
    (['predict', '--model=x', '--steps=3', 'a.png'], "'--steps'"),
    (['sweep', '--config=c.py', '--workdir=x', '--epochs=3'], 'c.py'),
    (['doctor', '--', '--region=x'], 'doctor takes no arguments after --'),
])
def test_a_mistake_is_one_line_and_status_2(argv, words, capsys):
  assert main.main(argv) == 2
  error = capsys.readouterr().err
  assert error.startswith('main.py: error: ')
  assert words in error
  assert 'Traceback' not in error


def test_errors_are_wrapped_only_in_a_terminal(monkeypatch, capsys):
  monkeypatch.setenv('COLUMNS', '40')
  argv = ['train', '--config=missing.py', '--workdir=' + 'w' * 40, '--nothing']
  main.main(argv)
  assert len(capsys.readouterr().err.splitlines()) == 1
  monkeypatch.setattr(sys.stderr, 'isatty', lambda: True)
  main.main(argv)
  first, *others = capsys.readouterr().err.splitlines()
  assert first.startswith('main.py: error: ') and others
  assert all(len(line) <= 40 for line in (first, *others))
  assert all(line.startswith('    ') for line in others)


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


def test_help_and_misspelt_flags_import_no_large_library():
  program = f"""
import sys
from vit_jax import __main__ as main
from vit_jax import registry
for argv in ([], *([name] for name in registry.COMMANDS)):
  assert main.main([*argv, '--hlp']) == 2
  try: main.main([*argv, '--help'])
  except SystemExit: pass
  if found := sys.modules.keys() & {LARGE}:
    sys.exit(f'{{argv}}: {{found}}')"""
  done = subprocess.run([sys.executable, '-c', program], cwd=ROOT, check=False,
                        capture_output=True, text=True)
  assert not done.returncode, done.stderr


def test_commands_offer_the_choices_of_the_library():
  # Commands repeat them, because the library takes seconds to import.
  def flags(command, task=''):
    _, parser = main.build_parser(command)
    parser, = (each for each in main.subparsers(parser)
               if each.prog.endswith(f'{command} {task}'.strip()))
    return {flag: action for action in parser._actions
            for flag in action.option_strings}

  assert flags('export')['--format'].choices == tuple(export.PROGRAMS)
  for name in save_lib.FORMATS:
    assert name in flags('convert')['--format'].help
  assert flags('convert')['--which'].choices == paths.WHICH
  for name in (*feature_layers.FEATURES, *feature_layers.TOKEN_FEATURES):
    assert f'{name}: ' in flags('features')['--layer'].help
  prepare = flags('data', 'prepare')
  assert prepare['--runner'].default == beam_runner.LOCAL
  duplicates = flags('deduplicate')
  for name in (output.EXCLUDE, output.PAIRS, output.PAGE):
    assert name in duplicates['--to'].help
  assert f'up to {hash_index.MAX_DISTANCE} ' in duplicates[
      '--max-distance'].help
  for found in (duplicates, flags('data', 'check')):
    assert similarity.Thresholds() == similarity.Thresholds(
        found['--max-distance'].default, found['--min-similarity'].default)


def test_paths_of_flags_may_begin_with_a_tilde(monkeypatch, tmp_path):
  monkeypatch.setenv('HOME', str(tmp_path))
  _, parser = main.build_parser('flops')
  args = main.parse_arguments('flops', parser, ['--json=~/x.json'])
  assert args.json == f'{tmp_path}/x.json'
