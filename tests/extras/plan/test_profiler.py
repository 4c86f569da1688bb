"""The profiler traces the requested steps."""

from unittest import mock

from etils import epath
import jax
import jax.numpy as jnp
import pytest

from tests import toy
from vit_jax import __main__ as main
from vit_jax.experiment import build as build_lib
from vit_jax.extras.plan import profiler as profiler_lib


class Recorder:
  """Replaces JAX's profiler and records when it starts and stops."""

  def __init__(self, monkeypatch):
    self.calls = []
    monkeypatch.setattr(
        jax.profiler, 'start_trace',
        lambda folder, **_: self.calls.append(('start', self.step)))
    monkeypatch.setattr(
        jax.profiler, 'stop_trace',
        lambda: self.calls.append(('stop', self.step)))

  def run(self, *, first, last, steps):
    loss = jnp.zeros(())
    profiler = profiler_lib.Profiler(
        epath.Path('nowhere'), first=first, last=last, steps=steps)
    for self.step in range(first + 1, last + 1):
      profiler.step(self.step, loss)
    profiler.stop()
    profiler.stop()  # A second call has no effect.
    return self.calls


@pytest.mark.parametrize(('first', 'last', 'steps', 'calls'), [
    (100, 120, 3, [('start', 105), ('stop', 108)]),
    # An unfinished trace is closed.
    (0, 12, 7, [('start', 5), ('stop', 12)]),
    # A short run is traced after its first step.
    (0, 4, 10, [('start', 1), ('stop', 4)])])
def test_the_trace_covers_the_requested_steps(
    monkeypatch, first, last, steps, calls):
  assert Recorder(monkeypatch).run(first=first, last=last, steps=steps) == calls


def test_a_bucket_is_refused_before_the_data_are_opened(
    tmp_path, capsys, monkeypatch):
  monkeypatch.setattr(build_lib, 'build', mock.Mock(side_effect=AssertionError))
  file = toy.write(tmp_path / 'toy.py')
  assert main.main(['train', f'--config={file}', '--workdir=gs://bucket/run',
                    '--profile=2']) == 2
  assert '--profile needs a local workdir' in capsys.readouterr().err
