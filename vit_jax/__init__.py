"""Vision Transformer in JAX: "An Image is Worth 16x16 Words", arXiv:2010.11929.

Pre-training, fine-tuning and evaluation of the paper's models. Start with
`python main.py --help`; CONTRIBUTING.md describes the modules::

    model = vit_jax.load('ViT-B_16.npz')   # Or a run, a folder, hf://...
    model.predict('cat.jpg')               # Names and probabilities.
    model.features(['cat.jpg', 'dog.jpg']), model.rollout('cat.jpg')
    logits = model(images)['logits']       # Arrays in, arrays out.

    experiment = vit_jax.build(
        'configs/finetune.py:dataset=./my_images,resolution=224',
        {'init.checkpoint': 'hf://timm/vit_small_patch14_dinov2.lvd142m'})
    vit_jax.train(experiment, 'runs/mine')  # Or your own loop: docs/embed.md.
    vit_jax.evaluate('runs/mine', ['fewshot', 'knn'])

Names outside `__all__` may change between releases.
"""

from collections.abc import Mapping, Sequence
import os
from typing import Any, TYPE_CHECKING

if TYPE_CHECKING:
  from vit_jax.experiment.experiment import Experiment
  from vit_jax.inference.load import create
  from vit_jax.inference.load import load
  from vit_jax.inference.model import Model
  from vit_jax.inference.predictions import Estimate
  from vit_jax.inference.predictions import Prediction

__all__ = ['Estimate', 'Experiment', 'Model', 'Prediction', 'build', 'create',
           'evaluate', 'list_models', 'load', 'train']
__version__ = '0.2.0'


def __dir__() -> list[str]:
  return [*__all__, '__version__']


def build(
    config: Any,
    overrides: Sequence[str] | Mapping[str, Any] = (), *, stage: str = '',
) -> 'Experiment':
  """Builds an experiment, for training from your own program.

  Args:
    config: a config file, such as 'configs/quickstart.py', or the sections of
      one as nested dicts or a ConfigDict.
    overrides: settings, such as {'optimizer.learning_rate': 3e-4}, or as in
      flags: ['optimizer.learning_rate=3e-4'].
    stage: one of the stages of a config file that has several.
  """
  from vit_jax import registry
  from vit_jax.experiment import build as build_lib
  from vit_jax.experiment import config_file
  from vit_jax.experiment import load_config
  config = (os.fspath(config) if isinstance(config, (str, os.PathLike))
            else config_file.plain(config))
  registry.allow_named([config, overrides])
  return build_lib.build(load_config.load_one(config, overrides, stage=stage))


def train(
    experiment: 'Experiment', workdir: str | os.PathLike) -> dict[str, Any]:
  """Trains in a workdir, or resumes there, as the command line does.

  Returns the content of `summary.json`.
  """
  from vit_jax import run as run_lib
  from vit_jax.experiment import fit_weights
  return run_lib.train(experiment, workdir, weights=fit_weights.open_initial(
      experiment.config, workdir))


def evaluate(
    path: str | os.PathLike, evaluators: Sequence[str] = (), *,
    config: str = '', source: str = '',
    overrides: Sequence[str] | Mapping[str, Any] = (), which: str = 'auto',
) -> dict[str, float]:
  """Evaluates a run or other weights, as the command line does.

  Args:
    path: a workdir, one of its checkpoints, or anything that `load` accepts.
    evaluators: names of evaluators; by default, those of the config.
    config: config file with the data; by default, the config of the run.
    source: data to evaluate on, such as a folder, instead of the config's.
    overrides: settings, such as {'data.source': 'cifar10'}; see `build`.
    which: as in `load`.

  Returns:
    Metrics by name, such as 'test/accuracy', a fraction.

  Raises:
    UserError: if there is no config, or no such evaluator.
  """
  from vit_jax import registry
  from vit_jax.run import evaluate_weights
  registry.allow_named([evaluators, overrides, source])
  weights = evaluate_weights.open_weights(path, which=which)
  return evaluate_weights.evaluate(evaluate_weights.config_for(
      weights, config, evaluators=evaluators, overrides=overrides,
      source=source), weights)['metrics']


def list_models(pattern: str = '*') -> list[str]:
  """Returns the names of models that match a pattern.

  Args:
    pattern: shell pattern, such as `*dinov3*`. Case does not matter.

  Returns:
    Names of weights that are part of the package, such as 'photos', which
    `load` reads; then values of `model.variant`: timm's architectures and the
    models of the paper. `load` reads weights of timm's as 'hf://timm/' and the
    name with a tag.
  """
  import fnmatch

  from vit_jax import registry
  from vit_jax.models import variants
  from vit_jax.weights import download
  backbones = registry.optional(registry.BACKBONES)
  return [name for name in (
      *download.bundled(), *(backbones() if backbones else ()),
      *variants.PUBLISHED)
          if fnmatch.fnmatch(name.lower(), pattern.lower())]


def __getattr__(name: str) -> Any:
  """Imports a public name when it is used: they need Orbax.

  Without `epy.lazy_api_imports`: `doctor` runs where no package is installed.
  """
  modules = {'Estimate': 'inference.predictions', 'Model': 'inference.model',
             'Experiment': 'experiment.experiment',
             'Prediction': 'inference.predictions',
             'create': 'inference.load', 'load': 'inference.load'}
  if name not in modules:
    raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
  import importlib
  return getattr(importlib.import_module(f'vit_jax.{modules[name]}'), name)
