"""Decodes images in a process whose memory and time are limited.

Crafted files of a few bytes can make a decoder take all memory, or hours. A
process that exceeds its limits is replaced.
"""

import multiprocessing
import os
import resource
import signal
import time

import numpy as np
import preprocess

MAX_BYTES = 2**30  # Of memory for an image: up to 25 bytes per pixel.
MAX_SECS = 4
START_SECS = 60


class Worker:
  """Maps image files to arrays, one at a time."""

  def __init__(self, settings):
    self._settings = settings
    self._start()

  def to_array(self, data):
    """Returns what `preprocess.to_array` does; raises a ValueError."""
    try:
      self._wait(START_SECS)  # Until it is ready.
      self._pipe.send_bytes(data)
      answer = self._wait(MAX_SECS)
    except (EOFError, OSError) as error:
      self.close()
      self._start()
      raise ValueError('decoding takes too much time or memory') from error
    kind, content = answer[:1], answer[1:]
    if kind == b'e':
      raise ValueError(content.decode())
    return np.frombuffer(content, np.float32).reshape(
        *self._settings['resolution'], 3)

  def close(self):
    """Ends the process."""
    self._process.kill()
    self._process.join()
    self._pipe.close()

  def _start(self):
    # A forked process would share the memory and the threads of the model.
    context = multiprocessing.get_context('spawn')
    self._pipe, theirs = context.Pipe()
    self._process = context.Process(
        target=_run, args=(theirs, self._settings), daemon=True)
    self._process.start()
    theirs.close()

  def _wait(self, secs):
    if not self._pipe.poll(secs):
      raise EOFError
    return self._pipe.recv_bytes()


def _run(pipe, settings):
  """Answers each file with an array or the text of an error."""
  signal.signal(signal.SIGINT, signal.SIG_IGN)  # The server ends it.
  _limit_memory()
  while True:
    try:
      pipe.send_bytes(b'')  # Ready.
      data = pipe.recv_bytes()
    except (EOFError, OSError):  # The server has ended.
      return
    # Also ends a process whose server was killed.
    most = int(time.process_time()) + MAX_SECS + 1
    resource.setrlimit(resource.RLIMIT_CPU, (
        most, resource.getrlimit(resource.RLIMIT_CPU)[1]))
    try:
      answer = b'a' + preprocess.to_array(data, settings).astype(
          np.float32).tobytes()
    except Exception as error:  # Pillow raises many types.
      text = str(error) or type(error).__name__
      answer = b'e' + text.encode(errors='replace')
    pipe.send_bytes(answer)


def _limit_memory():
  if os.path.exists('/proc/self/statm'):  # Linux only.
    with open('/proc/self/statm') as file:
      used = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MAX_BYTES,) * 2)
