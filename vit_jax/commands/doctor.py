"""Shows versions, devices and memory, and remedies for missing packages.

Uses only the standard library, so that it runs where nothing is installed.
"""

import argparse
from collections.abc import Callable, Sequence
import dataclasses
import glob
import importlib.metadata
import itertools
import os
import pathlib
import re
import shutil
import sys
from typing import Any, Literal

GIB = 2**30
ROOT = pathlib.Path(__file__).parents[2]
INSTALL = f'{sys.executable} -m pip install'
OPTIONAL = {'tensorflow': 'prepares TFDS datasets',
            'tensorboard': 'shows the curves of a run',
            'torch': 'reads PyTorch checkpoints'}


@dataclasses.dataclass(frozen=True)
class Check:
  """One checked item; 'FAIL' if training cannot start without the remedy."""
  section: str
  name: str
  found: str
  status: Literal['ok', 'note', 'WARN', 'FAIL'] = 'ok'
  remedy: str = ''


def add_arguments(parser: argparse.ArgumentParser) -> None:
  """Adds no flags besides the common --json."""


def run(args: argparse.Namespace) -> tuple[int, Any]:
  """Prints and returns the checks; the status is 0 if training can start."""
  checks = [*check_packages(find_requirements()),
            *check_devices(has_gpu=shutil.which('nvidia-smi') is not None),
            *check_host()]
  can_train = not any(check.status == 'FAIL' for check in checks)
  for section, group in itertools.groupby(checks, lambda c: c.section):
    print(section, *(f'  {check.status:4}  {check.name:19}  {check.found}'
                     for check in group), sep='\n')
  for remedy in dict.fromkeys(c.remedy for c in checks if c.remedy):
    fixed = [check for check in checks if check.remedy == remedy]
    verb = 'install' if all(c.status == 'note' for c in fixed) else 'fix'
    print(f'To {verb} {", ".join(c.name for c in fixed)}: {remedy}')
  print('Training can start.' if can_train else
        'Training cannot start: fix the items marked FAIL.')
  return int(not can_train), {
      'can_train': can_train,
      'checks': [dataclasses.asdict(check) for check in checks]}


def find_requirements() -> list[str]:
  """Returns the requirements of this checkout or installed package."""
  if _is_checkout():
    return (ROOT / 'requirements.txt').read_text().splitlines()
  return [line for line in importlib.metadata.requires('vit-jax') or ()
          if 'extra ==' not in line]


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
  too_old = sys.version_info < (3, 11)
  checks = [Check(
      'Packages', 'python', f'{sys.version.split()[0]}  {sys.executable}',
      'FAIL' if too_old else 'ok',
      'make quickstart PYTHON=python3.11' * too_old)]
  for requirement in requirements:
    match = re.match(r'([\w.-]+)(?:\[[^]]*\])?\s*([^;#]*)', requirement)
    if not match:  # A comment.
      continue
    name, wanted = match[1], match[2].strip()
    found = find(name)
    text = f'{found or "missing"}  {wanted}'.rstrip()
    checks.append(
        Check('Packages', name, text) if found and _satisfies(found, wanted)
        else Check('Packages', name, text, 'WARN' if found else 'FAIL',
                   _how_to_install('', f'{name}{wanted}')))
  return checks + [
      Check('Optional', name, f'{found}  {purpose}') if (found := find(name))
      else Check('Optional', name, f'not installed  {purpose}', 'note',
                 f'{INSTALL} {name}') for name, purpose in OPTIONAL.items()]


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
              'XLA_CLIENT_MEM_FRACTION=0.5' if has_gpu
              else _how_to_install('', 'jax[cpu]'))
    return [Check('Devices', 'jax', 'fails: ' + str(error).splitlines()[0],
                  'FAIL', remedy)]
  checks.append(Check('Devices', 'convolution', 'runs'))
  has_tpu = bool(glob.glob('/dev/accel*') + glob.glob('/dev/vfio/[0-9]*'))
  return checks + [
      Check('Devices', name, 'present, but not used by JAX', 'WARN',
            f'unset JAX_PLATFORMS; {_how_to_install(f"-{name}", package)}')
      for name, package, exists in (
          ('gpu', 'jax[cuda13]', has_gpu), ('tpu', 'jax[tpu]', has_tpu))
      if exists and jax.default_backend() == 'cpu']


def check_host() -> list[Check]:
  """Lists cores, memory, disk space and relevant environment variables."""
  memory = os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / GIB
  free = shutil.disk_usage('.').free / GIB
  checks = [
      Check('Host', 'cores', str(os.cpu_count())),
      Check('Host', 'memory', f'{memory:.1f} GiB'),
      Check('Host', 'disk', f'{free:.1f} GiB free') if free >= 2 else
      Check('Host', 'disk', f'{free:.1f} GiB free', 'WARN',
            'choose a --workdir on another disk')]
  return checks + [
      Check('Environment', name, value, 'note')
      for name, value in sorted(os.environ.items())
      if name.startswith(('JAX_', 'XLA_', 'CUDA_VISIBLE', 'TPU_', 'TFDS_'))]


def _is_checkout() -> bool:
  return (ROOT / 'requirements.txt').exists()


def _how_to_install(suffix: str, package: str) -> str:
  """Returns the command for a requirements file, or one package without it."""
  if not _is_checkout():
    return f"{INSTALL} '{package}'"
  constraints = f' -c {ROOT}/constraints.txt' * (not suffix)
  return f'{INSTALL} -r {ROOT}/requirements{suffix}.txt{constraints}'


def _satisfies(version: str, wanted: str) -> bool:
  try:
    from packaging import specifiers
  except ImportError:
    return True  # A missing `packaging` is reported itself.
  return specifiers.SpecifierSet(wanted).contains(version, prereleases=True)
