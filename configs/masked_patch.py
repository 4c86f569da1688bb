"""Masked patch prediction: pre-training without labels (section 4.6, B.1.2).

    python main.py \
        --config=configs/masked_patch.py:model=B/16,dataset=jft \
        --workdir=gs://bucket/mpp --config.data.data_dir=gs://bucket/tfds

Fine-tuning drops the prediction layer:

    python main.py --config=configs/finetune.py:dataset=imagenet2012 \
        --workdir=gs://bucket/mpp_imagenet \
        --config.init.checkpoint=gs://bucket/mpp

Hardware: as for configs/pretrain.py. Labels are not used.
Expected top-1 accuracy of ViT-B/16 fine-tuned on ImageNet: 79.9 %, 2 points
more than from scratch (cited: arXiv 2010.11929, section 4.6). Not measured
here; configs/masked_patch_small.py has small-scale measurements.

Pre-training does not train the class token. To evaluate the representation
before fine-tuning (few-shot, k-NN), use average pooling:
--config.model.pooling=average --config.model.cls=true.
"""

from ml_collections import ConfigDict

from configs import pretrain


def get_config(
    model: str = 'B/16', dataset: str = 'jft', resolution: int = 224,
    target: str = 'mean_color', corrupted: float = 0.5,
    batch_size: int = 4096,
) -> ConfigDict:
  """Returns the pre-training config.

  Args:
    model: model variant, such as 'B/16'.
    dataset: any dataset; the paper uses JFT-300M, with 1 M steps or 14 epochs.
    resolution: image size in pixels.
    target: 'mean_color' as reported in the paper, 'downsampled' or 'patch'.
    corrupted: fraction of corrupted patches; in the paper, 0.15 was slightly
      worse.
    batch_size: global batch size.
  """
  return ConfigDict({
      'total': {'steps': 1_000_000},
      'batch_size': batch_size,
      'model': {'variant': model, 'dtype': 'auto', 'remat': 'attention'},
      'data': {
          'source': dataset, 'split': 'train', 'resolution': resolution,
          'train_ops': [*pretrain.CROP_AND_FLIP],
          'eval_ops': pretrain.eval_ops(resolution),
          'num_workers': 'auto',
      },
      'objective': {
          'name': 'masked_patch', 'target': target, 'corrupted': corrupted},
      # Weight decay of section 4.1. The warm-up, 10,000 of 1 M steps, is a
      # percentage, so that the run can be shortened.
      'optimizer': {
          'name': 'adam', 'learning_rate': 2e-4, 'weight_decay': 0.1,
          'schedule': {'name': 'cosine', 'warmup': {'percent': 1}},
      },
      'evals': {'test': {'name': 'objective', 'every': 'auto'}},
      'checkpoint': {'every': {'steps': 1000}},
  }, type_safe=False)  # A number may replace auto.
