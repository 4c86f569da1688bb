"""Hugging Face's models and ours compute the same, in both directions."""

import numpy as np
from PIL import Image
import pytest

from tests import random_models
import vit_jax
from vit_jax.extras.zoo.configs import huggingface
from vit_jax.extras.zoo.configs import resize_and_crop
from vit_jax.inference import images as images_lib

torch = pytest.importorskip('torch', reason='torch is not installed')
transformers = pytest.importorskip(
    'transformers', reason='transformers is not installed')

TINY = {'hidden_size': 24, 'num_hidden_layers': 2, 'num_attention_heads': 2,
        'intermediate_size': 48, 'image_size': 32, 'patch_size': 8}


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
  torch_models.assert_close(ours(images)['logits'], expected)


def test_a_folder_of_timm_is_opened(torch_models, tmp_path):
  pytest.importorskip('timm', reason='timm is not installed')
  ours = random_models.make(
      {**random_models.TINY, 'gelu': 'exact'}, side=32)
  ours.save(tmp_path / 'x', form='timm')
  again = transformers.AutoModelForImageClassification.from_pretrained(
      tmp_path / 'x')
  images = torch_models.images()
  torch_models.assert_close(
      ours(images)['logits'], torch_models.logits(again, images))


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
    torch_models.assert_close(found[name], array)


TEXT = {'hidden_size': 16, 'intermediate_size': 16, 'num_hidden_layers': 1,
        'num_attention_heads': 2, 'vocab_size': 20, 'bos_token_id': 1,
        'eos_token_id': 2, 'max_position_embeddings': 8}
DINOV2 = {name: TINY[name] for name in TINY if name != 'intermediate_size'}
REGISTERS = {**DINOV2, 'num_register_tokens': 3}
GATED = {'use_gated_mlp': True, 'hidden_act': 'silu', 'query_bias': False,
         'value_bias': False}


def two_towers(kind, **settings):
  return kind, {'vision_config': TINY, 'text_config': TEXT, **settings}


# Name of the class, and its config.
FAMILIES = {
    'BeitForImageClassification': ('BeitConfig', {
        **TINY, 'use_relative_position_bias': True, 'num_labels': 5}),
    'BeitModel, class token': ('BeitConfig', {
        **TINY, 'use_shared_relative_position_bias': True,
        'use_mean_pooling': False, 'layer_scale_init_value': 0.0}),
    'Data2VecVisionForImageClassification': ('Data2VecVisionConfig', {
        **TINY, 'use_relative_position_bias': True, 'num_labels': 5}),
    'DeiTForImageClassificationWithTeacher': (
        'DeiTConfig', {**TINY, 'num_labels': 5}),
    'Dinov2Model': ('Dinov2Config', DINOV2),
    'Dinov2Model, SwiGLU': (
        'Dinov2Config', {**DINOV2, 'use_swiglu_ffn': True}),
    'Dinov2Model, no qkv bias': (
        'Dinov2Config', {**DINOV2, 'qkv_bias': False}),
    'Dinov2ForImageClassification': (
        'Dinov2Config', {**DINOV2, 'num_labels': 5}),
    'Dinov2WithRegistersModel': ('Dinov2WithRegistersConfig', REGISTERS),
    'Dinov2WithRegistersForImageClassification': (
        'Dinov2WithRegistersConfig', {**REGISTERS, 'num_labels': 5}),
    'DINOv3ViTModel': (
        'DINOv3ViTConfig', {**TINY, 'num_register_tokens': 4}),
    'DINOv3ViTModel, plus': (
        'DINOv3ViTConfig', {**TINY, **GATED, 'num_register_tokens': 4}),
    'CLIPModel': two_towers('CLIPConfig', projection_dim=12),
    'CLIPVisionModel': (
        'CLIPVisionConfig', {**TINY, 'hidden_act': 'gelu'}),
    'CLIPVisionModelWithProjection': (
        'CLIPVisionConfig', {**TINY, 'projection_dim': 12}),
    'CLIPForImageClassification': two_towers('CLIPConfig', num_labels=5),
    'Tipsv2VisionModel': ('Tipsv2VisionConfig', DINOV2),
    'Tipsv2VisionModel, So400m': ('Tipsv2VisionConfig', {
        **DINOV2, 'mlp_ratio': 43 / 24}),
    'Tipsv2VisionModel, SwiGLU': (
        'Tipsv2VisionConfig', {**DINOV2, 'use_swiglu_ffn': True}),
    'Tipsv2Model': ('Tipsv2Config', {'vision_config': DINOV2, 'text_config': {
        **TEXT, 'hidden_size': 24}}),
    'Aimv2VisionModel': ('Aimv2VisionConfig', {**TINY, 'use_head': False}),
    'IJepaModel': ('IJepaConfig', TINY),
    'IJepaForImageClassification': ('IJepaConfig', {**TINY, 'num_labels': 5}),
    'PixioModel': ('PixioConfig', DINOV2),
    'ViTMSNModel': ('ViTMSNConfig', TINY),
    'ViTMSNForImageClassification': (
        'ViTMSNConfig', {**TINY, 'num_labels': 5}),
    'MetaClip2Model': two_towers('MetaClip2Config', projection_dim=12),
    'MetaClip2VisionModel': ('MetaClip2VisionConfig', TINY),
    'MetaClip2ForImageClassification': two_towers(
        'MetaClip2Config', num_labels=5),
    'SiglipModel': two_towers('SiglipConfig'),
    'SiglipVisionModel': ('SiglipVisionConfig', TINY),
    'SiglipForImageClassification': two_towers('SiglipConfig', num_labels=5)}


def outputs(module, images, **options):
  """Returns logits, projected embeddings, the pooler's output or tokens."""
  if hasattr(module, 'get_image_features'):  # Of two towers.
    module.forward = module.get_image_features
  with torch.no_grad():
    found = module.eval()(pixel_values=torch.from_numpy(
        images.transpose(0, 3, 1, 2).copy()), **options)
  return next(np.asarray(found[name]) for name in (
      'logits', 'image_embeds', 'pooler_output', 'last_hidden_state')
              if name in found)


@pytest.mark.parametrize('name', FAMILIES)
def test_a_family_computes_the_same(name, torch_models, tmp_path):
  kind = getattr(transformers, name.split(',')[0])
  config, settings = FAMILIES[name]
  theirs = torch_models.perturbed(
      kind(getattr(transformers, config)(**settings)))
  images = torch_models.images()
  theirs.save_pretrained(tmp_path / 'x')
  expected = outputs(theirs, images)
  ours = vit_jax.load(tmp_path / 'x', log=None)
  found = np.asarray(ours(images)[
      'logits' if ours.config.num_classes else
      'tokens' if expected.ndim == 3 else 'representation'])
  torch_models.assert_close(found, expected)


@pytest.mark.parametrize('name', [
    'ViTMSNForImageClassification', 'IJepaForImageClassification',
    'MetaClip2Model', 'Tipsv2VisionModel', 'Dinov2Model', 'PixioModel',
    'Dinov2WithRegistersModel'])
def test_a_family_of_another_size_computes_the_same(
    name, torch_models, tmp_path):
  config, settings = FAMILIES[name]
  theirs = torch_models.perturbed(getattr(transformers, name)(
      getattr(transformers, config)(**settings)))
  theirs.save_pretrained(tmp_path / 'x')
  images = torch_models.images(40, 24)
  expected = outputs(theirs, images, **(
      {} if name.startswith(('Tips', 'Dino', 'Pixio'))
      else {'interpolate_pos_encoding': True}))
  ours = vit_jax.load(tmp_path / 'x', log=None)
  found = np.asarray(ours(images)[
      'logits' if ours.config.num_classes else 'representation'])
  torch_models.assert_close(found, expected)


@pytest.mark.parametrize('size', [(64, 64), (32, 32), (40, 24)])
def test_tokens_of_c_radio_are_the_same_at_any_size(
    size, torch_models, tmp_path):
  theirs = torch_models.perturbed(transformers.RadioModel(
      transformers.RadioConfig(**DINOV2, max_img_size=64, norm_mean=[0.1] * 3)))
  theirs.save_pretrained(tmp_path / 'x')
  ours = vit_jax.load(tmp_path / 'x', log=None, resolution=size)
  assert ours.preprocess.mean == (0.1,) * 3
  theirs.make_preprocessor_external()
  images = torch_models.images(*size)
  expected = torch_models.outputs(theirs, images).last_hidden_state
  torch_models.assert_close(ours(images)['tokens'], expected)
  ours.save(tmp_path / 'y', form='timm')
  again = vit_jax.load(tmp_path / 'y', log=None)
  np.testing.assert_array_equal(
      again(images)['tokens'], ours(images)['tokens'])


@pytest.mark.parametrize('margin', [1, 2, 3, 5, 7, 11])
def test_crops_have_the_offsets_of_transformers(margin):
  processor = transformers.CLIPImageProcessor(
      size={'shortest_edge': 8}, crop_size={'height': 8, 'width': 8},
      do_normalize=False, do_rescale=False)
  columns = np.tile(
      np.arange(8 + margin, dtype=np.uint8)[None, :, None], (8, 1, 3))
  theirs = processor(
      Image.fromarray(columns), return_tensors='np')['pixel_values'][0]
  ours = images_lib.resized(columns, resize_and_crop.parse(
      huggingface.parse_preprocessor(processor.to_dict())))
  np.testing.assert_array_equal(
      np.asarray(ours), theirs.transpose(1, 2, 0))


def test_labels_and_preprocessing_are_loaded(torch_models, tmp_path):
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
  assert found.sections[0]['method'] == 'bicubic'
  assert found.labels == ('cat', 'dog', 'eel')
