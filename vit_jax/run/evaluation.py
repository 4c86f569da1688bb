"""When a run evaluates, and when it ends."""

from vit_jax.experiment import experiment as experiment_lib
from vit_jax.run import counters as counters_lib


def is_out_of_patience(
    experiment: experiment_lib.Experiment, counters: counters_lib.Counters,
) -> bool:
  """Whether the best metric has not improved for `checkpoint.patience`."""
  return counters.is_out_of_patience(
      experiment.config.checkpoint.patience, **experiment.sizes)


def is_finished(
    experiment: experiment_lib.Experiment, counters: counters_lib.Counters, *,
    step: int,
) -> bool:
  """Whether training ends with `step`.

  It depends only on what a checkpoint stores, so a killed run ends where an
  uninterrupted one does.
  """
  return step == experiment.total_steps or is_out_of_patience(
      experiment, counters)
