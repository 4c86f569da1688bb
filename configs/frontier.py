"""CIFAR-10 accuracy of small ViTs against parameters and CPU time.

    python main.py --config=configs/frontier.py --workdir=runs/frontier \
        --config.data.data_dir=$HOME/tensorflow_datasets

Trains plain ViTs of three sizes from scratch with the settings of
configs/cifar10.py:recipe=best, and fine-tunes `photos` with those of
recipe=photos, each for 15, 60 and 240 minutes of one CPU core. The settings are
the same for all sizes and lengths, and were not chosen on test images.

`make paper FIGURE=frontier DATA=FOLDER` runs all stages, which are called
PARAMETERS,MINUTES,SEED, and draws the figure. With `:minutes=15`, only the
short ones run; the others may follow later in the same folder.

Hardware: an estimated 23 hours of one CPU core. Expected: docs/results.md.
"""

from typing import Any

from ml_collections import ConfigDict

from configs import cifar10
from configs.paper import small

# By number of parameters: recipe, width, depth, and images/s on one core of an
# AMD EPYC (2026-11-30), which determine the number of steps.
MODELS = {
    '29k': ('best', 32, 2, 950),
    '208k': ('best', 64, 4, 410),
    '1404k': ('best', 128, 7, 105),
    'photos': ('photos', 128, 7, 105),  # It has the shape of '1404k'.
}


def get_config(
    minutes: str = '15+60+240', models: str = '+'.join(MODELS), seeds: int = 3,
) -> ConfigDict:
  """Returns one stage for each model, length and seed.

  Args:
    minutes: lengths in minutes of one core, joined by '+'.
    models: names in MODELS, joined by '+'.
    seeds: number of runs of those under 20 minutes; of longer ones, there is
      one.
  """
  if unknown := {*models.split('+')} - {*MODELS}:
    raise ValueError(
        f'models has {min(unknown)!r}. Known: {", ".join(MODELS)}.')
  config = cifar10.get_config(recipe='best')
  config.evals.test.every = {'percent': 100}
  config.checkpoint = {'every': {'percent': 5}, 'best': ''}
  config.log = {'every': {'percent': 2}}
  config.stages = ConfigDict(sort_keys=False)
  for length in map(int, minutes.split('+')):
    config.stages.update(small.stages(
        {f'{name},{length}': _stage(*MODELS[name], minutes=length)
         for name in models.split('+')}, seeds if length < 20 else 1))
  return config


def _stage(
    recipe: str, width: int, depth: int, images_per_sec: int, *, minutes: int,
) -> dict[str, Any]:
  base = cifar10.get_config(recipe=recipe).to_dict()
  return {
      'total': {'steps': minutes * 60 * images_per_sec // base['batch_size']},
      # Activations of a microbatch fit into the cache of a CPU.
      'accumulation': 8,
      'model': {**base['model'], 'width': width, 'depth': depth,
                'mlp_dim': 4 * width, 'num_heads': max(2, width // 32),
                'unroll': depth, 'remat': 'none'},
      **{name: base[name] for name in ('init', 'objective', 'optimizer')},
  }
