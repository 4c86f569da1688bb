"""What is said beside the arrays is used where it is true, and only there."""

import json

import numpy as np
import pytest

from vit_jax import models
from vit_jax import records
from vit_jax import tree
from vit_jax.checkpoints import export
from vit_jax.checkpoints import formats
from vit_jax.interop import names
from vit_jax.interop import preprocess as preprocess_lib
from vit_jax.interop import safetensors

TINY = {'width': 12, 'depth': 2, 'mlp_dim': 20, 'num_heads': 2, 'patch': 8,
        'num_classes': 5}
PREPROCESS = preprocess_lib.Preprocess(
    resolution=(32, 32), mean=(0.1, 0.2, 0.3), crop=0.9, keep_aspect=True,
    labels=tuple('abcde'))


def make(**settings):
  """Returns a config, and parameters of which no two are alike."""
  config = models.parse({**TINY, **settings})
  shapes = tree.flatten(formats.abstract_params(config, (32, 32)))
  rng = np.random.default_rng(0)
  return config, {name: rng.normal(size=shape.shape).astype(np.float32)
                  for name, shape in shapes.items()}


def write_own(path, config, params, form='timm', **change):
  """Writes a file that says what it is; `change` makes it say otherwise."""
  said = {'model': {**records.to_plain(config), **change},
          'preprocess': records.to_plain(PREPROCESS)}
  safetensors.write(
      path, export.to_arrays(names.FAMILIES[form], params),
      metadata={'vit_jax': json.dumps(said)})


# ------------------------------------------------------- in the file itself


@pytest.mark.parametrize('form', ['timm', 'huggingface'])
@pytest.mark.parametrize('settings', [
    {'num_heads': 3, 'gelu': 'tanh', 'layer_norm_epsilon': 1e-4},
    {'dropout': 0.1, 'variant': 'B/16'}])
def test_a_file_that_says_what_it_is_comes_back_exactly(
    form, settings, tmp_path):
  config, params = make(**settings)
  write_own(tmp_path / 'x', config, params, form)
  loaded = formats.read(tmp_path / 'x')
  assert loaded.config == config
  assert loaded.preprocess == PREPROCESS
  assert 'with the file itself: ' in '\n'.join(loaded.statement)
  found = tree.flatten(loaded.params)
  assert set(found) == set(params)
  for name, array in params.items():
    np.testing.assert_array_equal(found[name], array, err_msg=name)
