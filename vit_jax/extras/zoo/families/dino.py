"""DINO, iBOT, DINOv2, DINOv3 and LingBot-Vision.

Meta's names are also those of MAE, I-JEPA, MSN and TIPS.
"""

import dataclasses

from vit_jax.extras.zoo.families import names
from vit_jax.extras.zoo.families import records
from vit_jax.extras.zoo.families import timm
from vit_jax.weights.formats import layout

# timm's names, with a few others. MAE's decoder and the projection heads (MLPs
# and prototypes) of other methods are not needed after pre-training.
_META = dataclasses.replace(
    timm.TIMM, name='meta', rows=(
        *timm.TIMM.rows,
        # Gates are before the hidden units in `w12`; `c_` is TIPS.
        *names.rows("""
        registers    register_tokens  tokens
        @mlp/hidden  @mlp.w12         denses
        @mlp/out     @mlp.w3          denses
        @mlp/hidden  @mlp.c_fc        denses
        @mlp/out     @mlp.c_proj      denses
        """, layer=timm.BLOCK)),
    # DINOv2's training saves layers in chunks.
    renames={r'^blocks\.\d+\.(\d+\.)': r'blocks.\1'},
    ignored=(
        *timm.TIMM.ignored, 'mask_token', 'decoder_.*',
        r'(\w*head|fc|\w*proj(ector|ection)?|pred(ictor)?|prototypes)'
        r'\.(\w+\.)+\w+', r'prototypes(\.weight)?'),
    unsupported={
        **timm.TIMM.unsupported,
        r'storage_tokens|rope_embed\..*|.*\.qkv\.bias_mask': (
            "Meta's names of DINOv3; load it as a folder of timm or Hugging "
            'Face, such as hf://timm/vit_small_patch16_dinov3.lvd1689m')})


def _dinov2(name: str, more: str = '') -> layout.Table:
  # SwiGLU: the gates are before the hidden units, in `weights_in`.
  return layout.Table(name, names.rows(
      names.STEM + more + names.SCALES + """
      @attention/qkv_kernel  @attention.{qkv}.weight        qkv_kernel
      @attention/qkv_bias    @attention.{qkv}.bias          qkv_bias
      @attention/out         @attention.output.dense        out
      @attention_norm        @norm1                         norm
      @mlp_norm              @norm2                         norm
      @mlp/hidden            @mlp.weights_in                denses
      @mlp/out               @mlp.weights_out               denses
      """.replace('{qkv}', 'attention.{query|key|value}') + names.MLP,
      f'{name}.encoder.layer.{{layer}}.', name),
      # A model without a head.
      renames={r'^(embeddings|encoder|layernorm)\.': rf'{name}.\1.'},
      ignored=(rf'({name}\.)?embeddings\.mask_token',))


_DINOV2 = _dinov2('dinov2')
_DINOV2_REGISTERS = _dinov2(
    'dinov2_with_registers', 'registers .embeddings.register_tokens tokens')

_DINOV3 = layout.Table('dinov3', names.rows(
    names.QV + names.SCALES + """
    patches          embeddings.patch_embeddings  conv
    cls              embeddings.cls_token         tokens
    registers        embeddings.register_tokens   tokens
    @attention/out   @attention.o_proj            out
    @attention_norm  @norm1                       norm
    @mlp_norm        @norm2                       norm
    @mlp/hidden      @mlp.up_proj                 denses
    @mlp/gate        @mlp.gate_proj               denses
    @mlp/out         @mlp.down_proj               denses
    final_norm       norm                         norm
    """, 'layer.{layer}.'),
    renames={r'^model\.layer\.': 'layer.'},
    ignored=(r'embeddings\.mask_token',),
    unsupported={r'.*\.k_proj\.bias': (
        'a bias of the keys, which DINOv3 has not, and no output uses')})

_REGISTERS = {**records.SCALED, 'registers': 4}
# arXiv 2508.10104 (DINOv3), section 3.2 and table 2.
_BASE3 = {**_REGISTERS, 'cls': True}
_QV_BIAS = {**_BASE3, 'key_bias': False}
_NO_QKV = {**_BASE3, 'qkv_bias': False}
_HUGE_PLUS = records.Size(1280, 32, 5120, 20)

LINEAGE = records.Lineage(
    arrays=(
        records.Family(
            'meta', 'self-supervised ViT', _META, settings=records.EXACT,
            # DINO, iBOT and DINOv2; then TIPS, DINOv2 with registers, MAE, and
            # I-JEPA and MSN.
            positions='bicubic_offset', positions_by={
                r'vision_encoder\.mask_token': 'bilinear',
                r'(.*\.)?blocks\.\d+\.mlp\.c_fc\.weight': 'bilinear',
                r'(.*\.)?register_tokens': 'cubic',
                r'(.*\.)?decoder_pos_embed': 'bicubic',
                r'target_encoder\..*': 'bicubic'},
            preprocess=records.IMAGENET, num_heads={1536: 24}, ambiguous=True),
        records.Family(
            'dinov2', 'Hugging Face DINOv2', _DINOV2, settings=records.EXACT,
            positions='bicubic', preprocess=records.IMAGENET, base='dinov2.'),
        records.Family(
            'dinov2_with_registers', 'Hugging Face DINOv2 with registers',
            _DINOV2_REGISTERS, settings=records.EXACT, positions='cubic',
            preprocess=records.IMAGENET, base='dinov2_with_registers.'),
        records.Family(
            'dinov3', 'Hugging Face DINOv3', _DINOV3, settings={
                'gelu': 'exact', 'layer_norm_epsilon': 1e-5, 'position': 'none',
                'rotary': records.DINOV3_ROTARY},
            preprocess=records.IMAGENET)),
    backbones=(
        # arXiv 2304.07193 (DINOv2), table 17; registers: 2309.16588.
        records.Backbones('vit_{}_patch14_dinov2', records.SBL, (518,),
                          records.SCALED),
        records.Backbones('vit_{}_patch14_reg4_dinov2', records.SBL, (518,),
                          _REGISTERS),
        records.Backbones('vit_{}_patch14_dinov2', records.GIANT, (518,),
                          {**records.SCALED, **records.SWIGLU}),
        records.Backbones('vit_{}_patch14_reg4_dinov2', records.GIANT, (518,),
                          {**_REGISTERS, **records.SWIGLU}),
        records.Backbones('vit_{}_patch16_dinov3', records.SBL, (256,),
                          _NO_QKV),
        records.Backbones('vit_{}_patch16_dinov3_qkvb', {
            'tiny': records.TI, **records.SBL}, (256,), _QV_BIAS),
        records.Backbones('vit_{}_patch16_dinov3', {
            'small_plus': records.S, 'huge_plus': _HUGE_PLUS,
            '7b': records.Size(4096, 40, 8192, 32)}, (256,),
                          {**_NO_QKV, **records.SWIGLU}),
        records.Backbones('vit_{}_patch16_dinov3_qkvb', {
            'small_plus': records.S, 'huge_plus': _HUGE_PLUS}, (256,),
                          {**_QV_BIAS, **records.SWIGLU}),
        # arXiv 2607.05247 (LingBot-Vision).
        records.Backbones('vit_{}_patch16_lingbot', records.SBL, (512,),
                          _QV_BIAS),
        records.Backbones('vit_{}_patch16_lingbot', records.GIANT, (512,),
                          {**_NO_QKV, **records.SWIGLU})),
    words=('dinov2',),
    eva=(r'vit_(7b|SIZE(_plus)?)_patch16_(dinov3(_qkvb)?|lingbot)',),
    implied=(
        (r'vit_giant_patch\d+_.*(dinov2|lingbot)', {'num_heads': 24}),
        ('vit_huge_plus_.*', {'num_heads': 20}),
        ('vit_7b_.*', {'num_heads': 32}),
        ('.*_lingbot', {'pooling': 'cls'}),
        (r'.*_dinov3(_qkvb)?|.*_lingbot', {
            'rotary': records.DINOV3_ROTARY, 'layer_norm_epsilon': 1e-5,
            'position': 'none'})),
    architectures=(
        records.Architecture('vit_giant_patch14_dinov2', fixed=(
            'proj_bias', 'inner_norm')),
        records.Architecture('vit_small_patch16_dinov3', 'eva', fixed=(
            'layer_scale',))),
    types={
        'dinov3_vit': records.ModelType('dinov3', num_heads=6),
        'dinov2_with_registers': records.ModelType('dinov2_with_registers'),
        'dinov2': records.ModelType('dinov2')})
