"""Small models with random weights."""

import dataclasses
import json

import flax.linen as nn
import jax
import numpy as np

from vit_jax import tree
from vit_jax.checkpoints import checksums
from vit_jax.data import preprocessing
from vit_jax.inference import load as load_lib
from vit_jax.inference import model as model_lib
from vit_jax.models import factory
from vit_jax.weights import check
from vit_jax.weights import published

# Differs from all published variants.
TINY = {'width': 12, 'depth': 2, 'mlp_dim': 20, 'num_heads': 2, 'patch': 8,
        'num_classes': 5}
HYBRID = {**TINY, 'name': 'hybrid', 'backbone': {'depths': (1, 2)}, 'patch': 1}
RESNET = {'name': 'resnet', 'num_classes': 5, 'backbone': {
    'depths': (1, 2), 'width': 32, 'preactivation': True}}


def params(config, resolution=(32, 32), *, channels=3, dtype=np.float32):
  """Returns parameters by name, all different."""
  shapes = tree.flatten(check.abstract_params(
      config, resolution, channels=channels))
  rng = np.random.default_rng(0)
  return {name: rng.normal(size=shape.shape).astype(dtype)
          for name, shape in shapes.items()}


def config_of(**settings):
  """Returns the config of a tiny ViT, or of another family or variant."""
  complete = {'name', 'variant'} & set(settings)
  return factory.parse(settings if complete else {**TINY, **settings})


def arrays(family, resolution=(32, 32), **settings):
  """Returns the arrays of a tiny model under published names."""
  return published.to_arrays(
      published.FAMILIES[family], params(config_of(**settings), resolution))


def shapes_of(module, images):
  """Returns the shapes of the parameters of a module."""
  return nn.unbox(jax.eval_shape(
      lambda: factory.init(module, jax.random.key(0), images)))


def randomize(module, images, *, scale, seed):
  """Returns random parameters of a module, as NumPy arrays."""
  rng = np.random.default_rng(seed)
  return jax.tree.map(lambda x: rng.normal(0, scale, x.shape).astype(
      np.float32), shapes_of(module, images))


def make(settings, *, side, **preprocess):
  """Returns a model with the section `model` and fields of `Preprocess`."""
  config = factory.parse(settings)
  resolution = (side, side) if isinstance(side, int) else side
  flat = params(config, resolution, channels=preprocess.get('channels', 3))
  return model_lib.Model.of(
      tree.unflatten(flat), config=config, resolution=resolution,
      preprocess=preprocessing.parse({'resolution': resolution, **preprocess}))


def make_tiny(**settings):
  """Returns a tiny model whose preprocessing differs from all defaults."""
  settings = settings if 'name' in settings else {**TINY, **settings}
  model = make(
      settings, side=32, mean=preprocessing.IMAGENET_MEAN,
      std=preprocessing.IMAGENET_STD, activation='sigmoid', ops=[
          {'op': 'resize', 'shorter': 40, 'method': 'bicubic',
           'rounding': 'torchvision'},
          {'op': 'central_crop', 'rounding': 'torchvision'}],
      labels=tuple('abcde')[:settings.get('num_classes')])
  return dataclasses.replace(model, positions='cubic')


def assert_same(found, expected):
  """Checks that two trees or flat dicts of arrays are bitwise identical."""
  found, expected = tree.flatten(found), tree.flatten(expected)
  assert set(found) == set(expected)
  for name, array in expected.items():
    got, array = np.asarray(found[name]), np.asarray(array)
    assert (got.dtype, got.tobytes()) == (array.dtype, array.tobytes()), name


def assert_close(found, expected, *, rtol=1e-4, atol=1e-6):
  """Checks that two trees have the same structure and close values."""
  assert jax.tree.structure(found) == jax.tree.structure(expected)
  found = tree.flatten(found)
  for name, array in tree.flatten(expected).items():
    np.testing.assert_allclose(
        found[name], array, rtol=rtol, atol=atol, err_msg=name)


def edit_config(step, edit):
  """Edits the config of a checkpoint with a function, and its checksum."""
  file, sums_file = (
      step / name / 'metadata' for name in ('config', 'checksums'))
  config, sums = (json.loads(f.read_text()) for f in (file, sums_file))
  edit(config)
  file.write_text(json.dumps(config))
  sums_file.write_text(json.dumps(
      {**sums, 'config': checksums.of_json(config)}))


def save_near_initial(path, **settings):
  """Saves a model for training, whose initial parameters have some noise."""
  model = load_lib.create(**settings)
  params = jax.tree.map(
      lambda x: x + 0.1 * np.random.default_rng(0).normal(
          size=x.shape).astype(x.dtype), model.params)
  model.with_params(params).save(path)
  return path
