"""TensorBoard gets scalars and images, and hides those of a killed run."""

import struct

from etils import epath
import jax.numpy as jnp
import numpy as np
import pytest
from tensorboardX.proto import event_pb2

from vit_jax.extras.tracking import tensorboard


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


def test_scalars_and_the_purged_step_are_written(tmp_path):
  for first_step, steps in ((0, (10, 20, 30)), (21, (30,))):
    board = tensorboard.TensorBoard(
        epath.Path(tmp_path), {}, first_step=first_step)
    for step in steps:
      board.write(step, {'train/loss': step / 10})
    board.close()
  events = read_events(tmp_path)
  scalars = [(event.step, value.tag, value.simple_value)
             for event in events for value in event.summary.value]
  assert [(step, tag) for step, tag, _ in scalars] == [
      (step, 'train/loss') for step in (10, 20, 30, 30)]
  assert scalars[0][2] == pytest.approx(1.0)
  starts = [event.step for event in events
            if event.session_log.status == event_pb2.SessionLog.START]
  assert starts == [0, 21]


def test_images_of_any_channels_are_written(tmp_path):
  board = tensorboard.TensorBoard(epath.Path(tmp_path), {}, first_step=0)
  rng = np.random.default_rng(0)
  board.write_images(0, 'bytes', jnp.asarray(
      rng.integers(0, 256, (2, 4, 6, 3), np.uint8)))
  board.write_images(0, 'bands', jnp.asarray(rng.normal(size=(1, 4, 6, 13))))
  board.close()
  found = {value.tag: value for event in read_events(tmp_path)
           for value in event.summary.value}
  for name, columns in (('bytes', 12), ('bands', 6)):
    assert (found[name].image.height, found[name].image.width) == (4, columns)
