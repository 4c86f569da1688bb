"""Small models from the features of a large one, without labels.

    python main.py --workdir=runs/small --config=configs/distil.py:\
teacher=hf://timm/vit_small_patch14_dinov2.lvd142m,data=./my_images,\
student=Ti/16,teacher_resolution=224

The student learns the representation and the patch features of the teacher on
any images. Use it where a foundation model is too large or too slow, or where
its patches or resolution do not suit. Its weights are those of any run:

    python main.py features --model=runs/small --output=small.npz my_images/
    python main.py --config=configs/finetune.py:dataset=./labelled \
        --workdir=runs/tuned --config.init.checkpoint=runs/small

`teacher` is any address of weights, `data` any value of `data.source`, and
`student` a variant, such as S/16. Several teachers, joined by +, are learned
together. Each sees the images in its own resolution, which may cost much more
than the student; `teacher_resolution` sets another one. With labels=true, k-NN
accuracy is measured from step 0 on. A tenth of the images is not trained on:
`held_out/pooled` and `held_out/patches` are their distances from the teacher.

A teacher often costs most of a step. `data prepare --teacher` computes its
outputs once, and runs without `teacher` read them:

    python main.py --workdir=runs/small --config=configs/distil.py:\
data=mine:1.0.0,student=Ti/16 --config.data.data_dir=tfds

Hardware: an accelerator that holds the teacher, or CPU cores for images of 32
pixels. Expected result: not measured at scale; see docs/distillation.md. The
optimizer, learning rate (for batches of 1,024) and cosine schedule are those of
AM-RADIO (arXiv 2312.06709, section 4), which saw 614 million images; the rest
is our choice.
"""

from typing import Any

from ml_collections import ConfigDict


def get_config(
    data: str, teacher: str = '', student: str = 'Ti/16', resolution: int = 224,
    teacher_resolution: int = 0, epochs: int = 100, batch_size: int = 256,
    labels: bool = False,
) -> ConfigDict:
  """Returns the config.

  Args:
    data: the images.
    teacher: weights of the teacher, or of several, joined by +; '' for data
      with stored outputs of teachers, which are not cropped again.
    student: variant of the model to train.
    resolution: size in pixels of the images that the student sees; a multiple
      of its patch size.
    teacher_resolution: the same for all teachers; 0 for those of their weights.
    epochs: length of training.
    batch_size: global batch size.
    labels: whether the images have labels, which only k-NN uses.
  """
  teachers = teacher.split('+') if teacher else []
  random_ops = [{'op': 'inception_crop', 'area': [0.35, 1.0]}, {'op': 'flip'}]
  often = {'every': {'percent': 10}, 'split': 'train[90%:]'}
  evals: dict[str, Any] = {'held_out': {'name': 'objective', **often}}
  if labels:
    evals['knn'] = {
        'name': 'knn', 'train_split': 'train[:90%]', 'at_start': True, **often}
  return ConfigDict({
      'total': {'epochs': epochs},
      'batch_size': batch_size,
      'model': {'variant': student},
      'data': {
          'source': data, 'split': 'train[:90%]', 'resolution': resolution,
          'train_ops': random_ops if teacher else [{'op': 'resize'}],
          'cache_mib': 512,
      },
      'objective': {
          'name': 'distill_features', 'teachers': teachers,
          'resolutions': [teacher_resolution] * len(teachers) * bool(
              teacher_resolution)},
      'optimizer': {
          'name': 'adam', 'learning_rate': 1e-3, 'weight_decay': 0.05,
          'clip_norm': 1.0,
          'schedule': {'name': 'cosine', 'warmup': {'percent': 5}},
      },
      'evals': evals,
      'checkpoint': {'every': {'percent': 10}, 'best': ''},
      'log': {'every': {'percent': 2}},
  }, sort_keys=False)
