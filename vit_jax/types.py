"""Types shared by all layers, and the names of the mesh axes."""

from collections.abc import Callable, Mapping
import dataclasses
from typing import Any, Literal

import flax.struct
import jax

# A batch from the pipeline, or a batch prepared for the model on the device.
#   image [batch, height, width, channels]: stored values, such as uint8, from
#     the pipeline; prepared: float32 in [0, 1], which objectives normalise.
#   label [batch]: class index. Several classes per example: [batch, max_labels]
#     indices padded with -1; prepared: [batch, classes] k-hot or soft.
#     Regression: [batch, targets] float32, standardised, NaN if unknown.
#   mask [batch]: 1 for real examples, 0 for padding.
#   segmentation [batch, height, width]: class of each pixel, for evaluators.
Batch = Mapping[str, jax.Array]

# Named outputs of a model: `logits` [batch, classes], `representation`
# [batch, width], `tokens` [batch, tokens, width] and, on request, the
# intermediates of every layer.
Outputs = Mapping[str, Any]

# A nested dict of arrays.
Params = Any

# Checkpoint of a workdir: of the last step, or of the best metric.
Which = Literal['latest', 'best']

# Mesh axes, outermost first: data parallelism, data parallelism with sharded
# parameters, tensor parallelism.
DATA, FSDP, TENSOR = 'data', 'fsdp', 'tensor'
MESH_AXES = (DATA, FSDP, TENSOR)


@flax.struct.dataclass
class TrainState:
  """Complete state of a run, saved and restored bit for bit.

  There is no random state: the key of a step is `fold_in(key(seed), step)`.

  Attributes:
    step: number of completed updates, an int32 scalar.
    params: float32 parameters.
    opt_state: state of the Optax transformation.
    average: average of the parameters over steps, or None.
    metrics: sums since the last log line, so that a resumed run logs the same
      values.
  """
  step: Any  # Not jax.Array: a state may also hold shapes or shardings.
  params: Params
  opt_state: Any
  average: Params | None
  metrics: Any

  def map_params(self, function: Callable[[Params], Params]) -> 'TrainState':
    """Returns the state with other parameters and average."""
    return dataclasses.replace(
        self, params=function(self.params),
        average=None if self.average is None else function(self.average))

  @property
  def eval_params(self) -> Params:
    """Parameters for evaluation: the average if there is one."""
    return self.params if self.average is None else self.average
