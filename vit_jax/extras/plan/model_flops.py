"""FLOPs per image of an experiment, counted from the model's jaxpr."""

from collections.abc import Callable, Mapping
import dataclasses
from typing import Any

import flax.linen as nn
import jax

from vit_jax import registry
from vit_jax import tree
from vit_jax import types
from vit_jax.experiment import experiment as experiment_lib
from vit_jax.experiment import parts
from vit_jax.extras.plan import flops
from vit_jax.models import factory
from vit_jax.training import step as step_lib


@dataclasses.dataclass(frozen=True)
class PerImage:
  """FLOPs per image.

  Attributes:
    forward: the forward pass of the model, as in training.
    training: all of training, without rematerialisation.
  """
  forward: int
  training: int


def per_image(experiment: experiment_lib.Experiment) -> PerImage:
  """Returns the FLOPs per image.

  Training takes three forward passes, as in Table 6 of the paper: the backward
  pass computes gradients of inputs and of parameters. With frozen parameters,
  counts the remaining gradient instead: little more than one forward pass for a
  linear probe. A teacher adds one forward pass.
  """
  forward = flops.count(
      _outputs(_model(experiment, remat='none')), experiment.model_params,
      _inputs(experiment))
  training = 3 * forward
  if not all(jax.tree.leaves(_trainable(experiment))):
    training = gradient(experiment, remat='none')
  for teacher in experiment.teachers:
    training += flops.count(
        _outputs(factory.build(
            teacher.config, num_classes=teacher.config.num_classes)),
        teacher.shapes, {'images': jax.ShapeDtypeStruct(
            (1, *teacher.resolution, teacher.preprocess.channels), 'float32')})
  return PerImage(forward, training)


def inference(experiment: experiment_lib.Experiment) -> int:
  """Returns the FLOPs of the logits of an image, without an objective's part.

  `step_speed.inference` measures them.
  """
  config = experiment.config.model
  model = factory.build(
      factory.with_remat(config.without_fused_kernels(), 'none'),
      num_classes=config.num_classes)

  def logits(params: types.Params, images: jax.Array) -> jax.Array:
    return model.apply({'params': params}, images)['logits']

  return flops.count(
      logits, experiment.model_params, _inputs(experiment)['images'])


def gradient(experiment: experiment_lib.Experiment, *, remat: Any) -> int:
  """Returns the FLOPs of the gradient of the model on one image."""
  # The gradient of an adapter needs the gradient of its kernel.
  adapted = registry.load(registry.LORA).names(
      experiment.optimizer.trainable) if experiment.config.lora.rank else ()
  trainable = tree.map_with_name(
      lambda name, trained: trained or name in adapted, _trainable(experiment))
  outputs = _outputs(_model(experiment, remat=remat))

  def loss(params: types.Params, inputs: Mapping[str, Any]) -> jax.Array:
    return outputs(step_lib.stop_frozen(params, trainable), inputs).sum()

  return flops.count(jax.value_and_grad(loss), experiment.model_params,
                     _inputs(experiment))


def _trainable(experiment: experiment_lib.Experiment) -> Any:
  """Returns which parameters of the model are trained."""
  return tree.without(experiment.optimizer.trainable, *parts.NOT_IN_MODEL)


def _model(experiment: experiment_lib.Experiment, *, remat: Any) -> nn.Module:
  """Returns the model without kernels that hide FLOPs from the jaxpr."""
  config = experiment.config
  return config.objective.build_model(
      factory.with_remat(config.model.without_fused_kernels(), remat),
      image_shape=config.data.image_shape,
      num_classes=config.model.num_classes)


def _inputs(
    experiment: experiment_lib.Experiment) -> dict[str, jax.ShapeDtypeStruct]:
  """Returns the shapes of the model's inputs for one image in training."""
  image = jax.ShapeDtypeStruct(
      (1, *experiment.abstract_batch['image'].shape[1:]), 'float32')
  return {'images': image, **experiment.objective.extra_inputs(image)}


def _outputs(model: nn.Module) -> Callable[..., jax.Array]:
  """Returns the function from parameters and inputs to trained outputs."""
  def apply(params: types.Params, inputs: Mapping[str, Any]) -> jax.Array:
    outputs = model.apply({'params': params}, **inputs)
    return outputs['predictions' if 'predictions' in outputs else 'logits']

  return apply
