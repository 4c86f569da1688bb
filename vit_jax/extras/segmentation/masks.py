"""Folders of images and their segmentation masks (`data.target=masks`).

    ROOT/images/1.jpg         ROOT/images/train/1.jpg
    ROOT/masks/1.png          ROOT/masks/train/1.png
"""

from collections.abc import Sequence
import functools
import glob
import os

from vit_jax.data.sources import columns as columns_lib
from vit_jax.data.sources import files
from vit_jax.data.sources import protocol
from vit_jax.data.sources import table_source

IMAGES, MASKS = 'images', 'masks'


def open_masks(
    paths: Sequence[str], config: columns_lib.LabelConfig, *, where: str,
    notes: Sequence[str],
) -> protocol.DatasetSplits:
  """Opens images with masks of the same path, but another suffix.

  Args:
    paths: all images and masks, relative to the root.
    config: the group of each image.
    where: the root.
    notes: added to the description.

  Raises:
    ValueError: if an image has no mask, or two.
  """
  images = [path for path in paths if path.startswith(f'{IMAGES}/')]
  mask_of: dict[str, str] = {}
  for path in paths:
    if path.startswith(f'{MASKS}/') and (
        other := mask_of.setdefault(_stem(path), path)) != path:
      raise ValueError(
          f'{where} has two masks of one image, {other} and {path}. Remove '
          'one.')
  missing = [path for path in images if _stem(path) not in mask_of]
  if missing or not images:
    raise ValueError(
        f'{len(missing)} of {len(images)} images in {where}/{IMAGES} have no '
        f'mask of the same name in {MASKS}/: {files.shorten(missing)}.'
        if images else f'There are no images in {where}/{IMAGES}.')
  stems = [*map(_stem, images)]
  unused = sorted(mask_of[stem] for stem in {*mask_of} - {*stems})
  used = columns_lib.texts(mask_of[stem] for stem in stems)
  return table_source.build(table_source.Images.of_files(
      images, config, where=where, root=where,
      read_mask=functools.partial(files.read, where, used),
      splits=files.splits_of_folders(stems, where=where), notes=[
          *[f'masks without an image: {len(unused):,} '
            f'({files.shorten(unused)})'] * bool(unused), *notes]), config)


def _stem(path: str) -> str:
  """Returns 'train/1' for 'images/train/1.jpg'."""
  return os.path.splitext(path.partition('/')[2])[0]


def find_mask(image: str) -> str:
  """Returns the path of the mask of an image in a folder with masks, or ''."""
  before, folder, name = os.path.abspath(image).rpartition(f'/{IMAGES}/')
  pattern = f'{before}/{MASKS}/{os.path.splitext(name)[0]}'
  return next((mask for mask in glob.glob(glob.escape(pattern) + '.*')
               if folder and files.is_image(mask)), '')
