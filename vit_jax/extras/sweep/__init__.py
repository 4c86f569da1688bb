"""Hyperparameter sweeps, as in Table 4 of arXiv 2010.11929.

    every point of a grid ─▶ the best one ─▶ trained on all data, seed by seed

Each point is trained on one part of the training split and evaluated on the
rest, the development split. The best one is then trained on the whole split
with several seeds and tested. Grid runs have no evaluator of the test split,
so the selection cannot depend on it.

A sweep with `tasks` selects, trains and tests for each of them separately, and
averages over them, as VTAB does.

  config             the section `sweep` of a config file
  grid               from a config file to the configs of all runs
  development_split  data, evaluators and metric of the grid runs
  sweep              grid, selection, final runs, `sweep.json`
  tasks              one sweep for each task, and the table of their results
  vtab               data of the 19 tasks of VTAB-1k
  soup               mean parameters of the grid runs
  report             tables and figure of a sweep
  runs               consecutive runs in WORKDIR/runs/NAME, resumable
"""
