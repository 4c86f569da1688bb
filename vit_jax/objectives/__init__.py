"""Objectives: losses over batches, built from section `objective`."""

from collections.abc import Mapping
from typing import Any

import flax.linen as nn
import jax
from jaxtyping import Float
import numpy as np

from vit_jax import models
from vit_jax import schema
from vit_jax.objectives import lejepa
from vit_jax.objectives import mae
from vit_jax.objectives import masked_patch
from vit_jax.objectives import supervised

LeJepaConfig = lejepa.LeJepaConfig
MaeConfig = mae.MaeConfig
MaskedPatchConfig = masked_patch.MaskedPatchConfig
SupervisedConfig = supervised.SupervisedConfig
DistillConfig = supervised.DistillConfig
ObjectiveConfig = (
    SupervisedConfig | DistillConfig | MaskedPatchConfig | MaeConfig
    | LeJepaConfig)

_OBJECTIVES = {'supervised': SupervisedConfig, 'distill': DistillConfig,
               'masked_patch': MaskedPatchConfig, 'mae': MaeConfig,
               'lejepa': LeJepaConfig}


def parse(section: Mapping[str, Any]) -> ObjectiveConfig:
  """Returns the record of section `objective`."""
  return schema.parse_choice(
      _OBJECTIVES, {'name': 'supervised', **section}, where='objective')


def build_model(
    config: ObjectiveConfig, model: models.ModelConfig, *,
    image_shape: tuple[int, int, int], num_classes: int,
) -> nn.Module:
  """Returns the module to train, which may extend the model.

  Raises:
    ValueError: if the objective does not support the model.
  """
  if isinstance(config, SupervisedConfig):
    return models.build(model, num_classes=num_classes)
  options: Any = {'image_shape': image_shape, 'num_classes': num_classes}
  if isinstance(config, LeJepaConfig):
    from vit_jax.objectives import joint_embedding
    return joint_embedding.build_model(config, model, **options)
  from vit_jax.objectives import masked_prediction
  return masked_prediction.build_model(config, model, **options)


def build(
    config: ObjectiveConfig, model: nn.Module, *, multi_label: bool,
    targets: bool = False,
    class_weights: Float[np.ndarray, 'classes'] | None = None,
    mean: float | tuple[float, ...] = 0.5,
    std: float | tuple[float, ...] = 0.5, teacher: Any = None,
) -> Any:
  """Returns the loss, a function of parameters, batch, key and `train`.

  Args:
    config: section `objective`.
    model: from `build_model`.
    multi_label: whether an example may have several labels.
    targets: whether labels are regression targets, not classes.
    class_weights: from `class_weights`.
    mean: mean of the normalisation of images in [0, 1].
    std: standard deviation of the normalisation.
    teacher: a `distill.Teacher`, for distillation.

  Raises:
    ValueError: if the objective does not support the labels.
  """
  if isinstance(config, DistillConfig):
    from vit_jax.objectives import distill
    return distill.Distillation(
        config, model, teacher, mean=mean, std=std,
        class_weights=class_weights)
  if isinstance(config, SupervisedConfig):
    return supervised.Supervised(
        config, model, multi_label=multi_label, targets=targets,
        class_weights=class_weights)
  if isinstance(config, LeJepaConfig):
    from vit_jax.objectives import joint_embedding
    return joint_embedding.LeJepa(config, model, mean=mean, std=std)
  from vit_jax.objectives import masked_prediction
  return masked_prediction.MaskedPrediction(
      config, model, mean=mean, std=std)


def training_inputs(
    config: ObjectiveConfig, model: models.ModelConfig, *,
    image_shape: tuple[int, int, int],
) -> dict[str, jax.ShapeDtypeStruct]:
  """Returns the shapes of the model's training inputs other than images."""
  if isinstance(config, SupervisedConfig):
    return {}
  if isinstance(config, LeJepaConfig):
    from vit_jax.objectives import joint_embedding
    return joint_embedding.training_inputs(config, image_shape)
  from vit_jax.objectives import masked_prediction
  return masked_prediction.training_inputs(
      config, models.grid(model, image_shape[:2]))


class_weights = supervised.class_weights
loss_of_logits = supervised.of_logits
resolve = supervised.resolve
TEACHER, PROJECTOR = supervised.TEACHER, supervised.PROJECTOR
without_teacher = supervised.without_teacher
