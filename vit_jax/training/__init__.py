"""The training step, its cost, and the log files of a run."""
