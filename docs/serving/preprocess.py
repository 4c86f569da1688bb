"""Preprocesses images as training does, and names the predicted classes.

Needs NumPy, Pillow and image_file.py only. Settings are in the JSON file next
to the model.
"""

import json

import image_file
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
  for op in settings['ops']:
    if op['op'] not in ('resize', 'central_crop') or (
        op.get('method') == 'area') or not op.get('antialias', True):
      raise ValueError(f'This code does not implement {op}.')
  return settings


def to_array(data, settings):
  """Decodes and preprocesses an image to float32 [height, width, 3]."""
  image = image_file.read(
      data, max_pixels=MAX_PIXELS, formats=FORMATS).convert('RGB')
  for op in settings['ops']:
    image = (_resize if op['op'] == 'resize' else _crop)(image, op)
  low, high = settings['value_range'] or (0, 255)
  pixels = (np.asarray(image, np.float32) - low) / (high - low)
  mean, std = (np.asarray(settings[name], np.float32)
               for name in ('mean', 'std'))
  return (pixels - mean) / std


def _resize(image, op):
  height, width = image.height, image.width
  if 'size' in op:
    size = op['size']
  elif 'cover' in op:
    scale = max(op['cover'][0] / height, op['cover'][1] / width)
    size = [max(least, round(side * scale))
            for least, side in zip(op['cover'], (height, width))]
  else:
    short, long = min(height, width), max(height, width)
    longer = (op['shorter'] * long // short if op['rounding'] == 'torchvision'
              else round(long * (op['shorter'] / short)))
    size = ([longer, op['shorter']] if height > width else
            [op['shorter'], longer])
  if size[0] * size[1] > MAX_PIXELS:
    raise ValueError(f'{height} x {width} is too elongated.')
  if [height, width] == list(size):
    return image
  return image.resize(size[::-1], Image.Resampling[op['method'].upper()])


def _crop(image, op):
  height, width = op['size']
  left, top = (
      round(margin / 2) if op['rounding'] == 'torchvision' else margin // 2
      for margin in (image.width - width, image.height - height))
  if left < 0 or top < 0:
    raise ValueError(f'{image.height} x {image.width} is too small.')
  return image.crop((left, top, left + width, top + height))


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
