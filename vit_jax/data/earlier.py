"""Sections `data` of earlier versions."""

from collections.abc import Mapping
import os
from typing import Any

from etils import epath

from vit_jax import schema
from vit_jax.data.sources import files

AUTO = 'auto'  # Target of sections whose labels were inferred.
_ENDED = ('eval_unreadable', 'max_unreadable', 'check_secs')


def translate(section: Mapping[str, Any]) -> dict[str, Any]:
  """Returns a section with the keys of today.

  Keys that ended are left out, and `table.key` becomes `group`. A target
  'auto', which all saved sections had, is dropped; `table.folder` was relative
  to the table then.

  Raises:
    ValueError: if flags set former keys.
  """
  check_flags(_flags(section))
  kept = {key: value for key, value in section.items() if key not in _ENDED}
  table = kept.get('table')
  if isinstance(table, Mapping) and 'key' in table:
    kept['group'] = kept.get('group') or table['key'] or ''
    kept['table'] = {key: of for key, of in table.items() if key != 'key'}
  if kept.get('target') == AUTO:
    kept['target'] = ''
    table = dict(kept.get('table') or {})
    if table.get('folder') and not kept.get('val_source'):
      source = str(kept.get('source', ''))
      table['folder'] = os.path.join(
          source if os.path.isdir(source) else os.path.dirname(source),
          table['folder'])
      kept['table'] = table
  return kept


def declare(
    section: Mapping[str, Any], label_kind: str) -> dict[str, Any]:
  """Returns the section of a checkpoint with the kind of labels it inferred."""
  source = section.get('source', '')
  if section.get('target') != AUTO or label_kind not in (
      'multi', 'regression', 'none') or not files.is_path(source):
    return dict(section)
  has_masks = label_kind == 'none' and epath.Path(source, 'masks').is_dir()
  return {**translate(section), 'target': 'masks' if has_masks else label_kind}


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
