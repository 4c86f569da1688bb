"""Disturbs a run of several processes at random moments.

    python -m tests.faults --faults=40 --processes=2

  kill  a lost host
  halt  a host that hangs (SIGSTOP)
  full  a full disk: all writes of a process to files fail (RLIMIT_FSIZE)

They happen in the start, a step, a save or an evaluation. The other processes
must end with the documented statuses, and so must a halted one when it
continues. At last, the run must end bit for bit like an undisturbed one.
"""

import argparse
from collections.abc import Callable, Sequence
import dataclasses
import os
import pathlib
import random
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time

import numpy as np

from tests import leaves
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
# Shorter limits than in a real run.
HEARTBEAT_SECS = 20
STALLED_SECS, HUNG_SECS = 6, 20
HUNG = (f'--config.log.stalled_secs={STALLED_SECS}',
        f'--config.log.hung_secs={HUNG_SECS}')
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
  secs: float  # Until the last process that was not halted ended.


class Launch:
  """Processes of main.py on this machine."""

  def __init__(
      self, workdir: pathlib.Path, *flags: str, processes: int = 2,
      devices: int = 1, last: Sequence[str] = (),
      heartbeat_secs: int = HEARTBEAT_SECS):
    """Starts the processes, with a cache beside the workdir.

    Args:
      workdir: the workdir, which all processes share.
      *flags: command and flags of all processes.
      processes: number of processes.
      devices: number of devices per process.
      last: more flags of the last process.
      heartbeat_secs: limit for the reports of a process.
    """
    self.workdir = workdir
    environment = {
        **os.environ, 'JAX_PLATFORMS': 'cpu',
        'JAX_NUM_CPU_DEVICES': str(devices),
        'JAX_COMPILATION_CACHE_DIR': str(workdir.parent / 'cache')}
    address = f'localhost:{toy.free_port()}'
    self.processes = {i: subprocess.Popen(
        [sys.executable, '-c', MAIN, str(ROOT), str(heartbeat_secs),
         *flags, f'--workdir={workdir}', f'--coordinator={address}',
         f'--num-processes={processes}', f'--process-id={i}',
         *(last if i == processes - 1 else ())], env=environment, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
                      for i in range(processes)}
    self._halted: set[int] = set()
    # Pipes, because a process on a full disk cannot write to files.
    self._outputs: dict[int, list[str]] = {i: [] for i in self.processes}
    self._readers = [
        threading.Thread(
            target=self._outputs[i].extend, args=[process.stdout], daemon=True)
        for i, process in self.processes.items()]
    for reader in self._readers:
      reader.start()

  def is_over(self) -> bool:
    """Whether a process has ended."""
    return any(p.poll() is not None for p in self.processes.values())

  def until(self, reached: Callable[[], bool]) -> bool:
    """Waits; returns False if a process ended before."""
    end = time.monotonic() + END_SECS
    while not reached():
      if self.is_over():
        return False
      if time.monotonic() > end:
        self.send(signal.SIGKILL)
        raise TimeoutError(f'{self.workdir}: no such moment.\n'
                           + '\n'.join(self.end().outputs))
      time.sleep(0.002)
    return True

  def send(self, signum: int, which: Sequence[int] | None = None) -> None:
    """Sends a signal to some processes, or to all."""
    for i, process in self.processes.items():
      if which is None or i in which:
        process.send_signal(signum)
        if signum == signal.SIGSTOP:
          self._halted.add(i)

  def fill_disk(self, which: Sequence[int]) -> None:
    """Makes all further writes of some processes to files fail."""
    for i in which:
      if self.processes[i].poll() is None:
        resource.prlimit(
            self.processes[i].pid, resource.RLIMIT_FSIZE, (1, 1))

  def end(self) -> Ended:
    """Waits until all have ended; halted processes continue last."""
    start = time.monotonic()
    try:
      for i, process in self.processes.items():
        if i not in self._halted:
          process.wait(timeout=END_SECS)
      secs = time.monotonic() - start
      self.send(signal.SIGCONT, list(self._halted))
      for process in self.processes.values():
        process.wait(timeout=END_SECS)
    except subprocess.TimeoutExpired:
      self.send(signal.SIGKILL)
      raise
    for reader in self._readers:
      reader.join()
    return Ended([process.returncode for process in self.processes.values()],
                 [''.join(lines) for lines in self._outputs.values()], secs)


def last_step(workdir: pathlib.Path) -> int:
  """Returns the last logged step."""
  return max((row['step'] for row in toy.rows(workdir)), default=0)


def is_saving(workdir: pathlib.Path) -> bool:
  """Whether a checkpoint is being written."""
  return any(workdir.glob('checkpoints/*/*tmp*'))


def is_evaluating(workdir: pathlib.Path) -> bool:
  """Whether the last logged step is being evaluated."""
  written = toy.rows(workdir)
  return bool(written) and written[-1]['step'] % 8 == 0 and (
      'train/loss' in written[-1])


def assert_documented(
    ended: Ended, *, expected: Sequence[int] = (), killed: Sequence[int] = (),
) -> None:
  """Asserts the status of each process after a fault.

  Args:
    ended: the processes.
    expected: statuses besides those of a lost process.
    killed: processes that were killed.
  """
  for i, status in enumerate(ended.statuses):
    assert status in (
        (-signal.SIGKILL,) if i in killed else (*LOST, *expected)), ended


def assert_same_end(workdir: pathlib.Path, other: pathlib.Path) -> int:
  """Compares two finished runs; returns the number of arrays compared."""
  states = [_arrays(folder) for folder in (workdir, other)]
  assert states[0].keys() == states[1].keys()
  different = [name for name, leaf in states[0].items()
               if leaf.tobytes() != states[1][name].tobytes()]
  assert different == []
  # As text, because NaN does not equal itself.
  assert repr(toy.rows(workdir)) == repr(toy.rows(other))
  counters = [_counters(folder) for folder in (workdir, other)]
  assert counters[0] == counters[1]
  return len(states[0])


def _arrays(workdir: pathlib.Path) -> dict[str, np.ndarray]:
  return {
      f'{which}/{item}/{name}': np.asarray(leaf)
      for which, kept in (
          (paths.LATEST, ('params', 'average', 'training')),
          (paths.BEST, ('params', 'average')))
      for path in [paths.find(workdir, which=which)]
      for item in kept if (path / item).exists()
      for name, leaf in tree.flatten(items.read_arrays(
          path / item, items.read_shapes(path / item))).items()}


def _counters(workdir: pathlib.Path) -> dict:
  found = items.read_config(paths.find(workdir) / 'progress')
  return {name: value for name, value in found.items()
          if 'secs' not in name and name != 'train'}


@dataclasses.dataclass
class Fault:
  """A fault: its name, what it does, and the start and end of the processes.

  Attributes:
    name: the name.
    action: disturbs the processes.
    flags: flags of the start.
    heartbeat_secs: limit of the start.
    killed: processes that are killed.
    expected: statuses besides those of a lost process.
  """
  name: str
  action: Callable[[Launch], None]
  flags: tuple[str, ...] = ()
  heartbeat_secs: int = HEARTBEAT_SECS
  killed: Sequence[int] = ()
  expected: tuple[int, ...] = ()


def draw(rng: random.Random, processes: int) -> Fault:
  """Draws a fault."""
  one, every = [rng.choice([0, processes - 1])], list(range(processes))

  def halt(launch: Launch) -> None:
    launch.send(signal.SIGSTOP, one)

  return rng.choice([
      Fault(f'kill of {one}', lambda launch: launch.send(signal.SIGKILL, one),
            killed=one),
      Fault('kill of all', lambda launch: launch.send(signal.SIGKILL),
            killed=every),
      # Found by the watchdog or by the heartbeat.
      Fault(f'halt of {one}', halt, HUNG, 10 * HUNG_SECS),
      Fault(f'halt of {one}', halt),
      Fault('full disk', lambda launch: launch.fill_disk(every),
            expected=(2,))])


def disturb(
    launch: Launch, fault: Fault, rng: random.Random, start_secs: float) -> str:
  """Disturbs a run at a random moment; returns a description."""
  workdir, begun, expected = launch.workdir, time.monotonic(), fault.expected
  before = last_step(workdir)
  if rng.random() < 0.2:  # During the start: others may wait to connect.
    expected = (*expected, 2)
    moment = begun + rng.uniform(0, start_secs)
    came = launch.until(lambda: time.monotonic() > moment
                        or last_step(workdir) > before)
  elif rng.random() < 0.4:
    came = launch.until(lambda: last_step(workdir) > before and is_saving(
        workdir))
    time.sleep(rng.choice([0, 0.01, 0.05]))
  else:
    step = before + rng.randrange(1, 16)
    came = launch.until(lambda: last_step(workdir) >= step)
    time.sleep(rng.uniform(0, 0.2))
  place = ('in a save' if is_saving(workdir) else
           'in an evaluation' if is_evaluating(workdir) else 'elsewhere')
  if came:
    fault.action(launch)
  ended = launch.end()
  if not came and 76 in ended.statuses:  # By the watchdog, on a loaded machine.
    return f'ended before the fault: statuses {ended.statuses}'
  assert came, ended  # Otherwise, the run has too few steps.
  assert_documented(ended, expected=expected, killed=fault.killed)
  return (f'at step {last_step(workdir):3}, {place}; statuses '
          f'{ended.statuses}, the last after {ended.secs:.1f} s')


def main() -> None:
  """Runs the experiment and prints the outcome."""
  parser = argparse.ArgumentParser(description=(__doc__ or '').split('\n')[0])
  parser.add_argument('--faults', type=int, default=40)
  parser.add_argument('--seed', type=int, default=0)
  parser.add_argument('--processes', type=int, default=2)
  parser.add_argument('--folder', type=pathlib.Path)
  args = parser.parse_args()
  folder = args.folder or pathlib.Path(tempfile.mkdtemp())
  folder.mkdir(parents=True, exist_ok=True)
  rng = random.Random(args.seed)
  total = 20 * args.faults  # More steps than the faults need.
  flags = (f'--config={toy.write(folder / "toy.py", **CONFIG)}',
           f'--config.total.steps={total}', f'--start-timeout={LATE_SECS}')
  start = time.monotonic()
  launch = Launch(folder / 'calm', *flags, processes=args.processes)
  launch.until(lambda: last_step(folder / 'calm') > 0)
  start_secs = time.monotonic() - start
  calm = launch.end()
  assert calm.statuses == [0] * args.processes, calm
  print(f'undisturbed: {total} steps in {time.monotonic() - start:.0f} s, the '
        f'first after {start_secs:.0f} s; all in {folder}', flush=True)
  workdir = folder / 'killed'
  for number in range(1, args.faults + 1):
    fault = draw(rng, args.processes)
    launch = Launch(workdir, *flags, *fault.flags, processes=args.processes,
                    heartbeat_secs=fault.heartbeat_secs)
    print(f'{number:2}: {fault.name} '
          f'{disturb(launch, fault, rng, start_secs)}', flush=True)
  done = Launch(workdir, *flags, processes=args.processes).end()
  assert done.statuses == [0] * args.processes, done
  arrays = assert_same_end(workdir, folder / 'calm')
  print(f'after {args.faults}: {arrays} arrays and {len(toy.rows(workdir))} '
        'rows are the same bit for bit; '
        f'{time.monotonic() - start:.0f} s in all')


if __name__ == '__main__':
  main()
