"""Many experiments in one folder, and settings chosen on held-out data.

    every point of a grid ─▶ the best ─▶ trained on all data, seed by seed

Table 4 of arXiv 2010.11929: each setting is trained on a part of the training
split and measured on the rest of it, the development split; the best is then
trained on the whole, several times, and tested. The runs of the grid have no
evaluator of the test split, so nothing can be chosen by it.

  section      what a config file says of it
  planning     a config file and its section `sweep` become the runs to make
  development  what a run of the grid sees, and is chosen by
  running      the whole: grid, choice, final runs, `sweep.json`
  runs         experiments one after the other; each is an ordinary one, in
               WORKDIR/runs/NAME: finished, it is not run again; stopped, it
               goes on where it was
"""

from vit_jax.sweep.config import SweepConfig
from vit_jax.sweep.grid import plan
from vit_jax.sweep.grid import Sweep
from vit_jax.sweep.runs import check_same
from vit_jax.sweep.runs import finished
from vit_jax.sweep.runs import RUNS
from vit_jax.sweep.runs import statistics
from vit_jax.sweep.runs import train
from vit_jax.sweep.runs import wire
from vit_jax.sweep.sweep import RESULT
from vit_jax.sweep.sweep import run

__all__ = [
    'RESULT',
    'RUNS',
    'Sweep',
    'SweepConfig',
    'check_same',
    'finished',
    'plan',
    'run',
    'statistics',
    'train',
    'wire',
]
