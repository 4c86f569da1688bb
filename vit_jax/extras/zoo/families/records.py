"""Records of a file of this folder, and what several of them share.

A file holds all that is known of one family of pretrained models, as a
`Lineage`.
"""

from collections.abc import Mapping
import dataclasses
from typing import Any, Literal

from vit_jax.data import preprocessing
from vit_jax.models import positions as positions_lib
from vit_jax.models import variants
from vit_jax.weights.formats import layout

Size = variants.Size
# Keys of section `model`.
Settings = Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class Family:
  """Weights with the array names of one codebase.

  Attributes:
    name: key in `FAMILIES`.
    label: name in messages.
    table: names of its arrays for our parameters.
    prefix: prefix of every parameter name in files that we write.
    settings: keys of the section `model` that names and shapes do not
      determine.
    backbone: such keys of the section `model.backbone`.
    positions: interpolation of position embeddings in the original code.
    positions_by: that of other models of the family, by regular expressions of
      an array's name that only they have, and no other family.
    preprocess: keys of `Preprocess`, unless a file declares them.
    num_heads: number of heads by width, where it differs from published sizes
      and no file declares it.
    not_classified: prefix of parameters that the `classifier` of a model does
      not use; '' for none.
    base: prefix of all names except the classifier's. Models without a
      classifier are written without it.
    grouped: whether layers may have fewer heads of keys and values; each head
      is read once for each of its queries, which computes the same.
    flat: family with the same names, if the kernel of the patches is a matrix.
    ambiguous: whether models that compute differently have the same arrays.
    embeds_registers: whether registers may have position embeddings.
    several_cls: pooling of a model with several class tokens, of which all but
      the first become registers.
    normalizes: whether the model itself normalizes images, after the image
      processor.
    undeclared: that of files without config.json.
  """
  name: str
  label: str
  table: layout.Table
  prefix: str = ''
  settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)
  backbone: Mapping[str, Any] = dataclasses.field(default_factory=dict)
  positions: positions_lib.Interpolation = 'linear'
  positions_by: Mapping[str, positions_lib.Interpolation] = dataclasses.field(
      default_factory=dict)
  preprocess: Mapping[str, Any] = dataclasses.field(default_factory=dict)
  num_heads: Mapping[int, int] = dataclasses.field(default_factory=dict)
  not_classified: str = ''
  base: str = ''
  grouped: bool = False
  flat: str = ''
  ambiguous: bool = False
  embeds_registers: bool = False
  several_cls: str = 'cls'
  normalizes: bool = False
  undeclared: str = ''


@dataclasses.dataclass(frozen=True)
class Backbones:
  """Published models with the same settings.

  Attributes:
    template: their names in timm; the fields are size and resolution.
    sizes: dimensions of the encoder by the size in the name.
    resolutions: sides of the images of their weights.
    settings: those that neither timm's names imply (`Lineage.implied`) nor a
      plain ViT has.
  """
  template: str
  sizes: Mapping[str, Size]
  resolutions: tuple[int, ...]
  settings: Settings = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class ModelType:
  """A value of `model_type` in config.json of Transformers.

  Attributes:
    family: name of a `Family`.
    settings: those of a classifier, if they differ from the family's.
    gelu: default of `hidden_act`; '' for that of the family.
    epsilon: default of `layer_norm_eps`; 0 for that of the family.
    num_heads: default of `num_attention_heads`; 0 to use a published size.
    positions: interpolation of position embeddings, if not the family's.
    preprocess: keys of `Preprocess`, unless a file declares them.
    inner: key of the section that holds the settings of the images' model.
  """
  family: str
  settings: Settings = dataclasses.field(default_factory=dict)
  gelu: str = ''
  epsilon: float = 0.0
  num_heads: int = 12
  positions: positions_lib.Interpolation | None = None
  preprocess: Mapping[str, Any] = dataclasses.field(default_factory=dict)
  inner: str = ''


@dataclasses.dataclass(frozen=True)
class Architecture:
  """An architecture of timm that models are written as.

  Attributes:
    name: its name, a function in timm.
    kind: timm's class; a key of `timm_arguments.KINDS`.
    fixed: settings that arguments of the class set, but not for this one.
    settings: those that neither its name implies nor `Backbones` list.
  """
  name: str
  kind: Literal['vit', 'naflex', 'eva', 'beit', 'relpos'] = 'vit'
  fixed: tuple[str, ...] = ()
  settings: Settings = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Lineage:
  """A family of pretrained models.

  Regular expressions of timm's names match a whole name, without the tag of
  the weights.

  Attributes:
    arrays: names of its arrays, one record for each codebase that has others.
    backbones: published models.
    words: parts of timm's names whose effects follow from the arrays or from
      `implied`, as regular expressions.
    vit: names of architectures that timm builds with its classes for ViTs. SIZE
      stands for a word of `timm_names.HEADS`, WORDS for any `words`.
    eva: those that timm builds with its class Eva.
    implied: settings that a name implies and the arrays do not determine. All
      that match apply; later ones override earlier ones.
    positions: timm's interpolation of position embeddings, if not cubic. The
      first that matches applies.
    architectures: those that models are written as.
    types: values of `model_type`.
    read_as: values of `model_type` that are read as another.
  """
  arrays: tuple[Family, ...] = ()
  backbones: tuple[Backbones, ...] = ()
  words: tuple[str, ...] = ()
  vit: tuple[str, ...] = ()
  eva: tuple[str, ...] = ()
  implied: tuple[tuple[str, Settings], ...] = ()
  positions: Mapping[str, positions_lib.Interpolation] = dataclasses.field(
      default_factory=dict)
  architectures: tuple[Architecture, ...] = ()
  types: Mapping[str, ModelType] = dataclasses.field(default_factory=dict)
  read_as: Mapping[str, str] = dataclasses.field(default_factory=dict)


# ------------------------------------------------------------ sizes, settings

TI, S, B, L, H = (variants.SIZES[name] for name in ('Ti', 'S', 'B', 'L', 'H'))
SBL = {'small': S, 'base': B, 'large': L}
MEDIUM = Size(512, 12, 2048, 8)
SO400M = Size(1152, 27, 4304, 16)  # arXiv 2305.13035, table 1.
GIANT = {'giant': Size(1536, 40, 4096, 24)}  # arXiv 2304.07193, table 17.

SCALED = {'layer_scale': 1e-5}
SWIGLU = {'mlp': 'swiglu'}
POOL_NORM = {'pooling': 'average', 'pool_norm': True, 'final_norm': False}
MAP = {'pooling': 'attention'}
TANH = {'gelu': 'tanh', 'layer_norm_epsilon': 1e-6}
EXACT = {'gelu': 'exact', 'layer_norm_epsilon': 1e-6}
# Rotary positions of DINOv3: arXiv 2508.10104, section 3.2.
DINOV3_ROTARY = {'coordinates': 'normalized', 'base': 100.0, 'halves': True}
IMAGENET = {'mean': preprocessing.IMAGENET_MEAN,
            'std': preprocessing.IMAGENET_STD}
# DINOv3's satellite weights (facebookresearch/dinov3, README, "Image
# transforms"), which files without a config.json show by their name only.
SATELLITE_NAME = 'sat493m'
SATELLITE = {'mean': (0.430, 0.411, 0.296), 'std': (0.213, 0.156, 0.143)}
HALF = {'mean': preprocessing.HALF, 'std': preprocessing.HALF}
CLIP = {'mean': preprocessing.CLIP_MEAN, 'std': preprocessing.CLIP_STD}
VISION = 'vision_config'  # A value of `ModelType.inner`.
