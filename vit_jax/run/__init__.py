"""Runs one experiment in one workdir.

  loop              restores, trains, evaluates, saves: start reading here
  stages            trains the stages of a config, each by `loop`
  restore           resumes a checkpoint, or initialises the state
  evaluation        evaluators that are due, best checkpoint, patience
  log_rows          metrics of log lines and of the summary
  unreadable_log    lists unreadable images
  workdir           writes the other files of a run
  writer            writes metrics, and passes them to trackers
  progress          shows them in a terminal
  evaluate_weights  evaluates weights outside of training
  watchdog          ends a run that makes no progress
  signals           stops a run at a safe point
  counters, clock   images, FLOPs and time of a run
"""

from etils import epy

# Lazily, so that the command line imports `signals` without JAX.
with epy.lazy_api_imports(globals()):
  from vit_jax.run.loop import train
