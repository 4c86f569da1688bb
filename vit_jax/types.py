"""The types that flow between the parts, and the names of the mesh's axes.

They live below everything else, so that sharding, checkpoints and evaluators
can name a `TrainState` without importing the code that trains.
"""

from collections.abc import Callable, Mapping
from typing import Any

import flax.struct
import jax

# A mini-batch. `image` [batch, height, width, channels]: uint8 as the pipeline
# delivers it, float32 in the model's value range once `prepare` has run on the
# device. `label` [batch] (class index) or, where an example has several,
# [batch, max_labels] (indices, padded with -1) as the pipeline delivers it and
# [batch, classes] (k-hot or soft) once `prepare` has run. Where labels are
# numbers to predict, [batch, targets] float32, standardised, NaN where unknown.
# `mask` [batch]: 1 for a real example, 0 for padding.
Batch = Mapping[str, jax.Array]

# Named results of a model: `logits` [batch, classes], `representation`
# [batch, width], `tokens` [batch, tokens, width] and, on request, the
# intermediates of every layer.
Outputs = Mapping[str, Any]

# A nested dict of arrays.
Params = Any

# The axes of every mesh, outermost first: replicas that see different images,
# replicas that also split the parameters, and devices that share one layer.
DATA, FSDP, TENSOR = 'data', 'fsdp', 'tensor'
MESH_AXES = (DATA, FSDP, TENSOR)

# Maps a host batch to what the model sees; runs on the device, inside the step.
Prepare = Callable[[Batch, jax.Array], Batch]


@flax.struct.dataclass
class TrainState:
  """Everything a run needs to go on: saved whole, restored bit for bit.

  There is no random state: the key of a step is `fold_in(key(seed), step)`.

  Attributes:
    step: number of updates made, an int32 scalar.
    params: parameters, float32.
    opt_state: state of the Optax transformation.
    average: Polyak average of the parameters, or None where none is kept.
    metrics: sums since the last log line; part of the state so that a run that
      was killed between two lines still prints the same next line.
  """
  step: Any  # Not jax.Array: a state may also hold shapes or shardings.
  params: Params
  opt_state: Any
  average: Params | None
  metrics: Any

  @property
  def eval_params(self) -> Params:
    """Parameters to evaluate with: the average where one is kept."""
    return self.params if self.average is None else self.average
