"""A resize and a central crop in the terms of timm and Hugging Face.

`registry.PREPROCESSING_TERMS` names this module: its terms are overrides of
weights, too.
"""

from collections.abc import Mapping
import dataclasses
from typing import Any

from vit_jax import fields
from vit_jax import schema
from vit_jax.data import preprocessing
from vit_jax.data.images import ops as ops_lib
from vit_jax.data.images import resize as resize_lib
from vit_jax.exceptions import UserError


@dataclasses.dataclass(frozen=True)
class ResizeAndCrop:
  """A resize and a central crop.

  Attributes:
    keep_aspect: whether to keep the aspect ratio, rather than to resize to the
      exact size before the crop.
    crop: fraction of the resized side that the crop keeps.
    interpolation: filter of the resize.
  """
  keep_aspect: bool = False
  crop: float = 1.0
  interpolation: resize_lib.Method = 'bilinear'

  def __post_init__(self):
    fields.check_range(self, 'crop', above=0, most=1)

  @classmethod
  def of(
      cls, preprocess: preprocessing.Preprocess,
  ) -> tuple['ResizeAndCrop', resize_lib.Rounding]:
    """Returns the terms of a preprocessing, and its rounding.

    Raises:
      UserError: if they do not describe its operations.
    """
    ops, sections = preprocess.ops or (), preprocess.sections
    if ops and sections[0]['op'] == 'resize' and 'rounding' in sections[-1]:
      rounding = sections[-1]['rounding']
      terms = cls(
          keep_aspect='size' not in sections[0],
          crop=min(1.0, min(preprocess.resolution) / min(ops[0].least)),
          interpolation=sections[0]['method'])
      # The two operations of a processor of Hugging Face round differently.
      resize, crop = (terms.ops(preprocess.resolution, one) for one in (
          sections[0].get('rounding', rounding), rounding))
      if resize[:1] + crop[1:] == ops:
        return terms, rounding
    raise UserError(
        f'The image operations of the model, {sections}, are not described by '
        'keep_aspect and crop. Override ops instead.')

  def ops(
      self, resolution: tuple[int, int],
      rounding: resize_lib.Rounding = 'torchvision',
  ) -> tuple[ops_lib.Operation, ...]:
    """Returns the operations for a resolution."""
    # Rounded down as in timm; 224 / (224 / 248) may be slightly less than 248.
    target = height, width = (int(resolution[0] / self.crop + 1e-9),
                              int(resolution[1] / self.crop + 1e-9))
    if not self.keep_aspect:
      resize = ops_lib.Resize(target, method=self.interpolation)
    elif height == width:
      resize = ops_lib.Resize(
          shorter=height, method=self.interpolation, rounding=rounding)
    else:
      resize = ops_lib.Resize(cover=target, method=self.interpolation)
    if resize.size == resolution:
      return resize,
    return resize, ops_lib.CentralCrop(resolution, rounding)


NAMES = tuple(f.name for f in dataclasses.fields(ResizeAndCrop))


def parse(section: Mapping[str, Any]) -> preprocessing.Preprocess:
  """Returns the record of `preprocessing.parse`, with terms in place of `ops`.

  With `ops`, `interpolation` is the method of resizes that name none.
  """
  section, terms = _split(section)
  if section.get('ops') is None:
    plain = preprocessing.parse(section)
    return dataclasses.replace(plain, ops=schema.parse(
        ResizeAndCrop, terms, where='preprocess').ops(plain.resolution))
  if {'keep_aspect', 'crop'} & terms.keys():
    raise UserError(
        'ops describes the image operations, so that keep_aspect and crop must '
        'be left out.')
  if terms:
    section['ops'] = [
        {'method': terms['interpolation'], **op}
        if isinstance(op, dict) and op.get('op') == 'resize' else op
        for op in schema.convert(section['ops'], Any, where='ops')]
  return preprocessing.parse(section)


def change(
    preprocess: preprocessing.Preprocess, given: Mapping[str, Any],
) -> Any:
  """Returns the operations of a preprocessing with the given terms.

  Raises:
    UserError: if terms do not describe its operations, or `given` has other
      ones.
  """
  section, terms = _split(given)
  if 'ops' in section:
    return parse({'resolution': preprocess.resolution, **given}).ops
  if terms.keys() == {'interpolation'}:
    return [{**op, 'method': terms['interpolation']}
            if op['op'] == 'resize' else op for op in preprocess.sections]
  described, rounding = ResizeAndCrop.of(preprocess)
  return schema.parse(
      ResizeAndCrop, {**vars(described), **terms}, where='preprocess').ops(
          preprocess.resolution, rounding)


def _split(section: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
  """Returns the fields of `Preprocess`, and the terms."""
  return ({k: v for k, v in section.items() if k not in NAMES},
          {k: v for k, v in section.items() if k in NAMES})


def check(
    preprocess: preprocessing.Preprocess, library: str) -> ops_lib.Resize:
  """Returns the only resize, which a crop to the resolution may follow.

  Raises:
    UserError: for other operations, which the library does not know.
  """
  height, width = preprocess.resolution
  match preprocess.ops:
    case (ops_lib.Resize(antialias=True) as resize, *rest) if (
        resize.method != 'area'):
      if not rest and resize.size == preprocess.resolution:
        return resize
      if len(rest) == 1 and isinstance(rest[0], ops_lib.CentralCrop) and (
          rest[0].size == preprocess.resolution):
        return resize
  raise UserError(
      f'{library} resizes once, by a filter of Pillow, and then crops the '
      f'centre to {height} x {width}, but the image operations of the model '
      f'are {preprocess.sections}. Save the model as orbax or npz.')
