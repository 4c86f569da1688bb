"""Pre-training with the settings of the paper (table 3).

    python main.py --config=configs/pretrain.py:model=B/16 \
        --workdir=gs://bucket/b16 --config.data.data_dir=gs://bucket/tfds

On ImageNet-21k or JFT, with the sigmoid loss, or with `loss=softmax`:

    python main.py --workdir=gs://bucket/l16 \
        --config=configs/pretrain.py:model=L/16,dataset=jft,epochs=7 \
        --config.data.source=my_images --config.data.data_dir=gs://bucket/tfds

With `dataset=jft`, set `data.source` to a dataset of TensorFlow Datasets with
several labels per image (at most `data.max_labels`); it is trained with the
settings of JFT. `dataset=my_images` uses the settings of ImageNet instead; for
several labels per image and many classes, add --config.model.head_bias=-10. The
three datasets of table 3 have a warm-up of 10,000 steps, limited to 15 % of the
run; others have 5 %.

Hardware: TPUs with memory for 4,096 images of 224 x 224, or fewer with gradient
accumulation. `python main.py flops --config=...` prints the cost of a run.
Expected top-1 accuracy in % after fine-tuning on ImageNet with
configs/finetune.py (cited: arXiv 2010.11929, table 2 at 512 and 518 pixels;
B/16: table 5 at 384; not measured here):

    B/16 on imagenet2012   77.91         L/16 on jft   87.76
    L/16 on imagenet21k    85.30         H/14 on jft   88.55
"""

from ml_collections import ConfigDict

# arXiv 2010.11929, table 3: (epochs, base learning rate) by model. Where the
# table has two numbers of epochs, the larger one.
JFT = {
    'B/16': (7, 8e-4), 'B/32': (7, 8e-4),  # ViT-B/{16,32}
    'L/32': (7, 6e-4),  # ViT-L/32
    'L/16': (14, 4e-4),  # ViT-L/16: 7 or 14 epochs
    'H/14': (14, 3e-4),  # ViT-H/14
    'R50x1': (7, 1e-3), 'R50x2': (7, 1e-3),  # R50x{1,2}
    'R101x1': (7, 8e-4),  # R101x1
    'R152x1': (7, 6e-4), 'R152x2': (7, 6e-4),  # R152x{1,2}
    'R50+B/16': (7, 8e-4), 'R50+B/32': (7, 8e-4),  # R50+ViT-B/{16,32}
    'R50+L/32': (7, 2e-4),  # R50+ViT-L/32
    'R50+L/16': (14, 4e-4),  # R50+ViT-L/16: 7 or 14 epochs
    # Not in table 3: R200x3 has 14 epochs in table 6; the rate is the default.
    'R200x3': (14, 8e-4), 'R152x4': (14, 8e-4),
}
IMAGENET21K = {
    'B/16': (90, 1e-3), 'B/32': (90, 1e-3),  # ViT-B/{16,32}
    'L/16': (90, 1e-3), 'L/32': (90, 1e-3),  # ViT-L/{16,32}: 30 or 90 epochs
}
# Table 3: schedule, weight decay, dropout, clip norm (below the table), models,
# and default (epochs, base learning rate).
TABLE_3 = {
    'jft': ('linear', 0.1, 0.0, None, JFT, (7, 8e-4)),
    'imagenet21k': ('linear', 0.03, 0.1, None, IMAGENET21K, (90, 1e-3)),
    'imagenet2012': ('cosine', 0.3, 0.1, 1.0, {}, (300, 3e-3)),  # ViT-*
}
# Datasets with several labels per image.
MULTI_LABEL = ('imagenet21k', 'jft', 'shapes')
# With a sigmoid, probabilities start at 1 / classes: 18,291, 21,843 and 1,000.
HEAD_BIAS = {'jft': -10.0, 'imagenet21k': -10.0, 'imagenet2012': -6.9}
# TensorFlow's crops, with its default aspect ratios.
CROP_AND_FLIP = (
    {'op': 'inception_crop', 'sampler': 'tf', 'aspect': [0.75, 1.33]},
    {'op': 'flip'})


def get_config(
    model: str = 'B/16', dataset: str = 'imagenet2012', epochs: int = 0,
    loss: str = '', resolution: int = 224, batch_size: int = 4096,
) -> ConfigDict:
  """Returns the pre-training config.

  Other datasets use the values of ImageNet and a warm-up of 5 % of the steps
  instead of 10,000 steps. Models that are not in table 3 use those of B/16.

  Args:
    model: model variant, such as 'L/16', 'R50+B/16' or 'R50x1'.
    dataset: 'imagenet2012', 'imagenet21k', 'jft', or any other dataset.
    epochs: passes over the training split; 0 uses table 3.
    loss: 'softmax' or 'sigmoid'; '' uses 'sigmoid' for several labels per image
      and 'softmax' for one.
    resolution: image size in pixels.
    batch_size: global batch size; the learning rates are those for 4,096.
  """
  name = without_version(dataset)
  in_paper = name in TABLE_3
  decay, weight_decay, dropout, clip_norm, models, default = TABLE_3[
      name if in_paper else 'imagenet2012']
  usual_epochs, learning_rate = models.get(model, default)
  loss = loss or ('sigmoid' if name in MULTI_LABEL else
                  'softmax' if in_paper else 'auto')
  # ResNets have neither dropout nor a representation layer.
  of_vit = {'representation_layer': True, 'dropout': dropout}
  return ConfigDict({
      'total': {'epochs': epochs or usual_epochs},
      'batch_size': batch_size,
      'model': {
          'variant': model, **(of_vit if '/' in model else {}),
          'dtype': 'auto', 'remat': 'attention',
          'head_bias': HEAD_BIAS[name] if loss == 'sigmoid' and in_paper
                       else 0.0,
      },
      'data': {
          'source': dataset, 'split': 'train', 'resolution': resolution,
          'train_ops': [*CROP_AND_FLIP],
          'eval_ops': eval_ops(resolution), 'num_workers': 'auto',
      },
      'objective': {'loss': loss},
      'optimizer': {
          'name': 'adam', 'beta1': 0.9, 'beta2': 0.999,
          'learning_rate': learning_rate, 'weight_decay': weight_decay,
          'clip_norm': clip_norm,
          'schedule': {
              'name': decay,
              # The limit is for small datasets with the settings of JFT; the
              # runs of the paper never reach it.
              **({'warmup': {'steps': 10_000}, 'warmup_limit': {'percent': 15}}
                 if in_paper else {'warmup': {'percent': 5}})},
      },
      'evals': {'test': {'every': 'auto'}},
      'checkpoint': {'every': {'steps': 1000}},
  }, type_safe=False)  # A number may replace auto.


def hold_out_minival(config: ConfigDict) -> None:
  """Keeps the last 1 % of the training images of ImageNet for tuning."""
  config.data.split = 'train[:99%]'
  config.evals.minival = {'split': 'train[99%:]', 'every': {'percent': 2}}
  config.sweep = {'development': {
      'data': {'split': config.data.split},
      'evals': {'minival': {'split': config.evals.minival.split}}}}


def without_version(dataset: str) -> str:
  """Returns 'imagenet2012' for 'imagenet2012:5.1.0'."""
  return dataset.partition(':')[0]


def eval_ops(resolution: int) -> list[dict[str, object]]:
  """Returns a central crop of 7/8 of the image: 224 of 256 pixels."""
  return [{'op': 'resize', 'shorter': resolution * 8 // 7},
          {'op': 'central_crop'}]
