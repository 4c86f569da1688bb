"""Preprocesses images as training does, and names the predicted classes.

Needs NumPy, Pillow and limits.py only. Settings are in the JSON file next to
the model.
"""

import json

import limits
import numpy as np
from PIL import Image

FORMATS = ('JPEG', 'PNG', 'WEBP', 'GIF', 'BMP')
MAX_PIXELS = 25_000_000  # Before and after resizing.


def read_settings(path):
  """Returns the settings that `main.py export` wrote."""
  with open(path) as file:
    settings = json.load(file)
  if settings['channels'] != 3 or settings['pixel_dtype'] != 'uint8':
    raise ValueError(
        f"This code reads 8-bit RGB images, but the model takes "
        f"{settings['channels']} channels of {settings['pixel_dtype']}.")
  if settings['activation'] == 'none':
    raise ValueError('The model predicts numbers, not classes.')
  return settings


def to_array(data, settings):
  """Decodes and preprocesses an image to float32 [height, width, 3]."""
  image = _decode_rgb(data)
  height, width = settings['resolution']
  whole = [int(side / settings['crop'] + 1e-6) for side in (height, width)]
  if settings['keep_aspect']:  # Resize the shorter side, then crop.
    if height == width:
      scale, whole = whole[0] / min(image.size), [whole[0]] * 2
    else:
      scale = max(whole[0] / image.height, whole[1] / image.width)
      whole = [height, width]
    whole = [max(least, round(side * scale))
             for least, side in zip(whole, (image.height, image.width))]
  if whole[0] * whole[1] > MAX_PIXELS:
    raise ValueError(f'{image.height} x {image.width} is too elongated.')
  method = Image.Resampling[settings['interpolation'].upper()]
  if image.size != (whole[1], whole[0]):
    image = image.resize((whole[1], whole[0]), method)
  left, top = (image.width - width) // 2, (image.height - height) // 2
  image = image.crop((left, top, left + width, top + height))
  low, high = settings['value_range'] or (0, 255)
  pixels = (np.asarray(image, np.float32) - low) / (high - low)
  mean, std = (np.asarray(settings[name], np.float32)
               for name in ('mean', 'std'))
  return (pixels - mean) / std


def _decode_rgb(data):
  """Composes transparency on white; keeps the upper 8 of 16 bits."""
  image = limits.open_image(data, max_pixels=MAX_PIXELS, formats=FORMATS)
  image.load()
  limits.apply_orientation(image)
  if image.mode.startswith('I'):
    image = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
  if image.mode in ('LA', 'PA', 'RGBA') or 'transparency' in image.info:
    image = image.convert('RGBA')
    white = Image.new('RGBA', image.size, 'white')
    image = Image.alpha_composite(white, image)
    del white  # Otherwise kept until the end: 4 bytes per pixel.
  return image if image.mode == 'RGB' else image.convert('RGB')


def top_classes(logits, settings, top_k=5):
  """Returns the most probable classes of one image in descending order."""
  if not np.isfinite(logits).all():
    raise ValueError('the output of the model is not finite (NaN or infinity)')
  if settings['activation'] == 'softmax':
    values = np.exp(logits - logits.max())
    values /= values.sum()
  else:  # Several classes per image.
    values = 1 / (1 + np.exp(-logits))
  names = settings['labels']
  return [{'name': names[i] if i < len(names) else f'class {i}',
           'class': int(i), 'probability': float(values[i])}
          for i in np.argsort(-values, kind='stable')[:top_k]]
