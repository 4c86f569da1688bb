"""All speeds on one GPU, in one command of ten minutes.

    python benchmarks/gpu.py --json=gpu.json --python timm=PYTHON \
        --cifar10=$HOME/tensorflow_datasets

Measures training and inference of ours, with variants, of plain Flax and timm,
products of the same shapes, training with input, and a run on CIFAR-10, in
order of importance until `--minutes` have passed. The file is written after
each measurement. The same command continues with what failed or is missing.

Each measurement is a process (`implementations.py`). Several compile at a time,
but while one is timed, all others are stopped. A process that fails, such as
one without timm, becomes an error in the table; one that ran out of memory
next to others is repeated alone.
"""

import argparse
from concurrent import futures
import contextlib
import datetime
import itertools
import json
import math
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.fspath(pathlib.Path(__file__).parents[1]))

from vit_jax import atomic_files
from vit_jax import console
from vit_jax.extras.plan import interleaved_timing
from vit_jax.models import factory

PROGRAM = pathlib.Path(__file__).parent / 'implementations.py'
OURS = 'ours'
CUDNN = 'ours attention=cudnn'
PLAIN = 'ours attention=plain'
NAMES = (CUDNN, PLAIN, 'timm-compiled', 'plain-flax', 'timm')
TASKS = ('train', 'inference')
CIFAR10_IMAGES = 50_000
# Batches that workers may have ready, each; not to be measured.
PREFETCHED = 8
NO_MEMORY = 'out of memory'
_NO_MEMORY = re.compile('RESOURCE_EXHAUSTED|[Oo]ut of memory')
_ERROR = re.compile(r'^\S*(?:Error|Exception)\b.*', re.MULTILINE)


def measurements(args):
  """Returns the settings of all measurements, the most important first.

  After the name of an implementation, `name` lists settings of `model`.
  """

  def row(name, task, model, batch_size, **more):
    return {'name': name, 'task': task, 'model': model,
            'batch_size': batch_size, 'resolution': args.resolution,
            'dtype': 'bfloat16', **more}

  pairs = list(itertools.product(TASKS, args.models.split(',')))
  first, *others = map(int, args.batch_sizes.split(','))
  rows = [row(name, *pair, first) for pair in pairs
          for name in ('matmul', *NAMES)]
  rows += [
      # Workers deliver batches in bursts: long rounds.
      row('ours-with-input attention=cudnn', 'train', pairs[-1][1], first,
          warm_up=PREFETCHED * (os.cpu_count() or 1),
          round_secs=5 * args.round_secs),
      row('cifar10', 'train', 'cifar10', CIFAR10_IMAGES * args.epochs,
          warm_up=0, epochs=args.epochs, data_dir=args.cifar10)]
  rows += [
      row(f'{CUDNN} {setting}', 'train', model, first)
      for _, model in pairs[:len(pairs) // 2] for setting in (
          'remat=none', 'remat=dots', 'remat=full',
          f'unroll={factory.parse({"variant": model}).depth}',
          f'remat=none unroll={factory.parse({"variant": model}).depth}')]
  rows += [row(name, *pair, size) for name in (*NAMES, 'matmul')
           for size in others for pair in pairs]
  return rows


def key(row):
  """Returns what identifies a measurement."""
  return tuple(row[name] for name in (
      'task', 'model', 'resolution', 'batch_size', 'name'))


def command_of(name, setting, pythons, overrides):
  """Returns the command of a process; `timm` also sets `timm-compiled`."""
  python = (pythons.get(name) or pythons.get(name.split('-')[0])
            or sys.executable)
  return [python, os.fspath(PROGRAM), name,
          json.dumps({**setting, 'overrides': overrides})]


class Machine:
  """Runs processes, of which one is timed at a time.

  Attributes:
    deadline: `time.monotonic()` at which all processes are killed.
    timing: lock of the process that is timed; others do not start meanwhile.
  """

  def __init__(self, deadline):
    self.deadline = deadline
    self.timing = threading.Lock()
    self._processes = set()

  @contextlib.contextmanager
  def start(self, command, *, log, limit_secs):
    """Yields a process, which is killed at the end or at a limit."""
    with self.timing:
      process = subprocess.Popen(
          command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log,
          text=True, start_new_session=True)
      self._processes.add(process)
    timer = threading.Timer(
        max(0, min(limit_secs, self.deadline - time.monotonic())),
        _send, (process, signal.SIGKILL))
    timer.start()
    try:
      yield process
    finally:
      timer.cancel()
      _send(process, signal.SIGKILL)
      process.wait()
      process.stdout.close()
      with contextlib.suppress(BrokenPipeError):
        process.stdin.close()
      self._processes.discard(process)

  @contextlib.contextmanager
  def others_stopped(self, process):
    """Stops the other processes; requires `timing`."""
    others = self._processes - {process}
    for other in others:
      _send(other, signal.SIGSTOP)
    try:
      yield
    finally:
      for other in others:
        _send(other, signal.SIGCONT)

  def stop(self):
    """Kills all processes and starts no more."""
    self.deadline = 0
    for process in list(self._processes):
      _send(process, signal.SIGKILL)


def _send(process, number):
  """Sends a signal to a process and its children, if it still runs."""
  with contextlib.suppress(ProcessLookupError):
    os.killpg(process.pid, number)


def measure(machine, setting, *, args):
  """Returns the setting with its figures, or with `error`."""
  if time.monotonic() > machine.deadline:
    return {**setting, 'error': 'not measured: no time left'}
  if setting['name'] == 'cifar10' and not setting['data_dir']:
    return {**setting, 'error': 'not measured: needs --cifar10=DIR'}
  name, *words = setting['name'].split()
  command = command_of(
      name, {**setting, 'folder': tempfile.mkdtemp(dir=args.folder)},
      dict(text.split('=', 1) for text in args.python),
      [f'model.{word}' for word in words] + args.set)
  start = time.monotonic()
  with tempfile.TemporaryFile('w+') as log:
    try:
      with machine.start(
          command, log=log, limit_secs=args.limit_secs) as process:
        return {**setting, **_time(machine, process, setting, args=args)}
    except EOFError:
      log.seek(0)
      text = log.read()
  secs = time.monotonic() - start
  if time.monotonic() > machine.deadline or secs > args.limit_secs:
    error = f'stopped after {secs:.0f} s'
  elif _NO_MEMORY.search(text):
    error = NO_MEMORY
  else:
    error = (_ERROR.findall(text) or text.strip().splitlines()
             or ['no output'])[-1][:200]
  return {**setting, 'error': error, 'log': text[-5000:]}


def _time(machine, process, setting, *, args):
  """Returns the figures of a process."""

  def ask(count):
    with contextlib.suppress(BrokenPipeError):
      process.stdin.write(f'{count}\n')
      process.stdin.flush()
    line = process.stdout.readline()
    if not line:
      raise EOFError
    return json.loads(line)

  ask(0)  # Compiles.
  rates = []
  with machine.timing:
    if warm_up := setting.get('warm_up', 1):
      ask(warm_up)
    with machine.others_stopped(process):
      count, rounds = 1, args.rounds if warm_up else 1
      if warm_up:
        begin = time.perf_counter()
        ask(1)
        count = math.ceil(setting.get('round_secs', args.round_secs)
                          / (time.perf_counter() - begin))
      for _ in range(rounds):
        begin = time.perf_counter()
        answer = ask(count)
        rates.append(answer['images'] / (time.perf_counter() - begin))
  spread = interleaved_timing.spread(rates)
  return {'images_per_sec': spread.median, 'lowest': spread.lowest,
          'highest': spread.highest, **answer, **ask(0)}


def show(rows):
  """Prints a table per task and model, the fastest first.

  *Ours / this* compares with our fastest batch and variant.
  """
  for task, model in dict.fromkeys(
      (row['task'], row['model']) for row in rows):
    same = [row for row in rows if (row['task'], row['model']) == (task, model)]
    done = [row for row in same if 'error' not in row]
    done.sort(key=lambda row: -row['images_per_sec'])
    flops = next((row['flops_per_image'] for row in done
                  if row['name'].startswith(OURS)), None)
    products = max((_flops_per_sec(row, None) for row in done
                    if row['name'] == 'matmul'), default=None)
    best = max((row['images_per_sec'] for row in done
                if row['name'].split()[0] == OURS), default=None)
    cells = []
    for row in done:
      rate = _flops_per_sec(row, flops)
      cells.append((
          row['name'], row['batch_size'], row['images_per_sec'],
          rate and rate / 1e12,
          f'{100 * rate / products:.0f} %' if rate and products else None,
          f'{best / row["images_per_sec"]:.2f}' if best else None,
          (row.get('peak_bytes') or 0) / 1e9 or None))
    device = next((row['device'] for row in done if row.get('device')), '')
    console.table(f'{task}, {model}, {device}', (
        'implementation', 'batch', 'images/s', 'TFLOP/s', 'of matmul',
        'ours / this', 'GB'), cells)
    for row in same:
      if 'error' in row:
        print(f'{row["name"]}, batch {row["batch_size"]}: {row["error"]}')
      elif 'accuracy' in row:
        print(f'{row["epochs"]} epochs: accuracy '
              f'{100 * row["accuracy"]:.2f} % in '
              f'{row["images"] / row["images_per_sec"]:.0f} s')


def _flops_per_sec(row, default):
  flops = row.get('flops_per_image', default)
  return flops and flops * row['images_per_sec']


def parser():
  """Returns the parser of the flags."""
  flags = argparse.ArgumentParser(description=__doc__.split('\n')[0])
  flags.add_argument('--json', required=True, help='results; continued')
  flags.add_argument('--python', action='append', default=[],
                     metavar='NAME=PYTHON', help='Python interpreter to use')
  flags.add_argument('--cifar10', default='', metavar='DIR',
                     help='TFDS directory with cifar10')
  flags.add_argument('--minutes', type=float, default=9.5)
  flags.add_argument('--limit-secs', type=float, default=300,
                     help='limit of one measurement')
  flags.add_argument('--jobs', type=int, help='processes at a time',
                     default=max(1, (os.cpu_count() or 1) // 2))
  flags.add_argument('--only', default='', metavar='REGEX',
                     help='measure only these, such as "train L/16 224 128"')
  flags.add_argument('--models', default='L/16,B/16')
  flags.add_argument('--batch-sizes', default='128,256,64')
  flags.add_argument('--resolution', type=int, default=224)
  flags.add_argument('--epochs', type=int, default=20, help='of CIFAR-10')
  flags.add_argument('--rounds', type=int, default=3)
  flags.add_argument('--round-secs', type=float, default=0.7)
  flags.add_argument('--set', action='append', default=[], metavar='KEY=VALUE',
                     help='change a value of our configs')
  return flags


def main(argv):
  """Measures, prints the tables and returns the exit status."""
  args = parser().parse_args(argv)
  machine = Machine(time.monotonic() + 60 * args.minutes)
  path = pathlib.Path(args.json)
  found = {}
  if path.exists():
    found = {key(row): row for row in json.loads(path.read_text())['rows']}

  def save(row):
    found[key(row)] = row
    print(*key(row), row.get('error') or f'{row["images_per_sec"]:,.1f} '
          'images/s', flush=True)
    atomic_files.write_json(path, {
        'date': datetime.date.today().isoformat(), 'cpu_cores': os.cpu_count(),
        'rows': list(found.values())})

  def run(rows, jobs):
    with futures.ThreadPoolExecutor(jobs) as pool:
      try:
        for done in futures.as_completed([
            pool.submit(measure, machine, row, args=args) for row in rows]):
          save(done.result())
      except BaseException:
        machine.stop()
        raise

  rows = [row for row in measurements(args)
          if re.search(args.only, ' '.join(map(str, key(row))))]
  with tempfile.TemporaryDirectory() as args.folder:
    os.environ.setdefault(
        'JAX_COMPILATION_CACHE_DIR', os.path.join(args.folder, 'cache'))
    run([row for row in rows if 'error' in found.get(key(row), {'error': ''})],
        args.jobs)
    if args.jobs > 1:
      run([row for row in rows if found[key(row)].get('error') == NO_MEMORY], 1)
  show([found[key(row)] for row in rows])
  return 0


if __name__ == '__main__':
  sys.exit(main(sys.argv[1:]))
