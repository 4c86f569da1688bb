"""Members of timm's families compute the same logits, in both directions."""

import numpy as np
import pytest

import vit_jax
from vit_jax.extras.zoo import safetensors
from vit_jax.extras.zoo import timm_names

torch = pytest.importorskip('torch', reason='torch is not installed')
timm = pytest.importorskip('timm', reason='timm is not installed')

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
