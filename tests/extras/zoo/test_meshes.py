"""Each family of backbones trains, and resumes, on any mesh.

The settings are those of the published models, the dimensions are small.
"""

import numpy as np
import pytest

from tests import toy
from vit_jax.checkpoints import config as checkpoint_config
from vit_jax.checkpoints import manager

pytestmark = pytest.mark.slow  # Compiles two training steps each.

FAMILIES = {
    'AIMv2': 'aimv2_large_patch14_224',
    'AugReg and MAE': 'vit_base_patch16_224',
    'BEiT': 'beit_base_patch16_224',
    'CLIP': 'vit_base_patch32_clip_quickgelu_224',
    'DeiT III': 'deit3_small_patch16_224',
    'DeiT, distilled': 'deit_small_distilled_patch16_224',
    'DINOv2': 'vit_small_patch14_dinov2',
    'DINOv2 g with registers': 'vit_giant_patch14_reg4_dinov2',
    'DINOv3': 'vit_small_patch16_dinov3',
    'DINOv3 plus': 'vit_small_plus_patch16_dinov3_qkvb',
    'EVA-02': 'eva02_base_patch14_224',
    'EVA-02-CLIP': 'eva02_base_patch16_clip_224',
    'FlexiViT': 'flexivit_small',
    'NaFlex, factorized positions': 'naflexvit_base_patch16_parfac_gap',
    'Perception Encoder': 'vit_pe_core_tiny_patch16_384',
    'relative positions, shared': 'vit_srelpos_small_patch16_224',
    'residual norms': 'vit_relpos_medium_patch16_rpn_224',
    'RoPE-ViT': 'vit_small_patch16_rope_224',
    'RoPE-ViT mixed': 'vit_small_patch16_rope_mixed_ape_224',
    'SigLIP': 'vit_base_patch16_siglip_224',
    'timm gap': 'vit_medium_patch16_rope_reg1_gap_256',
    'timm map': 'vit_so150m_patch16_reg4_map_256'}
# These have most components: gates, registers, scales, rotary positions.
TYPICAL = {'DINOv3 plus', 'differential, paired'}
SETTINGS = {
    'DINOv2': {'pooling': 'cls_average'},  # As its classifiers.
    # Components of models that are not among the variants.
    'grouped queries': {
        'num_kv_heads': 2, 'pooling': 'average', 'pool_norm': True,
        'final_norm': False},
    'rotary registers': {
        'rotary': {'register_base': 100.0}, 'registers': 4,
        'pooling': 'cls_registers', 'layer_scale': 0.1,
        'layer_scale_mlp': False, 'parallel': True},
    'differential, paired': {
        'differential': True, 'paired': True, 'layer_scale': 0.1}}
OBJECTIVES = {'FlexiViT': {'name': 'flexivit', 'patch_sizes': (2, 4)}}


def build(family, *, devices=1, mesh=(), **model):
  return toy.build(
      devices=devices, mesh=dict(mesh),
      model={'variant': FAMILIES.get(family, 'S/16'), 'width': 32, 'depth': 2,
             'num_heads': 4, 'mlp_dim': 64, **SETTINGS.get(family, {}),
             **model},
      objective=OBJECTIVES.get(family, {}),
      optimizer={'name': 'sgd', 'learning_rate': 0.3, 'momentum': 0.9})


def step(built, state):
  batches = built.batches(start_step=int(state.step))
  state, loss = built.train_step(state, next(batches))
  batches.close()
  return state, float(loss)


@pytest.mark.parametrize('family', [
    pytest.param(name, marks=[pytest.mark.large] * (name not in TYPICAL))
    for name in dict.fromkeys((*FAMILIES, *SETTINGS))])
def test_losses_depend_neither_on_the_mesh_nor_on_unrolling_nor_on_a_restart(
    family, tmp_path):
  losses = []
  checkpoint = manager.Checkpoints(
      tmp_path, checkpoint_config.CheckpointConfig())
  for built in (build(family), build(family, devices=8, unroll=2, mesh={
      'data': 2, 'fsdp': 2, 'tensor': 2})):
    state, first = step(built, built.init_state())
    if not losses:
      with checkpoint:
        checkpoint.save(state, config={}, progress={}, which='latest')
    losses.append([first, step(built, state)[1]])
  with manager.Checkpoints(
      tmp_path, checkpoint_config.CheckpointConfig()) as checkpoint:
    restored = checkpoint.restore(built.abstract_state).state
  losses.append([first, step(built, restored)[1]])
  np.testing.assert_allclose(losses, losses[:1] * 3, rtol=1e-5)
  assert losses[0][0] != losses[0][1]
