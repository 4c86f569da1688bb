"""Image corruptions of ImageNet-C and CIFAR-10-C (arXiv 1903.12261, section 4).

The fifteen corruptions, on the device. The settings of the five severities are
those of the authors' code (https://github.com/hendrycks/robustness:
make_imagenet_c.py for images of 224 pixels, make_cifar_c.py for 32). Frost is
drawn, with the mean colour and contrast of the authors' photographs.
"""

from collections.abc import Callable
from typing import Any

import einops
import jax
import jax.numpy as jnp
import jaxtyping
from jaxtyping import Array, Float, Int
import numpy as np
from scipy import ndimage

Image = Float[Array, 'height width channels']
Key = jaxtyping.Key[Array, '']
Number = float | Float[Array, '']

SEVERITIES = (1, 2, 3, 4, 5)
# Images with a longer side of at least this use the settings for 224 pixels:
# about the geometric mean of 224 and 32.
_LARGE = 85

# Quantization of luma and chroma at quality 50 (ITU-T T.81, tables K.1, K.2).
_LUMA = np.array([
    [16, 11, 10, 16, 24, 40, 51, 61], [12, 12, 14, 19, 26, 58, 60, 55],
    [14, 13, 16, 24, 40, 57, 69, 56], [14, 17, 22, 29, 51, 87, 80, 62],
    [18, 22, 37, 56, 68, 109, 103, 77], [24, 35, 55, 64, 81, 104, 113, 92],
    [49, 64, 78, 87, 103, 121, 120, 101],
    [72, 92, 95, 98, 112, 100, 103, 99]])
_CHROMA = np.full((8, 8), 99)
_CHROMA[:4, :4] = [[17, 18, 24, 47], [18, 21, 26, 66], [24, 26, 56, 99],
                   [47, 66, 99, 99]]
# JFIF: rows are Y, Cb and Cr.
_YCBCR = np.array([[0.299, 0.587, 0.114], [-0.168736, -0.331264, 0.5],
                   [0.5, -0.418688, -0.081312]], np.float32)


def gaussian_noise(image: Image, key: Key, std: Number) -> Image:
  """Adds Gaussian noise."""
  return image + std * jax.random.normal(key, image.shape)


def shot_noise(image: Image, key: Key, photons: Number) -> Image:
  """Samples Poisson noise, with `photons` expected counts for a value of 1."""
  return jax.random.poisson(key, photons * image) / photons


def impulse_noise(image: Image, key: Key, share: Number) -> Image:
  """Sets a fraction `share` of the values to 0 or 1 (salt and pepper)."""
  draw = jax.random.uniform(key, image.shape)
  return jnp.where(draw < share, (draw < share / 2).astype(jnp.float32), image)


def defocus_blur(image: Image, _: Key, radius: float, std: float) -> Image:
  """Convolves with a disk whose edge is smoothed by a Gaussian."""
  reach = 1 if radius <= 8 else 2  # Radius of the Gaussian.
  side = int(radius) + reach
  offsets = np.arange(-side, side + 1)
  disk = (offsets[:, None]**2 + offsets**2 <= radius**2).astype(np.float64)
  disk = ndimage.gaussian_filter(disk, std, radius=reach, mode='constant')
  padded = jnp.pad(image, ((side, side), (side, side), (0, 0)), 'reflect')
  kernel = jnp.asarray(disk / disk.sum(), jnp.float32)
  return jax.vmap(lambda channel: jax.scipy.signal.convolve2d(
      channel, kernel, 'valid'), -1, -1)(padded)


def glass_blur(
    image: Image, key: Key, std: float, reach: int, times: int,
) -> Image:
  """Replaces each pixel by one of its neighbours, between two blurs."""
  height, width = image.shape[:2]
  rows, columns = np.indices((height, width))
  image = _smoothed(image, std)
  for offset in jax.random.randint(
      key, (times, 2, height, width), -reach, reach):
    image = image[jnp.clip(rows + offset[0], 0, height - 1),
                  jnp.clip(columns + offset[1], 0, width - 1)]
  return _smoothed(image, std)


def _smoothed(image: Image, std: float) -> Image:
  """Convolves with a Gaussian."""
  rows, columns = (jnp.asarray(ndimage.gaussian_filter1d(
      np.eye(size), std, axis=0), jnp.float32) for size in image.shape[:2])
  return jnp.einsum('ih,hwc,jw->ijc', rows, image, columns)


def motion_blur(
    image: Image, key: Key, radius: int, std: float, turned: float = 0.0,
) -> Image:
  """Averages along a half-line, at a random angle of up to 45 degrees.

  `turned` is added to the angle, in radians.
  """
  height, width = image.shape[:2]
  angle = turned + jax.random.uniform(
      key, minval=-np.pi / 4, maxval=np.pi / 4)
  distances = np.arange(2 * radius + 1)
  weights = np.exp(-distances**2 / (2 * std**2))

  def add(total: Image, step: tuple[Array, Array]) -> tuple[Image, Any]:
    distance, weight = step
    down, right = (jnp.round(distance * f(angle)).astype(int)
                   for f in (jnp.sin, jnp.cos))
    rows = jnp.clip(jnp.arange(height) + down, 0, height - 1)
    columns = jnp.clip(jnp.arange(width) + right, 0, width - 1)
    return total + weight * image[rows][:, columns], None

  return jax.lax.scan(add, jnp.zeros_like(image), (
      jnp.asarray(distances),
      jnp.asarray(weights / weights.sum(), image.dtype)))[0]


def zoom_blur(image: Image, _: Key, stop: float, step: float) -> Image:
  """Averages the image with copies magnified by 1, 1 + step, ... < stop."""
  factors = np.arange(1, stop, step)
  add: Any = lambda total, factor: (total + _magnified(image, factor), None)
  total, _ = jax.lax.scan(add, image, jnp.asarray(factors, image.dtype))
  return total / (len(factors) + 1)


def _magnified(image: Image, factor: Array) -> Image:
  """Magnifies the centre of an image."""
  sides = jnp.asarray(image.shape[:2], image.dtype)
  return jax.image.scale_and_translate(
      image, image.shape, (0, 1), jnp.stack([factor] * 2),
      (1 - factor) * sides / 2, 'linear', antialias=False)


def elastic_transform(
    image: Image, key: Key, strength: float, std: float, shift: float,
) -> Image:
  """Moves three points by up to `shift` pixels, and all by smooth noise."""
  height, width = image.shape[:2]
  affine_key, noise_key = jax.random.split(key)
  points = np.array([height, width]) // 2 + min(height, width) // 3 * np.array(
      [[1, 1], [1, -1], [-1, -1]])
  moved = points + jax.random.uniform(
      affine_key, (3, 2), minval=-shift, maxval=shift)
  pixels = jnp.moveaxis(jnp.indices((height, width), jnp.float32), 0, -1)
  inverse = jnp.linalg.solve(
      jnp.pad(moved, ((0, 0), (0, 1)), constant_values=1),
      points.astype(np.float32))
  image = _sampled(image, pixels @ inverse[:2] + inverse[2], 'mirror')
  noise = jax.random.uniform(noise_key, pixels.shape, minval=-1)
  return _sampled(image, pixels + strength * _smoothed(noise, std), 'reflect')


def _sampled(
    image: Image, at: Float[Array, 'height width 2'], mode: str) -> Image:
  """Interpolates at rows and columns; see `map_coordinates` for `mode`."""
  return jnp.stack([jax.scipy.ndimage.map_coordinates(
      image[..., channel], [at[..., 0], at[..., 1]], order=1, mode=mode)
                    for channel in range(image.shape[-1])], axis=-1)


def fog(image: Image, key: Key, density: Number, decay: Number) -> Image:
  """Adds clouds; the largest value stays the same."""
  largest, clouds = image.max(), _plasma(key, image.shape, decay)
  return (image + density * clouds) * largest / (largest + density)


def _plasma(
    key: Key, shape: tuple[int, ...], decay: Number,
) -> Float[Array, 'height width 1']:
  """Draws clouds in 0 ... 1 by the diamond-square algorithm."""
  grid, size = jnp.zeros((1, 1)), jnp.ones(())
  while len(grid) < max(shape):
    key, noise_key = jax.random.split(key)
    noise = size * jax.random.uniform(noise_key, (3, *grid.shape), minval=-1)
    right, below = jnp.roll(grid, -1, axis=1), jnp.roll(grid, -1, axis=0)
    centre = (grid + right + below + jnp.roll(right, -1, axis=0)) / 4 + noise[0]
    top = (grid + right + centre + jnp.roll(centre, 1, axis=0)) / 4 + noise[1]
    left = (grid + below + centre + jnp.roll(centre, 1, axis=1)) / 4 + noise[2]
    grid = einops.rearrange(
        [grid, top, left, centre], '(a b) i j -> (i a) (j b)', a=2)
    size = size / decay**2
  grid = (grid - grid.min()) / (grid.max() - grid.min())
  return grid[:shape[0], :shape[1], None]


def frost(image: Image, key: Key, share: Number, weight: Number) -> Image:
  """Adds drawn frost: the level lines of clouds."""
  waves = jnp.sin(6 * jnp.pi * _plasma(key, image.shape, 1.3))
  lines = (1 - jnp.abs(waves))**2
  texture = 1 + 0.16 * (lines - lines.mean()) / lines.std()
  colour = np.array([0.57, 0.65, 0.70], np.float32)
  return share * image + weight * texture * (
      colour if image.shape[-1] == 3 else colour.mean())


def snow(
    image: Image, key: Key, mean: float, std: float, zoom: float,
    threshold: float, radius: int, blur: float, share: float,
) -> Image:
  """Whitens the image, and adds blurred flakes that fall in one direction."""
  noise_key, blur_key = jax.random.split(key)
  noise = mean + std * jax.random.normal(
      noise_key, (*image.shape[:2], 1), image.dtype)
  noise = _magnified(noise, jnp.asarray(zoom, image.dtype))
  flakes = motion_blur(
      jnp.clip(jnp.where(noise < threshold, 0, noise), 0, 1), blur_key, radius,
      blur, turned=-np.pi / 2)
  grey = image @ _YCBCR[0][:, None] if image.shape[-1] == 3 else image
  white = jnp.maximum(image, 1.5 * grey + 0.5)
  return share * image + (1 - share) * white + flakes + jnp.rot90(flakes, 2)


def brightness(image: Image, _: Key, change: Number) -> Image:
  """Adds `change` to the value channel of HSV."""
  value = image.max(axis=-1, keepdims=True)
  new = jnp.clip(value + change, 0, 1)
  return jnp.where(value > 0, image * (new / jnp.maximum(value, 1e-6)), new)


def contrast(image: Image, _: Key, factor: Number) -> Image:
  """Reduces the deviations from the mean of each channel."""
  mean = image.mean(axis=(0, 1), keepdims=True)
  return (image - mean) * factor + mean


def pixelate(image: Image, _: Key, factor: Number) -> Image:
  """Replaces values by the mean of their cell, of side 1 / factor pixels."""
  means = []
  for size in image.shape[:2]:
    cell = (jnp.arange(size) + 0.5) * jnp.floor(size * factor) // size
    same = (cell[:, None] == cell).astype(jnp.float32)
    means.append(same / same.sum(axis=1, keepdims=True))
  return jnp.einsum('ih,hwc,jw->ijc', means[0], image, means[1])


def jpeg(image: Image, _: Key, quality: Number) -> Image:
  """Quantizes DCT coefficients as JPEG, with chroma at half the resolution."""
  height, width, channels = image.shape
  padded = 255 * jnp.pad(
      image, ((0, -height % 16), (0, -width % 16), (0, 0)), 'edge')
  luma, *chroma = jnp.moveaxis(
      padded @ _YCBCR.T if channels == 3 else padded, -1, 0)
  planes = [_quantized(luma - 128, _LUMA, quality) + 128]
  for plane in chroma:
    rows, columns = plane.shape
    half = plane.reshape(rows // 2, 2, columns // 2, 2).mean(axis=(1, 3))
    planes.append(jax.image.resize(
        _quantized(half, _CHROMA, quality), plane.shape, 'linear'))
  found = jnp.stack(planes, axis=-1)[:height, :width] / 255
  return found @ np.linalg.inv(_YCBCR).T if channels == 3 else found


def _quantized(
    plane: Float[Array, 'height width'], table: Int[np.ndarray, '8 8'],
    quality: Number,
) -> Float[Array, 'height width']:
  """Rounds DCT coefficients of 8 x 8 blocks to multiples of the table."""
  scale = jnp.where(quality < 50, 5000 / quality, 200 - 2 * quality)
  steps = jnp.clip((table * scale + 50) // 100, 1, 255)
  blocks = einops.rearrange(plane, '(a i) (b j) -> a b i j', i=8, j=8)
  found = jax.scipy.fft.dctn(blocks, axes=(2, 3), norm='ortho')
  blocks = jax.scipy.fft.idctn(
      jnp.round(found / steps) * steps, axes=(2, 3), norm='ortho')
  return einops.rearrange(blocks, 'a b i j -> (a i) (b j)')


# Settings at each severity for 224 pixels, then for 32.
CORRUPTIONS: dict[str, tuple[Callable[..., Image], Any, Any]] = {
    'gaussian_noise': (gaussian_noise, (0.08, 0.12, 0.18, 0.26, 0.38),
                       (0.04, 0.06, 0.08, 0.09, 0.10)),
    'shot_noise': (shot_noise, (60, 25, 12, 5, 3), (500, 250, 100, 75, 50)),
    'impulse_noise': (impulse_noise, (0.03, 0.06, 0.09, 0.17, 0.27),
                      (0.01, 0.02, 0.03, 0.05, 0.07)),
    'defocus_blur': (
        defocus_blur, ((3, 0.1), (4, 0.5), (6, 0.5), (8, 0.5), (10, 0.5)),
        ((0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1, 0.2), (1.5, 0.1))),
    'glass_blur': (
        glass_blur,
        ((0.7, 1, 2), (0.9, 2, 1), (1, 2, 3), (1.1, 3, 2), (1.5, 4, 2)),
        ((0.05, 1, 1), (0.25, 1, 1), (0.4, 1, 1), (0.25, 1, 2), (0.4, 1, 2))),
    'motion_blur': (
        motion_blur, ((10, 3), (15, 5), (15, 8), (15, 12), (20, 15)),
        ((6, 1), (6, 1.5), (6, 2), (8, 2), (9, 2.5))),
    'zoom_blur': (
        zoom_blur, ((1.11, 0.01), (1.16, 0.01), (1.21, 0.02), (1.26, 0.02),
                    (1.31, 0.03)),
        ((1.06, 0.01), (1.11, 0.01), (1.16, 0.01), (1.21, 0.01),
         (1.26, 0.01))),
    'snow': (
        snow, ((0.1, 0.3, 3, 0.5, 10, 4, 0.8), (0.2, 0.3, 2, 0.5, 12, 4, 0.7),
               (0.55, 0.3, 4, 0.9, 12, 8, 0.7),
               (0.55, 0.3, 4.5, 0.85, 12, 8, 0.65),
               (0.55, 0.3, 2.5, 0.85, 12, 12, 0.55)),
        ((0.1, 0.2, 1, 0.6, 8, 3, 0.95), (0.1, 0.2, 1, 0.5, 10, 4, 0.9),
         (0.15, 0.3, 1.75, 0.55, 10, 4, 0.9),
         (0.25, 0.3, 2.25, 0.6, 12, 6, 0.85),
         (0.3, 0.3, 1.25, 0.65, 14, 12, 0.8))),
    'frost': (
        frost, ((1, 0.4), (0.8, 0.6), (0.7, 0.7), (0.65, 0.7), (0.6, 0.75)),
        ((1, 0.2), (1, 0.3), (0.9, 0.4), (0.85, 0.4), (0.75, 0.45))),
    'fog': (fog, ((1.5, 2), (2, 2), (2.5, 1.7), (2.5, 1.5), (3, 1.4)),
            ((0.2, 3), (0.5, 3), (0.75, 2.5), (1, 2), (1.5, 1.75))),
    'brightness': (brightness, (0.1, 0.2, 0.3, 0.4, 0.5),
                   (0.05, 0.1, 0.15, 0.2, 0.3)),
    'contrast': (contrast, (0.4, 0.3, 0.2, 0.1, 0.05),
                 (0.75, 0.5, 0.4, 0.3, 0.15)),
    'elastic_transform': (
        elastic_transform,
        ((488, 170.8, 24.4), (488, 19.52, 48.8), (12.2, 2.44, 4.88),
         (17.08, 2.44, 4.88), (29.28, 2.44, 4.88)),
        ((0, 1, 2.56), (1.6, 6.4, 2.24), (2.56, 1.92, 1.92),
         (3.2, 1.28, 1.6), (3.2, 0.96, 0.96))),
    'pixelate': (pixelate, (0.6, 0.5, 0.4, 0.3, 0.25),
                 (0.95, 0.9, 0.85, 0.75, 0.65)),
    'jpeg': (jpeg, (25, 18, 15, 10, 7), (80, 65, 58, 50, 40))}
# Corruptions whose array shapes depend on the severity, so it is static in jit.
STATIC = ('defocus_blur', 'glass_blur', 'motion_blur', 'zoom_blur', 'snow',
          'elastic_transform')


def corrupt(
    images: Float[Array, 'batch height width channels'],
    keys: jaxtyping.Key[Array, 'batch'], *, name: str, severity: Any,
) -> Float[Array, 'batch height width channels']:
  """Returns corrupted images, rounded to 8 bits.

  Args:
    images: values in 0 ... 1.
    keys: random key of each image.
    name: one of `CORRUPTIONS`.
    severity: from 1 to 5; may be traced for all but `STATIC`.
  """
  function, large, small = CORRUPTIONS[name]
  settings = large if max(images.shape[1:3]) >= _LARGE else small
  numbers = settings[severity - 1] if name in STATIC else jnp.atleast_1d(
      jnp.asarray(settings, jnp.float32)[severity - 1])
  with jax.default_matmul_precision('highest'):
    found = jax.vmap(lambda image, key: function(image, key, *numbers))(
        images, keys)
  return jnp.round(255 * jnp.clip(found, 0, 1)) / 255
