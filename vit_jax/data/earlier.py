"""Sections `data` of earlier versions."""

from collections.abc import Mapping
from typing import Any

from vit_jax import schema

_ENDED = ('eval_unreadable', 'max_unreadable', 'check_secs')


def translate(section: Mapping[str, Any]) -> dict[str, Any]:
  """Returns a section with the keys of today.

  Keys that ended are left out, and `table.key` becomes `group`.

  Raises:
    ValueError: if flags set former keys.
  """
  check_flags(_flags(section))
  kept = {key: value for key, value in section.items() if key not in _ENDED}
  table = kept.get('table')
  if isinstance(table, Mapping) and 'key' in table:
    kept['group'] = kept.get('group') or table['key'] or ''
    kept['table'] = {key: of for key, of in table.items() if key != 'key'}
  return kept


def _flags(section: Mapping[str, Any]) -> dict[str, Any]:
  """Returns the part of a section that flags set."""
  return {key: _flags(value) if isinstance(value, Mapping) else value
          for key, value in section.items()
          if isinstance(value, (Mapping, schema.FlagText))}


def check_flags(section: Mapping[str, Any]) -> None:
  """Raises a ValueError if flags of the section set former keys."""
  for name in section.keys() & _ENDED:
    raise ValueError(
        f'data.{name} is {section[name]}, but data.unreadable=error or skip '
        'replaces it, for training and evaluation. Remove it; `data check` '
        'finds unreadable images.')
  table = section.get('table')
  if isinstance(table, Mapping) and 'key' in table:
    raise ValueError(
        'data.table.key is called data.group now, for class folders and other '
        f'sources as well. Use --config.data.group={table["key"]}.')
