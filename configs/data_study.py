"""How much data does a ViT need? Random subsets of a data set (Figure 4).

    python main.py --workdir=gs://bucket/study \
        --config=configs/data_study.py:model=B/16,dataset=jft \
        --config.data.source=my_images --config.data.data_dir=gs://bucket/tfds

A stage for each size, one after another; `sizes=9M` is one of them alone. The
subsets are nested: the 9 million are among the 30 million. As in the paper all
sizes have the same settings, the number of steps included, and small ones would
overfit: a run stops when the images held out have not got better for a tenth of
the steps, and its best checkpoint is kept. Better is judged by the accuracy, of
several labels by the precision at 1, of a data set of your own by the loss
(--config.checkpoint.best=val/accuracy). What the paper reports of it:

    python main.py evaluate --workdir=gs://bucket/study/9M --which=best

Minutes on two CPU cores, with data that is here:

    python main.py --workdir=runs/study \
        --config=configs/data_study.py:model=Ti/8,dataset=digits,resolution=24 \
        --config.total.steps=200 --config.batch_size=64 \
        --config.model.depth=2 --config.data.num_workers=0 \
        --config.optimizer.learning_rate=1e-3 \
        --config.evals.val.every.steps=20 --config.checkpoint.patience=4

That many steps show how a study goes, not what it finds.

Hardware: as configs/pretrain.py, for each size.
Expected: five-shot accuracy on ImageNet of the larger models falls below that
of the ResNets on 9 M images and lies above it from 90 M on (cited: arXiv
2010.11929, section 4.3 and figure 4, which has no numbers). Not measured here.
"""

from typing import Any

from ml_collections import ConfigDict

from configs import pretrain

# Sizes; steps, those of Table 3's epochs on all the data; the split that is
# trained on and the one that is held out to stop and choose by; few-shot data.
STUDIES = {
    'jft': ('9M+30M+90M+all', 7 * 303_000_000 // 4096, 'train', '',
            'imagenet2012'),
    'imagenet21k': ('1M+3M+9M+all', 90 * 14_145_922 // 4096, 'full[51200:]',
                    'full[:51200]', 'imagenet2012'),
    'imagenet2012': ('10%+30%+all', 300 * 1_268_355 // 4096, 'train[:99%]',
                     'train[99%:]', 'imagenet2012'),
}
KNOWN = (*STUDIES, 'shapes', 'digits', 'cifar10', 'cifar100')
OTHERS = ('10%+30%+all', 10_000, 'train[:90%]', 'train[90%:]', 'digits')


def get_config(
    model: str = 'B/16', dataset: str = 'jft', sizes: str = '', steps: int = 0,
    resolution: int = 224, batch_size: int = 4096, loss: str = '',
) -> ConfigDict:
  """Returns a stage for each size.

  Args:
    model: a variant, such as 'L/16', 'R50+B/16' or 'R50x1'.
    dataset: 'jft', 'imagenet21k', 'imagenet2012' or any other.
    sizes: of the subsets, joined by '+': '9M', '500k', '1000', '10%', 'all'.
    steps: of each run; 0 takes those of the paper's epochs on all data.
    resolution: of the images, in pixels.
    batch_size: global.
    loss: 'softmax' or 'sigmoid'; see configs/pretrain.py.
  """
  name = pretrain.without_version(dataset)
  usual, usual_steps, train, held_out, few_shot = STUDIES.get(name, OTHERS)
  config = pretrain.get_config(
      model=model, dataset=dataset, resolution=resolution,
      batch_size=batch_size, loss=loss)
  config.total = {'steps': steps or usual_steps}
  config.data.split = train
  # A data set of one's own may have one label an image or several: the loss is
  # there for both.
  metric = 'loss' if name not in KNOWN else (
      'precision_at_1' if name in pretrain.MULTI_LABEL else 'accuracy')
  config.evals = {
      'val': {'split': held_out, 'every': {'percent': 1}},
      # The paper's measure: the head is left out, so any labels will do.
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
  """Returns how much of the split '9M', '500k', '1000', '10%' or 'all' is."""
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
        f'sizes has {size!r}, but each is written as 9M, 500k, 1000, 10% or '
        'all, joined by +.') from None
