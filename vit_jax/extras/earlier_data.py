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
  to the table then. Former keys that flags set stay, which is an error.
  """
  kept = {key: value for key, value in section.items()
          if key not in _ENDED or isinstance(value, schema.FlagText)}
  table = kept.get('table')
  if isinstance(table, Mapping) and 'key' in table and not isinstance(
      table['key'], schema.FlagText):
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
