"""`main.py doctor`: is everything there, and which line installs what is not.

It must work where nothing else does, so it needs the standard library alone:
all that may be missing is imported inside the check that looks for it.
"""

import argparse
from collections.abc import Callable, Mapping, Sequence
import dataclasses
import glob
import importlib
import importlib.metadata
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import textwrap
from typing import Any, Literal

GIB = 2**30
MIN_PYTHON = (3, 11)
ROOT = pathlib.Path(__file__).parents[2]
# The first driver for CUDA 13; docs.nvidia.com/cuda/cuda-toolkit-release-notes.
CUDA_13_DRIVER = 580
# The part of a GPU's memory that JAX takes when it starts.
JAX_MEMORY_SHARE = 0.75
GOOGLE_PCI_VENDOR, NVIDIA_PCI_VENDOR = '0x1ae0', '0x10de'
# As in jax/_src/hardware_utils.py; other Google devices are network cards.
TPU_PCI_DEVICES = (
    '0x0027', '0x0056', '0x005e', '0x0062', '0x0063', '0x006f', '0x0076')

Status = Literal['ok', 'note', 'warning', 'error']
MARKS = {'ok': 'ok', 'note': '-', 'warning': 'WARN', 'error': 'FAIL'}
COLOURS = {'ok': 32, 'note': 2, 'warning': 33, 'error': 31}


@dataclasses.dataclass(frozen=True)
class Check:
  """One thing that was looked at.

  Attributes:
    name: the thing.
    found: what is there.
    status: 'error' if no training can start; 'warning' if one will be slow or
      may fail; 'note' for what is optional.
    remedy: what to do, as a line to copy where there is one.
  """
  name: str
  found: str
  status: Status = 'ok'
  remedy: str = ''


def add_arguments(parser: argparse.ArgumentParser) -> None:
  """Adds this command's flags: none beside --json, which all commands have."""
  del parser


def run(args: argparse.Namespace) -> int:
  """Prints the report; returns 0 if a training can start, else 1."""
  # Before JAX starts, as it takes most of a GPU's memory for itself.
  gpus = check_gpus(_run_nvidia_smi())
  packages = check_packages(_requirements())
  devices = check_devices()
  sections = {
      'Python': [check_python()],
      'Packages': packages,
      'Devices': devices + gpus + check_accelerators(
          backend=_backend(), has_gpu=_has_gpu(), has_tpu=_has_tpu(),
          has_libtpu=find_version('libtpu') is not None),
      'Host': check_host(),
      'Data': [check_tfds_dir(os.environ)],
      'Optional': check_optional(),
      'Environment': check_environment(os.environ),
  }
  can_train = not any(
      check.status == 'error' for checks in sections.values()
      for check in checks)
  print(render(sections, can_train=can_train, colour=sys.stdout.isatty()))
  if args.json:
    _write_json(args.json, {
        'can_train': can_train,
        **{name.lower(): [dataclasses.asdict(check) for check in checks]
           for name, checks in sections.items()}})
  return 0 if can_train else 1


def render(
    sections: Mapping[str, Sequence[Check]], *, can_train: bool, colour: bool,
) -> str:
  """Returns the report as text, 80 columns wide where the names allow."""
  lines = []
  for title, checks in sections.items():
    if checks:
      lines += ['', title]
    width = max((len(check.name) for check in checks), default=0)
    for check in checks:
      mark = f'{MARKS[check.status]:4}'
      if colour:
        mark = f'\033[{COLOURS[check.status]}m{mark}\033[0m'
      lines.append(f'  {mark}  {check.name:{width}}  {check.found}')
  open_ends = [
      check for status in ('error', 'warning', 'note')
      for checks in sections.values() for check in checks
      if check.status == status and check.remedy]
  if open_ends:
    lines += ['', 'What to do']
  remedies = dict.fromkeys(check.remedy for check in open_ends)
  for remedy in remedies:
    checks = [check for check in open_ends if check.remedy == remedy]
    worst = checks[0].status
    lines += textwrap.wrap(
        f'{MARKS[worst]} {", ".join(check.name for check in checks)}:',
        width=78, initial_indent='  ', subsequent_indent='    ')
    # Not wrapped: it may be a line to copy.
    lines += [f'      {line}' for line in remedy.splitlines()]
  lines += ['', 'Training can start.' if can_train
            else 'Training cannot start: mend what is marked FAIL.']
  return '\n'.join(lines[1:])


def check_python(
    version: tuple[int, ...] = tuple(sys.version_info[:3]),
) -> Check:
  """Checks the interpreter."""
  found = f'{".".join(map(str, version))}  {sys.executable}'
  if version < MIN_PYTHON:
    wanted = '.'.join(map(str, MIN_PYTHON))
    return Check('python', found, 'error',
                 f'Install Python {wanted} or newer, then: '
                 f'make quickstart PYTHON=python{wanted}')
  return Check('python', found)


def find_version(name: str) -> str | None:
  """Returns the version of an installed package, or None."""
  try:
    return importlib.metadata.version(name)
  except importlib.metadata.PackageNotFoundError:
    return None


def check_packages(
    requirements: Sequence[str],
    find: Callable[[str], str | None] = find_version,
) -> list[Check]:
  """Compares what is installed with lines such as 'jax>=0.10,<0.13'."""
  checks = []
  for requirement in requirements:
    name, wanted = _split_requirement(requirement)
    version = find(name)
    if version is None:
      checks.append(Check(
          name, f'missing, needs {wanted or "any version"}', 'error',
          _install_line()))
      continue
    found = f'{version:10} {wanted}'.rstrip()
    if _satisfies(version, wanted):
      checks.append(Check(name, found))
    elif _satisfies(version, _lower_bounds(wanted)):
      checks.append(Check(
          name, f'{found}  newer than what was tested', 'warning',
          _install_line()))
    else:
      checks.append(Check(
          name, f'{found}  too old', 'error', _install_line()))
  return checks


def check_devices() -> list[Check]:
  """Starts JAX, lists its devices and runs a convolution on the first."""
  try:
    import jax
    devices = jax.local_devices()
  except Exception as error:  # Whatever keeps JAX from starting is the answer.
    return [Check('jax', f'does not start: {_first_line(error)}', 'error',
                  _install_line())]
  checks = [Check(
      'backend', f'{jax.default_backend()}, {jax.device_count()} device(s), '
      f'{jax.process_count()} host(s)')]
  for device in devices:
    stats = device.memory_stats() or {}
    memory = ''
    if stats.get('bytes_limit'):
      memory = (f'  {stats["bytes_limit"] / GIB:.1f} GiB for JAX, '
                f'{stats.get("bytes_in_use", 0) / GIB:.1f} in use')
    checks.append(Check(
        f'{device.platform}:{device.id}', f'{device.device_kind}{memory}'))
  try:
    image, kernel = jax.numpy.ones((1, 3, 8, 8)), jax.numpy.ones((4, 3, 4, 4))
    jax.lax.conv(image, kernel, (4, 4), 'VALID').block_until_ready()
    checks.append(Check('convolution', 'runs'))
  except Exception as error:  # The device's own error types differ by backend.
    checks.append(Check(
        'convolution', f'fails: {_first_line(error)}', 'error',
        'On a GPU, "DNN library is not found" mostly means that its memory '
        'is\nfull: stop the other programs, which nvidia-smi lists, or:\n'
        'export XLA_CLIENT_MEM_FRACTION=0.5'))
  return checks


def check_gpus(nvidia_smi: str) -> list[Check]:
  """Reads nvidia-smi's rows: is each GPU's memory free, its driver new?

  Args:
    nvidia_smi: lines 'index, name, MiB in all, MiB in use, driver version'.
  """
  checks = []
  for line in nvidia_smi.strip().splitlines():
    try:
      index, name, *numbers, driver = [cell.strip() for cell in line.split(',')]
      total, used = (float(number) / 1024 for number in numbers)
    except ValueError:  # '[N/A]' on GPUs that share the host's memory.
      continue
    found = f'{name}, {used:.1f} of {total:.1f} GiB in use, driver {driver}'
    free_share = 1 - used / total
    if free_share < JAX_MEMORY_SHARE:
      checks.append(Check(
          f'gpu {index}', found, 'warning',
          f'JAX takes {JAX_MEMORY_SHARE:.0%} of the memory when it starts and '
          'fails with\n"DNN library is not found" or "out of memory" where '
          'that is not free.\nStop the other programs, which nvidia-smi lists, '
          'or:\n'
          'export XLA_CLIENT_MEM_FRACTION='
          f'{max(0.05, 0.9 * free_share):.2f}'))
    elif (int(driver.split('.')[0]) < CUDA_13_DRIVER
          and find_version('jax-cuda12-plugin') is None):
      checks.append(Check(
          f'gpu {index}', found, 'warning',
          f'The driver is older than {CUDA_13_DRIVER}, which CUDA 13 needs. '
          'Update it,\nor take CUDA 12:\n' + _install_line('"jax[cuda12]"')))
    else:
      checks.append(Check(f'gpu {index}', found))
  return checks


def check_accelerators(
    *, backend: str | None, has_gpu: bool, has_tpu: bool, has_libtpu: bool,
) -> list[Check]:
  """Tells of a GPU or TPU in the machine that JAX does not use.

  Args:
    backend: the platform that JAX runs on; None where it does not start.
    has_gpu: an NVIDIA GPU is in the machine.
    has_tpu: a TPU is in the machine.
    has_libtpu: the TPU's library is installed.
  """
  if backend in ('gpu', 'cuda', 'rocm', 'tpu'):
    return []
  if os.environ.get('JAX_PLATFORMS') == 'cpu' and (has_gpu or has_tpu):
    return [Check('accelerator', 'unused: JAX_PLATFORMS=cpu', 'note',
                  'unset JAX_PLATFORMS')]
  if has_tpu:
    remedy = ('Is another process using the TPU? It serves one at a time.'
              if has_libtpu else _install_line('-r requirements-tpu.txt'))
    return [Check('tpu', 'in the machine, but JAX does not use it', 'warning',
                  remedy)]
  if has_gpu:
    return [Check('gpu', 'in the machine, but JAX does not use it', 'warning',
                  _install_line('-r requirements-gpu.txt'))]
  return []


def check_host() -> list[Check]:
  """Lists cores, memory and disk."""
  disk = shutil.disk_usage('.')
  checks = [Check('cores', f'{len(os.sched_getaffinity(0))} usable'
                  if hasattr(os, 'sched_getaffinity')
                  else str(os.cpu_count()))]
  try:
    psutil = importlib.import_module('psutil')
    memory = psutil.virtual_memory()
    checks.append(Check(
        'memory', f'{memory.available / GIB:.1f} of {memory.total / GIB:.1f} '
        'GiB free', *_if(memory.available < 2 * GIB, 'The quickstart needs '
                         'about 2 GiB: stop other programs.')))
  except ImportError:
    pass  # Said among the packages.
  checks.append(Check(
      'disk', f'{disk.free / GIB:.1f} of {disk.total / GIB:.1f} GiB free in '
      f'{os.getcwd()}', *_if(disk.free < 2 * GIB, 'Checkpoints may not fit: '
                             'choose a --workdir on another disk.')))
  if os.path.isdir('/dev/shm'):
    shared = shutil.disk_usage('/dev/shm')
    checks.append(Check(
        'shared memory', f'{shared.free / GIB:.1f} of '
        f'{shared.total / GIB:.1f} GiB free',
        *_if(shared.free < GIB / 2, 'Worker processes pass images through '
             '/dev/shm. In Docker: docker run --shm-size=8g')))
  return checks


def check_tfds_dir(environ: Mapping[str, str]) -> Check:
  """Says which prepared data sets lie in TFDS's folder."""
  folder = pathlib.Path(
      environ.get('TFDS_DATA_DIR') or '~/tensorflow_datasets').expanduser()
  if not folder.is_dir():
    return Check(
        'TFDS folder', f'{folder} (not there)', 'note',
        'For TFDS data sets alone, and --config.data.data_dir goes before it:\n'
        'export TFDS_DATA_DIR=/path/to/tensorflow_datasets')
  names = sorted(
      path.name for path in folder.iterdir()
      if path.is_dir() and path.name not in ('downloads',))
  return Check('TFDS folder', f'{folder}: {", ".join(names) or "empty"}')


def check_optional() -> list[Check]:
  """Looks for what single tasks need, and no training does."""
  wanted = (
      ('tensorflow', ('tensorflow', 'tensorflow-cpu'),
       'prepares TFDS data sets', _install_line('tensorflow')),
      ('tensorboard', ('tensorboard',),
       'shows the curves of a run', _install_line('tensorboard')),
      ('torch', ('torch',), 'reads PyTorch checkpoints',
       _install_line('torch')),
  )
  checks = []
  for name, distributions, purpose, remedy in wanted:
    version = next(filter(None, map(find_version, distributions)), None)
    checks.append(
        Check(name, f'{version}  {purpose}') if version
        else Check(name, f'not installed; {purpose}', 'note', remedy))
  return checks


def check_environment(environ: Mapping[str, str]) -> list[Check]:
  """Lists the variables that change what JAX does."""
  return [
      Check(name, value, 'note') for name, value in sorted(environ.items())
      if name.startswith(('JAX_', 'XLA_', 'CUDA_VISIBLE', 'TPU_', 'LIBTPU'))]


def _requirements() -> list[str]:
  """Returns the lines of requirements.txt, or of the installed package."""
  path = ROOT / 'requirements.txt'
  if path.exists():
    lines = [line.split('#')[0].strip()
             for line in path.read_text().splitlines()]
    return [line for line in lines if line]
  return [line for line in importlib.metadata.requires('vit-jax') or []
          if 'extra ==' not in line]


def _split_requirement(requirement: str) -> tuple[str, str]:
  match = re.match(r'([\w.-]+)(?:\[[^]]*\])?\s*([^;]*)', requirement)
  assert match, requirement
  return match[1], match[2].strip()


def _lower_bounds(wanted: str) -> str:
  return ','.join(part for part in wanted.split(',')
                  if not part.strip().startswith(('<', '!')))


def _satisfies(version: str, wanted: str) -> bool:
  try:
    specifiers = importlib.import_module('packaging.specifiers')
  except ImportError:
    return True  # That packaging is missing is an error of its own.
  return specifiers.SpecifierSet(wanted).contains(version, prereleases=True)


def _install_line(what: str = '-r requirements.txt') -> str:
  """Returns the line that installs `what` for this very interpreter."""
  python = pathlib.Path(sys.executable)
  if python.is_relative_to(pathlib.Path.cwd()):
    python = python.relative_to(pathlib.Path.cwd())
  line = f'{python} -m pip install {what}'
  if not what.startswith('-r'):
    return line
  # The files named lie in the project's folder.
  enter = '' if pathlib.Path.cwd() == ROOT else f'cd {ROOT} && '
  return f'{enter}{line} -c constraints.txt'


def _backend() -> str | None:
  try:
    import jax
    return jax.default_backend()
  except Exception:  # `check_devices` has said why.
    return None


def _run_nvidia_smi() -> str:
  command = [
      'nvidia-smi', '--format=csv,noheader,nounits',
      '--query-gpu=index,name,memory.total,memory.used,driver_version']
  try:
    return subprocess.run(
        command, capture_output=True, text=True, timeout=20, check=True).stdout
  except (OSError, subprocess.SubprocessError):
    return ''  # No driver, or one that does not answer.


def _has_gpu() -> bool:
  return bool(glob.glob('/dev/nvidia[0-9]*')) or any(
      vendor == NVIDIA_PCI_VENDOR and kind.startswith('0x03')
      for vendor, _, kind in _pci_devices())


def _has_tpu() -> bool:
  return any(vendor == GOOGLE_PCI_VENDOR and device in TPU_PCI_DEVICES
             for vendor, device, _ in _pci_devices())


def _pci_devices() -> list[tuple[str, str, str]]:
  """Returns vendor, device and class of what sits on the machine's bus."""
  found = []
  for folder in pathlib.Path('/sys/bus/pci/devices').glob('*'):
    try:
      vendor, device, kind = (
          (folder / name).read_text().strip()
          for name in ('vendor', 'device', 'class'))
    except OSError:
      continue
    found.append((vendor, device, kind))
  return found


def _if(condition: bool, remedy: str) -> tuple[Status, str]:
  return ('warning', remedy) if condition else ('ok', '')


def _first_line(error: Exception) -> str:
  lines = str(error).splitlines() or [type(error).__name__]
  return textwrap.shorten(lines[0], 200)


def _write_json(path: str, report: Mapping[str, Any]) -> None:
  # A reader finds the old report or the new one, never half.
  new = pathlib.Path(f'{path}.new')
  new.parent.mkdir(parents=True, exist_ok=True)
  new.write_text(json.dumps(report, indent=2) + '\n')
  new.replace(path)
