"""Random views of images, drawn on the device.

A view is a resized crop with random mirroring and colour jitter. Global views
show most of the image at its own size, local views a part of it at a smaller
size (multi-crop, arXiv 2006.09882).

Crops and colour changes are small matrix products, which run fast on
accelerators, and depend only on the key and the position in the batch. Unlike
in torchvision, a crop larger than the image is clipped instead of resampled,
hue is a rotation about the grey axis of RGB, colour changes have a fixed order,
and pixels are clipped to 0 ... 1 only after the last one. There is no blur or
solarisation.
"""

import dataclasses
import math

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from vit_jax import fields
from vit_jax.exceptions import UserError

Images = Float[Array, 'batch height width channels']
Views = Float[Array, 'batch views view_height view_width channels']

LUMA = (0.299, 0.587, 0.114)  # ITU-R BT.601, as in Pillow.


@dataclasses.dataclass(frozen=True)
class ViewsConfig:
  """Views of an image; the defaults are from LeJEPA's code.

  Attributes:
    num_global: number of global views, which have the size of the images.
    num_local: number of local views.
    local_size: side of local views in pixels.
    global_area: range of the area of global crops, as a fraction of the image.
    local_area: the same for local crops.
    aspect: range of width / height of a crop of a square image; the logarithm
      is uniform.
    flip: probability of mirroring.
    jitter: largest changes of brightness, contrast and saturation (factors 1 -
      x to 1 + x) and of hue (fraction of the colour circle).
    jitter_probability: probability of `jitter`.
    grayscale: probability of conversion to grey.
  """
  num_global: int = 2
  num_local: int = 6
  local_size: int = 96
  global_area: tuple[float, float] = (0.3, 1.0)
  local_area: tuple[float, float] = (0.05, 0.3)
  aspect: tuple[float, float] = (3 / 4, 4 / 3)
  flip: float = 0.5
  jitter: tuple[float, float, float, float] = (0.4, 0.4, 0.2, 0.1)
  jitter_probability: float = 0.8
  grayscale: float = 0.2

  def __post_init__(self):
    fields.check_range(self, 'num_global', low=1 if self.num_local else 2)
    fields.check_range(self, 'num_local', 'jitter')
    fields.check_range(self, 'local_size', low=1)
    fields.check_range(self, 'global_area', 'local_area', above=0, most=1)
    fields.check_range(self, 'aspect', above=0)
    fields.check_range(self, 'flip', 'jitter_probability', 'grayscale', most=1)
    for name in ('global_area', 'local_area', 'aspect'):
      low, high = getattr(self, name)
      if low > high:
        raise UserError(
            f'{name} must be a range, low <= high, but is {low}, {high}.')
    if self.jitter[3] > 0.5:
      raise UserError(
          f'The hue of jitter must be at most 0.5, but is {self.jitter[3]}.')

  @property
  def changes_colours(self) -> bool:
    """Whether the colours of views may differ from the image's colours."""
    return bool(
        self.grayscale or (self.jitter_probability and any(self.jitter)))


def draw(
    config: ViewsConfig, images: Images, key: PRNGKeyArray,
) -> dict[str, jax.Array]:
  """Returns `global_views` and, if there are any, `local_views` of each image.

  Pixels of images and of views are in 0 ... 1.
  """
  size = images.shape[1], images.shape[2]
  kinds = {'global_views': (config.num_global, size, config.global_area),
           'local_views': (config.num_local, (config.local_size,) * 2,
                           config.local_area)}
  result: dict[str, jax.Array] = {}
  for number, (name, (count, size, area)) in enumerate(kinds.items()):
    if not count:
      continue
    crop_key, flip_key, colour_key = jax.random.split(
        jax.random.fold_in(key, number), 3)
    shape = len(images), count
    boxes = draw_boxes(crop_key, shape, area=area, aspect=config.aspect)
    views = crop(images, boxes, size)
    mirrored = jax.random.bernoulli(
        flip_key, config.flip, shape)[..., None, None, None]
    views = jnp.where(mirrored, views[:, :, :, ::-1], views)
    if config.changes_colours:
      views = change_colours(views, *draw_colours(config, colour_key, shape))
    result[name] = views
  return result


def draw_boxes(
    key: PRNGKeyArray, shape: tuple[int, int], *, area: tuple[float, float],
    aspect: tuple[float, float],
) -> Float[Array, 'batch views 4']:
  """Samples top, left, height and width of crops as fractions of the image."""
  area_key, aspect_key, place_key = jax.random.split(key, 3)
  share = jax.random.uniform(area_key, shape, minval=area[0], maxval=area[1])
  ratio = jnp.exp(jax.random.uniform(
      aspect_key, shape, minval=math.log(aspect[0]),
      maxval=math.log(aspect[1])))
  size = jnp.minimum(
      jnp.stack([jnp.sqrt(share / ratio), jnp.sqrt(share * ratio)], -1), 1)
  start = jax.random.uniform(place_key, (*shape, 2)) * (1 - size)
  return jnp.concatenate([start, size], axis=-1)


def crop(
    images: Images, boxes: Float[Array, 'batch views 4'],
    size: tuple[int, int],
) -> Views:
  """Returns the contents of `boxes`, resized to `size` with antialiasing."""
  pixels = jnp.asarray(images.shape[1:3])

  def one(image: jax.Array, box: jax.Array) -> jax.Array:
    scale = jnp.asarray(size) / (box[2:] * pixels)
    return jax.image.scale_and_translate(
        image, (*size, image.shape[-1]), (0, 1), scale,
        -box[:2] * pixels * scale, 'linear')

  return jax.vmap(jax.vmap(one, (None, 0)))(images, boxes)


def draw_colours(
    config: ViewsConfig, key: PRNGKeyArray, shape: tuple[int, int],
) -> tuple[Float[Array, 'batch views 2'], Float[Array, 'batch views 3 3']]:
  """Samples brightness and contrast, and a matrix for saturation and hue.

  The rows of the matrix, from RGB to RGB, sum to 1.
  """
  jitter_key, factor_key, hue_key, grey_key = jax.random.split(key, 4)
  most = jnp.asarray(config.jitter[:3])
  factors = jax.random.uniform(
      factor_key, (*shape, 3), minval=jnp.maximum(1 - most, 0),
      maxval=1 + most)
  turn = jax.random.uniform(
      hue_key, shape, minval=-config.jitter[3], maxval=config.jitter[3])
  applied = jax.random.bernoulli(jitter_key, config.jitter_probability, shape)
  factors = jnp.where(applied[..., None], factors, 1)
  turn = jnp.where(applied, turn, 0)
  grey = jax.random.bernoulli(grey_key, config.grayscale, shape)
  saturation = jnp.where(grey, 0, factors[..., 2])[..., None, None]
  # Grey views have saturation 0, and their hue is rotated before it is removed.
  luma = jnp.broadcast_to(jnp.asarray(LUMA), (3, 3))
  return factors[..., :2], (
      saturation * jnp.eye(3) + (1 - saturation) * luma) @ turn_hue(turn)


def turn_hue(turn: Float[Array, '*shape']) -> Float[Array, '*shape 3 3']:
  """Returns rotations about the grey axis, by fractions of a circle."""
  angle = 2 * math.pi * turn[..., None, None]
  cross = jnp.asarray([[0., -1, 1], [1, 0, -1], [-1, 1, 0]]) / 3**0.5
  return (jnp.cos(angle) * jnp.eye(3) + (1 - jnp.cos(angle)) / 3
          + jnp.sin(angle) * cross)


def change_colours(
    pixels: Views, factors: Float[Array, 'batch views 2'],
    matrix: Float[Array, 'batch views 3 3'],
) -> Views:
  """Changes brightness, contrast, then saturation and hue of views in 0 ... 1.

  Contrast c turns x into c x + (1 - c) m, with the mean luma m of the view.
  """
  brightness, contrast = (factors[..., i, None, None, None] for i in range(2))
  mean = (pixels @ jnp.asarray(LUMA)).mean(axis=(2, 3))[..., None, None, None]
  changed = jnp.einsum(
      'bvhwi,bvoi->bvhwo', brightness * contrast * pixels, matrix)
  return (changed + brightness * (1 - contrast) * mean).clip(0, 1)
