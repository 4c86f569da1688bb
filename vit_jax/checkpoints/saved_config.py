"""Configs saved by earlier versions, translated to the keys of this one."""

from collections.abc import Mapping
import copy
from typing import Any

# Keys of version 0.1.0 that have no effect any more.
_REMOVED = (
    ('model', 'products'), ('data', 'decoder'),
    ('data', 'shapes', 'arrangement'), ('data', 'shapes', 'max_others'),
    ('data', 'shapes', 'size'))


def upgrade(config: Mapping[str, Any]) -> dict[str, Any]:
  """Returns a saved config with the keys of this version."""
  upgraded = copy.deepcopy(dict(config))
  for *parents, key in _REMOVED:
    section = upgraded
    for parent in parents:
      section = section.get(parent, {})
    section.pop(key, None)
  if 'data' in upgraded:  # Earlier versions held out images by hash alone.
    upgraded['data'].setdefault('holdout', 'hash')
  return upgraded


def check_resumable(config: Mapping[str, Any]) -> None:
  """Raises if this version would continue a saved run with other data.

  Args:
    config: config as it was saved, before `upgrade`.
  """
  data = config.get('data', {})
  source = str(data.get('source', ''))
  if 'decoder' not in data:  # Saved by a later version than 0.1.0.
    return
  if source == 'shapes' or source.endswith('.parquet'):
    raise ValueError(
        f'This run of version 0.1.0 trains on {source!r}, which later versions '
        'draw or order differently. Resume it with version 0.1.0 (git commit '
        '1089787), or start another run from its checkpoint: '
        '--config.init.checkpoint.')
