"""Pre-training as in the paper: Table 3's values by model and data set.

    python main.py --config=configs/pretrain.py:model=B/16 \
        --workdir=gs://bucket/b16 --config.data.data_dir=gs://bucket/tfds

On ImageNet-21k or JFT, by a sigmoid for each label or by the softmax:

    python main.py --workdir=gs://bucket/l16 \
        --config=configs/pretrain.py:model=L/16,dataset=jft,epochs=7 \
        --config.data.source=my_images --config.data.data_dir=gs://bucket/tfds

`jft` stands for any data set of images with several labels each, of any size,
that TensorFlow Datasets prepared: `data.source` names it;
classes and splits are what its files say. Labels travel as lists, at most
`data.max_labels` an image, whatever the number of classes. Under its own name,
`dataset=my_images`, such a set gets ImageNet's values, and needs to be told:
loss=sigmoid and, of very many labels, --config.model.head_bias=-10. The warm-up
of 10,000 steps is at most 15 % of a run, so that small sets train as well.

Hardware: as many TPU cores as hold 4,096 images of 224 x 224; fewer
compute a batch in parts. What a run costs: python main.py flops --config=...
Expected, after fine-tuning on ImageNet (configs/finetune.py), top-1 in %; not
measured here (cited: arXiv 2010.11929, Table 2 at 512 and 518 pixels, the first
row Table 5 at 384):

    B/16 on imagenet2012   77.91         L/16 on jft   87.76
    L/16 on imagenet21k    85.30         H/14 on jft   88.55
"""

from ml_collections import ConfigDict

# arXiv 2010.11929, Table 3: (epochs, base learning rate) by model. Where the
# table has two numbers of epochs the longer is here; `epochs=` says the other.
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
}
IMAGENET21K = {
    'B/16': (90, 1e-3), 'B/32': (90, 1e-3),  # ViT-B/{16,32}
    'L/16': (90, 1e-3), 'L/32': (90, 1e-3),  # ViT-L/{16,32}: 30 or 90 epochs
}
# The same table: decay, weight decay, dropout, clipping (below the table), the
# models, and (epochs, base learning rate) of one that it does not have.
TABLE_3 = {
    'jft': ('linear', 0.1, 0.0, None, JFT, (7, 8e-4)),
    'imagenet21k': ('linear', 0.03, 0.1, None, IMAGENET21K, (90, 1e-3)),
    'imagenet2012': ('cosine', 0.3, 0.1, 1.0, {}, (300, 3e-3)),  # ViT-*
}
SPLITS = {'imagenet21k': 'full[51200:]'}
# Several labels an image.
MULTI_LABEL = ('imagenet21k', 'jft', 'shapes')


def get_config(
    model: str = 'B/16', dataset: str = 'imagenet2012', epochs: int = 0,
    loss: str = '', resolution: int = 224, batch_size: int = 4096,
) -> ConfigDict:
  """Returns the pre-training of a model on a data set.

  A data set that is not in the paper gets ImageNet's values, with a warm-up of
  5 % of the steps instead of 10,000 steps. A model that the paper has not
  trained on one of its data sets gets the values of B/16 there.

  Args:
    model: a variant, such as 'L/16', 'R50+B/16' or 'R50x1'.
    dataset: 'imagenet2012', 'imagenet21k', 'jft', or any other data set.
    epochs: passes over the training split; 0 takes the table's.
    loss: 'softmax', which shares an image among its labels, or 'sigmoid', which
      asks for each; by default 'sigmoid' where images have several labels.
    resolution: of the images, in pixels.
    batch_size: global; the paper's learning rates are for 4096.
  """
  name = without_version(dataset)
  in_paper = name in TABLE_3
  decay, weight_decay, dropout, clip_norm, models, default = TABLE_3[
      name if in_paper else 'imagenet2012']
  usual_epochs, learning_rate = models.get(model, default)
  loss = loss or ('sigmoid' if name in MULTI_LABEL else 'softmax')
  # A ResNet has neither dropout nor a layer between pooling and head.
  of_vit = {'representation_layer': True, 'dropout': dropout}
  return ConfigDict({
      'total': {'epochs': epochs or usual_epochs},
      'batch_size': batch_size,
      'model': {
          'variant': model, **(of_vit if '/' in model else {}),
          'dtype': 'bfloat16', 'remat': 'attention',
          # Of very many labels, each starts at "no".
          'head_bias': -10.0 if loss == 'sigmoid' and in_paper else 0.0,
      },
      'data': {
          'source': dataset, 'split': SPLITS.get(name, 'train'),
          'resolution': resolution,
          'train_ops': [{'op': 'inception_crop'}, {'op': 'flip'}],
          'eval_ops': eval_ops(resolution), 'num_workers': 8,
      },
      'objective': {'loss': loss},
      'optimizer': {
          'name': 'adam', 'beta1': 0.9, 'beta2': 0.999,
          'learning_rate': learning_rate, 'weight_decay': weight_decay,
          'clip_norm': clip_norm,
          'schedule': {
              'name': decay,
              # A set of one's own in JFT's place may be trained for less than
              # 10,000 steps; the paper's own runs never meet the limit.
              **({'warmup': {'steps': 10_000}, 'warmup_limit': {'percent': 15}}
                 if in_paper else {'warmup': {'percent': 5}})},
      },
      'evals': {'val': {'every': {'percent': 2}}},
      'checkpoint': {'every': {'steps': 1000}},
  })


def without_version(dataset: str) -> str:
  """Returns what 'imagenet2012:5.1.0' is called in a table."""
  return dataset.partition(':')[0]


def eval_ops(resolution: int) -> list[dict[str, object]]:
  """Returns the central 7/8 of an image: 224 pixels of 256."""
  return [{'op': 'resize', 'shorter': resolution * 8 // 7},
          {'op': 'central_crop'}]
