"""Helpers for comparisons with other libraries; each imports torch itself."""

import json
import types

import numpy as np
import pytest


def _images(height=32, width=32):
  return np.random.RandomState(0).uniform(
      -1, 1, (2, height, width, 3)).astype(np.float32)


def _outputs(module, images):
  import torch
  with torch.no_grad():
    return module.eval()(torch.from_numpy(images.transpose(0, 3, 1, 2).copy()))


def _logits(module, images):
  found = _outputs(module, images)
  return np.asarray(getattr(found, 'logits', found))


def _perturbed(module):
  """Adds noise, so that no parameter is zero or one."""
  import torch
  torch.manual_seed(0)
  with torch.no_grad():
    for parameter in module.parameters():
      parameter.add_(0.1 * torch.randn_like(parameter))
  return module


def _arrays(module):
  return {n: t.numpy() for n, t in module.state_dict().items()}


def _write(folder, arrays, name, arguments, **config):
  """Writes a folder as timm does."""
  from vit_jax.extras.zoo import safetensors
  folder.mkdir(exist_ok=True)
  safetensors.write(folder / 'model.safetensors', arrays)
  (folder / 'config.json').write_text(json.dumps(
      {'architecture': name, 'model_args': arguments, **config}))


def _rebuilt(ours, folder):
  """Returns the model that timm builds strictly from our saved folder."""
  import timm
  ours.save(folder, form='timm')
  return timm.create_model(f'local-dir:{folder}', pretrained=True)


def _assert_close(found, expected, tolerance=1e-5):
  """Compares with the standard deviation of what is expected."""
  found, expected = np.asarray(found), np.asarray(expected)
  assert found.shape == expected.shape
  assert np.abs(found - expected).max() <= tolerance * expected.std()


@pytest.fixture
def torch_models():
  return types.SimpleNamespace(
      images=_images, outputs=_outputs, logits=_logits, perturbed=_perturbed,
      arrays=_arrays, write=_write, rebuilt=_rebuilt,
      assert_close=_assert_close)
