"""Masked patch prediction: pre-training without labels (section 4.6, B.1.2).

    python main.py \
        --config=configs/masked_patch.py:model=B/16,dataset=jft \
        --workdir=gs://bucket/mpp --config.data.data_dir=gs://bucket/tfds

Then fine-tuned by the ordinary path, which leaves out what predicted patches:

    python main.py --config=configs/finetune.py:dataset=imagenet2012 \
        --workdir=gs://bucket/mpp_imagenet \
        --config.init.checkpoint=gs://bucket/mpp

Hardware: as many TPU cores as hold 4,096 images of 224 x 224; fewer
compute a batch in parts. Any data set will do; its labels are not used.
Expected: ViT-B/16 fine-tuned on ImageNet: 79.9 % top-1, 2 points above from
scratch (cited: arXiv 2010.11929, section 4.6). Not measured here; for a proof
at small scale see configs/masked_patch_small.py.

Nothing is read from the class token yet: what its output says is learned in
fine-tuning. To evaluate the representation before that (few-shot, k-NN), let it
be the patches' average: --config.model.pooling=average --config.model.cls=true.
"""

from ml_collections import ConfigDict

from configs import pretrain


def get_config(
    model: str = 'B/16', dataset: str = 'jft', resolution: int = 224,
    target: str = 'mean_color', corrupted: float = 0.5,
    batch_size: int = 4096,
) -> ConfigDict:
  """Returns the pre-training of a model on a data set.

  Args:
    model: a variant, such as 'B/16'.
    dataset: any; the paper's is JFT-300M, of which 1 M steps see 14 epochs.
    resolution: of the images, in pixels.
    target: 'mean_color', which the paper reports, 'downsampled' or 'patch'.
    corrupted: share of the patches; 0.15 was slightly worse in the paper.
    batch_size: global.
  """
  return ConfigDict({
      'total': {'steps': 1_000_000},
      'batch_size': batch_size,
      'model': {'variant': model, 'dtype': 'bfloat16', 'remat': 'attention'},
      'data': {
          'source': dataset, 'split': pretrain.SPLITS.get(
              pretrain.without_version(dataset), 'train'),
          'resolution': resolution,
          'train_ops': [{'op': 'inception_crop'}, {'op': 'flip'}],
          'eval_ops': pretrain.eval_ops(resolution), 'num_workers': 8,
      },
      'objective': {
          'name': 'masked_patch', 'target': target, 'corrupted': corrupted},
      # Weight decay is what section 4.1 says of all models; the warm-up, 10 k
      # steps of 1 M, as a part of a run that may be made shorter.
      'optimizer': {
          'name': 'adam', 'learning_rate': 2e-4, 'weight_decay': 0.1,
          'schedule': {'name': 'cosine', 'warmup': {'percent': 1}},
      },
      'evals': {'val': {'name': 'objective', 'every': {'percent': 2}}},
      'checkpoint': {'every': {'steps': 1000}},
  })
