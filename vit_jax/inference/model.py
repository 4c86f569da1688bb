"""A model with its weights, as returned by `vit_jax.load`.

    model = vit_jax.load('ViT-B_16.npz')
    model.predict('cat.jpg')                # Class names and probabilities.
    model.features(['cat.jpg', 'dog.jpg'])  # [2, width]
    model.rollout('cat.jpg')                # Attention map.
    logits = model(images)['logits']        # Arrays in, arrays out.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
import dataclasses
import functools
import operator
import os
from typing import Any

import flax.linen as nn
import jax
from jaxtyping import Array, Float, UInt8
import numpy as np

from vit_jax import registry
from vit_jax import tree
from vit_jax import types
from vit_jax.data import preprocessing as preprocessing_lib
from vit_jax.evals import passes
from vit_jax.exceptions import UserError
from vit_jax.inference import attention as attention_maps
from vit_jax.inference import image_files
from vit_jax.inference import images as images_lib
from vit_jax.inference import predictions
from vit_jax.models import factory
from vit_jax.models import feature_layers
from vit_jax.models import model_config
from vit_jax.weights import save as save_lib
from vit_jax.weights import weights as weights_lib

ImageLike = images_lib.ImageLike
Images = (Float[Array, 'batch height width channels'] |
          Float[np.ndarray, 'batch height width channels'])
Predictions = list[predictions.Prediction] | list[predictions.Estimate]


@dataclasses.dataclass(frozen=True, eq=False)
class Model(weights_lib.Weights):
  """A model with its parameters.

  Methods that take images accept paths, the bytes of files, Pillow images, or
  arrays [height, width, channels] with the channels of the model, uint8 in
  0 ... 255 or float in 0 ... 1 (for one channel also [height, width]): a single
  one, several (a list, Path.glob, ...), or an array [batch, height, width,
  channels]. Arrays for models of other pixel types have those, and raw values.
  A folder, a glob or a table names several images, each once, in the order of
  the commands. They raise `FileNotFoundError` for missing files and
  `ValueError` for anything that is not an image. Results of a single image have
  no batch axis.

  Attributes (see `weights.Weights`): `config`, `params`, `preprocess`,
  `resolution`, `positions`, `origin`, `report` and `summary`; `thresholds` of
  the classes, if they decide (NaN for the negative one of two).
  """
  thresholds: tuple[float, ...] = ()

  @classmethod
  def read_from(cls, weights: weights_lib.Weights) -> 'Model':
    """Returns a model with the values of weights, which are read once."""
    return cls(**vars(weights)).with_params(weights.read())

  @property
  def params(self) -> types.Params:
    """The parameters, in memory: a nested dict of arrays."""
    return self.read()

  @functools.cached_property
  def module(self) -> nn.Module:
    """The linen module, which applies `params` to images; see docs/embed.md."""
    return factory.build(self.config, num_classes=self.config.num_classes)

  def __call__(self, images: Images) -> types.Outputs:
    """Applies the model to preprocessed images; compiles for each batch shape.

    Args:
      images: floats of any number and resolution, (x / 255 - mean) / std with
        the values of `preprocess`.

    Returns:
      `logits` [batch, classes], `representation` [batch, width], `tokens`
      [batch, tokens, width], and other outputs of the model.

    Raises:
      UserError: for other arrays, or images that do not divide into patches.
    """
    images_lib.check_batch(images, self.preprocess)
    size = images.shape[1], images.shape[2]
    return _forward(self.config)(self.params_for(size), images)

  @functools.cached_property
  def params_for(self) -> Callable[[tuple[int, int]], types.Params]:
    """Function from an image size to the parameters on the device.

    All parameters but the position embeddings are shared between sizes. The
    function raises a `UserError` if such images do not divide into patches.
    """
    on_device = jax.device_put(self.params)

    @functools.lru_cache(maxsize=64)  # Resolutions.
    def params_for(size: tuple[int, int]) -> types.Params:
      old, new = (self.config.grid(s) for s in (self.resolution, size))
      if old == new:
        return on_device
      return tree.update(on_device, tree.unflatten({
          name: jax.device_put(self.config.resize_positions(
              name, np.asarray(array), old_grid=old, new_grid=new,
              method=self.positions))  # type: ignore[arg-type]
          for name, array in tree.flatten(self.params).items()
          if name.split('/')[-1] in self.config.position_params}))

    return params_for

  def __repr__(self) -> str:
    return (f'Model({self.origin or self.config.name}: '
            f'{weights_lib.count(self.params)}, {self.image_size}, '
            f'{self.head_size})')

  def predict(
      self, images: ImageLike | Iterable[ImageLike], top_k: int = 5, *,
      activation: preprocessing_lib.Activation | None = None,
      batch_size: int = 32, flip: bool = False,
  ) -> predictions.Prediction | predictions.Estimate | Predictions:
    """Classifies images, or predicts their regression targets.

    The probabilities of a segmentation model are shares of the pixels of its
    decoder, before logits are resized to the image.

    Args:
      images: see `Model`.
      top_k: maximum number of classes per image.
      activation: 'softmax', or 'sigmoid' for several classes per image; by
        default that of the training loss, or softmax if unknown.
      batch_size: images per batch.
      flip: whether to average the logits of each image and its mirror image.

    Returns:
      A `Prediction` per image, or an `Estimate` if the model predicts numbers.

    Raises:
      UserError: if the model has no head.
    """
    return self.collect(
        lambda outputs, _: self.decode(
            outputs['logits'], top_k=top_k, activation=activation),
        images, batch_size, flip=flip)

  def decode(
      self, logits: Float[Any, 'batch *grid outputs'], *, top_k: int = 5,
      activation: preprocessing_lib.Activation | None = None,
  ) -> Predictions:
    """Converts logits to predictions or estimates; see `predict`."""
    self.check_head()
    labels, stored = self.preprocess.labels, self.preprocess.activation
    if stored == 'none':
      return predictions.estimates(logits, labels=labels)
    if self.has_decoder:
      return registry.load(registry.SEGMENTATION).shares(
          logits, labels=labels, top_k=top_k)
    return predictions.top_classes(
        logits, labels=labels, top_k=top_k, activation=activation or stored,
        thresholds=self.thresholds if activation in (None, stored) else ())

  def check_head(
      self, what: str = 'classes',
      instead: str = 'its features (the command or method `features`)',
  ) -> None:
    """Raises a UserError if the model has no head."""
    if not self.config.num_classes:
      raise UserError(
          f'{self.address or "The model"} has no trained head, and so no '
          f'{what}. Use {instead}, or fine-tune it first.')

  @property
  def has_decoder(self) -> bool:
    """Whether the model predicts the classes of pixels."""
    return getattr(self.config, 'decoder', None) is not None

  def segment(
      self, images: ImageLike | Iterable[ImageLike], *, batch_size: int = 32,
      flip: bool = False,
  ) -> UInt8[np.ndarray, 'height width'] | list[np.ndarray]:
    """Returns the class of each pixel of images as they are, not resized.

    Arguments are those of `predict`.

    Raises:
      UserError: if the model has no decoder, or images are cropped for it.
    """
    return registry.load(registry.SEGMENTATION).segment(
        self, images, batch_size=batch_size, flip=flip)

  def features(
      self, images: ImageLike | Iterable[ImageLike], *,
      layer: str = 'representation', batch_size: int = 32,
  ) -> Float[np.ndarray, '...']:
    """Returns features of images, float32 with a leading batch axis.

    Args:
      images: see `Model`.
      layer: a name of `models.feature_layers`, such as 'representation' [width]
        or 'patches:6' [rows, columns, width].
      batch_size: images per batch.

    Raises:
      UserError: if the model has no such layer.
    """
    return np.asarray(self.collect(
        lambda outputs, _: self.extract_layer(outputs, layer), images,
        batch_size, names=(self.layer_output(layer),)))

  def layer_output(self, layer: str) -> str:
    """Returns the name of the model output that contains a feature layer."""
    name = feature_layers.output(layer, self.config)
    if name == 'logits':
      self.check_head('logits', "layer='representation'")
    return name

  def extract_layer(
      self, outputs: Mapping[str, Any], layer: str,
  ) -> Float[np.ndarray, 'batch ...']:
    """Returns a feature layer of the outputs of a batch, as float32."""
    return feature_layers.extract(
        outputs[self.layer_output(layer)], layer, self.config,
        grid=self.config.grid(self.preprocess.resolution))

  def attention(
      self, images: ImageLike | Iterable[ImageLike], *, batch_size: int = 8,
  ) -> Float[np.ndarray, '...']:
    """Returns the attention weights of every layer and head.

    They take 21 MiB per image for B/16 at 224: 144 x 197 x 197 numbers.

    Returns:
      float32 [batch, layers, heads, query tokens, key tokens]; class token and
      registers come first.

    Raises:
      UserError: if the model has no such attention.
    """
    return np.asarray(self._attention(
        lambda weights: weights.swapaxes(0, 1), images, batch_size))

  def rollout(
      self, images: ImageLike | Iterable[ImageLike], *, batch_size: int = 8,
  ) -> Float[np.ndarray, '...']:
    """Returns attention rollout maps (ViT, figure 6).

    They are float64 [batch, rows, columns], and each sums to one. Raises as
    `attention`.
    """
    # Batch by batch: the attention of many images would fill the memory.
    return np.asarray(self._attention(
        lambda weights: attention_maps.rollout_map(
            weights, grid=self.config.grid(self.preprocess.resolution),
            pooling=getattr(self.config, 'pooling', '')), images, batch_size))

  def _attention(
      self, function: Callable[
          [Float[np.ndarray, 'layers batch heads tokens tokens']], np.ndarray],
      images: ImageLike | Iterable[ImageLike], batch_size: int,
  ) -> Any:
    """Applies `function` to the attention weights of the images."""
    feature_layers.check_has_tokens(
        self.config, 'attention', instead='model.features')
    if self.config.axial:
      raise UserError('Axial attention is limited to rows and columns, so '
                      'there is no attention between all tokens.')
    return self.collect(
        lambda outputs, _: function(
            np.asarray(outputs['layers']['attention'], np.float32)),
        images, batch_size, names=('layers',))

  def outputs(
      self, images: Iterable[ImageLike], *, batch_size: int = 32,
      names: Sequence[str] = ('logits',), flip: bool = False,
      on_error: images_lib.OnError | None = None,
  ) -> Iterator[tuple[tuple[ImageLike, ...], dict[str, Any]]]:
    """Yields images and model outputs, a few batches in memory at a time.

    Args:
      images: several images, as in `Model`; not a single one.
      batch_size: images per batch.
      names: outputs to return; see `models.vit.ViT` and `_forward`.
      flip: whether to average over each image and its mirror image.
      on_error: called with each image that is unreadable or has outputs that
        are not finite, which is then skipped; None raises instead.
    """
    if batch_size < 1:
      raise UserError(f'batch_size must be at least 1, but is {batch_size}.')
    # One image is not padded to a full batch.
    batch_size = min(
        batch_size, max(operator.length_hint(images, batch_size), 1))
    apply = _forward(self.config, tuple(names), flip=flip)
    params = self.params_for(self.preprocess.resolution)
    for sources, pixels in images_lib.batches(
        images, self.preprocess, size=batch_size, on_error=on_error):
      kept, outputs = predictions.finite(
          jax.device_get(apply(params, pixels)), sources,
          dtype=self.config.dtype, on_error=on_error)
      if kept:
        yield kept, outputs

  def collect(
      self, function: Callable[[dict[str, Any], Any], Iterable[Any]],
      images: ImageLike | Iterable[ImageLike], batch_size: int,
      **options: Any,
  ) -> Any:
    """Returns rows of `function` of the outputs of each batch, and its images.

    For a single image, returns its row.
    """
    if isinstance(images, (str, os.PathLike)) and (
        image_files.holds_several(images)):
      found, _ = image_files.find([os.fspath(images)])
      images = list(found)
    single = images_lib.is_single(images, channels=self.preprocess.channels)
    given: list[Any] = [images] if single else list(images)  # type: ignore
    if not given:
      raise UserError('No images were given.')
    rows = [row for sources, outputs in self.outputs(
        given, batch_size=batch_size, **options)
            for row in function(outputs, sources)]
    return rows[0] if single else rows

  def save(
      self, target: str | os.PathLike, *, form: str = save_lib.ORBAX,
      dtype: str = 'float32',
  ) -> list[str]:
    """Writes the model atomically.

    Args:
      target: a new file or folder, local or at gs://.
      form: one of `weights.save.FORMATS`.
      dtype: type of the arrays in the file: 'float32', 'float16' or 'bfloat16'.

    Returns:
      Notes on settings for which the format's library computes differently,
      and on what is not written.

    Raises:
      UserError: if `target` exists.
      UserError: if the format cannot represent the model, or a parameter is
        not finite.
    """
    return [*save_lib.save(target, form, self, dtype=dtype), *[
        'the thresholds of the classes are not written: without them, the most '
        'probable class is predicted'] * bool(self.thresholds)]


@functools.lru_cache(maxsize=32)
def _forward(
    config: model_config.ModelConfig, names: tuple[str, ...] = (), *,
    flip: bool = False,
) -> Callable[[types.Params, Images], types.Outputs]:
  """Returns the jitted forward pass of parameters and images.

  Args:
    config: the typed section `model`.
    names: outputs to return; by default all but `layers`, the intermediates of
      every layer. 'layers/6' are the tokens after layer 6 of 1 ... depth.
    flip: whether to average over each image and its mirror image.
  """
  model = factory.build(
      factory.for_devices(config, jax.devices()[:1]),
      num_classes=config.num_classes)
  capture = any(name.startswith('layers') for name in names)
  options = {'capture': True} if capture else {}

  def apply(params, images):
    outputs = model.apply({'params': params}, images, **options)
    # Unused outputs are not computed, or at least not copied.
    return {name: feature_layers.select(outputs, name)
            for name in names} or outputs

  return jax.jit(passes.average_mirrored(apply) if flip else apply)
