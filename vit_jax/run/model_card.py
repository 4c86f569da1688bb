"""Model card of a finished run: `model_card.md` in the workdir.

YAML metadata, then Markdown, as on https://huggingface.co/docs/hub/model-cards.
The content comes from the config, the data, the counters and the last
evaluation. Licence, use and limits come from the section `card` of the config.
"""

from collections.abc import Mapping, Sequence
import dataclasses
import json
import math
import re
import types
from typing import Any

from etils import epath
import huggingface_hub

from vit_jax import console
from vit_jax import models
from vit_jax import objectives
from vit_jax import schema
from vit_jax.checkpoints import paths
from vit_jax.experiment import config as config_lib
from vit_jax.experiment import experiment as experiment_lib
from vit_jax.models import vit_config

FILENAME = 'model_card.md'
MAX_NAMES = 20  # Class names are listed up to this number.
_HUB = 'hf://'  # Prefix of weights on the Hugging Face hub.
_USE = 'How to use it'  # Heading of the section with the model's path.


@dataclasses.dataclass(frozen=True)
class _Result:
  """A metric of the last and of the best checkpoint; None is unknown."""
  evaluator: str
  dataset: str
  split: str
  images: float | None
  metric: str
  last: float | None
  best: float | None


def of_run(
    experiment: experiment_lib.Experiment, summary: Mapping[str, Any], *,
    workdir: epath.PathLike, title: str = '', origin: str = '',
    source_config: Mapping[str, Any] = types.MappingProxyType({}),
) -> str:
  """Returns the card of a finished run.

  Args:
    experiment: the experiment.
    summary: content of `summary.json`, possibly of an older version.
    workdir: workdir of the run.
    title: name of the model; by default the name of the workdir.
    origin: checkpoint or file of the initial weights; '' for random values.
    source_config: config of that checkpoint, if known.
  """
  title, card = title or epath.Path(workdir).name, experiment.config.card
  results = _results(experiment, summary)
  sections = {
      'Model': _list(_model(experiment, summary)),
      'Data': _list(_data(experiment)),
      'Training': _list(_training(
          experiment, summary, origin, source_config)),
      'Results': _table(results, summary),
      'Cost': _list(_cost(summary)),
      _USE: _use(workdir, predicts=_predicts(experiment)),
      'Intended use and limits': _list({
          'Intended use': card.intended_use,
          'Limits': card.limits,
          'Licence of the weights': card.licence,
          'Licence of the data': 'see its authors; not checked'})}
  metadata = _metadata(title, experiment, results, origin)
  return '\n'.join([
      f'---\n{metadata.to_yaml().strip()}\n---\n', f'# {title}\n',
      *(f'## {name}\n\n{text}\n' for name, text in sections.items())])


def moved(text: str, path: epath.PathLike) -> str:
  """Returns a card with the new path of its model."""
  use = _use(path, predicts='main.py predict' in text)
  return re.sub(
      rf'^## {_USE}\n.*?(?=^## |\Z)', lambda _: f'## {_USE}\n\n{use}\n\n', text,
      count=1, flags=re.MULTILINE | re.DOTALL)


def _predicts(experiment: experiment_lib.Experiment) -> bool:
  return isinstance(experiment.config.objective, objectives.SupervisedConfig)


def _metadata(
    title: str, experiment: experiment_lib.Experiment,
    results: Sequence[_Result], origin: str,
) -> huggingface_hub.ModelCardData:
  config = experiment.config
  task = ('image-classification' if _predicts(experiment)
          else 'image-feature-extraction')
  if _predicts(experiment) and experiment.dataset.targets:
    task = ''  # Hugging Face has no task for image regression.
  # Each result must name a task, and YAML's readers know no NaN.
  found = [huggingface_hub.EvalResult(
      task_type=task, dataset_type=r.dataset, dataset_name=r.dataset,
      dataset_split=r.split, metric_type=r.metric, metric_value=r.last,
      metric_name=f'{r.evaluator}/{r.metric}')
           for r in results if task and _is_finite(r.last)]
  family = 'resnet' if config.model.name == 'resnet' else 'vision-transformer'
  is_stated = config.card.licence != config_lib.CardConfig.licence
  return huggingface_hub.ModelCardData(
      license=config.card.licence if is_stated else 'unknown',
      library_name='vit_jax', pipeline_tag=task or None,
      tags=['jax', 'flax', family, *filter(None, [task])],
      base_model=(origin.removeprefix(_HUB)
                  if origin.startswith(_HUB) else None),
      metrics=list(dict.fromkeys(r.metric_type for r in found)) or None,
      eval_results=found or None, model_name=title if found else None)


def _use(path: epath.PathLike, *, predicts: bool) -> str:
  command, call = 'predict', "model.predict('cat.jpg')"
  if not predicts:
    command = 'features --output=features.npz'
    call = "model.features('cat.jpg')  # [width]"
  return (f'```bash\npython main.py {command} --model={path} photos/\n```\n\n'
          '```python\nimport vit_jax\n'
          f'model = vit_jax.load({str(path)!r})\n{call}\n```')


def _model(
    experiment: experiment_lib.Experiment, summary: Mapping[str, Any],
) -> dict[str, str]:
  model = experiment.config.model
  height, width, channels = experiment.config.data.image_shape
  rows = {'Kind': model.variant or (
      'Vision Transformer' if model.name == 'vit' else 'ResNet (BiT)')}
  if isinstance(model, vit_config.ViTConfig):
    rows['Size'] = (
        f'{model.depth} layers of width {model.width}, MLPs of '
        f'{model.mlp_dim:,}, {model.num_heads} heads')
    of = 'pixels' if model.backbone is None else 'cells of the feature map'
    rows['Patch'] = ' x '.join(map(str, model.patch_shape)) + f' {of}'
    rows['Pooling'] = model.pooling
  if model.backbone is not None:
    rows['Convolutional network'] = (
        f'units {list(model.backbone.depths)}, {model.backbone.width} channels')
  return rows | {
      'Parameters': f'{summary["parameters"]:,}',
      'Resolution': f'{height} x {width} pixels, {channels} channels',
      'Grid': ' x '.join(map(str, models.grid(model, (height, width)))),
      'Targets' if experiment.dataset.targets else 'Classes':
          f'{experiment.dataset.num_classes:,}'}


def _data(experiment: experiment_lib.Experiment) -> dict[str, str]:
  dataset = experiment.dataset
  names = dataset.class_names or ()
  labels = ('several' if dataset.multi_label else 'one') + ' an image'
  if dataset.targets:
    labels = f'numbers to predict: {", ".join(dataset.targets)}'
  return {
      'Source': f'{dataset.name}, split `{dataset.split}`',
      'Examples': f'{dataset.num_examples:,}',
      'Labels': labels,
      **({'Classes': ', '.join(names)} if 0 < len(names) <= MAX_NAMES else {})}


def _training(
    experiment: experiment_lib.Experiment, summary: Mapping[str, Any],
    origin: str, source_config: Mapping[str, Any],
) -> dict[str, str]:
  config, steps = experiment.config, summary['steps']
  epochs = console.format_number(steps / experiment.steps_per_epoch)
  optimizer = schema.to_plain(config.optimizer)
  schedule = optimizer.pop('schedule')
  data, model = schema.to_plain(config.data), schema.to_plain(config.model)
  source = source_config.get('data', {}).get('source')
  started = f'`{paths.shown(origin)}`' + (
      f', trained on {source}' if source else '')
  return {
      'Started from': (
          started if origin else f'random values (seed {config.seed})'),
      'Length': (
          f'{steps:,} steps of {config.batch_size:,} images, {epochs} epochs'
          + ', stopped early' * summary.get('stopped_early', False)),
      'Objective': _words(schema.to_plain(config.objective)),
      'Optimizer': _words(optimizer),
      'Schedule': _words(schedule),
      'Image operations': '; '.join(map(_words, data['train_ops'])) or 'none',
      'Regularisation': _words({
          **{name: data[name] for name in ('mixup', 'cutmix')},
          **{name: value for name, value in model.items()
             if 'dropout' in name or name == 'stochastic_depth'}}) or 'none',
      'Average of parameters': str(config.averaging or 'none'),
      'Seed': str(config.seed),
      'Everything else': '`config.json` of the run'}


def _results(
    experiment: experiment_lib.Experiment, summary: Mapping[str, Any],
) -> list[_Result]:
  last = summary['metrics']
  best = (summary.get('best') or {}).get('metrics', {})
  dataset, rows = experiment.dataset, []
  for key, value in last.items():
    name, _, metric = key.partition('/')
    section = experiment.config.evals.get(name)
    if section is not None and metric != 'examples':
      default = 'default split' if section.source else dataset.eval_split
      rows.append(_Result(
          name, section.source or dataset.name, section.split or default,
          last.get(f'{name}/examples'), metric, value, best.get(key)))
  return rows


def _table(results: Sequence[_Result], summary: Mapping[str, Any]) -> str:
  """Returns a Markdown table of the last and the best checkpoint."""
  if not results:
    return 'Not evaluated: the config has no evaluators.'
  best = summary.get('best') or {}
  columns = ['Evaluator', 'Data', 'Images', 'Metric',
             f'Last (step {summary["steps"]:,})']
  if best.get('metrics'):
    columns.append(f'Best (step {best["step"]:,})')
  rows = [columns, ['---'] * len(columns), *([
      r.evaluator, f'{r.dataset}, split `{r.split}`',
      'unknown' if r.images is None else f'{r.images:,.0f}', r.metric,
      *(console.format_metric(
          r.metric, value if _is_finite(value) else None, digits=4)
        for value in (r.last, r.best))][:len(columns)] for r in results)]
  lines = ['| ' + ' | '.join(cell.replace('|', '\\|') for cell in row) + ' |'
           for row in rows]
  if best.get('metrics'):
    lines += ['', f'The best checkpoint was chosen by `{best["metric"]}`.']
  return '\n'.join(lines)


def _is_finite(value: float | None) -> bool:
  return value is not None and math.isfinite(value)


def _cost(summary: Mapping[str, Any]) -> dict[str, str]:
  exaflops = summary.get('exaflops', 0.0)
  return {
      'Images seen': f'{summary["images"]:,}',
      'Operations': (f'{console.format_flops(1e18 * exaflops)} = '
                     f'{console.format_number(exaflops)} exaFLOPs'),
      'Core-hours': ', '.join(
          f'{console.format_number(hours)} on {kind}' for kind, hours in
          summary.get('core_hours_by_kind', {}).items()) or 'unknown',
      'Devices': f'{summary["devices"]} x {summary["device_kind"]}',
      'Time': console.format_secs(summary['secs']) + ', over all restarts'}


def _words(section: Mapping[str, Any]) -> str:
  """Returns text such as 'adam, learning_rate 0.001', without unset values."""
  plain = dict(section)
  names = [str(plain.pop(key)) for key in ('name', 'op') if key in plain]
  return ', '.join(names + [
      f'{key} {_value(value)}' for key, value in plain.items()
      if value not in (None, False, 0, '', [], ())])


def _value(value: Any) -> str:
  if isinstance(value, Mapping):  # A duration, {'percent': 10}, and the like.
    return ' '.join(f'{v} {k}' for k, v in value.items() if v is not None)
  return value if isinstance(value, str) else json.dumps(value)


def _list(rows: Mapping[str, str]) -> str:
  return '\n'.join(f'- **{name}:** {text}' for name, text in rows.items())
