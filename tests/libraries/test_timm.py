"""timm's models and ours compute the same logits, in both directions."""

import functools

import numpy as np
from PIL import Image
import pytest

import vit_jax
from vit_jax import tree
from vit_jax.data import preprocessing as preprocessing_lib
from vit_jax.extras.zoo import backbone_config
from vit_jax.extras.zoo import safetensors
from vit_jax.extras.zoo import save as save_lib
from vit_jax.extras.zoo import timm_names
from vit_jax.extras.zoo.configs import resize_and_crop
from vit_jax.extras.zoo.configs import timm as timm_config
from vit_jax.inference import images as images_lib

torch = pytest.importorskip('torch', reason='torch is not installed')
timm = pytest.importorskip('timm', reason='timm is not installed')

TABLE = {'rel_pos_type': 'bias', 'shared_rel_pos': True}
TINY = {'img_size': 32, 'patch_size': 8, 'embed_dim': 24, 'depth': 2,
        'num_heads': 2, 'num_classes': 5}


def check_both_ways(
    theirs, torch_models, tmp_path, *, size=(32, 32), tolerance=1e-5,
    rebuilt=True, **overrides):
  """Compares outputs of timm's weights in our model, and what is saved."""
  images, arrays = torch_models.images(*size), torch_models.arrays(theirs)
  expected = torch_models.logits(theirs, images)
  safetensors.write(tmp_path / 'x', arrays)
  ours = vit_jax.load(tmp_path / 'x', log=None, **overrides)
  output = 'logits' if ours.config.num_classes else 'representation'
  torch_models.assert_close(ours(images)[output], expected, tolerance)
  written = save_lib.timm_arrays(
      backbone_config.general(ours.config), tree.flatten(ours.params),
      ours.resolution)
  assert set(written) == set(arrays)
  # We add the position embeddings of registers to the registers.
  summed = {'reg_token', 'pos_embed'} if 'reg_token' in arrays else set()
  for name in set(arrays) - summed:
    np.testing.assert_array_equal(written[name], arrays[name], err_msg=name)
  if rebuilt:
    again = torch_models.rebuilt(ours, tmp_path / 'out')
    np.testing.assert_array_equal(torch_models.logits(again, images), expected)
  return ours


@pytest.mark.parametrize('settings', [
    {}, {'reg_tokens': 2}, {'global_pool': 'avg'}, {'qkv_bias': False},
    {'reg_tokens': 2, 'no_embed_class': True, 'init_values': 0.1},
    {'class_token': False, 'global_pool': 'avg'},
    {'class_token': False, 'global_pool': 'avg', 'fc_norm': False},
    {'class_token': False, 'global_pool': 'map'},
    {'img_size': (16, 40)}, {'pos_embed': 'none'}, {'num_classes': 0}],
    ids=lambda settings: ','.join(settings) or 'plain')
def test_a_vit(settings, torch_models, tmp_path):
  theirs = torch_models.perturbed(timm.create_model(
      'vit_tiny_patch16_224', **{**TINY, **settings}))
  size = settings.get('img_size', (32, 32))
  overrides = {'img_size': {'resolution': size}, 'num_classes': settings,
               'pos_embed': {'position': 'none', 'resolution': 32}}.get(
                   next(iter(settings), ''), {})
  check_both_ways(theirs, torch_models, tmp_path, size=size, num_heads=2,
                  **overrides)


def test_a_distilled_deit(torch_models, tmp_path):
  theirs = torch_models.perturbed(timm.create_model(
      'deit_tiny_distilled_patch16_224', **TINY))
  ours = check_both_ways(theirs, torch_models, tmp_path, num_heads=2)
  assert ours.config.distill_token
  images = torch_models.images()
  with torch.no_grad():  # The output of each head.
    theirs.train().set_distilled_training()
    both = theirs(torch.from_numpy(images.transpose(0, 3, 1, 2).copy()))
  found = ours(images)
  for name, logits in zip(('cls_logits', 'distill_logits'), both):
    torch_models.assert_close(found[name], logits)


@pytest.mark.parametrize(('name', 'settings'), [
    ('beit_base_patch16_224', {}),
    ('beit_base_patch16_224', {
        'use_rel_pos_bias': False, 'use_shared_rel_pos_bias': True,
        'global_pool': 'token', 'init_values': 0}),
    ('vit_relpos_base_patch16_cls_224', {'rel_pos_type': 'bias'}),
    ('vit_srelpos_small_patch16_224', {**TABLE, 'qk_norm': True})], ids=str)
def test_tables_of_relative_positions(name, settings, torch_models, tmp_path):
  theirs = torch_models.perturbed(timm.create_model(
      name, **{**TINY, 'img_size': (16, 40), **settings}))
  # The table alone does not say which grid it is for.
  ours = check_both_ways(
      theirs, torch_models, tmp_path, size=(16, 40), num_heads=2,
      resolution=(16, 40))
  # Of another grid, as timm resizes it.
  theirs.set_input_size((48, 56))
  images = torch_models.images(48, 56)
  torch_models.assert_close(
      ours(images)['logits'], torch_models.logits(theirs, images))


@pytest.fixture
def narrow(monkeypatch):
  """Makes the networks of timm's hybrids narrow."""
  hybrids = timm.models.vision_transformer_hybrid
  network, stem = hybrids.ResNetV2, hybrids.create_resnetv2_stem
  monkeypatch.setattr(hybrids, 'ResNetV2', lambda layers, **settings: network(
      layers=[min(n, 2) for n in layers], channels=(128, 256, 512, 1024),
      stem_chs=32, **settings))
  monkeypatch.setattr(hybrids, 'create_resnetv2_stem', functools.partial(
      stem, out_chs=32))


@pytest.mark.parametrize('name', [
    'vit_tiny_r_s16_p8_224', 'vit_small_r26_s32_224', 'vit_base_r26_s32_224',
    'vit_base_r50_s16_224', 'vit_base_r50_s16_384', 'vit_large_r50_s32_224'])
def test_a_hybrid(name, narrow, torch_models, tmp_path):
  theirs = torch_models.perturbed(timm.create_model(
      name, img_size=64, embed_dim=24, depth=1, num_heads=2, num_classes=5))
  check_both_ways(
      theirs, torch_models, tmp_path, size=(64, 64), rebuilt=False,
      num_heads=2)


# The side length changes the padding of windows.
@pytest.mark.parametrize('size', [(64, 64), (65, 49), (62, 39)])
def test_a_bit(size, torch_models, tmp_path):
  theirs = torch_models.perturbed(timm.create_model(
      'resnetv2_50x1_bit', num_classes=5, stem_chs=32,
      channels=(128, 256, 512, 1024)))
  # After 50 convolutions, timm's float32 is 2.5e-5 from its own float64, as is
  # ours.
  check_both_ways(
      theirs, torch_models, tmp_path, size=size, tolerance=6e-5,
      rebuilt=False)


@pytest.mark.parametrize('settings', [
    {'crop_pct': 0.9}, {'crop_pct': 0.875, 'interpolation': 'bilinear'},
    {'crop_pct': 0.95, 'input_size': (3, 224, 288)},
    {'crop_pct': 0.95, 'crop_mode': 'squash'},
    {'crop_pct': 1.0, 'crop_mode': 'squash'}], ids=str)
def test_images_of_any_size_are_preprocessed_as_by_timm(settings):
  settings = {'input_size': (3, 224, 224), 'interpolation': 'bicubic',
              'crop_mode': 'center', **settings}
  transform = timm.data.create_transform(
      **settings, is_training=False, mean=(0, 0, 0), std=(1, 1, 1))
  preprocess = resize_and_crop.parse(timm_config.parse_preprocessing(settings))
  rng = np.random.default_rng(0)
  for _ in range(32):
    height, width = rng.integers(100, 600, 2)
    pixels = rng.integers(0, 256, (height, width, 3), np.uint8)
    theirs = transform(Image.fromarray(pixels)).numpy().transpose(1, 2, 0)
    np.testing.assert_array_equal(
        np.asarray(images_lib.resized(pixels, preprocess)),
        np.rint(255 * theirs))


def test_preprocessing_of_timm_is_loaded_and_saved(torch_models, tmp_path):
  theirs = torch_models.perturbed(timm.create_model(
      'deit_tiny_patch16_224', num_classes=5, depth=1))
  timm.models.save_for_hf(
      theirs, tmp_path / 'x', model_args={'depth': 1}, safe_serialization=True)
  ours = vit_jax.load(tmp_path / 'x', log=None)
  images = torch_models.images(224, 224)
  torch_models.assert_close(
      ours(images)['logits'], torch_models.logits(theirs, images))
  assert ours.preprocess == resize_and_crop.parse({
      'resolution': 224, 'mean': preprocessing_lib.IMAGENET_MEAN,
      'std': preprocessing_lib.IMAGENET_STD, 'crop': 0.9, 'keep_aspect': True,
      'interpolation': 'bicubic'})
  again = torch_models.rebuilt(ours, tmp_path / 'out')
  wanted = timm.data.resolve_data_config(theirs.pretrained_cfg)
  found = timm.data.resolve_data_config(again.pretrained_cfg)
  assert {k: found[k] for k in ('input_size', 'mean', 'std')} == {
      k: wanted[k] for k in ('input_size', 'mean', 'std')}
  # The fractions 0.9 and 224 / 248 give the same size.
  assert [int(224 / one['crop_pct']) for one in (found, wanted)] == [248, 248]


# Names of timm, and those of the tutorial "Implementing Vision Transformer from
# scratch".
TUTORIAL = {
    'patch_embed.proj': 'embedding.patch_embeddings.projection',
    'cls_token': 'embedding.cls_token',
    'pos_embed': 'embedding.position_embeddings', 'head.': 'classifier.',
    'blocks.': 'encoder.blocks.', 'norm1': 'layernorm_1',
    'norm2': 'layernorm_2', 'attn.qkv': 'attention.qkv_projection',
    'attn.proj': 'attention.output_projection', 'mlp.fc1': 'mlp.dense_1',
    'mlp.fc2': 'mlp.dense_2'}


def renamed(name):
  for theirs, tutorials in TUTORIAL.items():
    name = name.replace(theirs, tutorials)
  return name


def test_a_tutorial_model_computes_the_same_logits(torch_models, tmp_path):
  # It has no final norm, a tanh GELU and the epsilon of torch.
  theirs = torch_models.perturbed(timm.create_model(
      'vit_tiny_patch16_224', img_size=32, patch_size=8, embed_dim=24, depth=2,
      num_heads=2, num_classes=5, act_layer='gelu_tanh', final_norm=False,
      norm_layer=functools.partial(torch.nn.LayerNorm, eps=1e-5)))
  torch.save({renamed(n): array for n, array in theirs.state_dict().items()},
             tmp_path / 'x.pth')
  ours = vit_jax.load(tmp_path / 'x.pth', log=None, num_heads=2)
  images = torch_models.images()
  torch_models.assert_close(
      ours(images)['logits'], torch_models.logits(theirs, images))


SMALL = {'depth': 2, 'embed_dim': 48, 'num_heads': 4, 'num_classes': 5}


MODULES = (
    'vision_transformer', 'eva', 'deit', 'vision_transformer_hybrid', 'beit',
    'vision_transformer_relpos', 'naflexvit', 'hiera',
    'vision_transformer_sam', 'gemma4_vit')


def test_288_of_timms_vits_are_recognised_and_others_are_refused_by_name():
  names = [name for module in MODULES for name in timm.list_models(
      module=module)]
  refused = {name: timm_names.missing_component(name) for name in names
             if not timm_names.find_architecture(name)}
  assert all(refused.values())
  assert not any(timm_names.missing_component(name)
                 for name in set(names) - set(refused))
  assert (len(names) - len(refused), len(names)) == (288, 309)


@pytest.mark.parametrize('name', [
    'aimv2_huge_patch14_336', 'beit3_base_patch16_224',
    'beit_base_patch16_224', 'beitv2_large_patch16_224',
    'deit3_medium_patch16_224', 'eva02_base_patch14_448',
    'eva02_base_patch16_clip_224', 'eva02_enormous_patch14_clip_224',
    'eva02_small_patch14_336',
    'eva_giant_patch14_clip_224', 'flexivit_base',
    'vit_7b_patch16_dinov3', 'vit_base_patch16_rpn_224',
    'vit_relpos_base_patch16_clsgap_224', 'vit_relpos_medium_patch16_cls_224',
    'vit_relpos_medium_patch16_rpn_224', 'vit_srelpos_small_patch16_224',
    'vit_base_patch16_dinov3_qkvb',
    'vit_base_patch16_lingbot', 'vit_base_patch16_plus_clip_240',
    'vit_base_patch16_siglip_gap_224', 'vit_giant_patch14_dinov2',
    'vit_giant_patch14_reg1_tipsv2', 'vit_giant_patch14_reg4_dinov2',
    'vit_giant_patch16_lingbot', 'vit_huge_patch14_clip_quickgelu_224',
    'vit_huge_plus_patch16_dinov3', 'vit_intern300m_patch14_448',
    'vit_large_patch14_clip_224', 'vit_large_patch16_radio_v3',
    'vit_mediumd_patch16_rope_reg1_gap_256', 'vit_pe_core_base_patch16_224',
    'vit_pe_core_gigantic_patch14_448', 'vit_pe_lang_large_patch14_448',
    'vit_pe_spatial_tiny_patch16_512', 'vit_small_patch16_rope_224',
    'vit_small_patch16_rope_ape_224', 'vit_small_patch16_rope_mixed_224',
    'vit_so150m2_patch16_reg1_gap_256', 'vit_so400m_patch16_siglip_256',
    'test_vit3', 'test_vit4', 'vit_base_patch16_xp_224',
    'vit_pwee_patch16_reg1_gap_256',
    'vit_base_patch16_sapiens2', 'vit_large_patch16_sapiens2',
    'vit_small_patch16_18x2_224', 'vit_dwee_patch16_reg1_gap_256',
    'vit_dpwee_patch16_reg1_gap_256'])
def test_a_family_computes_the_same_logits(name, torch_models, tmp_path):
  side = 56 if 'patch14' in name else 64
  arguments = {**SMALL, 'img_size': side}
  if 'sapiens2' in name:  # Two layers with full and with grouped heads.
    arguments['num_kv_heads'] = [4, 4 if 'base' in name else 2]
  theirs = torch_models.perturbed(timm.create_model(name, **arguments))
  arrays, images = torch_models.arrays(theirs), torch_models.images(side, side)
  expected = torch_models.logits(theirs, images)
  torch_models.write(tmp_path / 'x', arrays, name, arguments)
  ours = vit_jax.load(tmp_path / 'x', log=None)
  torch_models.assert_close(ours(images)['logits'], expected)
  again = torch_models.rebuilt(ours, tmp_path / 'out')
  written = safetensors.open_file(tmp_path / 'out' / 'model.safetensors')
  assert set(written.shapes) == set(arrays)
  np.testing.assert_array_equal(torch_models.logits(again, images), expected)


@pytest.mark.parametrize('name', [
    'vit_small_patch14_dinov2', 'vit_small_patch14_reg4_dinov2',
    'vit_giant_patch14_reg4_dinov2'])
def test_metas_state_dict_computes_what_timm_makes_of_it(
    name, torch_models, tmp_path):
  theirs = torch_models.perturbed(timm.create_model(
      name, **{**SMALL, 'num_classes': 0}, img_size=56))
  weights = theirs.state_dict()
  if 'reg4' in name:  # Meta's registers have no position embeddings.
    weights['register_tokens'] = weights.pop('reg_token')
    weights['pos_embed'] = torch.randn(1, 17, 48)
  if 'giant' in name:
    weights = {key.replace('fc1', 'w12').replace('fc2', 'w3'): value
               for key, value in weights.items()}
  weights['mask_token'] = torch.ones(1, 48)
  torch.save(weights, tmp_path / 'x.pth')
  theirs.load_state_dict(timm.models.vision_transformer.checkpoint_filter_fn(
      dict(weights), theirs))
  images = torch_models.images(56, 56)
  expected = torch_models.logits(theirs, images)
  ours = vit_jax.load(tmp_path / 'x.pth', log=None, num_heads=4)
  found = ours(images)['representation']
  torch_models.assert_close(found, expected)
