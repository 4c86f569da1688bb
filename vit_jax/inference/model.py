"""A model with its weights, ready to be called: what `vit_jax.load` returns.

    model = vit_jax.load('ViT-B_16.npz')
    model.predict('cat.jpg')                # Names and probabilities.
    model.features(['cat.jpg', 'dog.jpg'])  # [2, width]
    model.rollout('cat.jpg')                # Where it looks.
    logits = model(images)['logits']        # Arrays in, arrays out.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
import dataclasses
import functools
import os
from typing import Any, TypeGuard

import jax
from jaxtyping import Float
import numpy as np

from vit_jax import models
from vit_jax import schema
from vit_jax import tree
from vit_jax import types
from vit_jax.analysis import attention as attention_lib
from vit_jax.inference import images as images_lib
from vit_jax.inference import network as network_lib
from vit_jax.inference import predictions
from vit_jax.weights import save as save_lib
from vit_jax.weights.configs import preprocessing as preprocessing_lib

# What `Model.features` gives; `cls` and `mean` are of the tokens.
FEATURES = ('representation', 'pooled', 'cls', 'mean', 'tokens', 'logits')

Picture = images_lib.Picture


@dataclasses.dataclass(frozen=True, eq=False)
class Model:
  """A model and its parameters.

  Attributes:
    config: the typed section `model`.
    params: nested dict of arrays.
    preprocess: how an image becomes what the model was trained on.
    resolution: height and width that the position embeddings are for.
    positions: how they are resized to others: 'linear' or 'cubic'.
    origin: where the weights are from.
    report: a line for each parameter that was read, and for what was ignored.
  """
  config: models.ModelConfig
  params: types.Params
  preprocess: preprocessing_lib.Preprocess
  resolution: tuple[int, int]
  positions: str = 'linear'
  origin: str = ''
  report: tuple[str, ...] = ()

  def __call__(self, images: network_lib.Images) -> types.Outputs:
    """Applies the model to images in its value range.

    It is compiled for each shape of a batch, on its first use: many batches of
    one size are faster than each of another.

    Args:
      images: float, of any number and any resolution: (x / 255 - mean) / std,
        with those of `preprocess`.

    Returns:
      `logits` [batch, classes], `representation` [batch, width], `tokens`
      [batch, tokens, width], and what else the model names.

    Raises:
      ValueError: if these are no such images, or do not divide into patches.
    """
    images_lib.check_batch(images, self.preprocess)
    return self.network(images)

  @functools.cached_property
  def network(self) -> network_lib.Network:
    """What computes it; the parameters are copied to the device once."""
    return network_lib.Network(
        self.config, self.params, self.resolution, self.positions)

  def __repr__(self) -> str:
    height, width = self.resolution
    return (f'Model({self.origin or self.config.name}: '
            f'{tree.num_elements(self.params):,} parameters, images of '
            f'{height} x {width}, {self.config.num_classes} classes)')

  def predict(
      self, pictures: Picture | Iterable[Picture], top_k: int = 5, *,
      activation: preprocessing_lib.Activation | None = None,
      batch_size: int = 32,
  ) -> (predictions.Prediction | predictions.Estimate
        | list[predictions.Prediction] | list[predictions.Estimate]):
    """Classifies one picture or several, or predicts numbers of them.

    Args:
      pictures: paths, Pillow images, or arrays [height, width, 1, 3 or 4],
        uint8 in 0 ... 255 or float in 0 ... 1; one, several (a list,
        Path.glob, ...), or an array [batch, ...].
      top_k: classes of each; all, where there are fewer.
      activation: 'softmax', or 'sigmoid' of a model whose pictures have several
        classes; by default what `preprocess` says: the loss that a run of ours
        was trained with, softmax where nothing is said.
      batch_size: pictures at a time.

    Returns:
      A prediction for each, or an `Estimate` where the model predicts numbers;
      for one picture, its own.

    Raises:
      FileNotFoundError: if a file is not there.
      ValueError: if one is no picture, or the model has no head.
    """
    result: list[Any] = []
    for outputs in self._all(pictures, batch_size):
      result += (self.estimates(outputs['logits']) if self.predicts_numbers
                 else self.likeliest(outputs['logits'], top_k=top_k,
                                     activation=activation))
    return result[0] if self._is_one(pictures) else result

  def likeliest(
      self, logits: Float[Any, 'batch classes'], *, top_k: int = 5,
      activation: preprocessing_lib.Activation | None = None,
  ) -> list[predictions.Prediction]:
    """Returns what `predict` does, of logits.

    Raises:
      ValueError: if the model has no head, or there is no such activation.
    """
    if not self.config.num_classes:
      raise ValueError(
          f'{self.origin or "The model"} has no head, and so no classes. Use '
          'model.features, or fine-tune it first.')
    activation = activation or self.preprocess.activation
    if activation == 'none':
      raise ValueError(
          f'{self.origin or "The model"} predicts numbers, of which none is '
          'the likeliest. Use model.predict or model.estimates.')
    return predictions.likeliest(
        logits, labels=self.preprocess.labels, activation=activation,
        top_k=top_k)

  @property
  def predicts_numbers(self) -> bool:
    """Whether what the head gives are numbers, not logits of classes."""
    return self.preprocess.activation == 'none'

  def estimates(
      self, logits: Float[Any, 'batch targets'],
  ) -> list[predictions.Estimate]:
    """Returns what `predict` does of a model that predicts numbers."""
    return predictions.estimates(logits, labels=self.preprocess.labels)

  def features(
      self, pictures: Picture | Iterable[Picture], *,
      layer: str = 'representation', batch_size: int = 32,
  ) -> Float[np.ndarray, '...']:
    """Returns what the model makes of one picture or several.

    Args:
      pictures: as `predict` takes them.
      layer: 'representation' [width], what the head sees; 'pooled' [width],
        before the tanh layer, where there is one; 'cls' [width], the class
        token; 'mean' [width], that of the patches; 'tokens' [tokens, width],
        all after the final norm; 'logits' [classes].
      batch_size: pictures at a time.

    Returns:
      float32, with a leading axis for the pictures unless there is but one.

    Raises:
      FileNotFoundError: if a file is not there.
      ValueError: if one is no picture, or the model has no such layer.
    """
    name = self.output_of(layer)
    result = np.concatenate([
        self.layer_of(outputs, layer) for outputs in
        self._all(pictures, batch_size, names=(name,))])
    return result[0] if self._is_one(pictures) else result

  def output_of(self, layer: str) -> str:
    """Returns the output of the model that holds a layer of `features`.

    Raises:
      ValueError: if the model has no such layer.
    """
    schema.check_name(layer, FEATURES, what='layer')
    if layer == 'cls' and not getattr(self.config, 'has_cls', False):
      raise ValueError("The model has no class token. Use layer='mean'.")
    tokens = layer in ('cls', 'mean', 'tokens')
    if tokens or layer == 'pooled':
      self._need_tokens(layer, instead="layer='representation'")
    if layer == 'logits' and not self.config.num_classes:
      raise ValueError(
          f'{self.origin or "The model"} has no head, and so no logits. Use '
          "layer='representation', or fine-tune it first.")
    return 'tokens' if tokens else layer

  def layer_of(
      self, outputs: Mapping[str, Any], layer: str,
  ) -> Float[np.ndarray, 'batch ...']:
    """Returns a layer of `features` from the outputs of a batch, as float32."""
    values = outputs[self.output_of(layer)]
    if layer == 'cls':
      values = values[:, 0]
    elif layer == 'mean':
      values = values[:, getattr(self.config, 'num_prefix', 0):]
    values = np.asarray(values, np.float32)  # bfloat16 rounds sums.
    return values.mean(1) if layer == 'mean' else values

  def attention(
      self, pictures: Picture | Iterable[Picture], *, batch_size: int = 8,
  ) -> Float[np.ndarray, '...']:
    """Returns the attention of every layer and head, after the softmax.

    It is large: 144 x 197 x 197 numbers, 21 MiB, a picture for B/16 at 224.

    Args:
      pictures: as `predict` takes them.
      batch_size: pictures at a time.

    Returns:
      float32 [batch, layers, heads, tokens, tokens]: of each token (rows) to
      each (columns), class token and registers first; without the first axis
      for a single picture.

    Raises:
      FileNotFoundError: if a file is not there.
      ValueError: if one is no picture, or the model has no such attention.
    """
    result = np.concatenate([
        weights.swapaxes(0, 1)
        for weights in self._weights(pictures, batch_size)])
    return result[0] if self._is_one(pictures) else result

  def rollout(
      self, pictures: Picture | Iterable[Picture], *, batch_size: int = 8,
  ) -> Float[np.ndarray, '...']:
    """Returns how much of each patch is in what the head sees (figure 6).

    See `analysis.attention.rollout_map`.

    Args:
      pictures: as `predict` takes them.
      batch_size: pictures at a time.

    Returns:
      float64 [batch, rows, columns], summing to one for each picture; without
      the first axis for a single picture.

    Raises:
      FileNotFoundError: if a file is not there.
      ValueError: if one is no picture, or the model has no such attention.
    """
    # Batch by batch: the attention of many pictures would fill memory.
    result = np.concatenate([
        attention_lib.rollout_map(
            weights, grid=models.grid(self.config, self.preprocess.resolution),
            pooling=getattr(self.config, 'pooling', ''))
        for weights in self._weights(pictures, batch_size)])
    return result[0] if self._is_one(pictures) else result

  def _weights(
      self, pictures: Picture | Iterable[Picture], batch_size: int,
  ) -> Iterator[Float[np.ndarray, 'layers batch heads tokens tokens']]:
    """Yields the attention of each batch."""
    self._need_tokens('attention', instead='model.features')
    if getattr(self.config, 'axial', False):
      raise ValueError(
          'Axial attention is within rows and within columns: there is none of '
          'every token to every other.')
    for outputs in self._all(
        pictures, batch_size, names=('layers',), capture=True):
      yield np.asarray(outputs['layers']['attention'], np.float32)

  def _need_tokens(self, what: str, *, instead: str) -> None:
    if self.config.name != 'vit':
      raise ValueError(
          f'A {self.config.name} has no tokens, and so no {what}. Use '
          f'{instead}.')

  def _is_one(self, pictures: Any) -> TypeGuard[Picture]:
    return images_lib.is_one(pictures, channels=self.preprocess.channels)

  def outputs(
      self, pictures: Iterable[Picture], *, batch_size: int = 32,
      names: Sequence[str] = ('logits',), capture: bool = False,
      failed: images_lib.Failed | None = None,
  ) -> Iterator[tuple[tuple[Picture, ...], dict[str, Any]]]:
    """Yields, batch by batch, pictures and what the model makes of them.

    All of however many pictures: only a few batches are in memory.

    Args:
      pictures: as `predict` takes them.
      batch_size: pictures at a time.
      names: of the outputs that are wanted; see `models.vit.ViT`.
      capture: whether `layers` is one, of every layer.
      failed: told of each picture that cannot be read; it is then left out.

    Raises:
      FileNotFoundError, ValueError: for such a picture, without `failed`.
    """
    if batch_size < 1:
      raise ValueError(f'batch_size must be at least 1, but is {batch_size}.')
    apply = self.network.at(
        self.preprocess.resolution, names=names, capture=capture)
    for batch in images_lib.batches(
        pictures, self.preprocess, size=batch_size, failed=failed):
      outputs = jax.device_get(apply(batch.images))
      yield batch.pictures, {
          name: _first(value, batch.count, axis=int(name == 'layers'))
          for name, value in outputs.items()}

  def _all(
      self, pictures: Picture | Iterable[Picture], batch_size: int,
      **asked: Any,
  ) -> Iterator[dict[str, Any]]:
    """Yields outputs of one picture or several; batches no larger than these.
    """
    given: list[Any] = (
        [pictures] if self._is_one(pictures)
        else list(pictures))  # type: ignore[arg-type]
    if not given:
      raise ValueError('There are no pictures: none was given.')
    for _, outputs in self.outputs(
        given, batch_size=min(batch_size, len(given)), **asked):
      yield outputs

  def save(
      self, target: str | os.PathLike, *, form: str = save_lib.ORBAX,
  ) -> list[str]:
    """Writes the model, whole or not at all.

    Args:
      target: a file or folder that does not exist, here or at gs://.
      form: one of `saving.FORMATS`.

    Returns:
      Lines on what must be given to `load` to read it back, and on what the
      format's own library does otherwise.

    Raises:
      FileExistsError: if there is something at `target`.
      ValueError: if the format has no place for a part of the model, or a
        parameter is no array of finite floats.
    """
    return save_lib.write(
        target, form, self.config, self.params, resolution=self.resolution,
        preprocess=self.preprocess, positions=self.positions,
        origin=self.origin)


def _first(values: Any, count: int, *, axis: int) -> Any:
  """Returns the first of each array along an axis; that of the images."""
  index = (slice(None),) * axis + (slice(count),)
  return jax.tree.map(lambda x: x[index], values)
