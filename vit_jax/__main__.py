"""The command line: `python main.py`, `python -m vit_jax` and `vit-jax`.

    python main.py [COMMAND] --config=configs/x.py[:name=value] --workdir=DIR
    python main.py --help
"""

from vit_jax import early_signals

if __name__ == '__main__':
  early_signals.catch()  # Before the other imports.

import argparse
from collections.abc import Sequence
import contextlib
import dis
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
  if not argv or argv[0] in ('-h', '--help', 'help'):
    print(usage())
    return 0 if argv else 2
  named = not argv[0].startswith('-')
  try:
    if named:
      schema.check_name(
          argv[0], registry.available(registry.COMMANDS), what='command')
    return run(argv[0] if named else DEFAULT, argv[1 if named else 0:])
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


def usage() -> str:
  """Returns the list of commands."""
  names = registry.available(registry.COMMANDS)
  width = max(map(len, names))
  texts = [(module_of(name).__doc__ or '').splitlines()[0] for name in names]
  lines = [f'  {name:{width}}  {text}' for name, text in zip(names, texts)]
  return '\n'.join([
      f'usage: {INVOCATION} [COMMAND] --config=configs/x.py[:name=value,...] '
      '--workdir=DIR', '',
      f'commands ({DEFAULT} by default):', *lines, '',
      f'{INVOCATION} COMMAND --help lists the flags of a command. Change a '
      'value of the\nconfig by --config.section.key=value, for example '
      '--config.optimizer.learning_rate=3e-4.'])


def module_of(command: str) -> types.ModuleType:
  """Returns the module of a command, which imports libraries when it runs."""
  return registry.load(registry.COMMANDS[command])


def run(command: str, argv: Sequence[str]) -> int:
  """Parses the flags of a command, runs it and writes its results."""
  # Set before the command imports JAX.
  os.environ.setdefault(
      'JAX_COMPILATION_CACHE_DIR', os.path.expanduser(COMPILE_CACHE))
  module, parser = build_parser(command)
  registry.allow_named(list(argv))
  if {'-h', '--help'} & set(argv) and (config := config_of(argv)):
    parser.print_help()
    arguments.print_config(config, config_overrides(argv))
    return 0
  args = parse_arguments(command, parser, argv)
  if command not in STOPPABLE:
    early_signals.release_sigterm()
  registry.allow(*args.imports)
  is_first = connect(command, args)
  with contextlib.ExitStack() as stack:
    if not is_first:
      devnull = stack.enter_context(open(os.devnull, 'w'))
      stack.enter_context(contextlib.redirect_stdout(devnull))
    status, results = module.run(args)
  if args.json and is_first:
    from vit_jax import atomic_files
    atomic_files.write_json(args.json, results)
  return status


def connect(command: str, args: argparse.Namespace) -> bool:
  """Connects the processes of a run; returns whether this one is the first."""
  # `doctor` also runs where JAX is not installed.
  if command not in MULTIPROCESS or not importlib.util.find_spec('jax'):
    return True
  from vit_jax.parallel import processes
  several = processes.start(
      args.coordinator, args.num_processes, args.process_id,
      timeout_secs=args.start_timeout, stoppable=command in STOPPABLE)
  if not several:
    return True
  print(processes.describe(), flush=True)
  return processes.is_first()


def parse_arguments(
    command: str, parser: argparse.ArgumentParser, argv: Sequence[str],
) -> argparse.Namespace:
  """Returns the flags of a command, including `overrides` of its config."""
  # Flags after '--' go to a Beam runner.
  end = list(argv).index('--') if '--' in argv else len(argv)
  argv, runner_flags = list(argv[:end]), list(argv[end + 1:])
  overrides = config_overrides(argv)
  known = [flag for each in subparsers(parser) for action in each._actions
           for flag in action.option_strings]
  # Before argparse, which would report a missing --workdir, not the misspelt
  # --workdr.
  rest = [a for a in argv if not a.startswith(CONFIG_FLAG)]
  for argument in rest:
    if argument.startswith('--'):
      arguments.check_flag(argument.split('=')[0], known)
  args, unknown = parser.parse_known_args(rest)
  if unknown:
    raise ValueError(f'Unknown argument {unknown[0]!r}.')
  for name, value in vars(args).items():
    # Shells do not expand the ~ of --output=~/x.
    if isinstance(value, str) and value.startswith('~'):
      setattr(args, name, os.path.expanduser(value))
  # `add_data` gives only the section data, which needs no config file.
  if overrides and not (hasattr(args, 'config') or hasattr(args, 'data_dir')):
    raise ValueError(f'{command} takes no config, but got --config.'
                     f'{overrides[0]}.')
  if runner_flags and not hasattr(args, 'runner'):
    raise ValueError(
        f'{command} takes no arguments after --, but got {runner_flags[0]}.')
  args.overrides = [*arguments.short_overrides(args), *overrides]
  args.runner_flags = runner_flags
  return args


def config_of(argv: Sequence[str]) -> str | None:
  """Returns the value of --config."""
  parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
  parser.add_argument('--config')
  return parser.parse_known_args(argv)[0].config


def config_overrides(argv: Sequence[str]) -> list[str]:
  """Returns 'section.key=value' of each flag --config.section.key=value."""
  return [a[len(CONFIG_FLAG):] for a in argv if a.startswith(CONFIG_FLAG)]


def build_parser(
    command: str) -> tuple[types.ModuleType, argparse.ArgumentParser]:
  """Returns a command's module and the parser of its flags."""
  module = module_of(command)
  parser = argparse.ArgumentParser(
      prog=f'{INVOCATION} {command}', allow_abbrev=False,
      description=(module.__doc__ or '').split('\n\n')[0])
  module.add_arguments(parser)
  for each in subparsers(parser):
    each.add_argument(
        '--json', metavar='PATH',
        # A default in the subparser would overwrite the parsed value.
        default=None if each is parser else argparse.SUPPRESS,
        help='also write the results to this file as JSON')
    each.add_argument(
        '--import', dest='imports', action='append', metavar='MODULE',
        default=[] if each is parser else argparse.SUPPRESS,
        help='module of your own that the saved config of a run may import; '
        'those that the command line or a config file names need no flag')
  if command in MULTIPROCESS:
    add_process_flags(parser)
  return module, parser


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

  These are the errors that a `raise` statement of this package raised, and
  file-system errors that name the file. None for others, which need their
  traceback; `python -X dev` shows every one.
  """
  if isinstance(error, ModuleNotFoundError) and not (
      error.name or 'vit_jax').startswith('vit_jax'):
    return (f'{error.name} is not installed for {sys.executable}. Activate the '
            'right environment or run pip install -r requirements.txt; '
            '`python main.py doctor` lists what is missing.')
  last = error.__traceback__
  while last is not None and last.tb_next is not None:
    last = last.tb_next
  assert last is not None
  # `int('x')` in our code has our frame, too, but another instruction.
  code = last.tb_frame.f_code
  package = pathlib.Path(__file__).resolve().parent
  if ((isinstance(error, OSError) and error.filename) or (
      package in pathlib.Path(code.co_filename).resolve().parents
      and code.co_code[last.tb_lasti] == dis.opmap['RAISE_VARARGS'])):
    return schema.words(error)
  return None


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
