"""The command line: `python main.py`, `python -m vit_jax` and `vit-jax`.

    python main.py [COMMAND] --config=configs/x.py[:name=value] --workdir=DIR
    python main.py --help
"""

from vit_jax.run import signals

if __name__ == '__main__':
  signals.catch_early()  # Before the other imports.

import argparse
from collections.abc import Sequence
import contextlib
import ctypes
import importlib.util
import os
import signal
import sys
import traceback
import types
from typing import Any

import vit_jax
from vit_jax import escape
from vit_jax import registry
from vit_jax import schema
from vit_jax.commands import arguments
from vit_jax.exceptions import UserError
from vit_jax.exceptions import UserFileError

DEFAULT = 'train'
# MULTIPROCESS: commands that can run as several processes; STOPPABLE: those
# that save their state on SIGTERM.
MULTIPROCESS = ('train', 'evaluate', 'sweep', 'doctor')
STOPPABLE = ('train', 'sweep')
CONFIG_FLAG = '--config.'
# How this program was started.
INVOCATION = ('vit-jax' if sys.argv[0].endswith('vit-jax') else
              'python main.py')
# Compiled programs are kept here, so that a restart does not compile again.
COMPILE_CACHE = '~/.cache/vit_jax/xla'
# Parameters of mallopt(3) and their values.
_MALLOC = {
    -4: 0,  # M_MMAP_MAX: large blocks come from the heap.
    -1: -1,  # M_TRIM_THRESHOLD: the heap does not shrink.
    -2: 64 * 2**20,  # M_TOP_PAD: it grows in steps of 64 MiB.
    # M_ARENA_MAX: all threads share the freed blocks. Other heaps end at 64
    # MiB.
    -8: 1,
}


def main(argv: Sequence[str]) -> int:
  """Runs the command line; returns the exit status."""
  try:
    return run(argv)
  except BrokenPipeError:
    raise  # See `exit_code`.
  except Exception as error:
    message = message_for_user(error)
    if message is None or sys.flags.dev_mode:
      raise
    text = escape.lines(f'{INVOCATION.split()[-1]}: error: {message}')
    print(text.replace('\n', '\n  '), file=sys.stderr)
    return getattr(error, 'exit_code', 2)


def run(argv: Sequence[str]) -> int:
  """Parses the command line, runs the command and writes its results."""
  if not argv:
    build_parser().print_help()
    return 2
  # Set before the command imports JAX.
  os.environ.setdefault(
      'JAX_COMPILATION_CACHE_DIR', os.path.expanduser(COMPILE_CACHE))
  registry.allow_named(list(argv))
  args = parse(argv)
  if args.command not in STOPPABLE:
    signals.release_sigterm()
  registry.allow(*args.imports)
  if args.verbose:
    from vit_jax import console
    console.verbose = True
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
  return processes.start(
      args.coordinator, args.num_processes, args.process_id,
      timeout_secs=args.start_timeout, stoppable=args.command in STOPPABLE)


def parse(argv: Sequence[str]) -> argparse.Namespace:
  """Returns the flags of a command, including `overrides` of its config."""
  command, *_ = argv
  if command.startswith('-') and command not in (
      '-h', '--help', '--version'):
    command, argv = DEFAULT, [DEFAULT, *argv]
  if not command.startswith('-'):
    schema.check_name(
        command, registry.available(registry.COMMANDS), what='command')
  args = build_parser(command).parse_args(argv)
  for name, value in vars(args).items():
    # Shells do not expand the ~ of --output=~/x.
    if isinstance(value, str) and value.startswith('~'):
      setattr(args, name, os.path.expanduser(value))
  # `add_images` gives only the section data, which needs no config file.
  if args.overrides and not {'config', 'data_dir'} & vars(args).keys():
    raise UserError(f'{command} takes no config, but got {CONFIG_FLAG}'
                    f'{args.overrides[0]}.')
  args.overrides = [*arguments.short_overrides(args), *args.overrides]
  return args


class Parser(argparse.ArgumentParser):
  """Parser of a command, or of one of its tasks, such as `data prepare`."""

  def __init__(self, **options: Any):
    super().__init__(allow_abbrev=False, **options)
    self.given: list[str] = []
    arguments.add_common(self)

  def parse_known_args(self, args=None, namespace=None):
    """Returns the flags with `overrides`, and other arguments."""
    self.given = list(args or ())
    rest = [each for each in self.given if not each.startswith(CONFIG_FLAG)]
    if self._subparsers is None or all(each.startswith('-') for each in rest):
      # Before argparse, which would report a missing --workdir, not the
      # misspelt --workdr.
      for each in rest:
        if each.startswith('--'):
          arguments.check_flag(
              each.split('=')[0], list(self._option_string_actions))
    args, others = super().parse_known_args(rest, namespace)
    args.overrides = overrides(self.given)
    return args, others

  def print_help(self, file=None):
    """Prints the flags, and the keys of a config that is given."""
    super().print_help(file)
    finder = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    finder.add_argument('--config')
    config = finder.parse_known_args(self.given)[0].config
    if config and (keys := registry.optional(registry.KEYS)):
      keys.print_config(config, overrides(self.given))


def overrides(argv: Sequence[str]) -> list[str]:
  """Returns 'section.key=value' of each flag --config.section.key=value."""
  return [each.removeprefix(CONFIG_FLAG) for each in argv
          if each.startswith(CONFIG_FLAG)]


def build_parser(chosen: str = '') -> argparse.ArgumentParser:
  """Returns the parser of the command line.

  With a `chosen` command, only its module is imported, and has a parser.
  """
  parser = argparse.ArgumentParser(
      allow_abbrev=False,
      usage=f'{INVOCATION} [COMMAND] --config=configs/x.py[:name=value,...] '
      '--workdir=DIR',
      epilog='Change a value of the config by --config.section.key=value, for '
      'example --config.optimizer.learning_rate=3e-4.')
  parser.add_argument(
      '--version', action='version', version=f'vit_jax {vit_jax.__version__}')
  parser.set_defaults(json='', verbose=False, imports=[])
  commands = parser.add_subparsers(
      dest='command', metavar='COMMAND', title='commands', prog=INVOCATION,
      help=f'{DEFAULT} by default; COMMAND --help lists its flags',
      parser_class=Parser)
  known = registry.available(registry.COMMANDS)
  for name in [chosen] if chosen in known else known:
    module = module_of(name)
    text = (module.__doc__ or '').split('\n\n')[0]
    command = commands.add_parser(name, help=text, description=text)
    module.add_arguments(command)
    if name in MULTIPROCESS:
      arguments.add_processes(command)
  return parser


def message_for_user(error: BaseException) -> str | None:
  """Returns the message of an error that tells the user what to do.

  These are user errors, and errors of the file system that name the file. None
  for all others, whose traceback is needed; `python -X dev` shows every one.
  """
  if isinstance(error, ModuleNotFoundError) and not (
      error.name or 'vit_jax').startswith('vit_jax'):
    return (f'{error.name} is not installed for {sys.executable}. Activate the '
            'right environment or run pip install -r requirements.txt; '
            '`python main.py doctor` lists what is missing.')
  for_user = isinstance(error, (UserError, UserFileError)) or (
      isinstance(error, OSError) and error.filename)
  return schema.words(error) if for_user else None


def exit_code(argv: Sequence[str] | None = None) -> int:
  """Runs the command line; returns the exit status, also after a signal.

  Args:
    argv: arguments; by default the arguments of the process.
  """
  signals.catch_early()  # Of the script `vit-jax`.
  keep_freed_memory()  # Before JAX allocates.
  try:
    return leave(main(sys.argv[1:] if argv is None else argv))
  except signals.Stopped as stopped:
    return stopped.exit_code  # Every process leaves here.
  except KeyboardInterrupt:
    return leave(signals.EXIT_CODES[signal.SIGINT])
  except BrokenPipeError:  # The reader, such as `head`, has left.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return leave(128 + signal.SIGPIPE)
  except Exception:
    if sys.flags.dev_mode:
      raise
    traceback.print_exc()
    return leave(1)


def keep_freed_memory() -> None:
  """Makes malloc keep freed memory for reuse, if it is glibc's.

  By default, it returns large freed blocks to the kernel, which must clear new
  pages for the temporary arrays of every training step on CPUs.
  """
  if (os.environ.get('VIT_JAX_ALLOCATOR') != 'system'
      and 'CS_GNU_LIBC_VERSION' in getattr(os, 'confstr_names', ())):
    mallopt = ctypes.CDLL(None).mallopt
    for number, value in _MALLOC.items():
      mallopt(number, value)


def leave(status: int) -> int:
  """Returns the status 0, and ends the process at once with others.

  A normal exit would wait minutes for other processes of the run, which wait
  for this one, or for threads of a save that failed.
  """
  if status:
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
  return status


if __name__ == '__main__':
  sys.exit(exit_code())
