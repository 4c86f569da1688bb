"""Names that configs and the command line can use, and where each one lives.

This table is the map of the codebase. It holds text: a module is imported when
its name is used, so that a run loads only what it needs. Where a config takes
one of these names, 'my_package.losses:Focal' is one, too; see docs/extend.md.
"""

from collections.abc import Mapping, Sequence
import difflib
import importlib
import importlib.util
import os
import re
import sys
from typing import Any

from vit_jax import exceptions
from vit_jax.exceptions import UserError

# Tables: names that a config or a flag can choose.

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
    'doctor': 'vit_jax.extras.doctor.commands.doctor',
}

# Sections of a config that leaves declare: their records.
SECTIONS: Mapping[str, str] = {
    'card': 'vit_jax.extras.cards.config:CardConfig',
}

# `model.name`: config records; the most general last.
MODELS: Mapping[str, str] = {
    'vit': 'vit_jax.models.vit:ViTConfig',
    'hybrid': 'vit_jax.models.resnet:HybridConfig',
    'resnet': 'vit_jax.models.resnet:ResNetConfig',
    'ablation': 'vit_jax.models.ablations:AblationConfig',
    'backbone': 'vit_jax.extras.zoo.backbone_config:BackboneConfig',
}

# `objective.name`: config records.
OBJECTIVES: Mapping[str, str] = {
    'supervised': 'vit_jax.objectives.supervised:SupervisedConfig',
    'distill': 'vit_jax.extras.distill.distill:DistillConfig',
    'distill_features': 'vit_jax.extras.distill.features:FeaturesConfig',
    'masked_patch': 'vit_jax.objectives.masked_patch:MaskedPatchConfig',
    'mae': 'vit_jax.objectives.mae:MaeConfig',
    'lejepa': 'vit_jax.extras.lejepa.lejepa:LejepaConfig',
    'segmentation': 'vit_jax.extras.segmentation.objective:SegmentationConfig',
    'flexivit': 'vit_jax.extras.zoo.flexivit:FlexivitConfig',
}

# `optimizer.name`: config records.
OPTIMIZERS: Mapping[str, str] = {
    'adam': 'vit_jax.optim.config:AdamConfig',
    'sgd': 'vit_jax.optim.config:SgdConfig',
    'muon': 'vit_jax.extras.optimizers.muon:MuonConfig',
    'adafactor': 'vit_jax.extras.optimizers.adafactor:AdafactorConfig',
    'schedule_free':
        'vit_jax.extras.optimizers.schedule_free:ScheduleFreeConfig',
    'optax.NAME': 'vit_jax.extras.optimizers.of_optax:OptaxConfig',
}

# `evals.NAME.name`: config records.
EVALUATORS: Mapping[str, str] = {
    'auto': 'vit_jax.evals.classification:AutoConfig',
    'classification': 'vit_jax.evals.classification:ClassificationConfig',
    'multi_label': 'vit_jax.evals.classification:MultiLabelConfig',
    'confusion': 'vit_jax.extras.diagnostics.confusion:ConfusionConfig',
    'calibration':
        'vit_jax.extras.diagnostics.calibration:CalibrationConfig',
    'fewshot': 'vit_jax.evals.fewshot:FewshotConfig',
    'knn': 'vit_jax.evals.knn:KnnConfig',
    'objective': 'vit_jax.evals.objective:ObjectiveConfig',
    'probe': 'vit_jax.extras.probe.probe:ProbeConfig',
    'regression': 'vit_jax.evals.regression:RegressionConfig',
    'roc': 'vit_jax.extras.diagnostics.roc:RocConfig',
    'segmentation': 'vit_jax.extras.segmentation.probe:SegmentationConfig',
    'segmentation_head':
        'vit_jax.extras.segmentation.head:SegmentationHeadConfig',
    'shift': 'vit_jax.extras.diagnostics.shift:ShiftConfig',
    'spread': 'vit_jax.extras.diagnostics.spread:SpreadConfig',
}

# `op` in `data.train_ops` and `data.eval_ops`: records of operations.
OPERATIONS: Mapping[str, str] = {
    'central_crop': 'vit_jax.data.images.ops:CentralCrop',
    'flip': 'vit_jax.data.images.ops:Flip',
    'inception_crop': 'vit_jax.data.images.inception_crop:InceptionCrop',
    'pad_crop': 'vit_jax.data.images.ops:PadCrop',
    'resize': 'vit_jax.data.images.ops:Resize',
    'blur': 'vit_jax.extras.augment.colour:Blur',
    'color_jitter': 'vit_jax.extras.augment.colour:ColorJitter',
    'grayscale': 'vit_jax.extras.augment.colour:Grayscale',
    'randaugment': 'vit_jax.extras.augment.randaugment:RandAugment',
    'random_erasing': 'vit_jax.extras.augment.colour:RandomErasing',
    'trivial_augment': 'vit_jax.extras.augment.randaugment:TrivialAugment',
}

# `data.mixup` and `data.cutmix`: functions of images, labels, key and alpha.
MIXERS: Mapping[str, str] = {
    'mixup': 'vit_jax.extras.augment.mixing:mixup',
    'cutmix': 'vit_jax.extras.augment.mixing:cutmix',
}

# `data.source`: functions of the name and the section `data`, by the name or
# its start up to a slash. Other names are paths or `TFDS`.
SOURCES: Mapping[str, str] = {
    'digits': 'vit_jax.data.sources.builtin:digits',
    'shapes': 'vit_jax.extras.shapes.drawing:open_source',
    'vtab/': 'vit_jax.extras.sweep.vtab:open_source',
}
TFDS = 'vit_jax.data.sources.tfds:open_source'

# Paths in `data.source`, by what they hold.
FILES: Mapping[str, str] = {
    'hub': 'vit_jax.extras.shards.parquet:open_hub',
    'folder': 'vit_jax.data.sources.folders:open_folder',
    'table': 'vit_jax.data.sources.tables:open_table',
    'images': 'vit_jax.data.sources.folders:open_images',
    'Parquet files': 'vit_jax.extras.shards.parquet:open_parquet',
    'tar files': 'vit_jax.extras.shards.webdataset:open_tars',
    'TFDS folder': 'vit_jax.data.sources.tfds:open_folder',
}

# Sizes of sources that are not known datasets: functions of the name.
SIZES: Mapping[str, str] = {
    'vtab/': 'vit_jax.extras.sweep.vtab:planned',
}

# `convert --format`: functions that write.
WEIGHT_FORMATS: Mapping[str, str] = {
    'npz': 'vit_jax.weights.published:write',
    'timm': 'vit_jax.extras.zoo.save:write',
    'orbax': 'vit_jax.weights.formats.orbax:save',
}

# Functions and modules of leaves, which the trunk uses where they exist.

# For data.

# Records of TFDS's TFRecord files by index.
TFRECORDS = 'vit_jax.extras.shards.tfrecords:open_records'
# Suggests settings for data beside the conventions, and questions others.
SUGGESTIONS = 'vit_jax.extras.suggest.suggest'
# Opens folders of images and masks (`data.target=masks`), and finds the mask of
# an image.
MASK_FOLDERS = 'vit_jax.extras.segmentation.masks'
# Reads the masks of images, for the objective and evaluators of masks.
MASKS = 'vit_jax.extras.segmentation.mask_reader'
# `data.mixture`: a module that unites datasets and orders the draws from them.
MIXTURE = 'vit_jax.extras.mixture.mixture'
# `data.sampling`: maps draws to examples, other than natural.
SAMPLER = 'vit_jax.extras.mixture.class_sampler:build'
# `data.exclude`: leaves out the examples that a list names.
EXCLUDE = 'vit_jax.extras.curation.exclude:from_dataset'
# Groups of the examples of a split that `data prepare` wrote.
GROUPS = 'vit_jax.extras.curation.group_files:read'
# Outputs of teachers that `data prepare` stores.
TEACHER_OUTPUTS = 'vit_jax.extras.distill.outputs:Outputs'
# Decodes images that are not 8-bit grey or RGB (`data.channels`, `data.dtype`).
IMAGE_DECODER = 'vit_jax.extras.multichannel.decode:decode'
# `data.mean=measured`: mean and standard deviation of training images.
MEASURE = 'vit_jax.extras.multichannel.measure:measure'
# Opens a dataset by its sizes, without its files.
PLANNED = 'vit_jax.extras.plan.sizes:open_planned'

# For models and their weights.

# Published backbones, whose names are variants with an underscore.
BACKBONES = 'vit_jax.extras.zoo.backbones:table'
# Opens the weights of other codebases, and checks that a file is complete.
FOREIGN = 'vit_jax.extras.zoo.foreign'
# Downloads weights of hf://.
HUB_WEIGHTS = 'vit_jax.extras.hub.weights:fetch'
# Overrides of a resize and a crop in the terms of timm.
PREPROCESSING_TERMS = 'vit_jax.extras.zoo.configs.resize_and_crop'
# Interpolation of positions in other codebases, and of patch filters.
INTERPOLATE = 'vit_jax.extras.zoo.interpolation:interpolate'
FILTERS = 'vit_jax.extras.zoo.interpolation:resize_filters'
# Resizes the patch embedding of a model (FlexiViT).
PATCH = 'vit_jax.extras.zoo.patch_size:resize'
# Makes text embeddings the head of the image tower of CLIP or SigLIP.
TEXT_EMBEDDINGS = 'vit_jax.extras.zoo.zero_shot:attach'
# Adapters of kernels, and the weights of a run with those of its base.
LORA = 'vit_jax.extras.lora.adapters'
LORA_BASE = 'vit_jax.extras.lora.merged:merged'
# Replaces the head of a module by the decoder of its config.
DECODER = 'vit_jax.extras.segmentation.decoder:attach'
# Attention kernels for TPUs.
SPLASH = 'vit_jax.extras.tpu_kernels.splash'
# `optimizer.layer_decay` and `frozen_layers`: multipliers of learning rates.
LAYER_DECAY = 'vit_jax.extras.optimizers.layer_decay:multipliers'
# Translates sections `model` of earlier versions.
EARLIER = 'vit_jax.extras.zoo.earlier'
# Translates sections `data` of earlier versions.
EARLIER_DATA = 'vit_jax.extras.earlier_data'
# Says why a name of an earlier version is refused.
ENDED = 'vit_jax.extras.zoo.removed:sentence'

# For runs and evaluations.

# Compares the examples of a run with those of its checkpoint.
CHANGES = 'vit_jax.extras.changes.data_changes'
# Describes the accuracy of initial weights before they are fine-tuned.
BASELINE = 'vit_jax.extras.diagnostics.baseline:describe'
# Counts the operations of a model and its training for one image.
FLOPS = 'vit_jax.extras.plan.model_flops:per_image'
# Finds the peak figures and cores of a device kind.
HARDWARE = 'vit_jax.extras.plan.hardware:find'
# Traces steps of a run.
PROFILER = 'vit_jax.extras.plan.profiler'
# Other places that get the metrics of a run.
TENSORBOARD = 'vit_jax.extras.tracking.tensorboard:TensorBoard'
WANDB = 'vit_jax.extras.tracking.weights_and_biases:Run'
# Draws the metrics of runs.
CURVES = 'vit_jax.extras.figures.training_curves:draw'
# Returns the model card of a finished run.
CARD = 'vit_jax.extras.cards.model_card:of_run'
# `evaluate --evaluators`: sections for known datasets.
EVALUATED_DATASETS = 'vit_jax.extras.diagnostics.shift:SECTIONS'
# `evals.NAME.real_labels`: the evaluation with the labels of a file.
REAL_LABELS = 'vit_jax.extras.real_labels.imagenet:evaluate'
# Draws the result of an evaluator for `evaluate`.
FIGURES = 'vit_jax.extras.figures.evaluation_figures:draw'
# Thresholds of the classes of a run, and flags of `evaluate` that store them.
THRESHOLDS = 'vit_jax.extras.diagnostics.thresholds'

# For commands and predictions.

# Describes the keys of configs for --help and misspelt flags.
KEYS = 'vit_jax.extras.keys.reference'
# Compares predictions with labels for `predict`, and lists mistakes.
MISTAKES = 'vit_jax.extras.curation.mistakes'
# Classes of pixels: their shares, arrays and files.
SEGMENTATION = 'vit_jax.extras.segmentation.predictions'
# Model card and upload of `convert`.
PUBLISH = 'vit_jax.extras.cards.publish'


class DeletedError(UserError):
  """A leaf is needed that was deleted from this copy."""


_NAME = r'[A-Za-z_][\w.]*:[A-Za-z_]\w*'
# What the user has named: modules, and folders of config files.
_allowed: set[str] = set()
_folders: list[str] = []


def available(names: Mapping[str, str]) -> list[str]:
  """Returns the names whose modules exist: a leaf may have been deleted."""
  return [name for name, target in names.items() if exists(target)]


def exists(target: str) -> bool:
  """Whether the module of a target exists; imports only its packages."""
  try:
    return importlib.util.find_spec(target.partition(':')[0]) is not None
  except ModuleNotFoundError:  # A package that it lies in is missing.
    return False


def is_target(name: Any) -> bool:
  """Whether a name has the form 'module:name'."""
  return isinstance(name, str) and bool(re.fullmatch(_NAME, name))


def nearest(name: Any, known: Sequence[str]) -> str:
  """Returns ' Did you mean "x"?' for the closest of `known`, or ''.

  Initials are close, too: lr is learning_rate. A name of `known` is right.
  """
  if name in known:
    return ''
  close = difflib.get_close_matches(str(name), known, n=1, cutoff=0.5) or [
      each for each in known
      if name == ''.join(word[:1] for word in each.split('_'))]
  return f' Did you mean {close[0]!r}?' if close else ''


def nearest_file(path: str | os.PathLike, known: Sequence[str] = ()) -> str:
  """Returns the same for a missing file: names in its folder, or `known`."""
  folder, name = os.path.split(os.path.abspath(path))
  return nearest(name, [
      *known, *(os.listdir(folder) if os.path.isdir(folder) else ())])


def ended(name: Any) -> str:
  """Returns why a name of an earlier version is refused; '' for others."""
  sentence = optional(ENDED)
  return sentence(str(name)) if sentence else ''


def check_name(name: Any, known: Sequence[str], *, what: str) -> str:
  """Returns `name`, or raises a UserError with the nearest known name."""
  if name not in known:
    raise UserError(ended(name) or (
        f'Unknown {what} {name!r}.{nearest(name, known)} '
        f'Known: {", ".join(known)}.'))
  return name


def allow(*modules: str) -> None:
  """Allows the import of modules that a checkpoint or saved config names."""
  _allowed.update(modules)


def allow_named(settings: Any, *, folder: str = '') -> None:
  """Allows the import of all modules that settings of the user name.

  Importing a module runs its code, so that a downloaded checkpoint must not
  decide what is imported.

  Args:
    settings: a config as plain data, or a part of it.
    folder: folder of the config file, where modules are found, too.
  """
  if folder and folder not in _folders:
    _folders.append(folder)
  if isinstance(settings, str):
    allow(*(name.partition(':')[0] for name in re.findall(_NAME, settings)))
  elif isinstance(settings, Mapping):
    for value in settings.values():
      allow_named(value)
  elif isinstance(settings, (list, tuple)):
    for value in settings:
      allow_named(value)


def load(target: str) -> Any:
  """Returns a module, or with 'module:name' a function or class of it.

  A module outside of the package is found in the current folder and beside the
  config file, too, after all installed ones.

  Raises:
    UserError: for a module that only a checkpoint names, that does not exist
      (a leaf may have been deleted), or that lacks the name.
  """
  module, _, name = target.partition(':')
  if module.partition('.')[0] == __name__.partition('.')[0]:
    found = _import(module, missing=DeletedError(
        f'{target} was deleted from this copy of vit_jax. Restore its folder, '
        'or leave out the settings and flags that use it.'))
  else:
    found = sys.modules.get(module) or _import_of_user(module, target)
  if name and not hasattr(found, name):
    known = [each for each, value in vars(found).items() if callable(value)]
    raise UserError(
        f'{target}: the module {module} ({getattr(found, "__file__", "")}) has '
        f'no {name}.{nearest(name, known)} '
        f'It has: {", ".join(known) or "nothing"}.')
  return getattr(found, name) if name else found


def optional(target: str) -> Any:
  """Returns what `load` returns, or None if the leaf was deleted."""
  return load(target) if exists(target) else None


def _import_of_user(module: str, target: str) -> Any:
  """Imports a module of the user."""
  if module not in _allowed:
    raise UserError(
        f'{target}: a checkpoint or saved config names the module {module}, '
        'and importing it would run its code. If you trust it, add '
        f"--import={module} (in Python: imports=['{module}'] of vit_jax.load, "
        'or import it before).')
  # Kept, because processes that read data import the module, too.
  folders = [*dict.fromkeys([*_folders, os.getcwd()])]
  sys.path += [each for each in folders if each not in sys.path]
  return _import(module, missing=UserError(
      f'{target}: there is no module {module}. Expected it to be installed, '
      f'or below one of the folders {", ".join(folders)}.'))


def _import(module: str, *, missing: UserError) -> Any:
  """Imports a module; `missing` is the error if it does not exist."""
  try:
    return importlib.import_module(module)
  except ModuleNotFoundError as error:
    if not f'{module}.'.startswith(f'{error.name}.'):
      raise  # A module that it imports.
    raise missing from error


def find(
    name: Any, names: Mapping[str, str], *, what: str, kind: type | None = None,
) -> Any:
  """Returns the class or function with a name of a table above.

  Args:
    name: one of `names`, or 'module:name' for the user's own.
    names: where each one lives.
    what: config key of the name, for messages.
    kind: type that a class must extend.

  Raises:
    UserError: for an unknown name, one that may not be imported, or a class
      that does not extend `kind`.
  """
  if not is_target(name):
    if name not in [*names]:  # It may be any JSON value.
      check_name(name, available(names), what=what)
    return load(names[name])
  with exceptions.within(what):
    found = load(name)
  if kind and not (isinstance(found, type) and issubclass(found, kind)):
    raise UserError(
        f'{what} is {name!r}, which must be a class that extends '
        f'{kind.__module__}.{kind.__name__}, but is {found!r}.')
  return found
