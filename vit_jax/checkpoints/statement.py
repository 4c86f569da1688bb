"""What is said of weights that were read: found, inferred, left out."""

from collections.abc import Mapping, Sequence
from typing import Any

from vit_jax import models
from vit_jax import tree
from vit_jax.checkpoints import hints as hints_lib
from vit_jax.interop import files
from vit_jax.interop import layout
from vit_jax.interop import names as names_lib
from vit_jax.models import vit_config

_MAX_LINES = 24


def state(
    opened: files.ArrayFile, family: names_lib.Family, prefix: str,
    config: models.ModelConfig, params: Mapping[str, Any],
    resolution: tuple[int, ...], hints: hints_lib.Hints,
    given: Mapping[str, Any], stated: Mapping[str, Any],
) -> tuple[str, ...]:
  size = f'{resolution[0]}x{resolution[1]}'
  lines = [
      f'{opened.path}: {family.label} ({opened.format}'
      + (f', under {prefix}' if prefix else '') + '), '
      f'{tree.num_elements(dict(params)):,} parameters']
  what = (f'{config.variant or "no published size"}, '
          f'{config.num_classes} classes')
  if isinstance(config, vit_config.ViTConfig):
    patch = 'x'.join(map(str, config.patch_shape))
    what += (
        f', width {config.width}, depth {config.depth}, mlp_dim '
        f'{config.mlp_dim}, {config.num_heads} heads, patch {patch}, images '
        f'{size}, pooling {config.pooling}, gelu {config.gelu}, epsilon '
        f'{config.layer_norm_epsilon:g}')
  lines.append(f'  inferred: {what}')
  if hints.source:
    lines.append(f'  with {hints.source}: ' + ', '.join(
        f'{k}={v}' for k, v in hints.section.items()))
  if given:
    lines.append('  given: ' + ', '.join(f'{k}={v}' for k, v in given.items()))
  if not {'mean', 'std'} & set(stated):
    lines.append(
        '  assumed: images in [-1, 1] (mean 0.5, std 0.5), for the file does '
        'not say; DeiT has another mean and std')
  return tuple(lines)


def report(
    opened: files.ArrayFile, matches: Sequence[layout.Match],
    params: Mapping[str, Any], left_out: Sequence[str],
) -> tuple[str, ...]:
  lines = []
  for match in matches:
    first = match.theirs[0]
    count = f' (and {len(match.theirs) - 1} more)' if match.theirs[1:] else ''
    shape = getattr(params.get(match.ours), 'shape', None)
    lines.append(f'  loaded  {first}{count} -> {match.ours}'
                 + (f' {shape}' if shape else ''))
  lines += [f'  ignored {name} {opened.headers[name].shape}'
            for name in left_out]
  read = sum(len(match.theirs) for match in matches)
  lines.append(f'  {read} arrays make {len(params)} parameters, '
               f'{len(left_out)} ignored')
  return tuple(lines)


def indented(problems: Sequence[str]) -> str:
  shown = [f'  {line}' for line in problems[:_MAX_LINES]]
  if len(problems) > _MAX_LINES:
    shown.append(f'  ... and {len(problems) - _MAX_LINES} more')
  return '\n'.join(shown)
