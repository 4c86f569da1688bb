"""One experiment in one workdir, from its start to its end.

  life      restored, trained, evaluated, saved: follow a run here
  starting  from its own checkpoint, from another's parameters, or anew
  judging   what evaluators say of it: the best checkpoint, and when it ends
  tallying  images that could not be read
  figures   rows of the log, and the summary
  workdir   the files of a run beside its checkpoints
"""

from vit_jax.run.loop import IN_FLIGHT
from vit_jax.run.loop import train
from vit_jax.run.restore import find_source

__all__ = ['IN_FLIGHT', 'find_source', 'train']
