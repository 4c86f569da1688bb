"""Runs an Apache Beam pipeline on this machine or on a cluster.

Beam is an optional dependency: it is large and needs older versions of shared
packages.
"""

from collections.abc import Generator, Sequence
import contextlib
import os
import pathlib
from typing import Any

from vit_jax.exceptions import UserError

DIRECT = 'DirectRunner'
LOCAL = 'local'  # This process, without Beam.


def load(runner: str) -> Any:
  """Imports Apache Beam, unless the runner is `LOCAL`.

  Raises:
    ImportError: if it is not installed.
  """
  if runner == LOCAL:
    return None
  try:
    import apache_beam
  except ImportError as error:
    raise UserError(
        f'Apache Beam is not installed ({error}). Run `pip install '
        "'.[beam]'`, or use --runner=local, which runs in this process without "
        'it.') from error
  return apache_beam


@contextlib.contextmanager
def run(
    *, runner: str, flags: Sequence[str],
) -> Generator[tuple[Any, Any], None, None]:
  """Yields Beam and a pipeline, then runs it and waits for its end.

  Raises:
    RuntimeError: if a worker failed, with its last message.
  """
  beam = load(runner)
  chosen: Any = runner
  if runner == DIRECT:
    # Beam's DirectRunner would first try to download Prism, a Go program.
    from apache_beam.runners.portability import fn_api_runner
    chosen = fn_api_runner.FnApiRunner()
  options = beam.options.pipeline_options.PipelineOptions(list(flags))
  pipeline = beam.Pipeline(runner=chosen, options=options)
  yield beam, pipeline
  # Worker processes on this machine import this package.
  root = os.fspath(pathlib.Path(__file__).parents[3])
  os.environ['PYTHONPATH'] = os.pathsep.join(
      filter(None, [root, os.environ.get('PYTHONPATH')]))
  try:
    pipeline.run().wait_until_finish()
  except Exception as error:  # Its text has the tracebacks of all workers.
    lines = [line for line in str(error).splitlines() if line.strip()]
    raise UserError(
        f'A Beam worker failed: {lines[-1] if lines else repr(error)} '
        '(--runner=local shows the traceback)') from error
