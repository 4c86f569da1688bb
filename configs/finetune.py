"""Fine-tuning: the paper's settings (table 4), and a recipe for own images.

    python main.py --config=configs/finetune.py:dataset=cifar10 \
        --workdir=runs/cifar10 --config.init.checkpoint=runs/b16 \
        --config.data.data_dir=$HOME/tensorflow_datasets

The paper's protocol tries four learning rates on a part of the training split,
and then trains three times with the best one on the whole split:

    python main.py sweep --config=configs/finetune.py:dataset=cifar10 ...

For your own images in class folders:

    python main.py --config=configs/finetune.py:dataset=/my/images \
        --workdir=runs/mine --config.init.checkpoint=runs/b16

Data that are not in table 4 use the method 'adam': Adam with layer-wise
learning-rate decay and ten times the rate for the new head, and mixup, for 20
epochs in batches of 32, chosen on development splits (docs/training.md).
`:method=full` is the paper's SGD with the learning rates of CIFAR.
`:method=few` is for some 25 images per class: 200 steps without mixup, which
was chosen for one class per image (else: --config.data.mixup=0).

For ImageNet as in table 2, use `:dataset=imagenet2012,resolution=512` for L/16
and resolution=518 for H/14; both enable weight averaging. Accuracy of such a
run on ReaL labels and on ObjectNet (docs/evaluation.md):

    python main.py evaluate --workdir=runs/l16-imagenet \
        --evaluators=classification,objectnet \
        --config.evals.classification.real_labels=real.json

Hardware (an estimate): a TPU v3-8 for B/16 at 384 pixels, or less with gradient
accumulation.
Expected accuracy: ViT-B/16 from ImageNet-21k on CIFAR-10: 98.95 % (cited: arXiv
2010.11929, table 5). L/16 from ImageNet-21k on ImageNet at 512: 85.30 +- 0.02 %
(cited: table 2). Not measured here.

Images are resized with antialiasing, as by timm and Pillow, so that small
details of large photographs do not become noise. The authors' code resizes
without: to repeat it, set
`--config.data.eval_ops='[{"op": "resize", "antialias": false}]'`, and the same
for `train_ops`.

A single run uses the third of the four learning rates.
"""

from typing import Any, NamedTuple

from ml_collections import ConfigDict

from configs import pretrain

# arXiv 2010.11929, table 4: (duration, learning rates, percent of the training
# split held out to choose among them, training split).
CIFAR_RATES = (0.001, 0.003, 0.01, 0.03)
TABLE_4 = {
    'imagenet2012': (
        {'steps': 20_000}, (0.003, 0.01, 0.03, 0.06), 1, 'train'),
    'cifar100': ({'steps': 10_000}, CIFAR_RATES, 2, 'train'),
    'cifar10': ({'steps': 10_000}, CIFAR_RATES, 2, 'train'),
    'oxford_iiit_pet': ({'steps': 500}, CIFAR_RATES, 10, 'train'),
    'oxford_flowers102': (
        {'steps': 500}, CIFAR_RATES, 10, 'train+validation'),
}
OTHERS = ({'epochs': 20}, CIFAR_RATES, 10, 'train')


class Method(NamedTuple):
  """How weights are fine-tuned; by default as in the paper.

  Attributes:
    optimizer: settings of the optimizer.
    rates: learning rates to try, in place of those of table 4.
    total: length, in place of that of table 4.
    batch_size: global batch size.
    warmup: percent of the steps.
    train_ops: crops and flips.
    mixup: alpha of mixup; 0 disables it.
  """
  optimizer: dict[str, Any]
  rates: tuple[float, ...] = ()
  total: dict[str, int] | None = None
  batch_size: int = 512
  warmup: int = 5
  train_ops: tuple[dict[str, Any], ...] = pretrain.CROP_AND_FLIP
  mixup: float = 0.0


SGD = {'name': 'sgd', 'momentum': 0.9}
# Layer-wise decay of the learning rate: arXiv 2106.08254. Adapters: 2106.09685.
# All but `full` is not from the paper.
ADAM = Method(
    {'name': 'adam', 'weight_decay': 0.05, 'layer_decay': 0.75,
     'learning_rate_rules': [['head/.*', 10.0]]},
    rates=(0.00003, 0.0001, 0.0003, 0.001), batch_size=32, warmup=10,
    train_ops=({'op': 'inception_crop', 'area': [0.4, 1.0]}, {'op': 'flip'}),
    mixup=0.8)
METHODS = {
    'full': Method(SGD),
    'adam': ADAM,
    'few': ADAM._replace(total={'steps': 200}, mixup=0.0),
    'probe': Method({**SGD, 'frozen': [r'(?!head/).*']}),
    'layer_decay': Method({**SGD, 'layer_decay': 0.75}),
    'lora': Method(
        {'name': 'adam', 'frozen': [r'(?!head/|lora/).*']},
        rates=(0.0003, 0.001, 0.003, 0.01)),
}


def get_config(
    model: str = '', dataset: str = 'cifar10', resolution: int = 0,
    batch_size: int = 0, method: str = '', rank: int = 8,
) -> ConfigDict:
  """Returns the fine-tuning config.

  Args:
    model: model variant, such as 'L/16'; '' uses that of the checkpoint.
    dataset: TFDS name, or path of your own data (docs/data.md).
    resolution: image size in pixels; position embeddings are interpolated. 0
      uses that of the weights in `init.checkpoint`; for the datasets of table 4
      384, rounded up to a multiple of the patch size of `model` (392 for
      'H/14').
    batch_size: global batch size; 0 is 32 with the methods 'adam' and 'few',
      else 512.
    method: 'full', 'adam', 'few', 'probe', 'layer_decay' or 'lora'; '' is
      'full' for the datasets of table 4, else 'adam'.
    rank: rank of the adapters of 'lora'.
  """
  name = pretrain.without_version(dataset)
  method = method or ('full' if name in TABLE_4 else 'adam')
  if method not in METHODS:
    raise ValueError(f'Unknown method {method!r}. Known: {", ".join(METHODS)}.')
  how = METHODS[method]
  total, rates, held_out, split = TABLE_4.get(name, OTHERS)
  rates = how.rates or rates
  size = resolution or (usual_resolution(model) if name in TABLE_4 else 'auto')
  # Table 2 uses Polyak averaging with factor 0.9999 at 512 and 518 pixels.
  averaged = name == 'imagenet2012' and size >= 512
  return ConfigDict({
      'total': how.total or total,
      'batch_size': batch_size or how.batch_size,
      'averaging': 0.9999 if averaged else None,
      'model': {'variant': model, 'dtype': 'auto', 'remat': 'attention'},
      'data': {
          'source': dataset, 'split': split, 'resolution': size,
          'train_ops': [*how.train_ops], 'mixup': how.mixup,
          'eval_ops': [{'op': 'resize'}], 'num_workers': 'auto',
      },
      'optimizer': {
          'momentum_dtype': 'bfloat16',
          'learning_rate': rates[2], 'clip_norm': 1.0,
          'schedule': {'name': 'cosine', 'warmup': {'percent': how.warmup}},
          **how.optimizer,
      },
      'lora': {'rank': rank if method == 'lora' else 0},
      'evals': {'test': {'every': 'auto'}},
      'checkpoint': {'every': {'percent': 10}},
      'sweep': {
          'grid': {'optimizer': {'learning_rate': list(rates)}},
          'held_out': held_out, 'seeds': 3,
      },
  }, type_safe=False)  # A number may replace auto.


def usual_resolution(model: str) -> int:
  """Returns 384 rounded up to a multiple of the patch size."""
  patch = model.rpartition('/')[2]
  side = int(patch) if patch.isdigit() else 1
  return -(-384 // side) * side
