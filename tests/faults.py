"""Kills a run of several processes at random moments, and compares its end.

    python -m tests.faults --kills=20 --seed=0

A run is trained once in peace. Then it is trained again, and again and again
one of its processes, or all at once, gets `kill -9`: while it starts, in a
step, in a save, in an evaluation. Who is left must end by itself. At the end
every array of the state and every row of metrics must be the same, bit for bit.
"""

import argparse
from collections.abc import Callable, Sequence
import dataclasses
import json
import os
import pathlib
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time

import numpy as np

ROOT = pathlib.Path(__file__).parents[1]

# Dropout and the crops draw random numbers; the average and the optimizer are
# state. A pass over the 360 test images is 18 batches.
CONFIG = """
from ml_collections import ConfigDict

def get_config():
  return ConfigDict({
      'total': {'steps': 40}, 'batch_size': 16, 'averaging': 0.9,
      'model': {'width': 8, 'depth': 1, 'num_heads': 2, 'mlp_dim': 16,
                'patch': 4, 'dropout': 0.1},
      'data': {'source': 'digits', 'resolution': 8,
               'train_ops': [{'op': 'inception_crop'}, {'op': 'flip'}]},
      'optimizer': {'name': 'adam', 'learning_rate': 1e-3,
                    'schedule': {'name': 'cosine', 'warmup': {'percent': 10}}},
      'evals': {'test': {'every': {'steps': 8}, 'batch_size': 20}},
      'log': {'every': {'steps': 2}},
      'checkpoint': {'every': {'steps': 5}, 'best': 'test/loss'},
  })
"""
# The heartbeat that finds who is halted, of which tests cannot wait a minute.
MAIN = """
import sys
sys.path.insert(0, sys.argv[1])
import main
from vit_jax.parallel import multihost
multihost.HEARTBEAT_SECS = 20
sys.exit(main.exit_code(sys.argv[2:]))
"""
# What depends on the time of day, not on the run.
MEASURED = ('images_per_sec', 'wait_share', 'device_hours', 'core_hours',
            'host_memory_bytes')
END_SECS = 900  # A heartbeat, and what a loaded machine adds.


@dataclasses.dataclass
class Ended:
  """How a launch ended: by process, its status and what it printed."""
  statuses: list[int]
  outputs: list[str]
  secs: float  # From the kill to the end of the last.


class Launch:
  """A run's processes on this machine, one device each."""

  def __init__(
      self, folder: pathlib.Path, workdir: pathlib.Path, *flags: str,
      processes: int = 2):
    """Starts them.

    Args:
      folder: for the config and the compile cache.
      workdir: of the run.
      *flags: more of the command's.
      processes: how many.
    """
    folder.mkdir(parents=True, exist_ok=True)
    workdir.mkdir(parents=True, exist_ok=True)
    (folder / 'toy.py').write_text(CONFIG)
    self.workdir = workdir
    environment = {
        **{name: value for name, value in os.environ.items()
           if name != 'XLA_FLAGS'},
        'JAX_PLATFORMS': 'cpu',
        'JAX_COMPILATION_CACHE_DIR': str(folder / 'cache')}
    address = f'localhost:{_free_port()}'
    self._files = [folder / f'{workdir.name}-{i}.txt' for i in range(processes)]
    self.processes = []
    for i, file in enumerate(self._files):
      with file.open('w') as output:
        self.processes.append(subprocess.Popen(
            [sys.executable, '-c', MAIN, str(ROOT),
             f'--config={folder}/toy.py', f'--workdir={workdir}', *flags,
             f'--coordinator={address}', f'--num-processes={processes}',
             f'--process-id={i}'],
            env=environment, stdout=output, stderr=subprocess.STDOUT))

  def is_over(self) -> bool:
    """Whether a process has ended."""
    return any(process.poll() is not None for process in self.processes)

  def until(self, reached: Callable[[], bool]) -> bool:
    """Waits; returns False if a process ended before."""
    end = time.monotonic() + END_SECS
    while not reached():
      if self.is_over():
        return False
      if time.monotonic() > end:
        self.send(signal.SIGKILL)
        raise TimeoutError(f'{self.workdir}: the moment never came.\n'
                           + '\n'.join(self.end().outputs))
      time.sleep(0.002)
    return True

  def send(self, signum: int, which: Sequence[int] | None = None) -> None:
    """Sends a signal to some processes, or to all."""
    for i, process in enumerate(self.processes):
      if which is None or i in which:
        process.send_signal(signum)

  def end(self) -> Ended:
    """Waits until all have ended."""
    start = time.monotonic()
    try:
      for process in self.processes:
        process.wait(timeout=END_SECS)
    except subprocess.TimeoutExpired:
      self.send(signal.SIGKILL)
      raise
    return Ended([process.returncode for process in self.processes],
                 [file.read_text() for file in self._files],
                 time.monotonic() - start)


def _free_port() -> int:
  with socket.socket() as opened:
    opened.bind(('localhost', 0))
    return opened.getsockname()[1]


def rows(workdir: pathlib.Path) -> list[dict]:
  """Returns the rows of metrics that are whole, without times."""
  try:
    lines = (workdir / 'metrics.jsonl').read_text().split('\n')[:-1]
  except FileNotFoundError:
    return []
  return [{name: value for name, value in json.loads(line).items()
           if name.split('/')[-1] not in MEASURED} for line in lines]


def last_step(workdir: pathlib.Path) -> int:
  """Returns the last step that is logged."""
  return max((row['step'] for row in rows(workdir)), default=0)


def is_saving(workdir: pathlib.Path) -> bool:
  """Whether a checkpoint is being written just now."""
  return any(workdir.glob('checkpoints/*/*tmp*'))


def is_evaluating(workdir: pathlib.Path) -> bool:
  """Whether the last step is logged and is to be evaluated."""
  written = rows(workdir)
  return bool(written) and written[-1]['step'] % 8 == 0 and (
      'train/loss' in written[-1])


def assert_same_end(workdir: pathlib.Path, other: pathlib.Path) -> int:
  """Compares two finished runs; returns the number of arrays compared."""
  states = [_arrays(folder) for folder in (workdir, other)]
  assert states[0].keys() == states[1].keys()
  different = [name for name, leaf in states[0].items()
               if leaf.tobytes() != states[1][name].tobytes()]
  assert different == []
  assert rows(workdir) == rows(other)
  counters = [_counters(folder) for folder in (workdir, other)]
  assert counters[0] == counters[1]
  return len(states[0])


def _arrays(workdir: pathlib.Path) -> dict[str, np.ndarray]:
  from vit_jax import tree
  from vit_jax.checkpoints import items
  from vit_jax.checkpoints import manager

  return {
      f'{which}/{item}/{name}': np.asarray(leaf)
      for which, kept in (
          (manager.LATEST, ('params', 'average', 'training')),
          (manager.BEST, ('params', 'average')))
      for path in [manager.find(workdir, which=which).path]
      for item in kept
      for name, leaf in tree.flatten(items.read_arrays(
          path / item, items.read_shapes(path / item))).items()}


def _counters(workdir: pathlib.Path) -> dict:
  from vit_jax.checkpoints import items
  from vit_jax.checkpoints import manager

  found = items.read_config(manager.find(workdir).path / 'progress')
  return {name: value for name, value in found.items()
          if 'secs' not in name and name != 'train'}


def main() -> None:
  """Runs the whole experiment and prints what came of it."""
  parser = argparse.ArgumentParser(description=(__doc__ or '').split('\n')[0])
  parser.add_argument('--kills', type=int, default=20)
  parser.add_argument('--seed', type=int, default=0)
  parser.add_argument('--processes', type=int, default=2)
  parser.add_argument('--folder', type=pathlib.Path)
  args = parser.parse_args()
  folder = args.folder or pathlib.Path(tempfile.mkdtemp())
  rng = random.Random(args.seed)
  total = 20 * args.kills  # More than the kills go on for.
  flags = (f'--config.total.steps={total}',)
  start = time.monotonic()
  launch = Launch(folder, folder / 'calm', *flags, processes=args.processes)
  launch.until(lambda: last_step(folder / 'calm') > 0)
  start_secs = time.monotonic() - start
  calm = launch.end()
  assert calm.statuses == [0] * args.processes, calm
  print(f'in peace: {total} steps in {time.monotonic() - start:.0f} s, the '
        f'first after {start_secs:.0f} s; kills in {folder}', flush=True)
  workdir, kills = folder / 'killed', 0
  while kills < args.kills:
    launch = Launch(folder, workdir, *flags, processes=args.processes)
    begun = time.monotonic()
    if rng.random() < 0.2:  # At any time of the start.
      moment = begun + rng.uniform(0, start_secs)
      came = launch.until(lambda at=moment: time.monotonic() > at)
    else:
      step = last_step(workdir) + rng.randrange(1, 16)
      came = launch.until(lambda at=step: last_step(workdir) >= at)
      time.sleep(rng.uniform(0, 0.2))
    where = ('in a save' if is_saving(workdir) else
             'in an evaluation' if is_evaluating(workdir) else
             'elsewhere')
    victims = rng.choice([[0], [args.processes - 1],
                          list(range(args.processes))])
    if came:
      launch.send(signal.SIGKILL, victims)
    ended = launch.end()
    if not came or all(status == 0 for status in ended.statuses):
      print(f'ended before the kill: {ended.statuses}', flush=True)
      if any(ended.statuses):
        raise RuntimeError('\n'.join(ended.outputs))
      raise RuntimeError(
          f'The run was over after {kills} kills: too few steps for more.')
    kills += 1
    assert 0 not in ended.statuses, ended
    print(f'kill {kills:2}: of {victims} at step {last_step(workdir):3}, '
          f'{where}; statuses {ended.statuses}, the last after '
          f'{ended.secs:.1f} s', flush=True)
  done = Launch(folder, workdir, *flags, processes=args.processes).end()
  assert done.statuses == [0] * args.processes, done
  arrays = assert_same_end(workdir, folder / 'calm')
  print(f'{kills} kills: {arrays} arrays and {len(rows(workdir))} rows are the '
        f'same bit for bit; {time.monotonic() - start:.0f} s in all')


if __name__ == '__main__':
  main()
