"""The door: starts JAX and runs one command.

    python main.py [COMMAND] --config=configs/x.py[:name=value] --workdir=DIR
    python main.py --help
"""

import argparse
from collections.abc import Sequence
import contextlib
import importlib
import importlib.util
import os
import pathlib
import sys
import traceback
import types

from vit_jax import schema

# A row for each file in vit_jax/commands.
COMMANDS = {
    'train': 'train a model, or go on with a run that stopped (the default)',
    'evaluate': 'measure a checkpoint with the evaluators of its config',
    'sweep': 'choose settings on held-out data, then train the best on all',
    'vtab': 'fine-tune on the 19 tasks of VTAB-1k, and average the scores',
    'flops': "count what pre-training costs, next to the paper's Table 6",
    'plan': 'say whether a training fits TPUs that are not here, and how fast',
    'predict': 'classify pictures with any model',
    'features': 'write what a model makes of pictures, a row for each',
    'inspect': 'show what a model learned, and where it looks',
    'deduplicate': 'find examples of a data set that test sets hold too',
    'data': 'check any data set, or write it as shards of random access',
    'convert': 'turn weights of one format into another, and prove the result',
    'export': 'write a model as one file that runs elsewhere, and prove it',
    'benchmark': 'measure how fast a part is, beside others that do the same',
    'doctor': 'show versions, devices and memory, and what is missing',
}
DEFAULT = 'train'
MULTIHOST = 'vit_jax.parallel.multihost'  # Imported only where it is needed.
# Those that run as one program in several processes. The others are for one
# process, wherever it is.
OVER_PROCESSES = ('train', 'evaluate', 'sweep', 'vtab', 'doctor')
CONFIG_FLAG = '--config.'

# A program that was compiled before is read, not compiled: a restart, and a
# second stage of the same shapes, start in a second or two.
COMPILE_CACHE = '~/.cache/vit_jax/xla'


def main(argv: Sequence[str]) -> int:
  """Runs the command line; returns the exit status."""
  if not argv or argv[0] in ('-h', '--help', 'help'):
    print(usage())
    return 0 if argv else 2
  named = not argv[0].startswith('-')
  try:
    if named:
      schema.check_name(argv[0], list(COMMANDS), what='command')
    return run(argv[0] if named else DEFAULT, argv[1 if named else 0:])
  except (ValueError, OSError, RuntimeError, ImportError) as error:
    if not is_explained(error):
      raise
    print(f'main.py: error: {schema.words(error)}', file=sys.stderr)
    return getattr(error, 'exit_code', 2)


def usage() -> str:
  """Returns the list of commands."""
  width = max(map(len, COMMANDS))
  lines = [f'  {name:{width}}  {text}' for name, text in COMMANDS.items()]
  return '\n'.join([
      'usage: python main.py [COMMAND] --config=configs/x.py[:name=value,...] '
      '--workdir=DIR', '',
      'commands:', *lines, '',
      'python main.py COMMAND --help shows the flags of one. A value of the '
      'config is\nchanged by --config.section.key=value, for example '
      '--config.optimizer.learning_rate=3e-4.'])


def run(command: str, argv: Sequence[str]) -> int:
  """Runs one command."""
  # JAX reads it when it is imported, with the command.
  os.environ.setdefault(
      'JAX_COMPILATION_CACHE_DIR', os.path.expanduser(COMPILE_CACHE))
  module, parser = build_parser(command)
  argv, behind = split_flags(argv)
  overrides = [a[len(CONFIG_FLAG):] for a in argv if a.startswith(CONFIG_FLAG)]
  known = [s for leaf in leaves(parser, argv) for action in leaf._actions
           for s in action.option_strings]
  # Before the parser looks: it would say that --workdir is missing, not that
  # --workdr is no flag.
  rest = [a for a in argv if not a.startswith(CONFIG_FLAG)]
  for argument in rest:
    if argument.startswith('--'):
      schema.check_name(argument.split('=')[0], known, what='flag')
  args, unknown = parser.parse_known_args(rest)
  if unknown:
    raise ValueError(f'Could not make sense of {unknown[0]!r}.')
  if overrides and not hasattr(args, 'config'):
    raise ValueError(f'{command} takes no config, but got --config.'
                     f'{overrides[0]}.')
  if behind and not hasattr(args, 'runner'):
    raise ValueError(f'{command} takes nothing after --, but got {behind[0]}.')
  args.overrides, args.runner_flags = overrides, behind
  # Without JAX, which `doctor` alone does, there is but this process.
  if command not in OVER_PROCESSES or not importlib.util.find_spec('jax'):
    return module.run(args)
  from vit_jax.parallel import multihost
  several = multihost.start(multihost.Processes(
      args.coordinator, args.num_processes, args.process_id,
      args.start_timeout))
  if not several:
    return module.run(args)
  print(multihost.describe(), flush=True)
  with contextlib.ExitStack() as stack:
    if not multihost.is_first():
      # What they would say, the first says too.
      nowhere = stack.enter_context(open(os.devnull, 'w'))
      stack.enter_context(contextlib.redirect_stdout(nowhere))
    return module.run(args)


def split_flags(argv: Sequence[str]) -> tuple[list[str], list[str]]:
  """Returns our own flags, and those after '--': of what runs a pipeline."""
  end = list(argv).index('--') if '--' in argv else len(argv)
  return list(argv[:end]), list(argv[end + 1:])


def build_parser(
    command: str) -> tuple[types.ModuleType, argparse.ArgumentParser]:
  """Returns a command's module, and what reads its flags (not --config.*)."""
  try:
    module = importlib.import_module(f'vit_jax.commands.{command}')
  except ModuleNotFoundError as error:
    if (error.name or 'vit_jax').startswith('vit_jax'):
      raise
    raise ImportError(
        f'{error.name} is not installed for {sys.executable}. Activate the '
        'environment that has it, or pip install -r requirements.txt; '
        '`python main.py doctor` says what is missing.') from error
  parser = argparse.ArgumentParser(
      prog=f'python main.py {command}', allow_abbrev=False,
      description=(module.__doc__ or '').split('\n\n')[0])
  module.add_arguments(parser)
  for leaf in leaves(parser):
    leaf.add_argument(
        '--json', metavar='PATH',
        # What the outer parser read is not forgotten by an inner one.
        default=None if leaf is parser else argparse.SUPPRESS,
        help='also write the figures to this file, as JSON')
  if command in OVER_PROCESSES:
    add_process_flags(parser)
  return module, parser


def leaves(
    parser: argparse.ArgumentParser, words: Sequence[str] | None = None,
) -> list[argparse.ArgumentParser]:
  """Returns a command's parser and those of its tasks, or of one in `words`.

  `data prepare` is a task of `data`.
  """
  found = [parser]
  for action in parser._actions:
    if isinstance(action, argparse._SubParsersAction):
      found += [task for name, task in action.choices.items()
                if words is None or name in words]
  return found


def add_process_flags(parser: argparse.ArgumentParser) -> None:
  """Adds the flags that say which of several processes this is."""
  group = parser.add_argument_group(
      'several processes, on one machine or on many',
      'A TPU pod, SLURM, Kubernetes and Open MPI are asked by themselves; '
      'elsewhere give the three flags to each process.')
  group.add_argument(
      '--coordinator', metavar='HOST:PORT',
      help='where process 0 is, and a free port there')
  group.add_argument(
      '--num-processes', type=int, metavar='N',
      help='how many; 1 for this one alone, whatever a cluster says')
  group.add_argument(
      '--process-id', type=int, metavar='I', help='which one this is, from 0')
  group.add_argument(
      '--start-timeout', type=int, default=300, metavar='SECS',
      help='how long to wait for the others (default: %(default)s)')


def is_explained(error: BaseException) -> bool:
  """Whether the error says by itself what the user can do.

  That is one that a `raise` of our own code made, or one of the file system
  that names the file. Any other needs its traceback.
  """
  if isinstance(error, OSError) and error.filename:
    return True
  frame = traceback.extract_tb(error.__traceback__)[-1]
  root = pathlib.Path(__file__).resolve().parent
  file = pathlib.Path(frame.filename).resolve()
  ours = file == root / 'main.py' or root / 'vit_jax' in file.parents
  return ours and (frame.line or '').startswith('raise')


def exit_code(argv: Sequence[str]) -> int:
  """Runs the command line; a run that was asked to stop has its own status."""
  from vit_jax.training import signals  # Needs no JAX when only asked for help.
  try:
    return left(main(argv))
  except signals.Stopped as stopped:
    return stopped.exit_code  # All processes, together.
  except KeyboardInterrupt:
    return left(signals.EXIT_CODES[signals.signal.SIGINT])
  except Exception:
    if multihost := sys.modules.get(MULTIHOST):
      multihost.leave(1, traceback.format_exc())
    raise


def left(status: int) -> int:
  """Returns the status; where others wait for this process, ends it if bad."""
  if multihost := sys.modules.get(MULTIHOST):
    multihost.leave(status)
  return status


if __name__ == '__main__':
  sys.exit(exit_code(sys.argv[1:]))
