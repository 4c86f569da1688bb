"""Hugging Face's models and ours compute the same, in both directions."""

import numpy as np
import pytest

import vit_jax

torch = pytest.importorskip('torch', reason='torch is not installed')
transformers = pytest.importorskip(
    'transformers', reason='transformers is not installed')

TINY = {'hidden_size': 24, 'num_hidden_layers': 2, 'num_attention_heads': 2,
        'intermediate_size': 48, 'image_size': 32, 'patch_size': 8}


def from_folder(kind, folder):
  """Returns the module of a folder that contains exactly its keys."""
  module, report = kind.from_pretrained(folder, output_loading_info=True)
  assert not any(report.values()), report
  return module


@pytest.mark.parametrize('settings', [
    {}, {'hidden_act': 'gelu_new'}, {'hidden_act': 'gelu_pytorch_tanh'},
    {'qkv_bias': False}, {'layer_norm_eps': 1e-3}, {'image_size': (16, 40)}],
    ids=lambda settings: ','.join(settings) or 'plain')
def test_a_classifier(settings, torch_models, tmp_path):
  kind = transformers.ViTForImageClassification
  theirs = torch_models.perturbed(kind(transformers.ViTConfig(
      **{**TINY, **settings}, num_labels=5)))
  images = torch_models.images(*settings.get('image_size', (32, 32)))
  expected = torch_models.logits(theirs, images)
  theirs.save_pretrained(tmp_path / 'x')
  ours = vit_jax.load(tmp_path / 'x', log=None)
  np.testing.assert_allclose(
      ours(images)['logits'], expected, rtol=1e-4, atol=1e-4)
  ours.save(tmp_path / 'out', form='huggingface')
  again = from_folder(kind, tmp_path / 'out')
  # 'gelu_new' is saved as another name with other rounding errors.
  np.testing.assert_allclose(
      torch_models.logits(again, images), expected, rtol=1e-5, atol=1e-6)


def test_a_model_without_a_head_has_the_same_pooler_and_tokens(
    torch_models, tmp_path):
  kind = transformers.ViTModel
  theirs = torch_models.perturbed(kind(transformers.ViTConfig(**TINY)))
  images = torch_models.images()
  expected = torch_models.outputs(theirs, images)
  theirs.save_pretrained(tmp_path / 'x')
  ours = vit_jax.load(tmp_path / 'x', log=None)
  found = ours(images)
  for name, array in (('tokens', expected.last_hidden_state),
                      ('representation', expected.pooler_output)):
    np.testing.assert_allclose(
        found[name], np.asarray(array), rtol=1e-4, atol=1e-4)
  ours.save(tmp_path / 'out', form='huggingface')
  again = torch_models.outputs(from_folder(kind, tmp_path / 'out'), images)
  assert torch.equal(again.pooler_output, expected.pooler_output)


def test_labels_and_preprocessing_are_loaded_and_saved(torch_models, tmp_path):
  labels = {0: 'cat', 1: 'dog', 2: 'eel'}
  theirs = transformers.ViTForImageClassification(transformers.ViTConfig(
      **TINY, id2label=labels, label2id={v: k for k, v in labels.items()}))
  theirs.save_pretrained(tmp_path / 'x')
  processor = transformers.ViTImageProcessor(
      size={'height': 32, 'width': 32}, image_mean=[0.1, 0.2, 0.3],
      image_std=[0.4, 0.5, 0.6], resample=3)
  processor.save_pretrained(tmp_path / 'x')
  ours = vit_jax.load(tmp_path / 'x', log=None)
  found = ours.preprocess
  assert (found.mean, found.std) == ((0.1, 0.2, 0.3), (0.4, 0.5, 0.6))
  assert (found.interpolation, found.labels) == (
      'bicubic', ('cat', 'dog', 'eel'))
  ours.save(tmp_path / 'out', form='huggingface')
  again = transformers.ViTImageProcessor.from_pretrained(tmp_path / 'out')
  for name in ('size', 'image_mean', 'image_std', 'resample'):
    assert getattr(again, name) == getattr(processor, name), name
  config = transformers.AutoConfig.from_pretrained(tmp_path / 'out')
  assert config.id2label == labels
