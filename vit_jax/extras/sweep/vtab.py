"""The 19 tasks of VTAB-1k (arXiv 1910.04867).

    data.source = 'vtab/clevr_count_all', data.split = 'train800+val200'

Each task is a TFDS dataset with three splits: `train800`, `val200` to choose
settings, and `test`. Label functions map TFDS examples to class indices.

Names, splits, numbers of classes and thresholds: google-research/
task_adaptation at d7630d3c43ba052b5a35546b312d9454a9f2c96b. Its pets version 3
cannot be prepared any more, so any version is used.
"""

from collections.abc import Callable, Mapping, Sequence
import dataclasses
import functools
from typing import Any

import numpy as np

from vit_jax import schema
from vit_jax.data import config as data_config
from vit_jax.data import known_datasets
from vit_jax.data.images import decode
from vit_jax.data.sources import protocol
from vit_jax.data.sources import tfds as tfds_lib
from vit_jax.data.sources import tfds_folders
from vit_jax.data.splits import split_strings

TRAIN, VALIDATION, TEST = 'train800', 'val200', 'test'

Example = Mapping[str, Any]


def feature(example: Example, *, name: str = 'label', size: float = 1) -> int:
  """Returns a feature, divided into bins of `size` neighbouring values."""
  return int(float(example[name]) // size)


def object_count(example: Example) -> int:
  """CLEVR: number of objects, minus the minimum of 3."""
  return len(example['objects']['size']) - 3


def closest_object(example: Example) -> int:
  """CLEVR: distance bin of the object closest to the camera."""
  coordinates = np.reshape(example['objects']['pixel_coords'], (-1, 3))
  return interval(
      float(coordinates[:, 2].min()), (0.0, 8.0, 8.5, 9.0, 9.5, 10.0, 100.0))


def closest_vehicle(example: Example) -> int:
  """KITTI: distance bin of the closest car, van or truck; the last if none."""
  kinds = np.asarray(example['objects']['type'])
  places = np.reshape(example['objects']['location'], (-1, 3))
  metres = places[kinds < 3, 2].min(initial=1000.0)
  return interval(float(metres), (-100.0, 8.0, 20.0, 999.0))


def interval(value: float, starts: Sequence[float]) -> int:
  """Returns the index of the last interval that starts below `value`."""
  return int(np.searchsorted(starts, value, side='left')) - 1


def black_and_white(image: bytes) -> np.ndarray:
  """dSprites: scales pixels of 0 and 1 to 0 and 255."""
  return np.asarray(decode.decode(image, channels=1))[..., None] * 255


@dataclasses.dataclass(frozen=True)
class Task:
  """A VTAB task.

  Attributes:
    tfds: name of the dataset, with the versions that the splits are for.
    num_classes: number of classes.
    num_test: number of test images.
    val: TFDS split string of `val200`.
    test: TFDS split string of `test`, if not in `known_datasets`.
    label: maps an example to its label.
    image: decodes the image file, if not the default.
  """
  tfds: str
  num_classes: int
  num_test: int
  val: str = 'validation[:200]'
  test: str = ''
  label: Callable[[Example], int] = feature
  image: Callable[[bytes], Any] | None = None


def _dsprites(name: str, size: float) -> Task:
  return Task(
      'dsprites:2.*.*', 16, 73_728, 'train[589824:590024]', 'train[663552:]',
      functools.partial(feature, name=name, size=size), black_and_white)


def _smallnorb(name: str, num_classes: int) -> Task:
  return Task('smallnorb:2.*.*', num_classes, 12_150, 'test[:200]',
              'test[50%:]', functools.partial(feature, name=name))


def _clevr(num_classes: int, label: Callable[[Example], int]) -> Task:
  return Task('clevr:3.*.*', num_classes, 15_000, 'train[63000:63200]',
              'validation', label)


TASKS: dict[str, Task] = {
    'caltech101': Task('caltech101:3.*.*', 102, 6_084, 'train[2754:2954]'),
    'cifar100': Task('cifar100:3.*.*', 100, 10_000, 'train[45000:45200]'),
    'dtd': Task('dtd:3.*.*', 47, 1_880),
    'oxford_flowers102': Task('oxford_flowers102:2.*.*', 102, 6_149),
    'oxford_iiit_pet': Task('oxford_iiit_pet', 37, 3_669, 'train[2944:3144]'),
    'sun397': Task('sun397/tfds:4.*.*', 397, 21_750),
    'svhn': Task('svhn_cropped:3.*.*', 10, 26_032, 'train[65931:66131]'),
    'patch_camelyon': Task('patch_camelyon:2.*.*', 2, 32_768),
    'eurosat': Task('eurosat/rgb:2.*.*', 10, 5_400, 'train[16200:16400]'),
    'resisc45': Task('resisc45:3.*.*', 45, 6_300, 'train[18900:19100]'),
    'diabetic_retinopathy': Task(
        'diabetic_retinopathy_detection/btgraham-300:3.*.*', 5, 42_670),
    'clevr_count_all': _clevr(8, object_count),
    'clevr_closest_object_distance': _clevr(6, closest_object),
    'dmlab': Task('dmlab:2.*.*', 6, 22_735),
    'kitti_closest_vehicle_distance': Task(
        'kitti:3.*.*', 4, 711, label=closest_vehicle),
    # 32 columns in pairs; 40 orientations in bins of 2.5.
    'dsprites_label_x_position_16': _dsprites('label_x_position', 2),
    'dsprites_label_orientation_16': _dsprites('label_orientation', 2.5),
    'smallnorb_label_azimuth': _smallnorb('label_azimuth', 18),
    'smallnorb_label_elevation': _smallnorb('label_elevation', 9),
}


def _task(name: str) -> Task:
  return TASKS[schema.check_name(
      name.removeprefix('vtab/'), list(TASKS), what='VTAB task')]


def open_source(
    name: str, config: data_config.DataConfig) -> protocol.DatasetSplits:
  """Opens 'vtab/TASK': the splits `train800`, `val200` and `test`.

  Raises:
    UserError: if there is no such task, or its dataset is not prepared.
  """
  task = _task(name.removeprefix('vtab/'))
  records_of, features = tfds_folders.open_records(
      tfds_folders.find(task.tfds, config.data_dir))
  dataset = protocol.DatasetSplits({
      split: tfds_lib.TfdsSource(
          f'{task.tfds} {split}', records, features, 'image', task.label,
          task.image)
      for split, records in records_of.items()},
      num_classes=task.num_classes)
  test = task.test or known_datasets.facts(task.tfds).parts.get(TEST, TEST)
  selected = {
      ours: split_strings.select_split(dataset, theirs, name=task.tfds)
      for ours, theirs in (
          (TRAIN, 'train[:800]'), (VALIDATION, task.val), (TEST, test))}
  return protocol.DatasetSplits(
      selected, num_classes=task.num_classes, eval_split=TEST)


def planned(name: str) -> known_datasets.DatasetFacts:
  """Returns the sizes of splits and the number of classes of 'vtab/TASK'."""
  task = _task(name.removeprefix('vtab/'))
  return known_datasets.DatasetFacts(
      num_classes=task.num_classes,
      num_examples={TRAIN: 800, VALIDATION: 200, TEST: task.num_test})
