"""Accuracy as a function of the pre-training dataset size (figure 4).

    python main.py --workdir=gs://bucket/study \
        --config=configs/data_study.py:model=B/16,dataset=jft \
        --config.data.source=my_images --config.data.data_dir=gs://bucket/tfds

Trains one stage per size, on nested random subsets; `sizes=9M` trains only one.
As in the paper, all sizes have the same settings and number of steps. A run
stops when the metric on held-out images has not improved for a tenth of the
steps, and keeps its best checkpoint. The metric is accuracy, precision at 1
(for several labels per image) or, for datasets not listed below, the loss;
--config.checkpoint.best=val/accuracy changes it. To compute the metric of
figure 4, 5-shot accuracy:

    python main.py evaluate --workdir=gs://bucket/study/9M

A demonstration takes minutes on two CPU cores and is too short for conclusions:

    python main.py --workdir=runs/study \
        --config=configs/data_study.py:model=Ti/8,dataset=digits,resolution=24 \
        --config.total.steps=200 --config.batch_size=64 \
        --config.model.depth=2 --config.data.num_workers=0 \
        --config.optimizer.learning_rate=1e-3 \
        --config.evals.val.every.steps=20 --config.checkpoint.patience=4

Hardware: that of configs/pretrain.py, for each size.
Expected: the 5-shot ImageNet accuracy of large ViTs is below that of ResNets
with 9 M images and above it from 90 M (cited: arXiv 2010.11929, section 4.3 and
figure 4, which has no numbers). Not measured here.
"""

from typing import Any

from ml_collections import ConfigDict

from configs import pretrain

# Sizes, number of steps (for the epochs of table 3 on all data), training
# split, held-out split for early stopping, few-shot dataset.
STUDIES = {
    'jft': ('9M+30M+90M+all', 7 * 303_000_000 // 4096, 'train', '',
            'imagenet2012'),
    'imagenet21k': ('1M+3M+9M+all', 90 * 14_145_922 // 4096, 'train', '',
                    'imagenet2012'),
    'imagenet2012': ('10%+30%+all', 300 * 1_268_355 // 4096, 'train[:99%]',
                     'train[99%:]', 'imagenet2012'),
}
KNOWN = (*STUDIES, 'shapes', 'digits', 'cifar10', 'cifar100')
OTHERS = ('10%+30%+all', 10_000, 'train[:90%]', 'train[90%:]', 'digits')


def get_config(
    model: str = 'B/16', dataset: str = 'jft', sizes: str = '', steps: int = 0,
    resolution: int = 224, batch_size: int = 4096, loss: str = '',
) -> ConfigDict:
  """Returns one stage per size.

  Args:
    model: a variant, such as 'L/16', 'R50+B/16' or 'R50x1'.
    dataset: 'jft', 'imagenet21k', 'imagenet2012' or any other.
    sizes: subset sizes joined by '+': '9M', '500k', '1000', '10%', 'all'.
    steps: number of steps of each run; 0 uses the epochs of the paper on all
      data.
    resolution: image size in pixels.
    batch_size: global batch size.
    loss: 'softmax' or 'sigmoid'; see configs/pretrain.py.
  """
  name = pretrain.without_version(dataset)
  usual, usual_steps, train, held_out, few_shot = STUDIES.get(name, OTHERS)
  config = pretrain.get_config(
      model=model, dataset=dataset, resolution=resolution,
      batch_size=batch_size, loss=loss)
  config.total = {'steps': steps or usual_steps}
  config.data.split = train
  # Other datasets may have one or several labels per image; both have a loss.
  metric = 'loss' if name not in KNOWN else (
      'precision_at_1' if name in pretrain.MULTI_LABEL else 'accuracy')
  config.evals = {
      'val': {'split': held_out, 'every': {'percent': 1}},
      # The metric of the paper. It does not use the head, so its dataset may
      # have other classes.
      'fewshot': {'name': 'fewshot', 'source': few_shot, 'shots': [5],
                  'seeds': 1},
  }
  config.checkpoint = {
      'every': {'percent': 1}, 'best': f'val/{metric}',
      'patience': {'percent': 10}}
  config.stages = ConfigDict({
      size: {'data': _subset(size)} for size in (sizes or usual).split('+')},
                             sort_keys=False)
  return config


def _subset(size: str) -> dict[str, Any]:
  """Returns the `data` settings of '9M', '500k', '1000', '10%' or 'all'."""
  try:
    if size == 'all':
      return {}
    if size.endswith('%'):
      return {'fraction': float(size[:-1]) / 100}
    unit = {'k': 1_000, 'M': 1_000_000}.get(size[-1:])
    return {'num_examples': (
        round(float(size[:-1]) * unit) if unit else int(size))}
  except ValueError:
    raise ValueError(
        f'sizes contains {size!r}. Sizes are 9M, 500k, 1000, 10% or all, '
        'joined by +.') from None
