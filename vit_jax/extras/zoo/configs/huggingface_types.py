"""Values of `model_type` in config.json of Hugging Face, and their settings.

Source: the model and configuration classes of transformers 5.23.
"""

from collections.abc import Callable, Mapping
import dataclasses
from typing import Any

from vit_jax.extras.zoo import backbone_config as vit_config
from vit_jax.extras.zoo import rotary as rotary_lib
from vit_jax.extras.zoo.families import families


@dataclasses.dataclass(frozen=True)
class ModelType:
  """A value of `model_type` in config.json.

  Attributes:
    family: key of `families.FAMILIES`.
    base: class of a model without a classifier; '' if there is none.
    classifier: class of a model with a classifier; '' if there is none.
    settings: our settings that differ from the family's and a plain ViT's.
    free: settings that may have any value.
    implied: returns settings that depend on others of the model.
    gelu: default of `hidden_act`; '' for that of the family.
    epsilon: default of `layer_norm_eps`; 0 for that of the family.
    num_heads: default of `num_attention_heads`; 0 to use a published size.
    inner: key of the section that holds the settings of the images' model.
    absent: parts of the family's names that the type lacks.
    renames: replacements in the family's names, by regular expression.
    unused: as `layout.Table.unused`.
  """
  family: str
  base: str = ''
  classifier: str = ''
  settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)
  free: tuple[str, ...] = ()
  implied: Callable[[vit_config.BackboneConfig], Mapping[str, Any]] = (
      lambda config: {})
  gelu: str = ''
  epsilon: float = 0.0
  num_heads: int = 12
  inner: str = ''
  absent: tuple[str, ...] = ()
  renames: Mapping[str, str] = dataclasses.field(default_factory=dict)
  unused: Mapping[str, tuple[int, ...]] = dataclasses.field(
      default_factory=dict)

  @property
  def in_family(self) -> families.Family:
    """The family, with the names that the type writes."""
    family = families.FAMILIES[self.family]
    table = family.table.without(*self.absent)
    return dataclasses.replace(
        family, written_as=self.renames, table=dataclasses.replace(
            table, unused=self.unused or table.unused))

  def expected(self, config: vit_config.BackboneConfig) -> dict[str, Any]:
    """Returns the settings that a model must have, as far as not `free`."""
    result = {
        **dataclasses.asdict(vit_config.BackboneConfig()),
        **families.FAMILIES[self.family].settings, **self.settings,
        'num_classes': config.num_classes * bool(self.classifier),
        **self.implied(config)}
    if result['rotary']:
      base = {'base': config.rotary.base} if config.rotary else {}
      result['rotary'] = rotary_lib.RotaryConfig(**{**result['rotary'], **base})
    if result['cls'] is None:
      result['cls'] = result['pooling'].startswith('cls')
    return result


def _scaled(config: vit_config.BackboneConfig) -> dict[str, Any]:
  return {'layer_scale': config.layer_scale or 1e-5}


def _dinov2(config: vit_config.BackboneConfig) -> dict[str, Any]:
  return {**_scaled(config),
          'pooling': 'cls_average' if config.num_classes else 'cls'}


_DINO = ('qkv_bias', 'mlp')
_TOWER = {'stem_norm': 'tokens'}
_AVERAGE = {'pooling': 'average'}
_VISION = 'vision_config'

# If several have all settings of a model, the first is written.
_TYPES: Mapping[str, ModelType] = {
    'deit': ModelType(
        'huggingface', 'DeiTModel', 'DeiTForImageClassificationWithTeacher',
        {'distill_token': True}, free=('qkv_bias',), num_heads=0,
        renames={'^vit': 'deit', '^classifier': 'cls_classifier'}),
    'beit': ModelType(
        'beit', 'BeitModel', 'BeitForImageClassification',
        {'position': 'relative_2d', 'key_bias': False, 'cls': True},
        free=('position_at', 'layer_scale', 'pool_norm'),
        implied=lambda config: {
            'final_norm': not config.pool_norm,
            'pooling': 'average' if config.pool_norm else 'cls'}),
    'radio': ModelType(
        'radio', 'RadioModel', free=('qkv_bias', 'layer_scale', 'registers'),
        num_heads=16),
    # Published models have registers, and biases of queries and values or none.
    'dinov3_vit': ModelType(
        'dinov3', 'DINOv3ViTModel', free=_DINO, num_heads=6,
        implied=lambda config: {
            **_scaled(config), 'registers': config.registers or 4,
            'key_bias': not config.qkv_bias}),
    'clip': ModelType(
        'clip', '', 'CLIPForImageClassification', {
            **_TOWER, **_AVERAGE, 'final_norm': False, 'cls': True},
        gelu='quick', inner=_VISION, absent=('visual_projection',), unused={
            f'vision_model.post_layernorm.{end}': (0,)
            for end in ('weight', 'bias')}),
    'clip_vision_model': ModelType(
        'clip', 'CLIPVisionModel', 'CLIPVisionModelWithProjection', _TOWER,
        gelu='quick', absent=('classifier',)),
    'pixio': ModelType(
        'huggingface', 'PixioModel', settings={'pooling': 'cls_registers'},
        free=('qkv_bias', 'registers'), epsilon=1e-6, num_heads=16,
        renames={'^vit': 'pixio'}),
    'aimv2_vision_model': ModelType(
        'aimv2', 'Aimv2VisionModel', settings={
            **_AVERAGE, 'norm': 'rms', 'stem_norm': 'patches', 'mlp': 'swiglu',
            'qkv_bias': False, 'proj_bias': False},
        num_heads=8, inner=_VISION),
    'tipsv2_vision_model': ModelType(
        'meta', 'Tipsv2VisionModel', settings={'registers': 1},
        free=_DINO, implied=_scaled, inner=_VISION, unused={
            'mask_token': (1, 0)},
        absent=('reg_token', '.fc', '.gamma_', 'v}_')),
    'dinov2_with_registers': ModelType(
        'dinov2_with_registers', 'Dinov2WithRegistersModel',
        'Dinov2WithRegistersForImageClassification', free=_DINO,
        implied=lambda config: {
            **_dinov2(config), 'registers': config.registers or 4}),
    'dinov2': ModelType(
        'dinov2', 'Dinov2Model', 'Dinov2ForImageClassification', free=_DINO,
        implied=_dinov2),
    'ijepa': ModelType(
        'huggingface', 'IJepaModel', 'IJepaForImageClassification', _AVERAGE,
        free=('qkv_bias',), renames={'^vit': 'ijepa'}),
    'siglip_vision_model': ModelType(
        'siglip', 'SiglipVisionModel', '', {'pooling': 'attention'}),
    'siglip': ModelType(
        'siglip', '', 'SiglipForImageClassification', _AVERAGE, inner=_VISION),
    'siglip2_vision_model': ModelType(
        'siglip2', 'Siglip2VisionModel', '', {'pooling': 'attention'}),
    'siglip2': ModelType(
        'siglip2', '', 'Siglip2ForImageClassification', _AVERAGE,
        inner=_VISION),
    'vit': ModelType(
        'huggingface', 'ViTModel', 'ViTForImageClassification',
        free=('qkv_bias',), num_heads=0, implied=lambda config: {
            'representation_layer': not config.num_classes}),
    'vit_msn': ModelType(
        'huggingface', 'ViTMSNModel', 'ViTMSNForImageClassification',
        free=('qkv_bias',), epsilon=1e-6)}
# Types that are read as others: data2vec computes the same as BEiT, and two
# towers have an image tower that is a type.
TYPES: Mapping[str, ModelType] = {
    **_TYPES, 'data2vec-vision': _TYPES['beit'],
    'tipsv2': _TYPES['tipsv2_vision_model'],
    'aimv2': _TYPES['aimv2_vision_model'], 'metaclip_2': _TYPES['clip'],
    'metaclip_2_vision_model': _TYPES['clip_vision_model']}
