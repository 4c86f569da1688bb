"""Fine-tuning on a task of VTAB-1k: 1,000 images, 19 tasks.

All of them, and their mean:

    python main.py vtab --workdir=runs/vtab --checkpoint=runs/b16 \
        --config.data.data_dir=$HOME/tensorflow_datasets

One, as any experiment; its settings chosen on the benchmark's 200 images:

    python main.py --config=configs/vtab.py:task=dtd --workdir=runs/dtd ...
    python main.py sweep --config=configs/vtab.py:task=dtd --workdir=... \
        --grid optimizer.learning_rate=0.003,0.01

arXiv 2010.11929, Table 4 and appendix B.1.1: 2,500 steps at learning rate 0.01
for every task, trained on the 800 and the 200 images, at 384 pixels. Images are
resized whole, neither cropped nor flipped, as in the benchmark's own script:
some labels say where a thing is. The paper does as arXiv 1912.11370 does, which
crops and flips at random in the tasks whose labels allow it.

Hardware: a TPU v3-8 for B/16 at 384; fewer devices compute a batch in parts.
Expected, the mean of the 19 tasks: L/16 from ImageNet-21k 72.72 +- 0.21 %, H/14
from JFT 77.63 +- 0.23 % (cited: arXiv 2010.11929, Table 2). Not measured here.
"""

from ml_collections import ConfigDict

from configs import finetune


def get_config(
    task: str = 'dtd', model: str = '', resolution: int = 0,
    batch_size: int = 512,
) -> ConfigDict:
  """Returns the fine-tuning of a model on a task.

  Args:
    task: one of the 19, such as 'clevr_count_all' (vit_jax/data/vtab.py).
    model: a variant, such as 'L/16'; '' is the checkpoint's.
    resolution: of the images, in pixels; position embeddings are interpolated.
      0 is 384 or, of the model that is named here, the next that its patches
      divide: 392 for 'H/14'.
    batch_size: global.
  """
  resolution = resolution or finetune.usual_resolution(model)
  return ConfigDict({
      'total': {'steps': 2500},
      'batch_size': batch_size,
      'model': {'variant': model, 'dtype': 'bfloat16', 'remat': 'attention'},
      'data': {
          'source': f'vtab/{task}', 'split': 'train800+val200',
          'resolution': resolution,
          'train_ops': [{'op': 'resize'}], 'eval_ops': [{'op': 'resize'}],
      },
      'optimizer': {
          'name': 'sgd', 'momentum': 0.9, 'momentum_dtype': 'bfloat16',
          'learning_rate': 0.01, 'clip_norm': 1.0,
          'schedule': {'name': 'cosine', 'warmup': {'percent': 5}},
      },
      'evals': {'test': {'split': 'test'}},
      'checkpoint': {'every': {'percent': 50}},
      'sweep': {
          'development': {
              'data': {'split': 'train800'},
              'evals': {'dev': {'split': 'val200'}},
          },
      },
  })
