"""Pre-training as in the paper: Table 3's values by model and data set.

    python main.py --config=configs/pretrain.py:model=B/16 \
        --workdir=gs://bucket/b16 --config.data.data_dir=gs://bucket/tfds

Hardware: as many TPU cores as hold 4,096 images of 224 x 224; fewer set
--config.accumulation.
Expected: ViT-B/16 on ImageNet alone, fine-tuned at 384: 77.91 % top-1 (cited:
arXiv 2010.11929, Table 5). Not measured here.

A data set that is not in the paper gets ImageNet's values, with a warm-up of
5 % of the steps.
"""

from ml_collections import ConfigDict

# arXiv 2010.11929, Table 3. Epochs where the table has two: the longer for L.
IMAGENET = {
    'epochs': 300, 'decay': 'cosine', 'weight_decay': 0.3, 'dropout': 0.1,
    'learning_rate': {}, 'default_rate': 3e-3, 'clip_norm': 1.0,
}
TABLE_3 = {
    'imagenet2012': IMAGENET,
    'imagenet21k': {
        'epochs': 90, 'decay': 'linear', 'weight_decay': 0.03, 'dropout': 0.1,
        'learning_rate': {}, 'default_rate': 1e-3, 'clip_norm': None,
    },
    'jft': {
        'epochs': 7, 'decay': 'linear', 'weight_decay': 0.1, 'dropout': 0.0,
        'learning_rate': {
            'B/16': 8e-4, 'B/32': 8e-4, 'L/32': 6e-4, 'L/16': 4e-4,
            'H/14': 3e-4, 'R50x1': 1e-3, 'R50x2': 1e-3, 'R101x1': 8e-4,
            'R152x1': 6e-4, 'R152x2': 6e-4, 'R50+B/16': 8e-4,
            'R50+B/32': 8e-4, 'R50+L/32': 2e-4, 'R50+L/16': 4e-4,
        },
        'default_rate': 8e-4, 'clip_norm': None,
    },
}
JFT_EPOCHS = {'L/16': 14, 'H/14': 14, 'R50+L/16': 14}
SPLITS = {'imagenet21k': 'full[51200:]'}
# Several labels an image: sigmoid; of very many, a head that starts at "no".
MULTI_LABEL = ('imagenet21k', 'jft', 'shapes')


def get_config(
    model: str = 'B/16', dataset: str = 'imagenet2012', resolution: int = 224,
    batch_size: int = 4096,
) -> ConfigDict:
  """Returns the pre-training of a model on a data set.

  Args:
    model: a variant, such as 'L/16', 'R50+B/16' or 'R50x1'.
    dataset: 'imagenet2012', 'imagenet21k', 'jft', or any other data set.
    resolution: of the images, in pixels.
    batch_size: global; the paper's learning rates are for 4096.
  """
  row = TABLE_3.get(dataset, IMAGENET)
  epochs = JFT_EPOCHS.get(model, row['epochs']) if dataset == 'jft' else (
      row['epochs'])
  warmup = {'steps': 10_000} if dataset in TABLE_3 else {'percent': 5}
  many = dataset in MULTI_LABEL
  # A ResNet has neither dropout nor a layer between pooling and head.
  is_resnet = '/' not in model
  of_vit = {} if is_resnet else {
      'representation_layer': True, 'dropout': row['dropout']}
  return ConfigDict({
      'total': {'epochs': epochs},
      'batch_size': batch_size,
      'model': {
          'variant': model, **of_vit, 'dtype': 'bfloat16', 'remat': 'dots',
          'head_bias': -10.0 if many and dataset in TABLE_3 else 0.0,
      },
      'data': {
          'source': dataset, 'split': SPLITS.get(dataset, 'train'),
          'resolution': resolution,
          'train_ops': [{'op': 'inception_crop'}, {'op': 'flip'}],
          'eval_ops': [
              {'op': 'resize', 'shorter': resolution * 8 // 7},
              {'op': 'central_crop'},
          ],
          'num_workers': 8,
      },
      'objective': {'loss': 'sigmoid' if many else 'softmax'},
      'optimizer': {
          'name': 'adam',
          'learning_rate': row['learning_rate'].get(
              model, row['default_rate']),
          'weight_decay': row['weight_decay'], 'clip_norm': row['clip_norm'],
          'schedule': {'name': row['decay'], 'warmup': warmup},
      },
      'evals': {'val': {'every': {'percent': 2}}},
      'checkpoint': {'every': {'steps': 1000}},
  })
