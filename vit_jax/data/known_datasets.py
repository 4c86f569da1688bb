"""Facts about datasets that their files do not contain.

Names are from TensorFlow Datasets (https://www.tensorflow.org/datasets
/catalog). A dataset needs a row only if its features are not called `image`
and `label` or `labels`, or if it has a published evaluation split.
"""

from collections.abc import Mapping
import dataclasses


@dataclasses.dataclass(frozen=True)
class DatasetFacts:
  """Settings for reading one dataset.

  Attributes:
    image: image feature.
    label: label feature; None for `label` or, if there is none, `labels`.
    eval_split: split that published results are on.
    parts: split strings by name, for a dataset with a single TFDS split. They
      replace it: training on all of it would include the test images.
    multi_label: whether an image has a list of labels; None to infer it.
    num_classes: if features do not declare it, and for planning.
    num_examples: by split, to plan a run without the data.
    num_present: classes with images, if only some of those declared have any.
  """
  image: str = 'image'
  label: str | None = None
  eval_split: str = 'test'
  parts: Mapping[str, str] = dataclasses.field(default_factory=dict)
  multi_label: bool | None = None
  num_classes: int | None = None
  num_examples: Mapping[str, int] = dataclasses.field(default_factory=dict)
  num_present: int | None = None


DATASETS: dict[str, DatasetFacts] = {
    # Published results are on `test`.
    **dict.fromkeys((
        'digits', 'shapes', 'caltech101', 'dtd', 'fashion_mnist',
        'imagenet_sketch', 'imagenet_v2', 'mnist', 'patch_camelyon',
        'stanford_dogs', 'sun397', 'svhn_cropped'),
                    DatasetFacts()),
    'cifar10': DatasetFacts(
        num_classes=10, num_examples={'train': 50_000, 'test': 10_000}),
    'cifar100': DatasetFacts(
        label='label',  # Not `coarse_label`: 20 groups.
        num_classes=100, num_examples={'train': 50_000, 'test': 10_000}),
    # eurosat, resisc45: train on the first 80 %, as in arXiv 1910.04867.
    'eurosat': DatasetFacts(
        parts={'train': 'train[:21600]', 'test': 'train[21600:]'}),
    'food101': DatasetFacts(eval_split='validation'),
    'imagenet2012': DatasetFacts(
        eval_split='validation', num_classes=1_000,
        num_examples={'train': 1_281_167, 'validation': 50_000}),
    'imagenet2012_real': DatasetFacts(
        label='real_label', eval_split='validation', multi_label=True),
    # TFDS declares 1,000 classes.
    **dict.fromkeys(
        ('imagenet_a', 'imagenet_r'), DatasetFacts(num_present=200)),
    # The full ImageNet (Fall 2011 release), not in the public catalogue; named
    # and divided as in the ViT and big_vision codebases.
    'imagenet21k': DatasetFacts(
        label='labels', multi_label=True, num_classes=21_843,
        parts={'train': 'full[51200:]', 'test': 'full[:51200]'},
        num_examples={'train': 14_145_922, 'test': 51_200}),
    # Google-internal (ViT paper, section 4.1): for planning only.
    'jft': DatasetFacts(
        label='labels', multi_label=True, num_classes=18_291,
        num_examples={'train': 303_000_000, 'test': 50_000}),
    'oxford_flowers102': DatasetFacts(
        num_classes=102,
        num_examples={'train': 1_020, 'validation': 1_020, 'test': 6_149}),
    'oxford_iiit_pet': DatasetFacts(
        label='label',  # Not `species`: cat or dog.
        num_classes=37, num_examples={'train': 3_680, 'test': 3_669}),
    'resisc45': DatasetFacts(
        parts={'train': 'train[:25200]', 'test': 'train[25200:]'}),
}


def facts(name: str) -> DatasetFacts:
  """Returns the row of 'NAME[/CONFIG][:VERSION]', or default facts."""
  return DATASETS.get(_base_name(name), DatasetFacts())


def is_known(name: str) -> bool:
  """Whether 'NAME[/CONFIG][:VERSION]' has a row."""
  return _base_name(name) in DATASETS


def _base_name(name: str) -> str:
  return name.split(':')[0].split('/')[0]
