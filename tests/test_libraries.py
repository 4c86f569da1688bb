"""timm's and Hugging Face's own models, where they are installed."""

import numpy as np
import pytest

import vit_jax
from vit_jax.interop import safetensors

torch = pytest.importorskip('torch', reason='torch is not installed')


def images():
  return np.random.RandomState(0).uniform(
      -1, 1, (2, 32, 32, 3)).astype(np.float32)


def logits(module):
  with torch.no_grad():
    found = module.eval()(torch.from_numpy(
        images().transpose(0, 3, 1, 2).copy()))
  return np.asarray(getattr(found, 'logits', found))


def shaken(module):
  """Returns the module with no parameter left at zero or one."""
  torch.manual_seed(0)
  with torch.no_grad():
    for parameter in module.parameters():
      parameter.add_(0.1 * torch.randn_like(parameter))
  return module


TINY = {'img_size': 32, 'patch_size': 8, 'embed_dim': 24, 'depth': 2,
        'num_heads': 2, 'num_classes': 5}


@pytest.mark.parametrize('settings', [
    {}, {'reg_tokens': 2}, {'global_pool': 'avg'}, {'qkv_bias': False},
    {'reg_tokens': 2, 'no_embed_class': True, 'init_values': 0.1},
    {'class_token': False, 'global_pool': 'avg', 'fc_norm': False},
    {'class_token': False, 'global_pool': 'map'}],
    ids=lambda settings: ','.join(settings) or 'plain')
def test_timm_and_we_compute_the_same_both_ways(settings, tmp_path):
  timm = pytest.importorskip('timm', reason='timm is not installed')
  theirs = shaken(timm.create_model(
      'vit_tiny_patch16_224', **TINY, **settings))
  arrays = {n: t.numpy() for n, t in theirs.state_dict().items()}
  safetensors.write(tmp_path / 'x', arrays)
  ours = vit_jax.load(tmp_path / 'x', log=None, num_heads=2)
  np.testing.assert_allclose(
      ours(images())['logits'], logits(theirs), rtol=1e-4, atol=1e-4)
  ours.save(tmp_path / 'out', form='timm')
  again = timm.create_model(f'local-dir:{tmp_path / "out"}', pretrained=True)
  assert set(again.state_dict()) == set(arrays)
  np.testing.assert_allclose(logits(again), logits(theirs), atol=1e-6)


def test_hugging_face_and_we_compute_the_same_both_ways(tmp_path):
  transformers = pytest.importorskip(
      'transformers', reason='transformers is not installed')
  theirs = shaken(transformers.ViTForImageClassification(
      transformers.ViTConfig(
          hidden_size=24, num_hidden_layers=2, num_attention_heads=2,
          intermediate_size=48, image_size=32, patch_size=8, num_labels=5)))
  theirs.save_pretrained(tmp_path / 'x')
  ours = vit_jax.load(tmp_path / 'x', log=None)
  np.testing.assert_allclose(
      ours(images())['logits'], logits(theirs), rtol=1e-4, atol=1e-4)
  ours.save(tmp_path / 'out', form='huggingface')
  again, report = transformers.ViTForImageClassification.from_pretrained(
      tmp_path / 'out', output_loading_info=True)
  assert not any(report.values())
  np.testing.assert_allclose(logits(again), logits(theirs), atol=1e-6)


def test_a_state_dict_is_read_and_a_program_is_not(tmp_path):
  weights = {'fc.weight': torch.ones(2)}
  torch.save({'model': weights}, tmp_path / 'x.pth')
  with pytest.raises(ValueError, match='not those of a family .*fc.weight'):
    vit_jax.load(tmp_path / 'x.pth')
  torch.save(torch.nn.Linear(2, 2), tmp_path / 'y.pth')
  with pytest.raises(ValueError, match='weights_only'):
    vit_jax.load(tmp_path / 'y.pth')
