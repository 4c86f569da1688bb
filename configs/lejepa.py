"""LeJEPA: joint-embedding pre-training without a teacher (arXiv 2511.08544).

    python main.py --config=configs/lejepa.py:model=L/16 \
        --workdir=gs://bucket/lejepa --config.data.data_dir=gs://bucket/tfds

k-NN and linear accuracy are measured every 10 % of the run. Fine-tuning drops
the projector:

    python main.py \
        --config=configs/finetune.py:dataset=imagenet2012,model=L/16 \
        --workdir=gs://bucket/lejepa_imagenet \
        --config.init.checkpoint=gs://bucket/lejepa

Views (two at full resolution and six of 96 pixels, with SimCLR's colour
jitter), optimizer and schedule are the defaults of the authors' code; batch
size and projector are our choice. Unlike in the authors' code, there is no
blur or solarisation, and no batch norm in the projector. Their linear probe
trains on the class tokens of the last two layers with a layer norm. Here, `knn`
and `fewshot` use the input of the head, and `probe` one or four layers.

Hardware: TPUs or GPUs with memory for 1,024 images in eight views. With
gradient accumulation, each microbatch is embedded twice, because the loss
compares the whole batch. Expected accuracy of a linear probe of ViT-L after
100 epochs of ImageNet: 96.5 % on CIFAR-10, 83.7 % on CIFAR-100 (cited: the
authors' README). Not measured at this scale; docs/results.md has short runs of
configs/masked_patch_small.py:objective=lejepa.
"""

from ml_collections import ConfigDict

from configs import mae
from configs import pretrain


def get_config(
    model: str = 'B/16', dataset: str = 'imagenet2012', resolution: int = 224,
    epochs: int = 100, batch_size: int = 1024, local_size: int = 96,
) -> ConfigDict:
  """Returns the pre-training config.

  Args:
    model: model variant, such as 'B/16'.
    dataset: any dataset.
    resolution: size of images and of global views, in pixels.
    epochs: length of training.
    batch_size: global batch size.
    local_size: size of local views in pixels; a multiple of the patch size.
  """
  config = mae.get_config(
      model=model, dataset=dataset, resolution=resolution, epochs=epochs,
      batch_size=batch_size)
  config.model.position = 'learned'
  config.objective = {'name': 'lejepa', 'views': {'local_size': local_size}}
  # Views are crops of the resized and centre-cropped image, on the device.
  config.data.eval_ops = pretrain.eval_ops(resolution)
  config.data.train_ops = config.data.eval_ops
  config.optimizer = {
      'name': 'adam', 'learning_rate': 5e-4, 'weight_decay': 0.05,
      'schedule': {'name': 'cosine', 'warmup': {'percent': 5}, 'end': 1e-3},
  }
  return config
