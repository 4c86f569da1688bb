"""Runs one experiment in one workdir.

  loop              restores, trains, evaluates, saves: start reading here
  restore           resumes a checkpoint, or initialises the state
  log_rows          metrics of log lines and of the summary
  unreadable_log    lists unreadable images
  workdir           writes the other files of a run
"""

from vit_jax.run.loop import IN_FLIGHT
from vit_jax.run.loop import train

__all__ = ['IN_FLIGHT', 'train']
