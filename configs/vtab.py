"""Fine-tuning on VTAB-1k: 19 tasks of 1,000 images each.

To run all tasks and compute the means of the groups and of all:

    python main.py sweep --config=configs/vtab.py --workdir=runs/vtab \
        --config.init.checkpoint=runs/b16 \
        --config.data.data_dir=$HOME/tensorflow_datasets

`task` selects groups and tasks: `configs/vtab.py:task=natural+dmlab`. A single
run takes one of them:

    python main.py --config=configs/vtab.py:task=dtd --workdir=runs/dtd ...

The settings are those of arXiv 2010.11929, table 4 and appendix B.1.1: 2,500
steps with learning rate 0.01 on the 800 + 200 images of each task, at 384
pixels. As in the benchmark's script, images are resized without crops and
flips, because some labels depend on position. The paper follows arXiv
1912.11370, which uses crops and flips for tasks whose labels allow it.

Hardware: as for configs/finetune.py.
Expected mean of the 19 tasks: L/16 from ImageNet-21k 72.72 +- 0.21 %, H/14 from
JFT 77.63 +- 0.23 % (cited: arXiv 2010.11929, table 2). Not measured here.
"""

from typing import Any

from ml_collections import ConfigDict

from configs import finetune

# arXiv 1910.04867, table 1; vit_jax/extras/sweep/vtab.py has their data.
GROUPS = {
    'natural': (
        'caltech101', 'cifar100', 'dtd', 'oxford_flowers102', 'oxford_iiit_pet',
        'sun397', 'svhn'),
    'specialized': (
        'patch_camelyon', 'eurosat', 'resisc45', 'diabetic_retinopathy'),
    'structured': (
        'clevr_count_all', 'clevr_closest_object_distance', 'dmlab',
        'kitti_closest_vehicle_distance', 'dsprites_label_x_position_16',
        'dsprites_label_orientation_16', 'smallnorb_label_azimuth',
        'smallnorb_label_elevation'),
}


def get_config(
    task: str = '', model: str = '', resolution: int = 0,
    batch_size: int = 512,
) -> ConfigDict:
  """Returns the fine-tuning config.

  Args:
    task: tasks and groups of GROUPS, joined by '+', such as 'natural+dmlab';
      '' is all. A sweep computes their mean. A single run takes the first.
    model: model variant, such as 'L/16'; '' uses that of the checkpoint.
    resolution: see configs/finetune.py.
    batch_size: global batch size.
  """
  names = select(task)
  resolution = resolution or finetune.usual_resolution(model)
  return ConfigDict({
      'total': {'steps': 2500},
      'batch_size': batch_size,
      'model': {'variant': model, 'dtype': 'auto', 'remat': 'attention'},
      'data': {
          'source': f'vtab/{names[0]}', 'split': 'train800+val200',
          'resolution': resolution,
          'train_ops': [{'op': 'resize'}], 'eval_ops': [{'op': 'resize'}],
      },
      'optimizer': {
          'name': 'sgd', 'momentum': 0.9, 'momentum_dtype': 'bfloat16',
          'learning_rate': 0.01, 'clip_norm': 1.0,
          'schedule': {'name': 'cosine', 'warmup': {'percent': 5}},
      },
      'evals': {'test': {'split': 'test'}},
      'checkpoint': {'every': {'percent': 50}},
      'sweep': {
          'development': {
              'data': {'split': 'train800'},
              'evals': {'dev': {'split': 'val200'}},
          },
          **(averaged(names) if len(names) > 1 else {}),
      },
  })


def averaged(names: list[str]) -> dict[str, Any]:
  """Returns the tasks of a sweep, with means over groups and over all."""
  columns = {name: group for group, members in GROUPS.items()
             for name in members}
  partial = f'; not comparable: {len(names)} of {len(columns)} tasks'
  return {
      'seeds': 1,
      'columns': 'group' + partial * (len(names) < len(columns)),
      'tasks': {name: {
          'data': {'source': f'vtab/{name}'},
          'sweep': {'report': {
              f'{name}/accuracy/{column}': 'test/accuracy'
              for column in (columns[name], 'all')}}} for name in names},
  }


def select(task: str) -> list[str]:
  """Returns the tasks of 'natural+dmlab', or all, in the order of GROUPS."""
  chosen = task.split('+') if task else list(GROUPS)
  known = {*GROUPS, *(name for names in GROUPS.values() for name in names)}
  if unknown := sorted(set(chosen) - known):
    raise ValueError(
        f'task is {task!r}, but {unknown[0]!r} is none of the groups and tasks '
        f'{", ".join(sorted(known))}.')
  return [name for group, names in GROUPS.items() for name in names
          if name in chosen or group in chosen]
