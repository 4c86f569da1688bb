"""Events of a run for TensorBoard, without TensorFlow."""

from collections.abc import Mapping
import contextlib
import os
import time
from typing import Any

from etils import epath
import jax
import numpy as np
from tensorboardX import event_file_writer
from tensorboardX import summary as tensorboard_summary
from tensorboardX.proto import event_pb2

from vit_jax.extras import pictures

_NUM_IMAGES = 16


class TensorBoard:
  """Writes an event file in a workdir."""

  def __init__(
      self, workdir: epath.Path, config: Mapping[str, Any], *, first_step: int):
    """Hides events of a killed run from `first_step` on."""
    del config
    # `SummaryWriter` would write in a thread, which outlives a failed flush and
    # then fails while Python ends.
    self._events = event_file_writer.EventsWriter(
        # Two starts within one second must not share an event file.
        os.fspath(workdir / 'events'), f'.{time.time_ns()}')
    self._add(first_step, session_log=event_pb2.SessionLog(
        status=event_pb2.SessionLog.START))

  def write(self, step: int, values: Mapping[str, float]) -> None:
    """Adds a scalar for each value."""
    for name, value in values.items():
      self._add(step, summary=tensorboard_summary.scalar(name, value))

  def write_images(self, step: int, name: str, images: jax.Array) -> None:
    """Adds the first images of the first device.

    All but 8-bit ones are rescaled to [0, 1].
    """
    first = np.asarray(images.addressable_data(0)[:_NUM_IMAGES])
    shown = (pictures.visible if first.dtype == np.uint8
             else pictures.fractions)(first)
    self._add(step, summary=tensorboard_summary.image(
        name, shown, dataformats='NHWC'))

  def flush(self) -> None:
    """Writes all events."""
    self._events.flush()

  def close(self) -> None:
    """Closes the file."""
    # Earlier calls have raised the errors of a full disk.
    with contextlib.suppress(OSError):
      self._events.close()

  def _add(self, step: int, **fields: Any) -> None:
    self._events.write_event(
        event_pb2.Event(wall_time=time.time(), step=int(step), **fields))
