"""What is known of data sets by name: a row each, plain facts.

The names are those of TensorFlow Datasets (https://www.tensorflow.org/datasets
/catalog). A set without a row works too: its image is then called `image`, its
label `label` or `labels`, as nearly all of them do. A row is needed only where
that is wrong, or to say which split the results in the literature are on.
"""

from collections.abc import Mapping
import dataclasses


@dataclasses.dataclass(frozen=True)
class DatasetFacts:
  """How to read one data set.

  Attributes:
    image: the feature that holds the image.
    label: the feature that holds the label, or None to find it: `label`, else
      `labels`.
    eval_split: the split that published results are on.
    parts: of a set that TFDS has as one split, what is trained on and what
      results are published on: split strings by name. The parts take the place
      of the whole, or training on `train` would be training on the test.
    multi_label: an image may have several labels at once, or none; None to
      tell from the feature.
    num_classes: for features that do not say it themselves, and to plan with.
    num_examples: of each split, to plan a run with before the data is there.
  """
  image: str = 'image'
  label: str | None = None
  eval_split: str = 'test'
  parts: Mapping[str, str] = dataclasses.field(default_factory=dict)
  multi_label: bool | None = None
  num_classes: int | None = None
  num_examples: Mapping[str, int] = dataclasses.field(default_factory=dict)


DATASETS: dict[str, DatasetFacts] = {
    'digits': DatasetFacts(),
    'shapes': DatasetFacts(),
    'caltech101': DatasetFacts(),
    'cifar10': DatasetFacts(
        num_classes=10, num_examples={'train': 50_000, 'test': 10_000}),
    'cifar100': DatasetFacts(
        label='label',  # `coarse_label`: 20 groups.
        num_classes=100, num_examples={'train': 50_000, 'test': 10_000}),
    'dtd': DatasetFacts(),
    # Of these two, the parts of arXiv 1910.04867: train and validate on 80 %.
    'eurosat': DatasetFacts(
        parts={'train': 'train[:21600]', 'test': 'train[21600:]'}),
    'fashion_mnist': DatasetFacts(),
    'food101': DatasetFacts(eval_split='validation'),
    'imagenet2012': DatasetFacts(
        eval_split='validation', num_classes=1_000,
        num_examples={'train': 1_281_167, 'validation': 50_000}),
    'imagenet2012_real': DatasetFacts(
        label='real_label', eval_split='validation', multi_label=True),
    # Not in the public catalogue: the full ImageNet (Fall 2011 release), as
    # the ViT and big_vision codebases name it: 14,197,122 images in one split
    # `full`, 21,843 labels.
    'imagenet21k': DatasetFacts(
        label='labels', eval_split='full[:51200]', multi_label=True,
        num_classes=21_843, num_examples={'full': 14_197_122}),
    # Google's own; the ViT paper, section 4.1: 303 M images, 18 k classes. The
    # name stands for any set of this form.
    'jft': DatasetFacts(
        label='labels', eval_split='test', multi_label=True,
        num_classes=18_291,
        num_examples={'train': 303_000_000, 'test': 50_000}),
    'imagenet_v2': DatasetFacts(),
    'mnist': DatasetFacts(),
    'oxford_flowers102': DatasetFacts(
        num_classes=102,
        num_examples={'train': 1_020, 'validation': 1_020, 'test': 6_149}),
    'oxford_iiit_pet': DatasetFacts(
        label='label',  # `species`: cat or dog.
        num_classes=37, num_examples={'train': 3_680, 'test': 3_669}),
    'patch_camelyon': DatasetFacts(),
    'resisc45': DatasetFacts(
        parts={'train': 'train[:25200]', 'test': 'train[25200:]'}),
    'stanford_dogs': DatasetFacts(),
    'sun397': DatasetFacts(),
    'svhn_cropped': DatasetFacts(),
}


def facts(name: str) -> DatasetFacts:
  """Returns the row of 'name', 'name:version' or 'name/config:version'."""
  bare = name.split(':')[0].split('/')[0]
  return DATASETS.get(bare, DatasetFacts())
