"""The 19 tasks of VTAB-1k (arXiv 1910.04867): data sets, splits, label rules.

    data.source = 'vtab/clevr_count_all', data.split = 'train800+val200'

Each task is one of the data sets of TensorFlow Datasets with 800 examples to
train on, 200 to choose settings by, and a whole test split. Its splits are
called `train800`, `val200` and `test` here, whatever they are in TFDS. Labels
that the benchmark bins, it bins here: one function each, from an example as
TFDS gives it to the index of a class.

Names, splits, numbers of classes and thresholds: google-research/
task_adaptation at d7630d3c43ba052b5a35546b312d9454a9f2c96b (Apache 2.0), facts
restated. Where it names a version that TFDS no longer prepares (pets 3), any
is taken.
"""

from collections.abc import Callable, Mapping, Sequence
import dataclasses
import functools
from typing import Any

import numpy as np

from vit_jax import schema as schema_lib
from vit_jax.data.images import decode
from vit_jax.data.sources import protocol
from vit_jax.data.sources import tfds as tfds_lib
from vit_jax.data.splits import split_strings

PREFIX = 'vtab/'
NATURAL, SPECIALIZED, STRUCTURED = GROUPS = (
    'natural', 'specialized', 'structured')
TRAIN, VALIDATION, TEST = 'train800', 'val200', 'test'

Example = Mapping[str, Any]

# ----------------------------------------------------------------- label rules


def feature(example: Example, *, name: str = 'label') -> int:
  """Returns a label that is one of the example's features."""
  return int(example[name])


def grouped(example: Example, *, name: str, size: float) -> int:
  """Returns a label after every `size` neighbouring values became one."""
  return int(np.floor_divide(float(example[name]), size))


def object_count(example: Example) -> int:
  """CLEVR: how many objects, from 3 to 10."""
  return len(example['objects']['size']) - 3


def closest_object(example: Example) -> int:
  """CLEVR: the distance of the nearest object to the camera."""
  coordinates = np.reshape(example['objects']['pixel_coords'], (-1, 3))
  return interval(
      float(coordinates[:, 2].min()), (0.0, 8.0, 8.5, 9.0, 9.5, 10.0, 100.0))


def closest_vehicle(example: Example) -> int:
  """KITTI: metres to the nearest car, van or truck; the last: there is none."""
  kinds = np.asarray(example['objects']['type'])
  places = np.reshape(example['objects']['location'], (-1, 3))
  metres = places[kinds < 3, 2].min(initial=1000.0)
  return interval(float(metres), (-100.0, 8.0, 20.0, 999.0))


def interval(value: float, starts: Sequence[float]) -> int:
  """Returns the last of the intervals that start below `value`."""
  return int(np.searchsorted(starts, value, side='left')) - 1


def black_and_white(image: bytes) -> np.ndarray:
  """dSprites: pixels of 0 and 1 become 0 and 255."""
  return np.asarray(decode.decode(image, channels=1))[..., None] * 255


# ------------------------------------------------------------------------ tasks


@dataclasses.dataclass(frozen=True, kw_only=True)
class Task:
  """One of the 19.

  Attributes:
    tfds: name of the data set, with the versions that the splits hold for.
    group: 'natural', 'specialized' or 'structured'.
    num_classes: number of labels.
    num_test: images in `test`.
    val: the split `val200` as a split string of the data set.
    test: the split `test`.
    label: the rule.
    image: what is done to the bytes of an image file, if anything.
    by_hand: TFDS wants files that a person has to download first.
  """
  tfds: str
  group: str
  num_classes: int
  num_test: int
  val: str
  test: str = 'test'
  label: Callable[[Example], int] = feature
  image: Callable[[bytes], Any] | None = None
  by_hand: bool = False

  @property
  def train(self) -> str:
    return 'train[:800]'


_VALIDATION = 'validation[:200]'
_DSPRITES: dict[str, Any] = dict(
    tfds='dsprites:2.*.*', group=STRUCTURED, num_classes=16, num_test=73_728,
    val='train[589824:590024]', test='train[663552:]', image=black_and_white)
_SMALLNORB: dict[str, Any] = dict(
    tfds='smallnorb:2.*.*', group=STRUCTURED, num_test=12_150,
    val='test[:200]', test='test[50%:]')
_CLEVR: dict[str, Any] = dict(
    tfds='clevr:3.*.*', group=STRUCTURED, num_test=15_000,
    val='train[63000:63200]', test='validation')

TASKS: dict[str, Task] = {
    'caltech101': Task(
        tfds='caltech101:3.*.*', group=NATURAL, num_classes=102,
        num_test=6_084, val='train[2754:2954]'),
    'cifar100': Task(
        tfds='cifar100:3.*.*', group=NATURAL, num_classes=100,
        num_test=10_000, val='train[45000:45200]'),
    'dtd': Task(
        tfds='dtd:3.*.*', group=NATURAL, num_classes=47, num_test=1_880,
        val=_VALIDATION),
    'oxford_flowers102': Task(
        tfds='oxford_flowers102:2.*.*', group=NATURAL, num_classes=102,
        num_test=6_149, val=_VALIDATION),
    'oxford_iiit_pet': Task(
        tfds='oxford_iiit_pet', group=NATURAL, num_classes=37, num_test=3_669,
        val='train[2944:3144]'),
    'sun397': Task(
        tfds='sun397/tfds:4.*.*', group=NATURAL, num_classes=397,
        num_test=21_750, val=_VALIDATION),
    'svhn': Task(
        tfds='svhn_cropped:3.*.*', group=NATURAL, num_classes=10,
        num_test=26_032, val='train[65931:66131]'),
    'patch_camelyon': Task(
        tfds='patch_camelyon:2.*.*', group=SPECIALIZED, num_classes=2,
        num_test=32_768, val=_VALIDATION),
    'eurosat': Task(
        tfds='eurosat/rgb:2.*.*', group=SPECIALIZED, num_classes=10,
        num_test=5_400, val='train[16200:16400]', test='train[21600:]'),
    'resisc45': Task(
        tfds='resisc45:3.*.*', group=SPECIALIZED, num_classes=45,
        num_test=6_300, val='train[18900:19100]', test='train[25200:]',
        by_hand=True),
    'diabetic_retinopathy': Task(
        tfds='diabetic_retinopathy_detection/btgraham-300:3.*.*',
        group=SPECIALIZED, num_classes=5, num_test=42_670, val=_VALIDATION,
        by_hand=True),
    'clevr_count_all': Task(**_CLEVR, num_classes=8, label=object_count),
    'clevr_closest_object_distance': Task(
        **_CLEVR, num_classes=6, label=closest_object),
    'dmlab': Task(
        tfds='dmlab:2.*.*', group=STRUCTURED, num_classes=6, num_test=22_735,
        val=_VALIDATION),
    'kitti_closest_vehicle_distance': Task(
        tfds='kitti:3.*.*', group=STRUCTURED, num_classes=4, num_test=711,
        val=_VALIDATION, label=closest_vehicle),
    # 32 columns in pairs; 40 orientations in groups of 2.5, that is 2 or 3.
    'dsprites_label_x_position_16': Task(**_DSPRITES, label=functools.partial(
        grouped, name='label_x_position', size=2)),
    'dsprites_label_orientation_16': Task(**_DSPRITES, label=functools.partial(
        grouped, name='label_orientation', size=2.5)),
    'smallnorb_label_azimuth': Task(
        **_SMALLNORB, num_classes=18,
        label=functools.partial(feature, name='label_azimuth')),
    'smallnorb_label_elevation': Task(
        **_SMALLNORB, num_classes=9,
        label=functools.partial(feature, name='label_elevation')),
}


def task_of(source: str) -> Task:
  """Returns the row of 'vtab/name'.

  Raises:
    ValueError: if there is no such task.
  """
  return TASKS[schema_lib.check_name(
      source.removeprefix(PREFIX), list(TASKS), what='VTAB task')]


# ---------------------------------------------------------------------- reading


@dataclasses.dataclass(frozen=True, eq=False)
class Examples:
  """A split of the data set, with the task's labels."""
  name: str
  records: Any
  task: Task

  def __len__(self) -> int:
    return len(self.records)

  def __getitem__(self, index: int) -> dict[str, Any]:
    example = self.records[index]
    image = example['image']
    if self.task.image is not None:
      image = self.task.image(image)
    return {'image': image, 'label': self.task.label(example)}

  def label(self, index: int) -> int:
    return self.task.label(self.records[index])

  def key(self, index: int) -> str:
    return f'{self.name} {index}'


def open_task(source: str, data_dir: str) -> protocol.DatasetSplits:
  """Opens 'vtab/name': the splits `train800`, `val200` and `test`.

  Raises:
    ValueError: if there is no such task, or its data set is not there, with
      the command that prepares it.
  """
  task = task_of(source)
  whole = {
      split: Examples(f'{task.tfds} {split}', records, task)
      for split, records in tfds_lib.open_records(
          task.tfds, data_dir, undecoded=('image', 'image2')).items()}
  data_set = protocol.DatasetSplits(whole, task.num_classes)
  selected = {
      ours: split_strings.select_split(data_set, theirs, name=task.tfds)
      for ours, theirs in (
          (TRAIN, task.train), (VALIDATION, task.val), (TEST, task.test))}
  return protocol.DatasetSplits(selected, task.num_classes, eval_split=TEST)


def sizes(source: str) -> tuple[dict[str, int], int]:
  """Returns the examples of each split, and the classes, without any file."""
  task = task_of(source)
  return ({TRAIN: 800, VALIDATION: 200, TEST: task.num_test}, task.num_classes)


def missing(names: Sequence[str], data_dir: str) -> dict[str, str]:
  """Returns what to do about each task whose data set is not there."""
  found = {}
  for name in names:
    task = task_of(name)
    try:
      tfds_lib.find(task.tfds, data_dir)
    except tfds_lib.NotPrepared as error:
      found[name] = error.command + (
          '  # asks for files to download by hand' if task.by_hand else '')
  return found
