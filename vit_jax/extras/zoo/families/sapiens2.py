"""Sapiens2 of Meta."""

import dataclasses

from vit_jax.extras.zoo.families import names
from vit_jax.extras.zoo.families import records
from vit_jax.extras.zoo.families import timm

# Keys have a bias, too. The original names are in Meta's code.
_NAMES = dataclasses.replace(timm.TIMM, rows=(
    *names.rows(
        '@attention/qkv_bias @attn.{q|k|v}_proj.bias qkv_bias', timm.BLOCK),
    *(row for row in timm.TIMM.rows if '{q|v}' not in row.theirs)),
    renames={
        r'\.attn\.w([qkv])\.': r'.attn.\1_proj.',
        r'\.attn\.gamma\.weight': '.gamma_1', r'\.ffn\.w12\.': '.mlp.fc1.',
        r'\.ffn\.w3\.': '.mlp.fc2.', r'\.ln([12])\.': r'.norm\1.',
        r'^ln1\.': 'norm.', '^storage_tokens$': 'reg_token',
        r'^patch_embed\.projection\.': 'patch_embed.proj.'},
    ignored=('mask_token', r'rope\w*\..*'))

LINEAGE = records.Lineage(
    arrays=(records.Family(
        'sapiens2', 'Sapiens2', _NAMES, settings={
            **records.EXACT, 'position': 'none',
            'rotary': records.DINOV3_ROTARY, 'layer_scale_mlp': False},
        preprocess=records.IMAGENET, num_heads={1536: 24, 2432: 32},
        grouped=True),),
    eva=(r'vit_(5b|SIZE(_plus)?)_patch16_sapiens2',),
    implied=(
        ('vit_5b_.*', {'num_heads': 32}),
        ('vit_giant_.*_sapiens2', {'num_heads': 24}),
        ('.*_sapiens2', {
            'rotary': records.DINOV3_ROTARY, 'position': 'none',
            'pooling': 'cls', 'layer_scale_mlp': False})),
    architectures=(records.Architecture(
        'vit_base_patch16_sapiens2', 'eva', fixed=('layer_scale',),
        settings={'norm': 'rms', 'layer_scale': 1e-5}),))
