"""Folders of images and their segmentation masks (`data.target=masks`).

    ROOT/images/1.jpg         ROOT/images/train/1.jpg
    ROOT/masks/1.png          ROOT/masks/train/1.png
"""

import functools
import glob
import os

from etils import epath

from vit_jax.data.sources import columns as columns_lib
from vit_jax.data.sources import files
from vit_jax.data.sources import protocol
from vit_jax.data.sources import table_source
from vit_jax.data.splits import groups as groups_lib

IMAGES, MASKS = 'images', 'masks'


def open_masks(
    root: epath.Path, config: columns_lib.LabelConfig, *, where: str,
) -> protocol.DatasetSplits:
  """Opens images with masks of the same path, but another suffix.

  Raises:
    ValueError: if an image has no mask, or two.
  """
  images, others = files.list_files(root, IMAGES)
  found = files.list_images(root, MASKS)
  mask_of = {_stem(path): path for path in found}
  if len(mask_of) < len(found):
    first, second = (next((a, b) for a, b in zip(
        sorted(found), sorted(found)[1:]) if _stem(a) == _stem(b)))
    raise ValueError(
        f'{root} has two masks of one image, {first} and {second}. Remove one.')
  missing = [path for path in images if _stem(path) not in mask_of]
  if missing or not images:
    raise ValueError(
        f'{len(missing)} of {len(images)} images in {root}/{IMAGES} have no '
        f'mask of the same name in {MASKS}/: {files.shorten(missing)}.'
        if images else f'There are no images in {root}/{IMAGES}.')
  texts = columns_lib.texts(images)
  used = [mask_of[_stem(path)] for path in images]
  unused = sorted({*found} - {*used})
  return table_source.build(table_source.Images(
      where=where, read=functools.partial(files.read, where, texts), keys=texts,
      table=groups_lib.find_in_paths(images, config.group, where=where),
      splits=files.splits_of_folders(
          [*map(_stem, images)], where=where),
      read_mask=functools.partial(
          files.read, where, columns_lib.texts(used)), notes=[
              *[f'masks without an image: {len(unused):,} '
                f'({files.shorten(unused)})'] * bool(unused),
              *files.describe_others(others)]),
                            columns_lib.with_columns(config, label=()))


def _stem(path: str) -> str:
  """Returns 'train/1' for 'images/train/1.jpg'."""
  return os.path.splitext(path.partition('/')[2])[0]


def find_mask(image: str) -> str:
  """Returns the path of the mask of an image in a folder with masks, or ''."""
  before, folder, name = os.path.abspath(image).rpartition(f'/{IMAGES}/')
  pattern = f'{before}/{MASKS}/{os.path.splitext(name)[0]}'
  return next((mask for mask in glob.glob(glob.escape(pattern) + '.*')
               if folder and files.is_image(mask)), '')
