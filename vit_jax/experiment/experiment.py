"""An experiment: config, data, model, objective, optimizer and mesh.

The components are wired by `build` and `parts`. State, batch and step are
derived from them: an experiment with another component has another step, too.
Nothing is allocated until `init_state` is called.
"""

from collections.abc import Callable, Generator, Mapping
import dataclasses
import functools
from typing import Any

import flax.linen as nn
import jax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec
from jaxtyping import Array, Float

from vit_jax import console
from vit_jax import data
from vit_jax import evals
from vit_jax import objectives
from vit_jax import optim
from vit_jax import registry
from vit_jax import schema
from vit_jax import tree
from vit_jax import types
from vit_jax.exceptions import UserError
from vit_jax.experiment import config as config_lib
from vit_jax.experiment import evaluators as evaluators_lib
from vit_jax.experiment import fit_weights
from vit_jax.experiment import frozen_weights
from vit_jax.experiment import parts
from vit_jax.parallel import device_memory
from vit_jax.parallel import mesh as mesh_lib
from vit_jax.parallel import multihost
from vit_jax.parallel import sharding
from vit_jax.training import step as step_lib

DERIVED: Any = None  # A component that is derived from the others.
# Compiled fast rather than optimized.
_RUNS_ONCE = {'xla_backend_optimization_level': 0}
# Maps a state and a batch of the pipeline to the next state and the loss.
Step = Callable[
    [types.TrainState, types.Batch], tuple[types.TrainState, Float[Array, '']]]


@dataclasses.dataclass(frozen=True, eq=False)
class Experiment:
  """The wired components of an experiment.

  `dataclasses.replace` replaces components: what depends on them is derived
  again, see `parts`.

  Attributes:
    config: the completed config.
    devices: devices of the mesh.
    dataset: training data.
    teachers: the weights of the teachers of the objective.
    data_optional: see `build`.
    note: prints a line, once.
    open_data: opens evaluation data; see `evaluators.OpenData`.
    total_steps: length of training.
    model: the linen module.
    objective: function from parameters, prepared batch and key to the loss and
      metrics of each example.
    prepare: function from a batch of the pipeline and a key to a prepared one;
      see `types.Batch`.
    init_params: returns the random parameters of step 0, boxed with the names
      of their axes.
    boxed_params: shapes of these parameters.
    mesh: devices by axis.
    optimizer: the Optax transformation `tx`, its learning-rate `schedule`, and
      which parameters are `trainable`.
    unreadable: log of unreadable images, if the config skips them.
    own_step: training step; by default made by `training.step`.
    made: what each derived component was derived from.
  """
  config: config_lib.Config
  devices: tuple[jax.Device, ...]
  dataset: data.Dataset
  teachers: tuple[Any, ...] = ()
  data_optional: bool = False
  note: Callable[[str], object] = print
  open_data: evaluators_lib.OpenData = DERIVED
  total_steps: int = DERIVED
  model: nn.Module = DERIVED
  objective: objectives.Objective = DERIVED
  prepare: Callable[[types.Batch, jax.Array], types.Batch] = DERIVED
  init_params: Callable[[], types.Params] = DERIVED
  boxed_params: Any = DERIVED
  mesh: jax.sharding.Mesh = DERIVED
  optimizer: optim.Optimizer = DERIVED
  unreadable: data.UnreadableLog = dataclasses.field(
      default_factory=data.UnreadableLog)
  own_step: Step | None = None
  made: dict[str, parts.Made] = dataclasses.field(
      default_factory=dict, repr=False)

  def __post_init__(self):
    parts.complete(self)
    mesh_lib.check_batch_size(
        'batch_size', self.config.batch_size, self.mesh,
        self.config.num_microbatches)

  @property
  def context(self) -> objectives.Context:
    """The context of objectives: the model with any adapters, and data."""
    model, config = self.model, self.config
    if config.lora.rank:
      model = registry.load(registry.LORA).Adapted(model, config.lora)
    return objectives.Context(
        model=model, dataset=self.dataset, value_scale=config.data.value_scale,
        teachers=self.teachers, data_config=config.data,
        class_counts=functools.cache(functools.partial(
            parts.class_counts, config, self.dataset)))

  @property
  def key(self) -> jax.Array:
    """Random key of the steps; step s uses `jax.random.fold_in(key, s)`."""
    return jax.random.split(jax.random.key(self.config.seed))[1]

  @functools.cached_property
  def abstract_state(self) -> types.TrainState:
    """Shapes, dtypes and shardings of the state."""
    # Without tracing the initialisation of the model again.
    shapes = jax.eval_shape(self._init_state, self.boxed_params)
    return _placed(shapes, sharding.state_shardings(
        shapes, sharding.param_specs(self.boxed_params, self.mesh), self.mesh))

  @property
  def shardings(self) -> types.TrainState:
    """Shardings of the state."""
    return jax.tree.map(lambda leaf: leaf.sharding, self.abstract_state)

  @functools.cached_property
  def abstract_batch(self) -> Mapping[str, jax.ShapeDtypeStruct]:
    """Shapes, dtypes and shardings of a global batch."""
    shapes = data.abstract_batch(
        self.config.data, self.dataset, self.config.batch_size)
    return _placed(shapes, dict.fromkeys(
        shapes, NamedSharding(self.mesh, sharding.BATCH)))

  @property
  def model_params(self) -> types.Params:
    """Shapes of the parameters of the model, with any adapters merged."""
    params = self.abstract_state.params
    if self.config.lora.rank:
      params = jax.eval_shape(functools.partial(
          registry.load(registry.LORA).merge, config=self.config.lora), params)
    return tree.without(params, *parts.NOT_IN_MODEL)

  @property
  def num_trainable(self) -> int:
    """Number of parameters that are not frozen."""
    return tree.num_elements(tree.select(
        self.abstract_state.params, self.optimizer.trainable))

  def _init_state(
      self, params: types.Params | None = None) -> types.TrainState:
    return step_lib.init_state(
        self.init_params() if params is None else params,
        tx=self.optimizer.tx, loss=self.objective,
        averaging=bool(self.config.averaging or self.optimizer.average))

  def init_state(
      self, params: types.Params | None = None, *, random: bool = False,
  ) -> types.TrainState:
    """Returns the state of step 0.

    Args:
      params: its parameters, which are donated; by default, those at
        `init.checkpoint`, or random ones if that is not set.
      random: whether all are random in any case.

    Raises:
      UserError: if parameters have other names or shapes than the model's, or
        `init.stage` is set, which only `train` finds.
    """
    if params is not None:
      self._check_params(params)
    if params is not None or random:
      return self._jitted_init_state(params)
    weights = fit_weights.open_initial(self.config)
    if weights is None:
      state = self._jitted_init_state(None)
    else:
      state, report = fit_weights.start(self, weights)
      self.note(report)
    return frozen_weights.add(self, state)

  @functools.cached_property
  def _jitted_init_state(self) -> Callable[..., types.TrainState]:
    return jax.jit(self._init_state, out_shardings=self.shardings,
                   donate_argnums=0, compiler_options=_RUNS_ONCE)

  def _check_params(self, params: types.Params) -> None:
    wrong = tree.differences(*map(nn.unbox, (self.boxed_params, params)))
    if wrong:
      shown = wrong[:3] + [f'and {len(wrong) - 3:,} more'] * (len(wrong) > 3)
      raise UserError(
          'The parameters are not those of the experiment:\n  '
          + '\n  '.join(shown) + '\nTo start from those of another model, save '
          'them, set init.checkpoint to their path, and call init_state().')

  @functools.cached_property
  def random_params(self) -> Callable[[], types.Params]:
    """Jitted function that returns the random parameters of step 0."""
    return jax.jit(
        lambda: nn.unbox(self.init_params()),
        out_shardings=self.shardings.params, compiler_options=_RUNS_ONCE)

  def empty_metrics(self) -> Any:
    """Returns running metrics of zero steps."""
    return multihost.put(
        step_lib.empty_metrics(self.objective, self.abstract_state.params),
        self.shardings.metrics)

  @functools.cached_property
  def train_step(self) -> Any:
    """Jitted (state, batch) -> (state, mean loss); donates the state."""
    step: Any = self.own_step
    if step is not None:
      return step if hasattr(step, 'lower') else self._jit(step)
    return self._jit(step_lib.build(
        tx=self.optimizer.tx, averaging=self.config.averaging,
        average_of=self.optimizer.average, loss=self.objective,
        prepare=self.prepare, key=self.key,
        trainable=self.optimizer.trainable,
        accumulation=self.config.num_microbatches))

  def _jit(self, step: Step) -> Any:
    return jax.jit(
        sharding.keep_batch_split(step, self.mesh), donate_argnums=0,
        in_shardings=(
            self.shardings, NamedSharding(self.mesh, sharding.BATCH)),
        out_shardings=(
            self.shardings, NamedSharding(self.mesh, PartitionSpec())))

  def with_step(self, step: Step) -> 'Experiment':
    """Returns the experiment with another training step, jitted or not.

    The step must count `state.step`, on which batches and checkpoints depend.
    """
    return dataclasses.replace(self, own_step=step)

  def with_microbatches(self, number: int) -> 'Experiment':
    """Returns the same experiment with another number of microbatches.

    Raises a `UserError` if the batch does not divide into them.
    """
    return dataclasses.replace(self, config=dataclasses.replace(
        self.config, accumulation=number))

  @property
  def steps_per_epoch(self) -> float:
    """Updates per pass over the training split."""
    return self.dataset.num_examples / self.config.batch_size

  @property
  def sizes(self) -> dict[str, int]:
    """Sizes that convert durations to steps; see `schema.Duration`."""
    return {'batch_size': self.config.batch_size,
            'num_examples': self.dataset.num_examples,
            'total_steps': self.total_steps}

  def is_due(self, every: schema.Duration | str, step: int) -> bool:
    """Returns whether an interval of length `every` ends with `step`."""
    assert isinstance(every, schema.Duration)  # `complete` replaces 'auto'.
    return every.is_due(step, **self.sizes)

  def batches(
      self, *, start_step: int,
      unreadable: data.UnreadableCounter | None = None,
  ) -> Generator[types.Batch, None, None]:
    """Yields the global batches of steps `start_step`, `start_step` + 1, ...

    `unreadable` counts unreadable images of this process.
    """
    shards, num_shards = multihost.batch_shards(self.mesh)
    local = data.train_batches(
        self.config.data, self.dataset, seed=self.config.seed,
        batch_size=self.config.batch_size, start_step=start_step,
        shards=shards, num_shards=num_shards, unreadable=unreadable)
    return multihost.shard_batches(local, self.mesh)

  @functools.cached_property
  def evaluators(self) -> Mapping[str, evals.Evaluate]:
    """Evaluators by name; by default, their batch is a microbatch."""
    return evaluators_lib.build(self)

  def data_of(self, evaluator: str) -> data.Dataset:
    """Returns the examples that an evaluator reads."""
    section = self.config.evals[evaluator]
    return self.open_data(section.split, section.source)[0]

  def fit_data_of(self, evaluator: str) -> data.Dataset | None:
    """Returns the examples that an evaluator is fitted to, if any."""
    section = self.config.evals[evaluator]
    return None if section.fit_split is None else self.open_data(
        section.fit_split, section.source)[0]

  def describe_evaluator(self, name: str) -> str:
    """Returns 'test evaluates on 360 images of digits, split test'."""
    section, dataset = self.config.evals[name], self.data_of(name)
    images = console.format_count(dataset.num_examples, 'image')
    text = (f'{name} evaluates on {images} of {dataset.name}, '
            f'split {dataset.split}')
    if fit := self.fit_data_of(name):
      text += f', with {fit.num_examples:,} of {fit.split}'
    # The description of the training data names its own folders.
    if section.source and dataset.without_images:
      text += f'; {dataset.without_images_note}'
    return text

  def evaluate(
      self, name: str, params: types.Params,
      on_batch: Callable[[], None] = lambda: None,
  ) -> evals.Result:
    """Runs an evaluator; `on_batch` runs after each batch, and may raise."""
    size = self.config.evals[name].batch_size or self.config.eval_batch_size
    with device_memory.explain_shortage(f'The evaluator {name}', advice=(
        f'Its batch size is {size:,}: set --config.evals.{name}.batch_size to '
        'a smaller number.')):
      return self.evaluators[name](params, on_batch)


def _placed(shapes: Any, shardings: Any) -> Any:
  """Returns shapes with their shardings."""
  return jax.tree.map(
      lambda leaf, sharding: jax.ShapeDtypeStruct(
          leaf.shape, leaf.dtype, sharding=sharding), shapes, shardings)
