"""Shows versions, devices and memory, and how to install what is missing.

Uses only the standard library, so that it runs where nothing is installed.
"""

import argparse
from collections.abc import Callable, Sequence
import dataclasses
import glob
import importlib.metadata
import itertools
import json
import os
import pathlib
import re
import shutil
import sys
from typing import Literal

GIB = 2**30
MIN_PYTHON = (3, 11)
ROOT = pathlib.Path(__file__).parents[2]
INSTALL = f'{sys.executable} -m pip install'
REQUIREMENTS = f'{INSTALL} -r {ROOT}/requirements.txt -c {ROOT}/constraints.txt'
OPTIONAL = {'tensorflow': 'prepares TFDS data sets',
            'tensorboard': 'shows the curves of a run',
            'torch': 'reads PyTorch checkpoints'}

Status = Literal['ok', 'note', 'WARN', 'FAIL']


@dataclasses.dataclass(frozen=True)
class Check:
  """One checked item; 'FAIL' if training cannot start without the remedy."""
  section: str
  name: str
  found: str
  status: Status = 'ok'
  remedy: str = ''


def add_arguments(parser: argparse.ArgumentParser) -> None:
  """Adds no flags besides the common --json."""


def run(args: argparse.Namespace) -> int:
  """Prints the report; returns 0 if training can start, else 1."""
  checks = [*check_packages(_requirements()),
            *check_devices(has_gpu=shutil.which('nvidia-smi') is not None),
            *check_host()]
  can_train = not any(check.status == 'FAIL' for check in checks)
  print(render(checks, can_train=can_train))
  if args.json:
    pathlib.Path(args.json).write_text(json.dumps({
        'can_train': can_train,
        'checks': [dataclasses.asdict(check) for check in checks]}, indent=2))
  return 0 if can_train else 1


def render(checks: Sequence[Check], *, can_train: bool) -> str:
  """Returns the report as text."""
  width = max(len(check.name) for check in checks)
  lines: list[str] = []
  for section, group in itertools.groupby(checks, lambda c: c.section):
    lines += [section, *(f'  {c.status:4}  {c.name:{width}}  {c.found}'
                         for c in group), '']
  remedies: dict[str, list[str]] = {}
  for check in checks:
    if check.remedy:
      remedies.setdefault(check.remedy, []).append(check.name)
  for remedy, names in remedies.items():
    lines.append(f'To fix {", ".join(names)}: {remedy}')
  return '\n'.join([*lines, 'Training can start.' if can_train else
                    'Training cannot start: fix what is marked FAIL.'])


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
  """Compares Python and packages with lines such as 'jax>=0.10,<0.13'."""
  version = '.'.join(map(str, sys.version_info[:3]))
  checks = [Check('Packages', 'python', f'{version}  {sys.executable}')]
  if sys.version_info < MIN_PYTHON:
    checks = [dataclasses.replace(
        checks[0], status='FAIL', remedy='make quickstart PYTHON=python3.11')]
  for requirement in requirements:
    match = re.match(r'([\w.-]+)(?:\[[^]]*\])?\s*([^;]*)', requirement)
    assert match, requirement
    name, wanted = match[1], match[2].strip()
    found = find(name)
    status: Status = (
        'FAIL' if not found else 'ok' if _satisfies(found, wanted) else 'WARN')
    checks.append(Check(
        'Packages', name, f'{found or "missing"}  {wanted}'.rstrip(), status,
        '' if status == 'ok' else REQUIREMENTS))
  for name, purpose in OPTIONAL.items():
    found = find(name)
    checks.append(Check(
        'Optional', name, f'{found or "not installed"}  {purpose}',
        'ok' if found else 'note', '' if found else f'{INSTALL} {name}'))
  return checks


def check_devices(has_gpu: bool) -> list[Check]:
  """Starts JAX, lists its devices and runs a convolution."""
  try:
    import jax
    checks = []
    for device in jax.local_devices():
      limit = (device.memory_stats() or {}).get('bytes_limit')
      memory = f'  {limit / GIB:.1f} GiB for JAX' if limit else ''
      checks.append(Check('Devices', f'{device.platform}:{device.id}',
                          f'{device.device_kind}{memory}'))
    image, kernel = jax.numpy.ones((1, 3, 8, 8)), jax.numpy.ones((4, 3, 4, 4))
    jax.lax.conv(image, kernel, (4, 4), 'VALID').block_until_ready()
  except Exception as error:  # Any failure to start is the result.
    remedy = ('Free the memory of the GPU, or export '
              'XLA_CLIENT_MEM_FRACTION=0.5' if has_gpu else REQUIREMENTS)
    return [Check('Devices', 'jax', 'fails: ' + str(error).splitlines()[0],
                  'FAIL', remedy)]
  checks.append(Check('Devices', 'convolution', 'runs'))
  has_tpu = bool(glob.glob('/dev/accel*') + glob.glob('/dev/vfio/[0-9]*'))
  return checks + [
      Check('Devices', name, 'present, but not used by JAX', 'WARN',
            f'unset JAX_PLATFORMS; {INSTALL} -r {ROOT}/requirements-{name}.txt')
      for name, exists in (('gpu', has_gpu), ('tpu', has_tpu))
      if exists and jax.default_backend() == 'cpu']


def check_host() -> list[Check]:
  """Lists cores, memory, disk space and relevant environment variables."""
  memory = os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / GIB
  checks = [Check('Host', 'cores', str(os.cpu_count())),
            Check('Host', 'memory', f'{memory:.1f} GiB')]
  for name, path, least, remedy in (
      ('disk', '.', 2.0, 'choose a --workdir on another disk'),
      ('shared memory', '/dev/shm', 0.5, 'docker run --shm-size=8g')):
    if os.path.isdir(path):
      free = shutil.disk_usage(path).free / GIB
      status: Status = 'WARN' if free < least else 'ok'
      checks.append(Check('Host', name, f'{free:.1f} GiB free', status,
                          remedy * (free < least)))
  return checks + [
      Check('Environment', name, value, 'note')
      for name, value in sorted(os.environ.items())
      if name.startswith(('JAX_', 'XLA_', 'CUDA_VISIBLE', 'TPU_', 'TFDS_'))]


def _requirements() -> list[str]:
  lines = (ROOT / 'requirements.txt').read_text().splitlines()
  return [text for line in lines if (text := line.split('#')[0].strip())]


def _satisfies(version: str, wanted: str) -> bool:
  try:
    from packaging import specifiers
  except ImportError:
    return True  # A missing `packaging` is reported itself.
  return specifiers.SpecifierSet(wanted).contains(version, prereleases=True)
