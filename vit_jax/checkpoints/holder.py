"""Who holds a workdir: what a run writes of itself, for others to read."""

import datetime
import json
import os
import socket
from typing import Any
import uuid

from etils import epath


def me() -> dict[str, Any]:
  """Returns the record of this process; `run` is another each time."""
  return {'host': socket.gethostname(), 'pid': os.getpid(),
          'since': datetime.datetime.now().isoformat(' ', 'seconds'),
          'run': uuid.uuid4().hex}


def parse(text: str) -> dict[str, Any]:
  """Returns the record in a file; {} of one that is being written just now."""
  try:
    record = json.loads(text)
  except ValueError:
    return {}
  return record if isinstance(record, dict) else {}


def is_dead(record: dict[str, Any]) -> bool:
  """Whether the holder is a process of this host that is no more."""
  if record.get('host') != socket.gethostname():
    return False
  pid = record.get('pid')
  if pid == os.getpid():
    return True  # Of an earlier start with the same number, as in a container.
  try:
    os.kill(int(pid or 0), 0)
  except ProcessLookupError:
    return True
  except OSError:
    pass
  return False


def name(record: dict[str, Any]) -> str:
  """Returns '123 on host (since ...)'."""
  if not record:
    return 'of a run'
  return (f'{record.get("pid")} on {record.get("host")} '
          f'(since {record.get("since")})')


def in_use(workdir: epath.Path, record: dict[str, Any]) -> str:
  """Returns that another run is at work there, and what to do."""
  return (f'Another run is at work in {workdir}: process {name(record)}. Wait '
          'for its end, stop it (kill -TERM saves first), or use another '
          '--workdir.')
