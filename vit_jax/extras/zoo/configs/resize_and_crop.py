"""The one resize and crop that timm and transformers know."""

from vit_jax.data import preprocessing
from vit_jax.data.images import ops as ops_lib


def check(
    preprocess: preprocessing.Preprocess, library: str) -> ops_lib.Resize:
  """Returns the only resize, which a crop to the resolution may follow.

  Raises:
    ValueError: for other operations, which the library does not know.
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
  raise ValueError(
      f'{library} resizes once, by a filter of Pillow, and then crops the '
      f'centre to {height} x {width}, but the image operations of the model '
      f'are {preprocess.sections}. Save the model as orbax or npz.')
