"""Shapes, product and rules of low-rank adapters."""

import re

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from vit_jax import tree
from vit_jax.extras.lora import adapters as lora
from vit_jax.models import factory
from vit_jax.models import lora_config
from vit_jax.parallel import sharding

CONFIG = lora_config.LoraConfig(rank=3, alpha=6.0)
ATTENTION = 'encoder/layers/attention'


@pytest.fixture(scope='module')
def boxed():
  config = factory.parse({'width': 8, 'depth': 2, 'num_heads': 2, 'mlp_dim': 12,
                         'patch': 4})
  return jax.jit(lambda: factory.init(
      factory.build(config, num_classes=5), jax.random.key(0),
      jnp.zeros((1, 8, 8, 3))))()


def test_merged_kernels_are_base_plus_scaled_product(boxed):
  config = lora_config.LoraConfig(
      rank=3, alpha=6.0, kernels=('encoder/.*kernel',))
  rng = np.random.default_rng(0)
  params = jax.tree.map(
      lambda x: rng.normal(size=x.shape).astype(np.float32),
      nn.unbox(jax.eval_shape(
          lambda: lora.init(config, jax.random.key(1), boxed))))
  flat, merged = tree.flatten(params), tree.flatten(
      jax.jit(lambda x: lora.merge(x, config))(params))
  assert lora.names(params) == [
      f'{ATTENTION}/out/kernel', f'{ATTENTION}/qkv_kernel',
      'encoder/layers/mlp/hidden/kernel', 'encoder/layers/mlp/out/kernel']
  products = {
      'qkv_kernel': 'ldkr,lkrhe->ldkhe', 'attention/out/kernel':
      'lher,lrd->lhed', 'hidden/kernel': 'ldr,lrm->ldm',
      'mlp/out/kernel': 'lmr,lrd->lmd'}
  for name, kernel in merged.items():
    equation = next((e for end, e in products.items()
                     if name.startswith('encoder') and name.endswith(end)), '')
    want = flat[name] if not equation else flat[name] + 2.0 * np.einsum(
        equation, flat[f'lora/{name}/a'], flat[f'lora/{name}/b'])
    np.testing.assert_allclose(kernel, want, atol=1e-5, err_msg=name)


def test_new_adapters_change_nothing_and_are_sharded_like_their_kernel(boxed):
  with_adapters = lora.init(CONFIG, jax.random.key(1), boxed)
  params = nn.unbox(with_adapters)
  jax.tree.map(np.testing.assert_array_equal, nn.unbox(boxed),
               lora.merge(params, CONFIG))
  a = params['lora']['encoder']['layers']['attention']['out']['kernel']['a']
  # Standard deviation 1 / sqrt(inputs).
  assert np.std(a) == pytest.approx(8**-0.5, rel=0.3)
  axes = sharding.axis_names(with_adapters)
  assert axes[f'lora/{ATTENTION}/qkv_kernel/a'] == (
      'layers', 'width', None, None)
  assert axes[f'lora/{ATTENTION}/qkv_kernel/b'] == (
      'layers', None, None, 'heads', 'head_dim')
  assert axes[f'lora/{ATTENTION}/out/kernel/b'] == ('layers', None, 'width')


@pytest.mark.parametrize(('kernels', 'words'), [
    ('encoder/kernel', "the rule 'encoder/kernel' matches no parameter"),
    ('head/dense/kernel', 'only kernels of the encoder can be adapted'),
    (f'{ATTENTION}/qkv_bias', 'only kernels of the encoder can be adapted')])
def test_rules_must_match_kernels_of_the_encoder(boxed, kernels, words):
  config = lora_config.LoraConfig(rank=2, kernels=(kernels,))
  with pytest.raises(ValueError, match=re.escape(words)):
    lora.init(config, jax.random.key(0), boxed)


@pytest.mark.parametrize('frozen', [('lora',), ('encoder', 'lora'), ()])
def test_kernels_must_be_frozen_and_adapters_trained(boxed, frozen):
  params = nn.unbox(lora.init(CONFIG, jax.random.key(1), boxed))
  with pytest.raises(ValueError, match='optimizer.frozen must match'):
    lora.check_frozen(tree.map_with_name(
        lambda name, _: name.split('/')[0] not in frozen, params), ())


@pytest.mark.parametrize(('added', 'new', 'words'), [
    ({}, ['head/.*'], 'head/dense/bias is new'),
    # Of a teacher whose outputs are stored.
    ({'projector': {'0': {'bias': 0}}}, [], 'projector/0/bias is new')])
def test_new_parameters_must_not_be_frozen(boxed, added, new, words):
  params = nn.unbox(lora.init(CONFIG, jax.random.key(1), boxed))
  with pytest.raises(ValueError, match=words):
    lora.check_frozen(tree.map_with_name(
        lambda name, _: name.startswith('lora/'), {**params, **added}), new)
