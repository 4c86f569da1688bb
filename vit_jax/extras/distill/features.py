"""Feature distillation: a model learns the features of frozen teachers.

    loss = mean over teachers of pooled + patch_weight * mean over p of patch_p

    pooled = cos(r W + b, u)
    patch_p = (1 - beta) cos(s_p V + c, v_p) + beta smoothL1(s_p V + c, v_p)

for the representation r and the patch tokens s of the model, those u and v of a
teacher, and learned projections W, b and V, c of each teacher. The cosine
distance is cos(x, y) = 1 - x.y / |x| |y|, and smoothL1 the mean over components
of d^2 / 2 where |d| < 1, else |d| - 1/2. The grid of the teacher is resized to
that of the model. Teachers may have other classes than the data. With a
`label_weight`, the cross-entropy of the labels is added with this weight;
without it, no labels are used.

This is AM-RADIO (arXiv 2312.06709, equations 2 and 3 with beta = 0.1; section 4
resizes the teacher's grid, too), with three differences. The sum over teachers
is a mean. Projections are linear instead of an MLP with one hidden layer.
Teachers see the images of the batch, resized, instead of crops of the files in
their own resolution. As in the paper, features are not standardised, and all
teachers have the same weight.
"""

from collections.abc import Callable, Mapping
import dataclasses
from typing import Any, Literal

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray
import optax

from vit_jax import data
from vit_jax import exceptions
from vit_jax import fields
from vit_jax import types
from vit_jax.exceptions import UserError
from vit_jax.extras.distill import cached
from vit_jax.extras.distill import teachers as teachers_lib
from vit_jax.models import feature_layers
from vit_jax.models import model_config
from vit_jax.objectives import objective
from vit_jax.objectives import supervised

Vectors = Float[Array, 'batch *grid outputs']
POOLED, PATCHES = cached.POOLED, cached.PATCHES


@dataclasses.dataclass(frozen=True)
class FeaturesConfig(objective.ObjectiveConfig):
  """Section `objective` of a config with `name: 'distill_features'`.

  Attributes:
    teachers: weights of the teachers, in any format that `vit_jax.load` reads;
      by default those whose outputs `data prepare --teacher` stored with the
      images, which then do not run.
    which: 'latest' or 'best' checkpoint of teachers that are workdirs.
    resolutions: size in pixels of the images that each teacher sees; by default
      the one of its weights. Fewer pixels cost less.
    patch_weight: weight of the loss on patches; that on the representation has
      weight 1. 0 for models or teachers without patches.
    smooth_l1: share of the smooth L1 distance in the loss on patches; the rest
      is the cosine distance.
    label_weight: weight of the loss on the labels, which is added and trains
      the head; 0 needs no labels.
    loss, label_smoothing: those of the loss on the labels; see
      `SupervisedConfig`.
  """
  name: Literal['distill_features'] = 'distill_features'
  teachers: fields.Free[tuple[str, ...]] = ()  # Hashes are compared.
  which: types.Which = 'latest'
  resolutions: fields.Refused[tuple[int, ...]] = ()
  patch_weight: float = 1.0
  smooth_l1: float = 0.1
  label_weight: float = 0.0
  loss: Literal['auto', 'softmax', 'sigmoid', 'mse', 'mae', 'huber'] = 'auto'
  label_smoothing: float = 0.0

  def __post_init__(self):
    if self.resolutions and len(self.resolutions) != len(self.teachers):
      raise UserError(
          f'There are {len(self.teachers)} teachers, but '
          f'{len(self.resolutions)} resolutions. Give one for each teacher, or '
          'leave resolutions out.')
    fields.check_range(self, 'resolutions', low=1)
    fields.check_range(self, 'patch_weight')
    fields.check_range(self, 'smooth_l1', most=1)
    fields.check_range(self, 'label_weight')
    fields.check_range(self, 'label_smoothing', end=1)

  @property
  def uses_labels(self) -> bool:  # type: ignore[override]
    return self.label_weight > 0

  def with_labels(self, dataset: data.Dataset) -> data.Dataset:
    return dataset  # With the outputs of teachers.

  def resolve(self, dataset: data.Metadata) -> 'FeaturesConfig':
    resolved = dataclasses.replace(
        self, loss=self.labelled.resolve(dataset).loss
    ) if self.uses_labels else self
    stored = cached.find(dataset)
    if stored:
      return resolved._with(stored)
    if not self.teachers:
      raise UserError(
          'distill_features needs the weights of teachers: '
          '--config.objective.teachers=PATH, or several with commas. Or train '
          'on data with their outputs: `data prepare --teacher=PATH`.')
    return resolved

  def _with(self, stored: cached.Stored) -> 'FeaturesConfig':
    """Returns the section for stored outputs; raises if it contradicts."""
    found = tuple(teacher.address for teacher in stored.teachers)
    sides = tuple(teacher.resolution[0] for teacher in stored.teachers)
    for name, value in (('teachers', found), ('resolutions', sides)):
      if getattr(self, name) not in ((), value):
        raise UserError(
            f'objective.{name} is {",".join(map(str, getattr(self, name)))}, '
            f'but the data hold outputs for the {name} '
            f'{",".join(map(str, value))}. Remove it to use these, prepare the '
            'images again with `data prepare --teacher`, or train on the '
            'source of the images.')
    missing = [one.address for one in stored.teachers if not one.patches]
    if self.patch_weight and missing:
      raise UserError(
          f'The data hold no patch features of {", ".join(missing)}. Use '
          '--config.objective.patch_weight=0, or prepare the images again.')
    return _Cached(**{**vars(self), 'teachers': found, 'resolutions': sides})

  def open_teachers(self, open_one: Callable[..., Any]) -> tuple[Any, ...]:
    """Returns the teachers for images of their resolutions."""
    sides = self.resolutions or (0,) * len(self.teachers)
    return tuple(
        self._open(open_one, address, side)
        for address, side in zip(self.teachers, sides, strict=True))

  def _open(
      self, open_one: Callable[..., Any], address: str, side: int) -> Any:
    teacher = open_one(address, self.which)
    with exceptions.within(f'The teacher {address}'):
      self._check(teacher.config)
      return teachers_lib.resize(teacher, (
          (side, side) if side else teacher.preprocess.resolution))

  def _check(self, model: model_config.ModelConfig) -> None:
    if self.patch_weight:
      feature_layers.check_has_tokens(
          model, PATCHES, instead='--config.objective.patch_weight=0')

  @property
  def features(self) -> tuple[str, ...]:
    """Names of the features that are learned."""
    return (POOLED, PATCHES) if self.patch_weight else (POOLED,)

  @property
  def labelled(self) -> supervised.SupervisedConfig:
    """Loss on the labels."""
    return supervised.SupervisedConfig(
        loss=self.loss, label_smoothing=self.label_smoothing)

  def metrics(self) -> tuple[objective.Metric, ...]:
    terms = (objective.Metric(name, mode='min') for name in self.features)
    return *terms, *self.labelled.metrics() * self.uses_labels

  @property
  def label_loss(self) -> str:
    return self.loss

  def without_teacher(self) -> objective.ObjectiveConfig:
    return _Untaught(label_weight=self.label_weight, loss=self.loss)

  def build_model(
      self, model: model_config.ModelConfig, *,
      image_shape: tuple[int, int, int], num_classes: int,
  ) -> nn.Module:
    self._check(model)
    return super().build_model(
        model, image_shape=image_shape, num_classes=num_classes)

  def build(self, context: objective.Context) -> objective.Objective:
    return FeatureLoss(self, context)


class _Untaught(FeaturesConfig):
  """The objective of evaluators that read neither it nor teachers."""

  def __post_init__(self):
    pass

  def _check(self, model: model_config.ModelConfig) -> None:
    del model

  def with_labels(self, dataset: data.Dataset) -> data.Dataset:
    return objective.ObjectiveConfig.with_labels(self, dataset)

  def resolve(self, dataset: data.Metadata) -> FeaturesConfig:
    return self


class _Cached(FeaturesConfig):
  """The objective of data with the outputs of its teachers."""

  def open_teachers(self, open_one: Callable[..., Any]) -> tuple[Any, ...]:
    return ()

  def build(self, context: objective.Context) -> objective.Objective:
    stored = cached.find(context.dataset)
    if stored and context.data_config:
      stored.check_images(context.data_config)
    return FeatureLoss(self, context, stored)


class FeatureLoss(objective.Objective):
  """Loss of a model with teachers.

  Its metrics are its terms, means over teachers: 'pooled', the cosine distance
  of representations, and 'patches', unless they have no weight. With
  `label_weight`, there are those of `Supervised`, too.
  """

  def __init__(
      self, config: FeaturesConfig, context: objective.Context,
      stored: cached.Stored | None = None):
    """Initialises the loss; `stored` outputs replace those of teachers."""
    self._config, self._context, self._stored = config, context, stored
    self._labelled = supervised.Supervised(
        config.labelled, context) if config.uses_labels else None
    self.features = config.features
    self.metrics = self.features + (
        self._labelled.metrics if self._labelled else ())

  def extra_params(
      self, params: types.Params, key: PRNGKeyArray,
      images: jax.ShapeDtypeStruct,
  ) -> dict[str, Any]:
    """Returns zeros for the teachers, and the projections; all are boxed."""
    teachers, stored = self._context.teachers, self._stored
    batch = {'image': jax.ShapeDtypeStruct(images.shape, 'float32')}
    if stored:
      batch[stored.name] = jax.ShapeDtypeStruct(
          (images.shape[0], stored.length), 'float16')
    targets = jax.eval_shape(self.targets, {objective.TEACHER: {
        str(number): teacher.shapes
        for number, teacher in enumerate(teachers)}}, batch)
    if not targets:
      return {}
    own, _ = jax.eval_shape(self._own, nn.unbox(params), batch['image'], None)
    projections = {
        str(number): {
            name: _projection(
                jax.random.fold_in(jax.random.fold_in(key, number), kind),
                own[name].shape[-1], theirs[name].shape[-1])
            for kind, name in enumerate(self.features)}
        for number, theirs in enumerate(targets)}
    return {objective.PROJECTOR: projections, **(
        {objective.TEACHER: teachers_lib.params(teachers)} if teachers else {})}

  def __call__(
      self, params: types.Params, batch: types.Batch, key: PRNGKeyArray, *,
      train: bool = True,
  ) -> objective.Losses:
    targets = self.targets(params, batch)
    own, logits = self._own(params, batch['image'], key, train=train)
    terms = {name: jnp.zeros(len(batch['image'])) for name in self.features}
    for number, taught in enumerate(targets):
      for name, layer in params[objective.PROJECTOR][str(number)].items():
        share = self._config.smooth_l1 if name == PATCHES else 0.0
        terms[name] += distance(
            own[name] @ layer['kernel'] + layer['bias'],
            match_grid(taught[name], own[name].shape),
            smooth_l1=share) / len(targets)
    loss = terms[POOLED]
    if PATCHES in terms:
      loss += self._config.patch_weight * terms[PATCHES]
    if self._labelled:
      labels, found = self._labelled.measure(logits, batch['label'])
      loss += self._config.label_weight * labels
      terms |= found
    return loss, terms

  def _own(
      self, params: types.Params, images: objective.Images,
      key: PRNGKeyArray | None, **options: Any,
  ) -> tuple[cached.Features, jax.Array]:
    """Returns the features and the logits of the model."""
    outputs = self._context.apply(params, images, key, **options)
    return self._features(
        outputs, self._context.model.config, images.shape[1:3]), (
            outputs['logits'])

  def targets(
      self, params: types.Params, batch: types.Batch) -> list[cached.Features]:
    """Returns the features of each teacher."""
    if self._stored:
      return self._stored.read(batch)
    return [
        self._taught(teacher, params[objective.TEACHER][str(number)],
                     batch['image'])
        for number, teacher in enumerate(self._context.teachers)]

  def _taught(
      self, teacher: Any, params: types.Params, images: objective.Images,
  ) -> cached.Features:
    """Returns the features of a teacher."""
    return self._features(
        teachers_lib.outputs(teacher, params, images), teacher.config,
        teacher.resolution)

  def _features(
      self, outputs: Mapping[str, Any], config: model_config.ModelConfig,
      size: tuple[int, ...],
  ) -> cached.Features:
    found = {POOLED: outputs['representation'].astype(jnp.float32)}
    if PATCHES in self.features:
      found[PATCHES] = feature_layers.extract(
          outputs['tokens'], PATCHES, config,
          grid=config.grid((size[0], size[1])))
    return found


def match_grid(
    features: Vectors, shape: tuple[int, ...],
) -> Float[Array, 'batch *new_grid outputs']:
  """Returns features on the grid of `shape` [batch, *grid, width]."""
  shape = *shape[:-1], features.shape[-1]
  return features if features.shape == shape else jax.image.resize(
      features, shape, 'bilinear')


def distance(
    found: Vectors, targets: Vectors, *, smooth_l1: float,
) -> Float[Array, 'batch']:
  """Returns the distance of vectors, averaged over the grid."""
  distances = (1 - smooth_l1) * optax.losses.cosine_distance(
      found, targets, epsilon=1e-6)
  if smooth_l1:
    distances += smooth_l1 * optax.losses.huber_loss(found, targets).mean(-1)
  return distances.reshape(len(distances), -1).mean(-1)


def _projection(key: PRNGKeyArray, width: int, outputs: int) -> dict[str, Any]:
  kernel = nn.initializers.lecun_normal()(key, (width, outputs))
  return {'kernel': nn.LogicallyPartitioned(kernel, ('width', None)),
          'bias': nn.LogicallyPartitioned(jnp.zeros(outputs), (None,))}
