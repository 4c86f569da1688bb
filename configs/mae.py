"""Masked autoencoder: pre-training, fine-tuning and probe (arXiv 2111.06377).

    python main.py --config=configs/mae.py:model=L/16 \
        --workdir=gs://bucket/mae --config.data.data_dir=gs://bucket/tfds

Fine-tuning and linear probe drop the decoder:

    python main.py --config=configs/mae.py:method=finetune,model=L/16 \
        --workdir=gs://bucket/mae_finetune \
        --config.init.checkpoint=gs://bucket/mae

    python main.py --config=configs/mae.py:method=probe,model=L/16 \
        --workdir=gs://bucket/mae_probe --config.init.checkpoint=gs://bucket/mae

Hardware: 128 TPU v3 cores, 31 hours for L/16 and 1,600 epochs (cited: section
4.1 of the paper), or less with gradient accumulation. The encoder processes a
quarter of the patches; `main.py flops --config=configs/mae.py` prints the
FLOPs.
Expected top-1 accuracy on ImageNet of L/16 after 800 epochs: 85.4 % fine-tuned,
73.9 % with a linear probe (cited: table 1d); B/16, L/16 and H/14 fine-tuned
after 1,600 epochs: 83.6 %, 85.9 % and 86.9 % (cited: table 3). Not measured
here; configs/masked_patch_small.py:objective=mae has small-scale measurements.

Crops, their bicubic interpolation, mean and deviation of the pixels and, for
fine-tuning, the average of the patches with a new norm are those of the
authors' code. Left out are its random erasing, timm's own list of RandAugment
operations (each applied with probability 0.5) and, in the linear probe, the
batch norm before the classifier (appendix A.1).
"""

from ml_collections import ConfigDict

from configs import masked_patch
from configs import pretrain

# Tables 8, 9 and 10: (batch size, learning rate for 256 images, weight decay,
# epochs, epochs of warm-up). H/14 fine-tunes for as many epochs as L/16.
METHODS = {
    'pretrain': (4096, 1.5e-4, 0.05, 800, 40),
    'finetune': (1024, 1e-3, 0.05, 50, 5),
    'probe': (16384, 0.1, 0.0, 90, 10),
}


def get_config(
    model: str = 'B/16', dataset: str = 'imagenet2012', resolution: int = 224,
    method: str = 'pretrain', epochs: int = 0, batch_size: int = 0,
) -> ConfigDict:
  """Returns the config of a method.

  Args:
    model: model variant; the paper uses B/16, L/16 and H/14.
    dataset: any dataset; few-shot and k-NN evaluation during pre-training need
      one label per image.
    resolution: image size in pixels.
    method: 'pretrain', 'finetune' or 'probe'.
    epochs: length of training; 0 uses the paper's: 800 of pre-training, 100
      (B/16) or 50 of fine-tuning, 90 of the probe.
    batch_size: global batch size, to which the learning rate is proportional; 0
      uses the paper's.
  """
  if method not in METHODS:
    raise ValueError(
        f'method must be one of {", ".join(METHODS)}, but is {method!r}.')
  batch, rate, weight_decay, usual_epochs, warmup = METHODS[method]
  if method == 'finetune' and model.startswith('B/'):
    usual_epochs = 100
  config = masked_patch.get_config(
      model=model, dataset=dataset, resolution=resolution,
      batch_size=batch_size or batch)
  epochs = epochs or usual_epochs
  config.total = {'epochs': epochs}
  # The decoder has 8 layers of width 512 for every encoder, as in the paper
  # (section 3), where that is light. A small encoder, such as Ti/8, trains
  # faster with --config.objective.decoder_width and decoder_depth.
  config.objective = {'name': 'mae'}
  # Appendix A.1. The authors' code trains these embeddings in fine-tuning.
  config.model.position = 'sincos' if method == 'pretrain' else 'learned'
  resize, crop = config.data.eval_ops
  config.data.update({
      # The mean and deviation of ImageNet.
      'mean': [0.485, 0.456, 0.406], 'std': [0.229, 0.224, 0.225],
      'train_ops': [
          {'op': 'inception_crop', 'sampler': 'torch', 'method': 'bicubic',
           'area': [0.2 if method == 'pretrain' else 0.08, 1.0]},
          {'op': 'flip'}],
      'eval_ops': [{**resize, 'method': 'bicubic'}, crop]})
  config.optimizer = {
      'name': 'adam', 'learning_rate': rate * config.batch_size / 256,
      'weight_decay': weight_decay,
      # A percentage, so that the run can be shortened.
      'schedule': {
          'name': 'cosine', 'warmup': {'percent': 100 * warmup / usual_epochs}},
  }
  if method == 'pretrain':
    config.optimizer.beta2 = 0.95
    config.evals = {'test': {'name': 'objective', 'every': 'auto'}}
    if pretrain.without_version(dataset) not in pretrain.MULTI_LABEL:
      for name in ('knn', 'fewshot'):
        config.evals[name] = {'name': name, 'train_split': 'auto',
                              'every': {'percent': 10}}
    return config
  config.evals = {'test': {'every': 'auto'}}
  if method == 'finetune':
    config.objective = {'name': 'supervised', 'label_smoothing': 0.1}
    config.optimizer.layer_decay = 0.75
    config.model.update({
        'stochastic_depth': 0.2 if model.startswith('H/') else 0.1,
        'pooling': 'average', 'cls': True, 'pool_norm': True,
        'final_norm': False})
    config.init = {
        'new': ['(head|pool_norm)/.*'],
        'ignored': ['(head|final_norm|masked_patch)/.*']}
    config.data.update({'mixup': 0.8, 'cutmix': 1.0, 'train_ops': [
        *config.data.train_ops,
        {'op': 'randaugment', 'num_layers': 2, 'magnitude': 9,
         'magnitude_std': 0.5}]})
  else:
    config.objective = {'name': 'supervised'}
    config.optimizer.update({
        'name': 'optax.lars', 'arguments': {'momentum': 0.9},
        'frozen': [r'(?!head/).*']})
  return config

