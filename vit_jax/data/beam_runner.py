"""Runs an Apache Beam pipeline: on this machine, or on a cluster.

Beam is large and asks for older versions of what others share, so that it is
an extra: nothing else here needs it.
"""

import argparse
from collections.abc import Callable, Iterator, Sequence
import contextlib
import os
import pathlib
from typing import Any

from vit_jax import schema

DIRECT = 'DirectRunner'
LOCAL = 'local'  # In this process, without Beam.


def load() -> Any:
  """Returns the module.

  Raises:
    ImportError: where it is not installed, with what to do.
  """
  try:
    import apache_beam
  except ImportError as error:
    raise ImportError(
        f'Apache Beam is not installed ({error}). Run `pip install -r '
        'requirements-beam.txt`, or give --runner=local to work in this one '
        'process without it.') from error
  return apache_beam


def run(
    build: Callable[[Any], Any], *, runner: str, flags: Sequence[str],
) -> None:
  """Builds a pipeline and waits for its end.

  Args:
    build: adds the steps to a `beam.Pipeline`.
    runner: name of one that Beam knows.
    flags: Beam's own: '--direct_num_workers=4', '--region=...'.

  Raises:
    ImportError: if Beam is not installed.
    RuntimeError: if a worker failed, with what it said last.
    ValueError: if Beam does not know a flag.
  """
  beam = load()
  check_flags(flags)
  chosen: Any = runner
  if runner == DIRECT:
    # What Beam's own DirectRunner comes to after it tried to download a
    # program (Prism) that runs pipelines.
    from apache_beam.runners.portability import fn_api_runner
    chosen = fn_api_runner.FnApiRunner()
  options = beam.options.pipeline_options.PipelineOptions(list(flags))
  pipeline = beam.Pipeline(runner=chosen, options=options)
  build(pipeline)
  with _findable():
    try:
      pipeline.run().wait_until_finish()
    except Exception as error:  # Beam's hold the tracebacks of all workers.
      said = [line for line in str(error).splitlines() if line.strip()]
      raise RuntimeError(
          f'A worker failed: {said[-1] if said else repr(error)} '
          '(--runner=local says where)') from error


@contextlib.contextmanager
def _findable() -> Iterator[None]:
  """Lets worker processes on this machine import what this one does."""
  root = os.fspath(pathlib.Path(__file__).parents[2])
  before = os.environ.get('PYTHONPATH')
  os.environ['PYTHONPATH'] = os.pathsep.join(filter(None, [root, before]))
  try:
    yield
  finally:
    if before is None:
      del os.environ['PYTHONPATH']
    else:
      os.environ['PYTHONPATH'] = before


def check_flags(flags: Sequence[str]) -> None:
  """Raises where a flag is none of Beam's: it would pass over it.

  Raises:
    ValueError: naming the nearest.
  """
  load()
  from apache_beam.options import pipeline_options
  parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
  for options in _subclasses(pipeline_options.PipelineOptions):
    try:
      options._add_argparse_args(parser)
    except argparse.ArgumentError:
      continue  # Another has the same flag.
  known = [s for action in parser._actions for s in action.option_strings]
  for flag in flags:
    if flag.startswith('--'):
      schema.check_name(flag.split('=')[0], known, what='flag of Apache Beam')


def _subclasses(cls: type) -> list[Any]:
  found: list[Any] = []
  subclasses: list[Any] = cls.__subclasses__()
  for subclass in subclasses:
    found += [subclass, *_subclasses(subclass)]
  return found
