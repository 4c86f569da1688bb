"""Names that configs and the command line can use, and where each one lives.

This table is the map of the codebase. It holds text: a module is imported when
its name is used, so that a run loads only what it needs.
"""

from collections.abc import Mapping
import importlib
import importlib.util
from typing import Any

# The first line of a command's docstring is its help.
COMMANDS: Mapping[str, str] = {
    'train': 'vit_jax.commands.train',
    'evaluate': 'vit_jax.commands.evaluate',
    'sweep': 'vit_jax.extras.sweep.commands.sweep',
    'flops': 'vit_jax.extras.plan.commands.flops',
    'plan': 'vit_jax.extras.plan.commands.plan',
    'predict': 'vit_jax.commands.predict',
    'features': 'vit_jax.commands.features',
    'inspect': 'vit_jax.extras.figures.commands.inspect',
    'deduplicate': 'vit_jax.extras.curation.commands.deduplicate',
    'data': 'vit_jax.extras.curation.commands.data',
    'convert': 'vit_jax.commands.convert',
    'export': 'vit_jax.extras.serve.commands.export',
    'benchmark': 'vit_jax.extras.plan.commands.benchmark',
    'doctor': 'vit_jax.commands.doctor',
}

MODELS: Mapping[str, str] = {
    'vit': 'vit_jax.models.vit:ViTConfig',
    'hybrid': 'vit_jax.models.resnet_config:HybridConfig',
    'resnet': 'vit_jax.models.resnet_config:ResNetConfig',
    'ablation': 'vit_jax.models.ablations:AblationConfig',
    'backbone': 'vit_jax.extras.zoo.backbone_config:BackboneConfig',
}

# Readers of files of weights, by the format that their content shows. A folder
# may hold the same weights in several formats: the safest first.
READERS: Mapping[str, str] = {
    'safetensors': 'vit_jax.weights.formats.safetensors:open_file',
    'npz': 'vit_jax.weights.formats.npz:open_file',
    'pytorch': 'vit_jax.extras.zoo.pytorch:open_file',
}
# Writers of models; `orbax` is written by checkpoints.
WRITERS: Mapping[str, str] = dict.fromkeys(
    ('npz', 'timm', 'huggingface'), 'vit_jax.extras.zoo.save:write')
# Finds the model that the arrays of a file belong to.
FOREIGN = 'vit_jax.extras.zoo.foreign:load'

# Returns the record of a ViT as that of a backbone, with all its settings.
GENERAL = 'vit_jax.extras.zoo.backbone_config:general'

# Published backbones, whose names are variants with an underscore.
BACKBONES = 'vit_jax.extras.zoo.backbones:table'

# Draws the result of an evaluator for `evaluate`.
FIGURES = 'vit_jax.extras.figures.evaluation_figures:draw'


def available(names: Mapping[str, str]) -> list[str]:
  """Returns the names whose modules exist: a leaf may have been deleted."""
  return [name for name, target in names.items() if exists(target)]


def exists(target: str) -> bool:
  """Whether the module of a target exists; imports only its packages."""
  try:
    return importlib.util.find_spec(target.partition(':')[0]) is not None
  except ModuleNotFoundError:  # A package that it lies in is missing.
    return False


def load(target: str) -> Any:
  """Returns a module, or with 'module:name' a function or class of it."""
  module, _, name = target.partition(':')
  found = importlib.import_module(module)
  return getattr(found, name) if name else found
