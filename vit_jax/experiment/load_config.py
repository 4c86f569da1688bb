"""Loads the stages of a config file.

    configs/x.py:arguments ─▶ plain data ─▶ stages ─▶ overrides ─▶ Config

A stage that starts from weights takes missing fields of its model from them;
the checkpoint or other weights are opened for that.
"""

from collections.abc import Callable, Mapping
from typing import Any

from vit_jax import console
from vit_jax import data
from vit_jax import escape
from vit_jax import exceptions
from vit_jax import fields
from vit_jax import registry
from vit_jax import schema
from vit_jax.checkpoints import paths
from vit_jax.exceptions import NotFoundError
from vit_jax.exceptions import UserError
from vit_jax.experiment import config as config_lib
from vit_jax.experiment import config_file
from vit_jax.models import factory
from vit_jax.weights import adapt as adapt_lib
from vit_jax.weights import weights as weights_lib

Source = str | Mapping[str, Any]  # A config file, or its content.


def open_weights(
    checkpoint: str, which: str, num_heads: int) -> weights_lib.Weights:
  """Opens initial weights; describes those of other codebases."""
  # Imported here: runs from random weights load no reader of weights.
  from vit_jax.weights import open as open_lib
  try:
    weights = open_lib.open(checkpoint, which=which, num_heads=num_heads)
  except FileNotFoundError as error:
    raise NotFoundError(f'init.checkpoint: {error}') from error
  for line in console.brief(() if weights.is_checkpoint else weights.summary):
    console.print_lines(escape.line(line), in_logs=True)
  return weights


def load(
    config: Source, overrides: config_lib.Overrides = (), *,
    open_weights: Callable[..., weights_lib.Weights] | None = open_weights,
    prepare: Callable[[str, dict[str, Any]], dict[str, Any]] = (
        lambda name, sections: sections),
) -> dict[str, config_lib.Config]:
  """Returns the stages of a config file, by name.

  A file without stages gives its config under the name ''.

  Args:
    config: 'configs/x.py' or 'configs/x.py:name=value,name=value', or the
      content of such a file.
    overrides: 'optimizer.learning_rate=3e-4' for every stage, or
      'stages.pretrain.batch_size=64' for one; or keys with Python values.
    open_weights: opens the weights at `init.checkpoint`, which complete the
      section `model` and the scale of pixels; None leaves them open.
    prepare: returns the changed sections of a stage, given its name and
      sections, before the overrides.

  Raises:
    UserError, NotFoundError: as `config_file.read` and `config.resolve`,
      or if there are no weights at `init.checkpoint`.
  """
  raw = dict(config_file.read(config) if isinstance(config, str) else config)
  raw.pop('sweep', None)  # Read by `sweep.plan`.
  stages = raw.pop('stages', None) or {'': {}}
  merged = {name: prepare(name, config_lib.merge(raw, stage))
            for name, stage in stages.items()}
  # Overrides of a single stage come last, so that they take precedence, and
  # a variant, which replaces the dimensions, first.
  for path, value in sorted(config_lib.settings(overrides), key=lambda pair: (
      pair[0].startswith('stages.'), not pair[0].endswith('.variant'))):
    chosen = list(merged)
    if path.startswith('stages.'):
      name, _, path = path.removeprefix('stages.').partition('.')
      chosen = [schema.check_name(name, chosen, what='stage')]
    for name in chosen:
      config_lib.override(merged[name], path, value)
  configs: dict[str, config_lib.Config] = {}
  for name, stage in config_file.order_stages(merged).items():
    where = ', '.join(filter(None, [
        config if isinstance(config, str) else '', name and f'stage {name}']))
    with exceptions.within(where):
      model = stage.get('model')
      if isinstance(model, Mapping) and 'patch_sizes' in model:
        registry.load(registry.EARLIER).check_training(model)
      init = schema.parse(
          adapt_lib.InitConfig, stage.get('init', {}), where='init')
      if init.stage:
        stage = inherit(stage, config_lib.to_plain(configs[init.stage]))
      elif init.checkpoint and open_weights:
        model = schema.check_section(stage.get('model', {}), where='model')
        heads = schema.convert(
            model.get('num_heads') or 0, int, where='model.num_heads')
        stage = inherit(stage, _sections(
            model, open_weights(init.checkpoint, init.which, heads)))
      configs[name] = config_lib.resolve(stage)
  return configs


def _sections(
    model: Mapping[str, Any], weights: weights_lib.Weights,
) -> Mapping[str, Any]:
  """Returns sections of the config of a run that has trained the weights.

  Raises:
    UserError: if the variant of section `model` has other heads than the
      weights declare, and the section itself does not set them.
  """
  # The arrays of a checkpoint have an axis of heads, which `fit` compares.
  if model.get('variant') and not (
      model.get('num_heads') or weights.is_checkpoint
      or weights.settings['num_heads'].startswith('assumed')):
    from vit_jax.weights import check
    check.check_num_heads(
        model['variant'], getattr(weights.config, 'num_heads', 0))
  return weights.run or {
      'model': schema.to_plain(weights.config), 'data': {
          'mean': list(weights.preprocess.mean),
          'std': list(weights.preprocess.std),
          'resolution': list(weights.preprocess.resolution)}}


def inherit(
    raw: Mapping[str, Any], trained: Mapping[str, Any]) -> dict[str, Any]:
  """Completes `model`, `data.mean`, `std` and `resolution` of a config.

  `trained` is the config of the run that trained the initial weights.
  """
  # With 'auto', the data of the stage decides whether it keeps one.
  if raw['init'].get('which') == paths.BEST and trained.get(
      'checkpoint', {}).get('best', '') in ('', 'auto'):
    raise UserError(
        'init.which is best, but the config of '
        f'{raw["init"].get("stage") or raw["init"].get("checkpoint")} names no '
        'metric of its best checkpoint. Set its checkpoint.best, such as '
        'test/accuracy.')
  section = raw.get('model', {})
  model = factory.inherit(section, trained['model'])
  if section.get('variant'):
    _print_differences(section, factory.parse(model),
                       factory.parse(trained['model']))
  return {**raw, 'model': model, 'data': data.inherit(
      raw.get('data', {}), trained.get('data', {}))}


def _print_differences(
    section: Mapping[str, Any], ours: factory.ModelConfig,
    theirs: factory.ModelConfig) -> None:
  """Prints settings of a variant that differ in the initial weights.

  Dimensions are left out: the shapes of arrays are compared with them.
  """
  for name in fields.switches(ours):
    if name in {*section, *ours.dimensions, 'name', 'decoder'}:
      continue
    value = getattr(ours, name)
    other = getattr(theirs, name, value)
    if value != other:
      console.print_lines(escape.line(
          f'note: model.{name} is {value}, as in the variant '
          f'{section["variant"]}, but {other} in the initial weights. '
          'Set it to keep theirs.'), in_logs=True)


def load_one(
    config: Source, overrides: config_lib.Overrides = (), *, stage: str = '',
    **options: Any) -> config_lib.Config:
  """Loads the config of a stage, or the only config of a file; see `load`.

  Raises:
    UserError: if the file has several stages or lacks the stage.
  """
  stages = load(config, overrides, **options)
  if stage:
    schema.check_name(stage, list(stages), what='stage (--stage)')
    return stages[stage]
  if len(stages) > 1:
    raise UserError(
        f'The config has the stages {", ".join(stages)}, but one config is '
        'needed. Use --stage (evaluate) or a file with one config.')
  return next(iter(stages.values()))
