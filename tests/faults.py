"""Disturbs a run of several processes at random moments.

    python -m tests.faults --faults=40

  kill  a lost host
  halt  a host that hangs (SIGSTOP)
  full  a full disk: all writes of a process to files fail (RLIMIT_FSIZE)

They happen in the start, a step, a save or an evaluation. The other processes
must end with the documented statuses, and so must a halted one when it
continues. At last, the run must end bit for bit like an undisturbed one.
"""

import argparse
from concurrent import futures
import dataclasses
import os
import pathlib
import random
import resource
import signal
import subprocess
import sys
import tempfile
import time

from tests import leaves
from tests import random_models
from tests import toy
from vit_jax import tree
from vit_jax.checkpoints import items
from vit_jax.checkpoints import paths
from vit_jax.parallel import coordination

ROOT = pathlib.Path(__file__).parents[1]

# All sources of randomness and all kinds of state. Sizes divide over 2, 3 and 4
# processes.
CONFIG = {
    'total': {'steps': 40}, 'batch_size': 24, 'accumulation': 2,
    'averaging': 0.9,
    'model': {'width': 12, 'depth': 2, 'mlp_dim': 24, 'dropout': 0.1,
              'attention_dropout': 0.1, 'stochastic_depth': 0.1},
    'data': {'mixup': leaves.MIXUP, 'cutmix': 5 * leaves.MIXUP, 'train_ops': [
        {'op': 'inception_crop'}, {'op': 'flip'}, {'op': 'pad_crop'}]},
    'optimizer': {'weight_decay': 0.1, 'clip_norm': 1.0,
                  'momentum_dtype': 'bfloat16', 'schedule': {
                      'name': 'cosine', 'warmup': {'percent': 10}}},
    'evals': {'test': {'every': {'steps': 8}, 'batch_size': 24}},
    'log': {'every': {'steps': 2}},
    'checkpoint': {'every': {'steps': 5}, 'keep': 2, 'best': 'test/loss'},
}
MAIN = """
import sys
sys.path.insert(0, sys.argv[1])
from vit_jax import __main__ as main
from vit_jax.parallel import processes
processes.HEARTBEAT_SECS = int(sys.argv[2])
sys.exit(main.exit_code(sys.argv[3:]))
"""
HEARTBEAT_SECS = 20  # Shorter than in a real run.
START_SECS = 20  # About the time to the first step.
LATE_SECS = 120  # For a process killed during its start.
END_SECS = 900  # Generous, for loaded machines.
# Statuses of processes that lost another one: ours, and that of JAX, which
# aborts them.
LOST = (coordination.LostError.exit_code, -signal.SIGABRT)


@dataclasses.dataclass
class Ended:
  """Exit status and output of each process."""
  statuses: list[int]
  outputs: list[str]


class Launch:
  """Processes of main.py on this machine, which share what they compile.

  `last` are more flags of the last process.
  """

  def __init__(self, workdir, *flags, processes=2, devices=1, last=()):
    self.workdir = workdir
    environment = {
        'JAX_COMPILATION_CACHE_DIR': str(workdir.parent / 'cache'),
        **os.environ, 'JAX_PLATFORMS': 'cpu',
        'JAX_NUM_CPU_DEVICES': str(devices)}
    address = f'localhost:{toy.free_port()}'
    self.processes = [subprocess.Popen(
        [sys.executable, '-c', MAIN, str(ROOT), str(HEARTBEAT_SECS),
         *flags, f'--workdir={workdir}', f'--coordinator={address}',
         f'--num-processes={processes}', f'--process-id={i}',
         *(last if i == processes - 1 else ())], env=environment, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
                      for i in range(processes)]
    self._halted = set()
    # Pipes, because a process on a full disk cannot write to files.
    pool = futures.ThreadPoolExecutor(processes)
    self._outputs = [
        pool.submit(process.stdout.read) for process in self.processes]

  def until(self, reached):
    """Waits; returns False if a process ended before."""
    end = time.monotonic() + END_SECS
    while not reached():
      if any(p.poll() is not None for p in self.processes):
        return False
      if time.monotonic() > end:
        self.send(signal.SIGKILL)
        raise TimeoutError(f'{self.workdir}: no such moment.\n'
                           + '\n'.join(self.end().outputs))
      time.sleep(0.002)
    return True

  def send(self, signum, which=None):
    """Sends a signal to some processes, or to all."""
    for i, process in enumerate(self.processes):
      if which is None or i in which:
        process.send_signal(signum)
        if signum == signal.SIGSTOP:
          self._halted.add(i)

  def end(self):
    """Waits until all have ended; halted processes continue last."""
    try:
      for i, process in enumerate(self.processes):
        if i not in self._halted:
          process.wait(timeout=END_SECS)
      self.send(signal.SIGCONT, self._halted)
      for process in self.processes:
        process.wait(timeout=END_SECS)
    except subprocess.TimeoutExpired:
      self.send(signal.SIGKILL)
      raise
    return Ended([process.returncode for process in self.processes],
                 [output.result() for output in self._outputs])


def last_step(workdir):
  """Returns the last logged step."""
  return max((row['step'] for row in toy.rows(workdir)), default=0)


def is_saving(workdir):
  """Whether a checkpoint is being written."""
  return any(workdir.glob('checkpoints/*/*tmp*'))


def assert_documented(ended, *, expected=(), killed=()):
  """Asserts statuses: of a lost process, or expected, or of killed ones."""
  for i, status in enumerate(ended.statuses):
    assert status in (
        (-signal.SIGKILL,) if i in killed else (*LOST, *expected)), ended


def assert_same_end(workdir, other):
  """Compares two finished runs; returns the number of arrays compared."""
  states = [_arrays(folder) for folder in (workdir, other)]
  random_models.assert_same(*states)
  # As text, because NaN does not equal itself.
  assert repr(toy.rows(workdir)) == repr(toy.rows(other))
  assert _counters(workdir) == _counters(other)
  return len(states[0])


def _arrays(workdir):
  return {
      f'{which}/{item}/{name}': leaf
      for which, kept in (
          (paths.LATEST, ('params', 'average', 'training')),
          (paths.BEST, ('params', 'average')))
      for path in [paths.find(workdir, which=which)]
      for item in kept if (path / item).exists()
      for name, leaf in tree.flatten(items.read_arrays(
          path / item, items.read_shapes(path / item))).items()}


def _counters(workdir):
  found = items.read_config(paths.find(workdir) / 'progress')
  return {name: value for name, value in found.items()
          if 'secs' not in name and name != 'train'}


# What may happen to a run, of which `one` process may be hit alone. Returns the
# processes that are killed.
def kill(launch, one):
  launch.send(signal.SIGKILL, [one])
  return [one]


def kill_all(launch, one):
  del one
  launch.send(signal.SIGKILL)
  return [0, 1]


def halt(launch, one):
  launch.send(signal.SIGSTOP, [one])
  return []


def fill_disk(launch, one):
  del one
  for process in launch.processes:
    if process.poll() is None:
      resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (1, 1))
  return []


def disturb(launch, fault, rng):
  """Disturbs a run at a random moment; returns the statuses as text."""
  workdir, before = launch.workdir, last_step(launch.workdir)
  moment = rng.choice(['start', 'save', 'step', 'step'])
  step = before + (0 if moment == 'start' else rng.randrange(1, 16))
  came = launch.until(lambda: last_step(workdir) >= step and (
      moment != 'save' or is_saving(workdir)))
  time.sleep(rng.uniform(0, START_SECS if moment == 'start' else 0.2))
  assert came, launch.end()  # Otherwise, the run has too few steps.
  killed = fault(launch, rng.choice([0, 1]))
  ended = launch.end()
  # 2 if the disk is full, or if a process waited in vain to connect.
  assert_documented(ended, expected=[2], killed=killed)
  return f'at step {last_step(workdir):3}; statuses {ended.statuses}'


def run(number, seed):
  """Disturbs a run `number` times, and compares it with an undisturbed one."""
  folder, rng = pathlib.Path(tempfile.mkdtemp()), random.Random(seed)
  flags = (f'--config={toy.write(folder / "toy.py", **CONFIG)}',
           # More than the faults need.
           f'--config.total.steps={20 * number}',
           f'--start-timeout={LATE_SECS}')
  calm = Launch(folder / 'calm', *flags).end()
  assert calm.statuses == [0, 0], calm
  for i in range(1, number + 1):
    fault = rng.choice([kill, kill_all, halt, fill_disk])
    print(f'{i:2}: {fault.__name__}', disturb(
        Launch(folder / 'killed', *flags), fault, rng), flush=True)
  done = Launch(folder / 'killed', *flags).end()
  assert done.statuses == [0, 0], done
  arrays = assert_same_end(folder / 'killed', folder / 'calm')
  assert arrays > 50  # Of parameters, their average and the optimizer.
  print(f'after {number}: {arrays} arrays are the same bit for bit')


if __name__ == '__main__':
  parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
  parser.add_argument('--faults', type=int, default=40)
  parser.add_argument('--seed', type=int, default=0)
  args = parser.parse_args()
  run(args.faults, args.seed)
