"""Sections `data` of earlier versions."""

from collections.abc import Mapping
from typing import Any

from vit_jax import schema

_ENDED = ('eval_unreadable', 'max_unreadable', 'check_secs')


def translate(section: Mapping[str, Any]) -> dict[str, Any]:
  """Returns a section with the keys of today; raises for flags of others.

  Keys that ended are left out, and `table.key` becomes `group`.
  """
  for name in _ENDED:
    if isinstance(section.get(name), schema.FlagText):
      raise ValueError(
          f'data.{name} is {section[name]}, but data.unreadable=error or skip '
          'replaces it, for training and evaluation. Remove it; `data check` '
          'finds unreadable images.')
  kept = {key: value for key, value in section.items() if key not in _ENDED}
  table = kept.get('table')
  if isinstance(table, Mapping) and 'key' in table:
    key = table['key']
    if isinstance(key, schema.FlagText):
      raise ValueError(
          'data.table.key is called data.group now, for class folders and '
          f'other sources as well. Use --config.data.group={key}.')
    kept['group'] = kept.get('group') or key or ''
    kept['table'] = {name: of for name, of in table.items() if name != 'key'}
  return kept
