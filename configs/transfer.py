"""Transfer of one checkpoint to several datasets with 5, 25 and all images.

    python main.py sweep \
        --config=configs/transfer.py:datasets=cifar10+./my_images \
        --workdir=runs/transfer --config.init.checkpoint=runs/x \
        --config.data.data_dir=$HOME/tensorflow_datasets

For every dataset and number of training images per class, test accuracy of

  fine-tuned     all weights; the learning rate is chosen on a fifth of the
                 training images, then three seeds are trained on all of them
  probe          logistic regression of frozen features, whose layers, pooling
                 and penalty are chosen on a fifth of all training images; only
                 with all images (the evaluator `probe`, DINOv2's protocol)
  linear probe   logistic regression of the frozen representation, whose penalty
                 is chosen on a fifth of the same few images
  few-shot       ridge regression, as in section 4.1 of arXiv 2010.11929
  k-NN           20 nearest neighbours, or as many as images per class

With 5 and 25 images per class, results are mean and standard deviation over the
same three samples of images for all methods. A class with fewer images is used
whole. Fine-tuning with few images per class chooses its learning rate on more
labelled images than it trains on.

`datasets` are values of `data.source`, joined by '+', with a training and a
test split; docs/sweeps.md says how they are named. A '+' in a path is '++'.
`methods=frozen` leaves out fine-tuning, which takes nearly all of the time.
Datasets and methods may be added later; the table shows those of the last
command.

The same model from random weights, the baseline of every table:

    python main.py sweep \
        --config=configs/transfer.py:datasets=cifar10+./my_images,scratch=true \
        --workdir=runs/scratch --config.init.checkpoint=runs/x ...

Without a checkpoint, give the model: `:model=Ti/16`, or --config.model.width
and so on. Other learning rates: --grid optimizer.learning_rate=1e-5,3e-5,1e-4.

Hardware: 2 CPU cores. A ViT of 1.4 M parameters with 64 tokens trains on 95
images/s on one busy core (2026-11-26). From this, a dataset takes an estimated
75 minutes, or 3 minutes with `methods=frozen`. Expected, for `photos` with 25
images per class: docs/paper.md.
"""

from typing import Any

from ml_collections import ConfigDict

# Up to so many images per class.
STEPS = {5: 100, 25: 300}
# Random weights need higher rates than a checkpoint.
RATES, SCRATCH_RATES = (1e-4, 3e-4, 1e-3), (3e-4, 1e-3, 3e-3)
CLASSIFIERS = {'linear probe': 'linear_', 'few-shot': '', 'k-NN': 'knn_'}


def get_config(
    datasets: str, images: str = '5+25+all',
    methods: str = 'frozen+fine-tuned', model: str = '', resolution: int = 32,
    batch_size: int = 32, steps: int = 1500, scratch: bool = False,
) -> ConfigDict:
  """Returns one task for each dataset and training.

  Args:
    datasets: datasets, joined by '+'; '++' stands for a '+' in a path.
    images: numbers of images per class, joined by '+'; 'all' for all.
    methods: 'frozen', 'fine-tuned' or both.
    model: model variant, such as 'S/14'; '' uses that of the checkpoint.
    resolution: image size in pixels, a multiple of the patch size.
    batch_size: global batch size of fine-tuning.
    steps: number of fine-tuning steps with more than 25 images per class; see
      STEPS for fewer.
    scratch: keeps random weights in place of those of the checkpoint.
  """
  parts = datasets.replace('++', '\0').split('+')
  names = {dataset: label(dataset) for dataset in (
      part.replace('\0', '+') for part in parts)}
  if len({*names.values()}) < len(names):
    raise ValueError(
        f'datasets is {datasets!r}, but two have the same last name. Rename '
        'one, since names become the titles of tables.')
  counts = [0 if n == 'all' else int(n) for n in images.split('+')]
  if unknown := {*methods.split('+')} - {'frozen', 'fine-tuned'}:
    raise ValueError(
        f"methods has {min(unknown)!r}, but may be 'frozen', 'fine-tuned' or "
        "'frozen+fine-tuned'.")
  tasks = {}
  if 'frozen' in methods:
    tasks |= {f'{name}_frozen': frozen(dataset, name, counts)
              for dataset, name in names.items()}
  if 'fine-tuned' in methods:
    tasks |= {
        f'{name}_{count or "all"}': fine_tuned(dataset, name, count, steps)
        for dataset, name in names.items() for count in counts}
  return ConfigDict({
      'total': {'steps': steps},
      'batch_size': batch_size,
      'init': {'new': ['.*' if scratch else 'head/.*']},
      'model': {'variant': model} if model else {},
      'data': {
          'source': next(iter(names)), 'split': 'train',
          'resolution': resolution, 'allow_fewer': True,
          'train_ops': [{'op': 'inception_crop', 'area': [0.4, 1.0]},
                        {'op': 'flip'}],
          'eval_ops': [{'op': 'resize'}],
          # Many short runs read the same images.
          'cache_mib': 512,
      },
      'optimizer': {
          'name': 'adam', 'learning_rate': RATES[1], 'weight_decay': 0.05,
          'clip_norm': 1.0,
          'schedule': {'name': 'cosine', 'warmup': {'percent': 10}},
      },
      'evals': {'test': {'batch_size': 128}},
      'checkpoint': {'every': {'percent': 100}, 'best': ''},
      'log': {'every': {'percent': 25}},
      'sweep': {
          'grid': {'optimizer': {
              'learning_rate': list(SCRATCH_RATES if scratch else RATES)}},
          'held_out': 20, 'seeds': 3, 'columns': 'images per class',
          'tasks': tasks,
      },
  }, sort_keys=False)


def label(dataset: str) -> str:
  """Returns 'images' for '/my/images' and 'cifar10' for 'cifar10:3.0.2'."""
  name = dataset.rstrip('/').rpartition('/')[2].partition(':')[0]
  return name.replace('.', '_')  # ConfigDict allows no dots in keys.


def fine_tuned(
    dataset: str, name: str, count: int, steps: int) -> dict[str, Any]:
  """Returns the task of training all weights with a number of images."""
  few = [usual for n, usual in STEPS.items() if 0 < count <= n]
  return {
      'total': {'steps': min([*few, steps])},
      'data': {'source': dataset, 'examples_per_class': count or None},
      'sweep': {
          'report': {f'{name}/fine-tuned/{count or "all"}': 'test/accuracy'}},
  }


def frozen(dataset: str, name: str, counts: list[int]) -> dict[str, Any]:
  """Returns the task of all classifiers of frozen features."""
  probe = {'probe': {'name': 'probe', 'batch_size': 128}} if 0 in counts else {}
  return {
      # A run has at least one step; it changes only the head, which is unused.
      'total': {'steps': 1},
      'data': {'source': dataset},
      'optimizer': {'frozen': [r'(?!head/).*']},
      'evals': {**probe, 'test': {
          'name': 'fewshot', 'shots': counts, 'allow_fewer': True,
          'batch_size': 128,
          'classifiers': ['linear', 'ridge', 'knn']}},
      'sweep': {'grid': {}, 'seeds': 1, 'report': {
          **{f'{name}/{method}/{count or "all"}':
                 f'test/{prefix}{count or "all"}_shot'
             for method, prefix in CLASSIFIERS.items() for count in counts},
          **{f'{name}/{what}/all': f'{what}/accuracy' for what in probe}}},
  }
