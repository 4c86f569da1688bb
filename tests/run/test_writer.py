"""`metrics.jsonl` holds each row once, even after kills."""

import json
import math
import struct
import time

import numpy as np
import pytest
from tensorboardX.proto import event_pb2

from vit_jax import atomic_files
from vit_jax.run import writer as writer_lib


def lines(workdir):
  return (workdir / 'metrics.jsonl').read_text().splitlines()


def write(workdir, *rows, **options):
  """Writes pairs of a step and its metrics with one writer."""
  metric_writer = writer_lib.MetricWriter(workdir, **options)
  for step, metrics in rows:
    metric_writer.write(step, metrics)
  metric_writer.close()


def write_steps(workdir, steps, *, resume_step, key='train/loss'):
  write(workdir, *((step, {key: step / 10}) for step in steps),
        resume_step=resume_step)


def read_events(workdir):
  """Reads TFRecords: length, its CRC, the event, its CRC."""
  events = []
  for path in sorted(workdir.glob('events.out.tfevents.*')):
    data = path.read_bytes()
    while data:
      (length,) = struct.unpack('<Q', data[:8])
      events.append(event_pb2.Event.FromString(data[12:12 + length]))
      data = data[16 + length:]
  return events


def test_rows_are_flushed_immediately(tmp_path):
  workdir = tmp_path / 'new' / 'run'
  assert writer_lib.read_rows(workdir) == []
  metric_writer = writer_lib.MetricWriter(workdir, resume_step=0)
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


@pytest.mark.parametrize(('first', 'resume_step', 'second'), [
    ([10, 20, 30], 20, [30, 40]), ([0, 10], 0, [10, 20, 30, 40])])
def test_a_resumed_file_equals_one_that_was_never_interrupted(
    tmp_path, first, resume_step, second):
  write_steps(tmp_path / 'a', [10, 20, 30, 40], resume_step=0)
  write_steps(tmp_path / 'b', first, resume_step=0)
  write_steps(tmp_path / 'b', second, resume_step=resume_step)
  assert lines(tmp_path / 'a') == lines(tmp_path / 'b')


def test_appending_keeps_every_row(tmp_path):
  write_steps(tmp_path, [10, 20], resume_step=0)
  write_steps(tmp_path, [20], resume_step=None, key='test/accuracy')
  assert [set(row) - {'step'} for row in writer_lib.read_rows(tmp_path)] == [
      {'train/loss'}, {'train/loss'}, {'test/accuracy'}]


def test_a_repeated_evaluation_replaces_its_row(tmp_path):
  write(tmp_path, (20, {'train/loss': 1.0}), (20, {'val/accuracy': 0.5}),
        resume_step=0)
  write(tmp_path, (20, {'val/accuracy': 0.6}), (20, {'val/accuracy': 0.7}),
        resume_step=20)
  assert writer_lib.read_rows(tmp_path) == [
      {'step': 20, 'train/loss': 1.0}, {'step': 20, 'val/accuracy': 0.7}]


def test_a_line_cut_by_a_kill_is_ignored(tmp_path):
  write_steps(tmp_path, [10, 20], resume_step=0)
  with (tmp_path / 'metrics.jsonl').open('a') as file:
    file.write('{"step": 20, "val/lo')
  assert [row['step'] for row in writer_lib.read_rows(tmp_path)] == [10, 20]
  write_steps(tmp_path, [30], resume_step=20)
  assert [json.loads(line)['step'] for line in lines(tmp_path)] == [10, 20, 30]


def test_a_damaged_line_is_an_error_with_its_number(tmp_path):
  write_steps(tmp_path, [10], resume_step=0)
  with (tmp_path / 'metrics.jsonl').open('a') as file:
    file.write('spam\n{"step": 20}\n')
  with pytest.raises(ValueError, match=r"line 2: expected a row .*'spam'"):
    writer_lib.read_rows(tmp_path)


def test_an_inactive_writer_writes_no_file(tmp_path):
  write(tmp_path / 'run', (1, {'train/loss': 1.0}), active=False)
  assert not (tmp_path / 'run').exists()


def test_tensorboard_gets_scalars_and_the_purged_step(tmp_path):
  write_steps(tmp_path, [10, 20, 30], resume_step=0)
  write_steps(tmp_path, [30], resume_step=20)
  events = read_events(tmp_path)
  scalars = [(event.step, value.tag, value.simple_value)
             for event in events for value in event.summary.value]
  assert [(step, tag) for step, tag, _ in scalars] == [
      (step, 'train/loss') for step in (10, 20, 30, 30)]
  assert scalars[0][2] == pytest.approx(1.0)
  starts = [event.step for event in events
            if event.session_log.status == event_pb2.SessionLog.START]
  assert 21 in starts


def test_a_bucket_holds_the_same_rows_as_a_folder(tmp_path, monkeypatch):
  monkeypatch.setattr(atomic_files, 'is_remote', lambda path: True)
  write(tmp_path, (1, {'train/loss': 2.0}), (2, {'train/loss': 1.5}),
        (2, {'train/loss': 1.0}), resume_step=0)
  assert writer_lib.read_rows(tmp_path) == [
      {'step': 1, 'train/loss': 2.0}, {'step': 2, 'train/loss': 1.0}]
  write(tmp_path, (2, {'train/loss': 0.5}), resume_step=1)
  assert [row['train/loss'] for row in writer_lib.read_rows(tmp_path)] == [
      2.0, 0.5]


def test_a_bucket_gets_rows_together(tmp_path, monkeypatch):
  """Each upload replaces the whole object."""
  monkeypatch.setattr(atomic_files, 'is_remote', lambda path: True)
  writer = writer_lib.MetricWriter(tmp_path)

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


def summaries(workdir):
  """Returns the summaries of the event files by tag."""
  return {value.tag: value for event in read_events(workdir)
          for value in event.summary.value}


def test_tensorboard_shows_images(tmp_path):
  metric_writer = writer_lib.MetricWriter(tmp_path)
  rng = np.random.default_rng(0)
  metric_writer.write_images(
      'bytes', rng.integers(0, 256, (2, 4, 6, 3), np.uint8), step=0)
  metric_writer.write_images(
      'bands', rng.normal(size=(1, 4, 6, 13)).astype(np.float32), step=0)
  metric_writer.close()
  found = summaries(tmp_path)
  for name, columns in (('bytes', 12), ('bands', 6)):
    assert (found[name].image.height, found[name].image.width) == (4, columns)
