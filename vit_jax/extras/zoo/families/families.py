"""All families of pretrained models; a file of this folder describes each."""

from collections.abc import Mapping
import importlib

from vit_jax.extras.zoo.families import records
from vit_jax.weights.formats import published_names

# Where two fit equally well, the first is used: timm's names before those of
# others that have them, too; SigLIP before CLIP, whose tower has its names; and
# types of TIPSv2, DINOv2, ViT and SigLIP in this order.
MODULES = (
    'timm', 'naflex', 'radio', 'beit', 'tips', 'dino', 'vit', 'sapiens2',
    'rope', 'aimv2', 'siglip', 'clip', 'eva', 'perception', 'scratch')

LINEAGES: tuple[records.Lineage, ...] = tuple(
    importlib.import_module(f'{__package__}.{name}').LINEAGE
    for name in MODULES)
# Names of arrays, those of the trunk's .npz files included.
FAMILIES: Mapping[str, records.Family] = {family.name: family for family in (
    *(records.Family(**vars(family)) for family in published_names.FAMILIES),
    *(family for lineage in LINEAGES for family in lineage.arrays))}
