"""What the caller says is believed, unless it cannot be."""

import numpy as np
import pytest

from vit_jax import models
from vit_jax import tree
from vit_jax.weights import convert
from vit_jax.weights import names
from vit_jax.weights import npz
from vit_jax.weights import overrides
from vit_jax.weights import safetensors
from vit_jax.weights import write

TINY = {'width': 12, 'depth': 2, 'mlp_dim': 20, 'num_heads': 2, 'patch': 8,
        'num_classes': 5}


@pytest.fixture(scope='module')
def weights(tmp_path_factory):
  """A file of npz, which tells its heads, and one of timm, which does not."""
  folder = tmp_path_factory.mktemp('weights')
  shapes = tree.flatten(convert.abstract_params(models.parse(TINY), (32, 32)))
  params = {name: np.zeros(s.shape, np.float32) for name, s in shapes.items()}
  npz.write(folder / 'npz', write.to_arrays(names.FAMILIES['npz'], params))
  safetensors.write(
      folder / 'timm', write.to_arrays(names.FAMILIES['timm'], params))
  return folder


@pytest.mark.parametrize(('given', 'words'), [
    ({'num_head': 2}, "override 'num_head'. Did you mean 'num_heads'"),
    ({'mena': 0.5}, "Did you mean 'mean'"),
    ({'mean': (0.5, 0.5)}, 'mean must be one number, or three'),
    ({'std': [1, 1, 1, 1]}, 'std must be one number, or three'),
    ({'std': 'x'}, "std must be float, but is 'x'"),
    ({'std': 0}, 'std must be positive'),
    ({'crop': 2}, 'crop is a part of the image'),
    ({'labels': 'abcde'}, "labels must be a list, but is 'abcde'"),
    ({'resolution': 0}, 'number of pixels, or .height, width., but is 0'),
    ({'resolution': 'x'}, "but is 'x'"),
    ({'resolution': (32,)}, r'but is \(32,\)'),
    ({'resolution': (32, -8)}, r'but is \(32, -8\)'),
    ({'resolution': True}, 'but is True'),
    ({'num_heads': -2}, 'num_heads must be positive, but is -2'),
    ({'num_heads': 0}, 'num_heads must be positive, but is 0'),
    ({'num_heads': 'two'}, "num_heads must be int, but is 'two'"),
    ({'gelu': 'quick'}, "gelu is 'quick'.*Expected one of 'tanh', 'exact'"),
    ({'backbone': {'deph': (1,)}}, "Did you mean 'depths'"),
    ({'variant': 'Q/16'}, "model size 'Q'"),
    ({'variant': 'B/16', 'width': 64, 'patch': 16},
     r"variant='B/16' contradicts width=64 \(its own is 768\)"),
    ({'prefix': 3}, 'prefix must be text')])
def test_what_cannot_be_is_an_error_before_anything_is_read(given, words):
  with pytest.raises(ValueError, match=words):
    overrides.parse(given)


@pytest.mark.parametrize(('given', 'words'), [
    ({'variant': 'Ti/16'}, 'width: expected 192, found 12'),
    ({'variant': 'R50x1'}, "name: expected 'resnet', found 'vit'"),
    ({'num_heads': 4}, 'num_heads: expected 4, found 2'),
    ({'patch': 16}, 'patch: expected 16, found 8'),
    ({'num_classes': 3}, 'num_classes: expected 3, found 5'),
    ({'qkv_bias': False}, 'qkv_bias: expected False, found True'),
    ({'pooling': 'attention'}, "expected 'attention', found no learned query"),
    ({'layer_scale': 0.1}, 'layer_scale: expected 0.1, found none'),
    ({'position': 'none'}, "position: expected 'none', found 'learned'"),
    ({'backbone': {'depths': (3, 4, 9)}}, 'backbone: expected .* found None'),
    ({'labels': ['a', 'b']}, '2 labels, but the head has 5 classes'),
    ({'resolution': 30}, 'resolution: .*30x30 does not divide into patches')])
def test_what_arrays_deny_is_an_error(given, words, weights):
  with pytest.raises(ValueError, match=words):
    convert.read(weights / 'npz', given)


@pytest.mark.parametrize('heads', [5, 24])
def test_heads_must_divide_the_width(heads, weights):
  with pytest.raises(ValueError, match=f'does not divide into {heads} heads'):
    convert.read(weights / 'timm', {'num_heads': heads})


def test_one_number_stands_for_each_channel(weights):
  for mean in (0.25, [0.25], (0.25,) * 3):
    assert overrides.parse({'mean': mean}).preprocess['mean'] == (0.25,) * 3
  loaded = convert.read(weights / 'npz', {'std': [2], 'resolution': 64})
  assert loaded.preprocess.std == (2.0,) * 3
  # The positions stay what they are; images may be larger.
  assert loaded.resolution == (32, 32)
  assert loaded.preprocess.resolution == (64, 64)


def test_a_variant_tells_the_heads_that_arrays_do_not(tmp_path):
  config = models.parse({'variant': 'b/16', 'depth': 1, 'num_classes': 2})
  shapes = tree.flatten(convert.abstract_params(config, (32, 32)))
  safetensors.write(tmp_path / 'x', write.to_arrays(
      names.FAMILIES['timm'],
      {name: np.zeros(s.shape, np.float32) for name, s in shapes.items()}))
  # S/16 and b/16 differ in nothing else.
  given = {'depth': 1}
  assert convert.read(tmp_path / 'x', given).config.num_heads == 6
  with pytest.raises(ValueError, match="variant='b/16' contradicts depth=1"):
    convert.read(tmp_path / 'x', {'variant': 'b/16', **given})
  with pytest.raises(ValueError, match='depth: expected 12, found 1'):
    convert.read(tmp_path / 'x', {'variant': 'b/16'})
