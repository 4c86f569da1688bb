"""Shared fixtures, and eight CPU devices for all tests.

This file must not import vit_jax: pytest installs the import hook that checks
shape annotations after reading it.
"""

import dataclasses
import functools
import gc
from importlib import metadata
import os
import tempfile
import typing

# Before JAX starts. Tests do not use GPUs or TPUs.
os.environ['JAX_PLATFORMS'] = 'cpu'
# Compilation dominates the time of the tests: these flags make it five times as
# fast. XLA ends at an unknown flag, so newer versions get only the stable ones.
# Flags that the user sets, such as --xla_cpu_max_isa=AVX2, come last and take
# precedence. Subprocesses inherit all of them.
os.environ['XLA_FLAGS'] = ' '.join([
    '--xla_backend_optimization_level=0',
    '--xla_llvm_disable_expensive_passes=true',
    *(['--xla_cpu_use_fusion_emitters=false',
       '--xla_cpu_parallel_codegen_split_count=1']
      if metadata.version('jax').startswith('0.10.') else []),
    os.environ.get('XLA_FLAGS', '')])
# Workers and the commands that tests start share what they compile.
if 'JAX_COMPILATION_CACHE_DIR' not in os.environ:
  compiled = tempfile.TemporaryDirectory()
  os.environ.update({
      'JAX_COMPILATION_CACHE_DIR': compiled.name,
      'JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS': '0'})

import jax
import jaxtyping
import pytest

jax.config.update('jax_num_cpu_devices', 8)
# The default, 700 objects, collects garbage during a tenth of the tests' time.
gc.set_threshold(100_000, 20, 20)

jaxtyped = jaxtyping.jaxtyped


def names_axes(annotation):
  """Whether jaxtyping must check an annotation; it may also be a string."""
  return (isinstance(annotation, str)
          or type(annotation).__module__.startswith('jaxtyping.')
          or any(not isinstance(part, str) and names_axes(part)
                 for part in typing.get_args(annotation)))


def check_types(checked=None, *, typechecker):
  """Checks the types of calls of a function or dataclass, as `jaxtyped` does.

  `jaxtyped` also compares axes, for which it binds the arguments of each call
  twice. That took a third of the time of all tests, so functions that name no
  axes skip it. A function within a function would be decorated in each call of
  the outer one, which took a fifth, so it is checked only if it names axes.
  """
  if checked is None:
    return functools.partial(check_types, typechecker=typechecker)
  is_class = isinstance(checked, type)
  if is_class and not dataclasses.is_dataclass(checked):
    return checked
  function = checked.__init__ if is_class else checked
  annotations = getattr(function, '__annotations__', {})
  if not annotations:
    return checked
  if any(map(names_axes, annotations.values())):
    return jaxtyped(checked, typechecker=typechecker)
  if '<locals>' in function.__qualname__:
    return checked
  if not is_class:
    return typechecker(checked)
  checked.__init__ = typechecker(function)
  return checked


# The import hook decorates functions and classes with this name.
jaxtyping.jaxtyped = check_types


@pytest.fixture(scope='session', autouse=True)
def no_cluster():
  """Commands that run in this process find no cluster, as JAX has started."""
  def initialize(*_, **__):
    raise ValueError('coordinator_address should be defined.')
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(jax.distributed, 'initialize', initialize)
    yield


@pytest.fixture(scope='module', autouse=True)
def frozen_objects():
  """Excludes what libraries and earlier files keep from garbage collection.

  A run collects garbage before it measures free memory, which would take
  seconds with the traced functions that JAX keeps of all earlier files.
  """
  gc.collect()
  gc.freeze()


@pytest.fixture(scope='module')
def one_device():
  """Builds experiments for one device, which compiles sooner than for eight."""
  # Not before the import hook is installed.
  from vit_jax.experiment import build as build_lib
  build = functools.partial(build_lib.build, devices=jax.devices()[:1])
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(build_lib, 'build', build)
    yield


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup():
  """Skips a test that needs a leaf where that was deleted."""
  from tests import leaves
  with leaves.skip_deleted():
    return (yield)


pytest_runtest_call = pytest_runtest_setup


def pytest_collection_modifyitems(items):
  """Runs slow files first, which balances parallel workers."""
  slow = {item.path for item in items if item.get_closest_marker('slow')}
  items.sort(key=lambda item: item.path not in slow)  # Stable.
