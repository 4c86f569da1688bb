"""Distillation: a model learns from the predictions of a frozen teacher.

    loss = (1 - weight) * labels + weight * teacher + feature_weight * features
    soft:  teacher = T^2 KL(softmax(t / T) || softmax(s / T))
    hard:  teacher = cross-entropy(argmax t, s)
    features = mean (r W - u)^2

for logits s of the model and t of the teacher, with a temperature T (arXiv
1503.02531; hard targets: arXiv 2012.12877, equation 3), and representations r
of the model and u of the teacher, with a learned matrix W (FitNets, arXiv
1412.6550, equation 3). Both see the same crop and the same mixture of images
(arXiv 2106.05237). In a model with a distillation token, s are the logits of
that token, and the loss of the labels is that of the class token (arXiv
2012.12877, section 3).
"""

from collections.abc import Callable
import dataclasses
import functools
from typing import Any, ClassVar, Literal

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray
import optax

from vit_jax import data
from vit_jax import exceptions
from vit_jax import fields
from vit_jax import metrics
from vit_jax import types
from vit_jax.exceptions import UserError
from vit_jax.extras.distill import teachers
from vit_jax.objectives import objective
from vit_jax.objectives import supervised


@dataclasses.dataclass(frozen=True)
class DistillConfig(supervised.SupervisedConfig):
  """Section `objective` of a config with `name: 'distill'`.

  The other fields define the loss on the labels.

  Attributes:
    teacher: weights of the teacher, in any format that `vit_jax.load` reads. It
      must have the classes of the dataset.
    which: 'latest' or 'best' checkpoint of a workdir.
    targets: 'soft' for the class probabilities of the teacher, 'hard' for its
      most probable class.
    temperature: divides the logits of both for soft targets.
    weight: weight of the teacher's loss; that of the labels is 1 - weight.
    feature_weight: weight of the distance of representations, which is added to
      the loss.
  """
  shares_classes: ClassVar[bool] = True

  name: Literal['distill'] = 'distill'  # type: ignore[assignment]
  teacher: fields.Free[str] = ''  # Its hash is compared.
  which: types.Which = 'latest'
  targets: Literal['soft', 'hard'] = 'soft'
  temperature: float = 1.0
  weight: float = 1.0
  feature_weight: float = 0.0

  def __post_init__(self):
    super().__post_init__()
    if self.loss not in ('auto', 'softmax'):
      raise UserError(
          f'distill compares softmax probabilities, but loss is {self.loss!r}.')
    if not self.teacher:
      raise UserError(
          'distill needs the weights of a teacher: '
          '--config.objective.teacher=PATH.')
    fields.check_range(self, 'weight', above=0, most=1)
    fields.check_range(self, 'temperature', above=0)
    fields.check_range(self, 'feature_weight')

  def open_teachers(self, open_one: Callable[..., Any]) -> tuple[Any, ...]:
    teacher = open_one(self.teacher, self.which)
    with exceptions.within(f'The teacher {self.teacher}'):
      return (teachers.resize(teacher, teacher.preprocess.resolution),)

  def metrics(self) -> tuple[objective.Metric, ...]:
    features = (objective.Metric('features', mode='min'),)
    return (metrics.ACCURACY, objective.Metric('agreement'),
            *features * bool(self.feature_weight))

  def resolve(self, dataset: data.Metadata) -> supervised.SupervisedConfig:
    if dataset.targets or dataset.multi_label:
      raise UserError(
          f'objective.name is {self.name!r}, but the labels are '
          + ('regression targets' if dataset.targets else
             'several classes per image') + '. Leave it out.')
    return super().resolve(dataset)

  def without_teacher(self) -> supervised.SupervisedConfig:
    return supervised.SupervisedConfig(
        loss=self.loss, label_smoothing=self.label_smoothing,
        class_weights=self.class_weights)

  def build(self, context: objective.Context) -> objective.Objective:
    return Distill(self, context)


class Distill(objective.Objective):
  """Loss of a model with labels and a teacher.

  Its metrics are 'accuracy' on the labels, 'agreement' with the teacher and,
  with `feature_weight`, 'features', the distance of the representations.
  """

  def __init__(self, config: DistillConfig, context: objective.Context):
    """Initialises the loss."""
    if config.weight == 1 and getattr(
        getattr(context.model, 'config', None), 'distill_token', False):
      raise UserError(
          'objective.weight is 1, so that the head of the class token would '
          'learn nothing. Use --config.objective.weight=0.5, as in DeiT.')
    if (config.targets == 'soft'
        and context.teachers[0].preprocess.activation == 'sigmoid'):
      raise UserError(
          f'The teacher {config.teacher} was trained with a sigmoid, but soft '
          'targets are probabilities of a softmax. Use '
          '--config.objective.targets=hard.')
    self._config, self._context = config, context
    self._teacher = context.teachers[0]
    self._labelled = supervised.Supervised(config, context)
    self.metrics = metrics.names(config.metrics())

  def extra_params(
      self, params: types.Params, key: PRNGKeyArray,
      images: jax.ShapeDtypeStruct,
  ) -> dict[str, Any]:
    """Returns zeros for the teacher, and the projection; both are boxed."""
    result: dict[str, Any] = {
        objective.TEACHER: teachers.params([self._teacher])}
    if self._config.feature_weight:
      own = jax.eval_shape(
          self._context.model.apply, {'params': nn.unbox(params)},
          jax.ShapeDtypeStruct((1, *images.shape[1:]), 'float32'))
      theirs = jax.eval_shape(
          functools.partial(teachers.outputs, self._teacher),
          self._teacher.shapes, teachers.image(self._teacher))
      kernel = nn.initializers.lecun_normal()(key, tuple(
          found['representation'].shape[-1] for found in (own, theirs)))
      result[objective.PROJECTOR] = {
          'kernel': nn.LogicallyPartitioned(kernel, ('width', None))}
    return result

  def __call__(
      self, params: types.Params, batch: types.Batch, key: PRNGKeyArray, *,
      train: bool = True,
  ) -> objective.Losses:
    config = self._config
    found = self._context.apply(params, batch['image'], key, train=train)
    loss, metrics = self._labelled.measure(
        found.get('cls_logits', found['logits']), batch['label'])
    own = found.get('distill_logits', found['logits'])
    taught = teachers.outputs(
        self._teacher, params[objective.TEACHER]['0'], batch['image'])
    targets = taught['logits']
    metrics['agreement'] = (
        own.argmax(-1) == targets.argmax(-1)).astype(jnp.float32)
    loss = (1 - config.weight) * loss + config.weight * imitation(
        own, targets, hard=config.targets == 'hard',
        temperature=config.temperature)
    if config.feature_weight:
      projected = found['representation'].astype(
          jnp.float32) @ params[objective.PROJECTOR]['kernel']
      metrics['features'] = jnp.square(
          projected - taught['representation'].astype(jnp.float32)).mean(-1)
      loss += config.feature_weight * metrics['features']
    return loss, metrics


def imitation(
    own: Float[Array, 'batch classes'],
    targets: Float[Array, 'batch classes'], *, hard: bool, temperature: float,
) -> Float[Array, 'batch']:
  """Returns the teacher's term of the loss, for logits of both."""
  own, targets = (x.astype(jnp.float32) for x in (own, targets))
  if hard:
    return optax.softmax_cross_entropy_with_integer_labels(
        own, targets.argmax(-1))
  return temperature**2 * optax.losses.kl_divergence_with_log_targets(
      jax.nn.log_softmax(own / temperature),
      jax.nn.log_softmax(targets / temperature))
