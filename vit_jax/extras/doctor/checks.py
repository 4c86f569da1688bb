"""Checks of packages, devices and the host.

Uses only the standard library, so that it runs where nothing is installed.
"""

from collections.abc import Sequence
import glob
import importlib.metadata
import os
import pathlib
import re
import shutil
import sys
from typing import NamedTuple

GIB = 2**30
ROOT = pathlib.Path(__file__).parents[3]
INSTALL = f'{sys.executable} -m pip install'


class Check(NamedTuple):
  """A checked item; its status is 'ok', 'note', 'WARN' or 'FAIL'."""
  name: str
  found: str
  status: str = 'ok'
  remedy: str = ''


def run() -> list[Check]:
  """Returns all checks."""
  return [*check_packages(find_requirements()),
          *check_devices(has_gpu=shutil.which('nvidia-smi') is not None),
          *check_host()]


def find_requirements() -> list[str]:
  """Returns the requirements of this checkout or installed package."""
  if (ROOT / 'requirements.txt').exists():
    return (ROOT / 'requirements.txt').read_text().splitlines()
  return [line for line in importlib.metadata.requires('vit-jax') or ()
          if 'extra ==' not in line]


def check_packages(requirements: Sequence[str]) -> list[Check]:
  """Compares packages with requirements such as 'jax>=0.10,<0.13'."""
  checks = [Check('python', f'{sys.version.split()[0]}  {sys.executable}')]
  for requirement in requirements:
    match = re.match(r'([\w.-]+)(?:\[[^]]*\])?\s*([^;#]*)', requirement)
    if match:  # No comment.
      name, wanted = match[1], match[2].strip()
      found = next(iter(importlib.metadata.distributions(name=name)), None)
      version = found.version if found else None
      status = ('FAIL' if version is None else
                'ok' if _satisfies(version, wanted) else 'WARN')
      checks.append(Check(
          name, f'{version or "missing"}  {wanted}'.rstrip(), status,
          '' if status == 'ok' else _how_to_install('', f'{name}{wanted}')))
  return checks


def check_devices(has_gpu: bool) -> list[Check]:
  """Starts JAX, lists its devices and runs a convolution."""
  try:
    import jax
    checks = [Check(f'{device.platform}:{device.id}', device.device_kind)
              for device in jax.local_devices()]
    image, kernel = jax.numpy.ones((1, 3, 8, 8)), jax.numpy.ones((4, 3, 4, 4))
    jax.lax.conv(image, kernel, (4, 4), 'VALID').block_until_ready()
  except Exception as error:  # Any failure to start is the result.
    return [Check(
        'jax', 'fails: ' + (str(error) or repr(error)).splitlines()[0], 'FAIL',
        'Free the memory of the GPU, or export XLA_CLIENT_MEM_FRACTION=0.5'
        if has_gpu else _how_to_install('', 'jax[cpu]'))]
  checks.append(Check('convolution', 'runs'))
  return checks + [
      Check(name, 'present, but not used by JAX', 'WARN',
            f'unset JAX_PLATFORMS; {_how_to_install(name, package)}')
      for name, package, exists in (
          ('gpu', 'jax[cuda13]', has_gpu),
          ('tpu', 'jax[tpu]', _has_tpu()))
      if exists and jax.default_backend() == 'cpu']


def check_host() -> list[Check]:
  """Lists cores, memory, disk space and relevant environment variables."""
  memory = os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / GIB
  free = shutil.disk_usage('.').free / GIB
  full = ('WARN', 'choose a --workdir on another disk') if free < 2 else ()
  return [Check('cores', str(os.cpu_count())),
          Check('memory', f'{memory:.1f} GiB'),
          Check('disk', f'{free:.1f} GiB free', *full), *(
              Check(name, value, 'note')
              for name, value in sorted(os.environ.items()) if name.startswith(
                  ('JAX_', 'XLA_', 'CUDA_VISIBLE', 'TPU_', 'TFDS_')))]


def _how_to_install(extra: str, package: str) -> str:
  """Returns the command for an extra or all requirements, or one package."""
  if not (ROOT / 'requirements.txt').exists():
    return f"{INSTALL} '{package}'"
  if extra:
    return f"{INSTALL} --editable '{ROOT}[{extra}]'"
  versions = 'constraints-newest' if sys.version_info >= (3, 13) else (
      'constraints')  # As in the Makefile.
  return f'{INSTALL} -r {ROOT}/requirements.txt -c {ROOT}/{versions}.txt'


def _satisfies(version: str, wanted: str) -> bool:
  try:
    from packaging import specifiers
  except ImportError:
    return True  # A missing `packaging` has its own check.
  return specifiers.SpecifierSet(wanted).contains(version, prereleases=True)


def _has_tpu() -> bool:
  """Returns whether this process can see a TPU."""
  return bool(glob.glob('/dev/accel*') + glob.glob('/dev/vfio/[0-9]*'))
