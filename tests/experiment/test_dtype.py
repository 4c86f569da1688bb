"""The dtype 'auto' follows the devices once; the run then keeps its own."""

import json
from unittest import mock

from etils import epath
import jax
import pytest

from tests import toy
from vit_jax import data
from vit_jax.experiment import build as build_lib
from vit_jax.experiment import complete
from vit_jax.experiment import config as config_lib
from vit_jax.experiment import evaluators as evaluators_lib
from vit_jax.run import workdir as workdir_lib


def completed_dtype(platform, **model):
  """Returns the dtype for devices of a platform, on a host with CPUs."""
  config = config_lib.resolve(toy.config(model=model))
  dataset = data.open_dataset(config.data)
  return complete.complete(
      config, dataset,
      evaluators_lib.opener(config, dataset, data_optional=False),
      [mock.Mock(spec=jax.Device, platform=platform)]).model.dtype


@pytest.mark.parametrize(('platform', 'expected'), [
    ('cpu', 'float32'), ('gpu', 'bfloat16'), ('tpu', 'bfloat16')])
def test_auto_follows_the_devices_of_the_experiment(platform, expected):
  assert completed_dtype(platform, dtype='auto') == expected
  assert completed_dtype(platform, dtype='float32') == 'float32'
  assert completed_dtype(platform, dtype='bfloat16') == 'bfloat16'


def test_the_fused_kernel_needs_bfloat16_on_any_device():
  assert completed_dtype('cpu', dtype='auto', attention='cudnn') == 'bfloat16'


@pytest.mark.parametrize(('dtype', 'kept'), [
    ('auto', 'bfloat16'), ('float32', 'float32')])
def test_a_run_keeps_its_dtype(dtype, kept, tmp_path):
  path = epath.Path(tmp_path) / workdir_lib.CONFIG
  assert workdir_lib.read(path) == {}
  path.write_text(json.dumps(config_lib.to_plain(config_lib.resolve(
      toy.config(model={'dtype': 'bfloat16'})))))
  experiment = build_lib.build(
      config_lib.resolve(toy.config(model={'dtype': dtype})),
      earlier=workdir_lib.read(path))
  assert experiment.config.model.dtype == experiment.model.config.dtype == kept
