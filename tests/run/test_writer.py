"""`metrics.jsonl` holds each row once, even after kills."""

import json
import math
import time

import pytest

from vit_jax import atomic_files
from vit_jax.run import writer as writer_lib


def lines(workdir):
  return (workdir / 'metrics.jsonl').read_text().splitlines()


def write(workdir, *rows, first_step=0):
  """Writes pairs of a step and its metrics with one writer."""
  metric_writer = writer_lib.MetricWriter(workdir, first_step=first_step)
  for step, metrics in rows:
    metric_writer.write(step, metrics)
  metric_writer.close()


def write_steps(workdir, steps, *, first_step=0):
  write(workdir, *((step, {'train/loss': step / 10}) for step in steps),
        first_step=first_step)


def test_rows_are_flushed_immediately(tmp_path):
  workdir = tmp_path / 'new' / 'run'
  assert writer_lib.read_rows(workdir) == []
  metric_writer = writer_lib.MetricWriter(workdir, first_step=0)
  metric_writer.write(10, {'train/loss': 2.5, 'val/accuracy': 1})
  assert lines(workdir) == [
      '{"step": 10, "train/loss": 2.5, "val/accuracy": 1.0}']
  metric_writer.close()


def test_non_finite_values_are_null_and_read_as_nan(tmp_path):
  write(tmp_path, (1, {'a': math.nan, 'b': math.inf, 'c': -math.inf}))

  def refuse(constant):
    raise AssertionError(f'{constant} is no JSON')

  row = json.loads(lines(tmp_path)[0], parse_constant=refuse)
  assert row == {'step': 1, 'a': None, 'b': None, 'c': None}
  (read,) = writer_lib.read_rows(tmp_path)
  assert all(math.isnan(read[name]) for name in 'abc')


@pytest.mark.parametrize(('first', 'first_step', 'second'), [
    ([10, 20, 30], 21, [30, 40]), ([0, 10], 0, [10, 20, 30, 40])])
def test_a_resumed_file_equals_one_that_was_never_interrupted(
    tmp_path, first, first_step, second):
  write_steps(tmp_path / 'a', [10, 20, 30, 40])
  write_steps(tmp_path / 'b', first)
  write_steps(tmp_path / 'b', second, first_step=first_step)
  assert lines(tmp_path / 'a') == lines(tmp_path / 'b')


@pytest.mark.parametrize('is_remote', [False, True])
def test_a_repeated_evaluation_replaces_its_row(
    tmp_path, monkeypatch, is_remote):
  monkeypatch.setattr(atomic_files, 'is_remote', lambda path: is_remote)
  write(tmp_path, (20, {'train/loss': 1.0}), (20, {'val/accuracy': 0.5}))
  write(tmp_path, (20, {'val/accuracy': 0.6}), (20, {'val/accuracy': 0.7}),
        first_step=21)
  assert writer_lib.read_rows(tmp_path) == [
      {'step': 20, 'train/loss': 1.0}, {'step': 20, 'val/accuracy': 0.7}]


def test_a_line_cut_by_a_kill_is_ignored(tmp_path):
  write_steps(tmp_path, [10, 20], first_step=0)
  with (tmp_path / 'metrics.jsonl').open('a') as file:
    file.write('{"step": 20, "val/lo')
  assert [row['step'] for row in writer_lib.read_rows(tmp_path)] == [10, 20]
  write_steps(tmp_path, [30], first_step=21)
  assert [json.loads(line)['step'] for line in lines(tmp_path)] == [10, 20, 30]


def test_a_damaged_line_is_an_error_with_its_number(tmp_path):
  (tmp_path / 'metrics.jsonl').write_text('{"step": 1}\nspam\n{"step": 2}\n')
  with pytest.raises(ValueError, match=r"line 2: expected a row .*'spam'"):
    writer_lib.read_rows(tmp_path)


def test_a_bucket_gets_rows_together(tmp_path, monkeypatch):
  """Each upload replaces the whole object."""
  monkeypatch.setattr(atomic_files, 'is_remote', lambda path: True)
  writer = writer_lib.MetricWriter(tmp_path, first_step=0)

  def uploaded():
    return [row['step'] for row in writer_lib.read_rows(tmp_path)]

  for step in range(4):
    writer.write(step, {'train/loss': 1.0})
  assert uploaded() == [0]
  writer.flush()
  assert uploaded() == [0, 1, 2, 3]
  now = time.monotonic() + writer_lib.UPLOAD_SECS + 100
  monkeypatch.setattr(time, 'monotonic', lambda: now)
  writer.write(4, {'train/loss': 1.0})
  assert uploaded() == [0, 1, 2, 3, 4]
  writer.write(5, {'train/loss': 1.0})
  writer.close()
  assert uploaded() == [0, 1, 2, 3, 4, 5]
