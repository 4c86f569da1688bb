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


def test_a_folder_of_timm_is_opened(torch_models, tmp_path):
  pytest.importorskip('timm', reason='timm is not installed')
  ours = random_models.make({**random_models.TINY, 'gelu': 'exact'}, side=32)
  ours.save(tmp_path / 'x', form='timm')
  again = transformers.AutoModelForImageClassification.from_pretrained(
      tmp_path / 'x')
  images = torch_models.images()
  torch_models.assert_close(
      ours(images)['logits'], torch_models.logits(again, images))


TEXT = {'hidden_size': 16, 'intermediate_size': 16, 'num_hidden_layers': 1,
        'num_attention_heads': 2, 'vocab_size': 20, 'bos_token_id': 1,
        'eos_token_id': 2, 'max_position_embeddings': 8}
CLASSES = {**TINY, 'num_labels': 5}
TOWERS = {'vision_config': TINY, 'text_config': TEXT}
DINOV2 = {name: TINY[name] for name in TINY if name != 'intermediate_size'}
GATED = {'use_gated_mlp': True, 'hidden_act': 'silu', 'query_bias': False,
         'value_bias': False}

# The config by the name of the class.
FAMILIES = {
    'ViTForImageClassification': CLASSES, 'ViTModel': TINY,
    **{f'ViTForImageClassification, {name}': {**CLASSES, name: value}
       for name, value in (
           ('hidden_act', 'gelu_new'), ('qkv_bias', False),
           ('layer_norm_eps', 1e-3), ('image_size', (16, 40)))},
    'ViTForImageClassification, tanh': {
        **CLASSES, 'hidden_act': 'gelu_pytorch_tanh'},
    'BeitForImageClassification': {
        **CLASSES, 'use_relative_position_bias': True},
    'BeitModel, class token': {
        **TINY, 'use_shared_relative_position_bias': True,
        'use_mean_pooling': False, 'layer_scale_init_value': 0.0},
    'Data2VecVisionForImageClassification': {
        **CLASSES, 'use_relative_position_bias': True},
    'DeiTForImageClassificationWithTeacher': CLASSES,
    'Dinov2Model': DINOV2,
    'Dinov2Model, SwiGLU': {**DINOV2, 'use_swiglu_ffn': True},
    'Dinov2Model, no qkv bias': {**DINOV2, 'qkv_bias': False},
    'Dinov2ForImageClassification': {**DINOV2, 'num_labels': 5},
    'Dinov2WithRegistersModel': {**DINOV2, 'num_register_tokens': 3},
    'Dinov2WithRegistersForImageClassification': {
        **DINOV2, 'num_register_tokens': 3, 'num_labels': 5},
    'DINOv3ViTModel': {**TINY, 'num_register_tokens': 4},
    'DINOv3ViTModel, plus': {**TINY, **GATED, 'num_register_tokens': 4},
    'CLIPModel': {**TOWERS, 'projection_dim': 12},
    'CLIPVisionModel': {**TINY, 'hidden_act': 'gelu'},
    'CLIPVisionModelWithProjection': {**TINY, 'projection_dim': 12},
    'CLIPForImageClassification': {**TOWERS, 'num_labels': 5},
    'Tipsv2VisionModel': DINOV2,
    'Tipsv2VisionModel, So400m': {**DINOV2, 'mlp_ratio': 43 / 24},
    'Tipsv2VisionModel, SwiGLU': {**DINOV2, 'use_swiglu_ffn': True},
    'Tipsv2Model': {
        'vision_config': DINOV2, 'text_config': {**TEXT, 'hidden_size': 24}},
    'Aimv2VisionModel': {**TINY, 'use_head': False},
    'IJepaModel': TINY, 'IJepaForImageClassification': CLASSES,
    'PixioModel': DINOV2,
    'ViTMSNModel': TINY, 'ViTMSNForImageClassification': CLASSES,
    'MetaClip2Model': {**TOWERS, 'projection_dim': 12},
    'MetaClip2VisionModel': TINY,
    'MetaClip2ForImageClassification': {**TOWERS, 'num_labels': 5},
    'SiglipModel': TOWERS, 'SiglipVisionModel': TINY,
    'SiglipForImageClassification': {**TOWERS, 'num_labels': 5}}
OTHER_SIZES = (
    'ViTMSNForImageClassification', 'IJepaForImageClassification',
    'MetaClip2Model', 'Tipsv2VisionModel', 'Dinov2Model', 'PixioModel',
    'Dinov2WithRegistersModel')


def outputs(module, **inputs):
  """Returns logits, projected embeddings, the pooler's output or tokens."""
  if hasattr(module, 'get_image_features'):  # Of two towers.
    module.forward = module.get_image_features
  with torch.no_grad():
    found = module.eval()(**inputs)
  return next(np.asarray(found[name]) for name in (
      'logits', 'image_embeds', 'pooler_output', 'last_hidden_state')
              if name in found)


@pytest.mark.parametrize(('name', 'size'), [
    *((name, settings.get('image_size', 32))
      for name, settings in FAMILIES.items()),
    *((name, (40, 24)) for name in OTHER_SIZES)])
def test_a_family_computes_the_same(name, size, torch_models, tmp_path):
  kind = getattr(transformers, name.split(',')[0])
  theirs = torch_models.perturbed(kind(kind.config_class(**FAMILIES[name])))
  images = torch_models.images(*np.broadcast_to(size, 2))
  interpolates = size == (40, 24) and not name.startswith(
      ('Tips', 'Dino', 'Pixio'))  # They always do.
  expected = outputs(
      theirs, pixel_values=torch.from_numpy(
          images.transpose(0, 3, 1, 2).copy()),
      **({'interpolate_pos_encoding': True} if interpolates else {}))
  theirs.save_pretrained(tmp_path / 'x')
  ours = vit_jax.load(tmp_path / 'x', log=None)
  found = np.asarray(ours(images)[
      'logits' if ours.config.num_classes else
      'tokens' if expected.ndim == 3 else 'representation'])
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
  np.testing.assert_array_equal(again(images)['tokens'], ours(images)['tokens'])


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
  np.testing.assert_array_equal(np.asarray(ours), theirs.transpose(1, 2, 0))


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
