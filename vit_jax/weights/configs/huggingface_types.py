"""Model types of Hugging Face transformers that are ViTs, as a table.

Source: the configuration classes of transformers 5.23.
"""

from collections.abc import Mapping
import dataclasses
from typing import Any

GELU = {'gelu': 'exact', 'gelu_python': 'exact', 'gelu_new': 'tanh',
        'gelu_pytorch_tanh': 'tanh', 'gelu_fast': 'tanh',
        'quick_gelu': 'quick'}
MODEL_KEYS = {
    'hidden_size': 'width', 'num_hidden_layers': 'depth',
    'intermediate_size': 'mlp_dim', 'patch_size': 'patch',
    'num_attention_heads': 'num_heads', 'qkv_bias': 'qkv_bias',
    'layer_norm_eps': 'layer_norm_epsilon'}


@dataclasses.dataclass(frozen=True)
class ModelType:
  """A value of `model_type` in config.json.

  Attributes:
    family: key of `families.FAMILIES`.
    base: class of a model without a classifier; '' if there is none.
    classifier: class of a model with a classifier; '' if there is none.
    settings: our settings that differ from a plain ViT.
    free: our settings that may have any value.
    gelu: default of `hidden_act`; '' for that of the family.
    num_heads: default of `num_attention_heads`; 0 to use a published size.
    inner: key of the section that holds the settings of the images' model.
  """
  family: str
  base: str = ''
  classifier: str = ''
  settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)
  free: tuple[str, ...] = ()
  gelu: str = ''
  num_heads: int = 12
  inner: str = ''


_DINO = ('qkv_bias', 'layer_scale', 'mlp')
_VISION = 'vision_config'

TYPES: Mapping[str, ModelType] = {
    'vit': ModelType('huggingface', 'ViTModel', 'ViTForImageClassification',
                     free=('qkv_bias',), num_heads=0),
    'deit': ModelType(
        'huggingface', 'DeiTModel', 'DeiTForImageClassificationWithTeacher',
        {'distill_token': True}, free=('qkv_bias',), num_heads=0),
    'dinov2': ModelType(
        'dinov2', 'Dinov2Model', 'Dinov2ForImageClassification', free=_DINO),
    'dinov2_with_registers': ModelType(
        'dinov2_with_registers', 'Dinov2WithRegistersModel',
        'Dinov2WithRegistersForImageClassification',
        free=(*_DINO, 'registers')),
    'dinov3_vit': ModelType(
        'dinov3', 'DINOv3ViTModel', settings={'position': 'none'}, free=_DINO,
        num_heads=6),
    'clip_vision_model': ModelType(
        'clip', 'CLIPVisionModel', 'CLIPVisionModelWithProjection',
        {'stem_norm': 'tokens'}, gelu='quick'),
    'clip': ModelType(
        'clip', '', 'CLIPForImageClassification', {
            'stem_norm': 'tokens', 'pooling': 'average', 'final_norm': False},
        gelu='quick', inner=_VISION),
    'siglip_vision_model': ModelType(
        'siglip', 'SiglipVisionModel', '', {'pooling': 'attention'}),
    'siglip': ModelType(
        'siglip', '', 'SiglipForImageClassification', {'pooling': 'average'},
        inner=_VISION)}

# Components that our models lack, of other model types of these families.
MISSING: Mapping[str, str] = {
    'siglip2': 'patches and positions of images of any aspect ratio (NaFlex)',
    'dinov3_convnext': 'a convolutional network (ConvNeXt)',
    'beit': 'relative position biases of rows and columns',
    'data2vec-vision': 'relative position biases of rows and columns',
    'vit_mae': 'the decoder of MAE; use the encoder of timm, such as '
               'hf://timm/vit_base_patch16_224.mae'}
