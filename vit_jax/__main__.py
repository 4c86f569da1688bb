"""The command line: `python main.py`, `python -m vit_jax` and `vit-jax`.

    python main.py [COMMAND] --config=configs/x.py[:name=value] --workdir=DIR
    python main.py --help
"""

from vit_jax import early_signals

if __name__ == '__main__':
  early_signals.catch()  # Before the other imports.

import argparse
from collections.abc import Mapping, Sequence
import contextlib
import importlib.util
import os
import pathlib
import shutil
import signal
import sys
import threading
import traceback
import types

from vit_jax import allocator
from vit_jax import escape
from vit_jax import registry
from vit_jax import schema
from vit_jax.commands import arguments

DEFAULT = 'train'
# MULTIPROCESS: commands that can run as several processes; STOPPABLE: those
# that save their state on SIGTERM.
MULTIPROCESS = ('train', 'evaluate', 'sweep', 'doctor')
STOPPABLE = ('train', 'sweep')
PROCESSES = 'vit_jax.parallel.processes'  # Imports JAX: only when needed.
CONFIG_FLAG = '--config.'

# How this program was started.
PROGRAM, INVOCATION = {
    'vit-jax': ('vit-jax', 'vit-jax'),
    'vit_jax/__main__.py': ('vit_jax', 'python -m vit_jax'),
}.get('/'.join(pathlib.Path(sys.argv[0]).parts[-2:]).removeprefix('bin/'),
      ('main.py', 'python main.py'))

# Compiled programs are kept here, so that a restart does not compile again.
COMPILE_CACHE = '~/.cache/vit_jax/xla'


def main(argv: Sequence[str]) -> int:
  """Runs the command line; returns the exit status."""
  try:
    return run(argv)
  except BrokenPipeError:
    raise  # See `exit_code`.
  except (ValueError, OSError, RuntimeError, ImportError) as error:
    message = message_for_user(error)
    if message is None or sys.flags.dev_mode:
      raise
    print_error(message)
    return getattr(error, 'exit_code', 2)


def print_error(message: str) -> None:
  """Prints the message of an error, wrapped if standard error is a terminal."""
  text = escape.lines(f'{PROGRAM}: error: {message}')
  if sys.stderr.isatty():
    text = escape.wrap(text, width=shutil.get_terminal_size().columns - 2)
  print(text.replace('\n', '\n  '), file=sys.stderr)


def run(argv: Sequence[str]) -> int:
  """Parses the command line, runs the command and writes its results."""
  chosen = chosen_command(argv)
  parser, commands = build_parsers(chosen)
  if not argv:
    parser.print_help()
    return 2
  # Set before the command imports JAX.
  os.environ.setdefault(
      'JAX_COMPILATION_CACHE_DIR', os.path.expanduser(COMPILE_CACHE))
  registry.allow_named(list(argv))
  config = [each[9:] for each in argv if each.startswith('--config=')]
  if config and {'-h', '--help'} & {*argv}:
    commands[chosen or DEFAULT].print_help()
    if keys := registry.optional(registry.KEYS):
      keys.print_config(config[-1], config_overrides(argv))
    return 0
  args = parse_arguments(argv, parser, commands)
  if args.command not in STOPPABLE:
    early_signals.release_sigterm()
  registry.allow(*args.imports)
  is_first = connect(args)
  with contextlib.ExitStack() as stack:
    if not is_first:
      devnull = stack.enter_context(open(os.devnull, 'w'))
      stack.enter_context(contextlib.redirect_stdout(devnull))
    status, results = module_of(args.command).run(args)
  if args.json and is_first:
    from vit_jax import atomic_files
    atomic_files.write_json(args.json, results)
  return status


def module_of(command: str) -> types.ModuleType:
  """Returns the module of a command, which imports libraries when it runs."""
  return registry.load(registry.COMMANDS[command])


def connect(args: argparse.Namespace) -> bool:
  """Connects the processes of a run; returns whether this one is the first."""
  # `doctor` also runs where JAX is not installed.
  if args.command not in MULTIPROCESS or not importlib.util.find_spec('jax'):
    return True
  from vit_jax.parallel import processes
  if not processes.start(
      args.coordinator, args.num_processes, args.process_id,
      timeout_secs=args.start_timeout, stoppable=args.command in STOPPABLE):
    return True
  print(processes.describe(), flush=True)
  return processes.is_first()


def parse_arguments(
    argv: Sequence[str], parser: argparse.ArgumentParser,
    commands: Mapping[str, argparse.ArgumentParser],
) -> argparse.Namespace:
  """Returns the flags of a command, including `overrides` of its config."""
  if (chosen := chosen_command(argv)) and argv[0] != chosen:
    argv = [chosen, *argv]
  # Flags after '--' go to a Beam runner.
  end = list(argv).index('--') if '--' in argv else len(argv)
  argv, runner_flags = list(argv[:end]), list(argv[end + 1:])
  overrides = config_overrides(argv)
  rest = [each for each in argv if not each.startswith(CONFIG_FLAG)]
  # Before argparse, which would report a missing --workdir, not the misspelt
  # --workdr.
  if not argv[0].startswith('-'):
    schema.check_name(argv[0], list(commands), what='command')
    known = [flag for each in subparsers(commands[argv[0]])
             for action in each._actions for flag in action.option_strings]
    for each in rest:
      if each.startswith('--'):
        arguments.check_flag(each.split('=')[0], known)
  args = parser.parse_args(rest)
  for name, value in vars(args).items():
    # Shells do not expand the ~ of --output=~/x.
    if isinstance(value, str) and value.startswith('~'):
      setattr(args, name, os.path.expanduser(value))
  # `add_data` gives only the section data, which needs no config file.
  if overrides and not (hasattr(args, 'config') or hasattr(args, 'data_dir')):
    raise ValueError(f'{args.command} takes no config, but got --config.'
                     f'{overrides[0]}.')
  if runner_flags and not hasattr(args, 'runner'):
    raise ValueError(
        f'{args.command} takes no arguments after --, but got '
        f'{runner_flags[0]}.')
  args.overrides = [*arguments.short_overrides(args), *overrides]
  args.runner_flags = runner_flags
  return args


def config_overrides(argv: Sequence[str]) -> list[str]:
  """Returns 'section.key=value' of each flag --config.section.key=value."""
  return [a[len(CONFIG_FLAG):] for a in argv if a.startswith(CONFIG_FLAG)]


def chosen_command(argv: Sequence[str]) -> str:
  """Returns the command of a command line; '' for help or an unknown one."""
  first, *_ = [*argv, '--help']
  if first.startswith('-'):
    return '' if first in ('-h', '--help') else DEFAULT
  return first if first in registry.available(registry.COMMANDS) else ''


def build_parsers(chosen: str = '') -> tuple[
    argparse.ArgumentParser, Mapping[str, argparse.ArgumentParser]]:
  """Returns the parser of the command line, and that of each command.

  With a `chosen` command, only its module is imported, and has a parser.
  """
  parser = argparse.ArgumentParser(
      allow_abbrev=False,
      usage=f'{INVOCATION} [COMMAND] --config=configs/x.py[:name=value,...] '
      '--workdir=DIR',
      epilog='Change a value of the config by --config.section.key=value, for '
      'example --config.optimizer.learning_rate=3e-4.')
  commands = parser.add_subparsers(
      dest='command', metavar='COMMAND', title='commands', prog=INVOCATION,
      help=f'{DEFAULT} by default; COMMAND --help lists its flags')
  for name in [chosen] if chosen else registry.available(registry.COMMANDS):
    module = module_of(name)
    text = (module.__doc__ or '').split('\n\n')[0]
    command = commands.add_parser(
        name, help=text, description=text, allow_abbrev=False)
    module.add_arguments(command)
    for each in subparsers(command):
      add_common_flags(each, is_task=each is not command)
    if name in MULTIPROCESS:
      add_process_flags(command)
  return parser, commands.choices


def add_common_flags(
    parser: argparse.ArgumentParser, *, is_task: bool) -> None:
  """Adds the flags of all commands, and of tasks such as `data prepare`."""
  # A default of a task would overwrite what its command has parsed.
  parser.add_argument(
      '--json', metavar='PATH', default=argparse.SUPPRESS if is_task else None,
      help='also write the results to this file as JSON')
  parser.add_argument(
      '--import', dest='imports', action='append', metavar='MODULE',
      default=argparse.SUPPRESS if is_task else [],
      help='module of your own that the saved config of a run may import; '
      'those that the command line or a config file names need no flag')


def subparsers(
    parser: argparse.ArgumentParser) -> list[argparse.ArgumentParser]:
  """Returns a parser and its subcommands' parsers, such as `data prepare`'s."""
  return [parser, *(
      task for action in parser._actions
      if isinstance(action, argparse._SubParsersAction)
      for task in action.choices.values())]


def add_process_flags(parser: argparse.ArgumentParser) -> None:
  """Adds the flags that describe several processes."""
  group = parser.add_argument_group(
      'runs of several processes',
      'TPU pods, SLURM, Kubernetes and Open MPI are detected. Elsewhere, set '
      'the first three flags for each process.')
  group.add_argument(
      '--coordinator', metavar='HOST:PORT',
      help='host of process 0, with a free port there')
  group.add_argument(
      '--num-processes', type=int, metavar='N',
      help='number of processes; with 1, this process runs on its own, even in '
      'a cluster')
  group.add_argument(
      '--process-id', type=int, metavar='I',
      help='number of this process, from 0')
  group.add_argument(
      '--start-timeout', type=int, default=300, metavar='SECS',
      help='time limit for all processes to connect (default: %(default)s)')


def message_for_user(error: BaseException) -> str | None:
  """Returns the message of an error that tells the user what to do.

  These are the errors that code of this package raises, as `ValueError` or one
  of its own classes, and file-system errors that name the file. None for those
  of libraries, which need their traceback; `python -X dev` shows every one.
  """
  if isinstance(error, ModuleNotFoundError) and not (
      error.name or 'vit_jax').startswith('vit_jax'):
    return (f'{error.name} is not installed for {sys.executable}. Activate the '
            'right environment or run pip install -r requirements.txt; '
            '`python main.py doctor` lists what is missing.')
  raised_in = traceback.extract_tb(error.__traceback__)[-1].filename
  package = pathlib.Path(__file__).resolve().parent
  is_ours = package in pathlib.Path(raised_in).resolve().parents
  return schema.words(error) if is_ours or (
      isinstance(error, OSError) and error.filename) else None


def exit_code(argv: Sequence[str] | None = None) -> int:
  """Runs the command line; returns the exit status, also after a signal.

  Args:
    argv: arguments; by default the arguments of the process.
  """
  early_signals.catch()  # Of the script `vit-jax`.
  from vit_jax.run import signals  # Imports no JAX.
  allocator.keep_freed_memory(os.environ)  # Before JAX allocates.
  try:
    return finish(main(sys.argv[1:] if argv is None else argv))
  except signals.Stopped as stopped:
    return stopped.exit_code  # Every process leaves here.
  except KeyboardInterrupt:
    return finish(early_signals.EXIT_CODES[signal.SIGINT])
  except BrokenPipeError:  # The reader, such as `head`, has left.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return finish(128 + signal.SIGPIPE)
  except Exception:
    finish(1, traceback.format_exc())
    raise


def finish(status: int, message: str = '') -> int:
  """Returns the status, or exits at once if others or Python would wait."""
  if processes := sys.modules.get(PROCESSES):
    processes.exit_now(status, message)
  # After a save that failed at its start, threads wait for its folders.
  if status and any(type(thread).__module__.startswith('orbax.')
                    for thread in threading.enumerate()):
    print(message, end='', file=sys.stderr)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
  return status


if __name__ == '__main__':
  sys.exit(exit_code())
