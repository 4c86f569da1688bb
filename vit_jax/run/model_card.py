"""Model card of a finished run: `model_card.md` in the workdir.

The content comes from the config, the data, the counters and the last
evaluation. Licence, use and limits come from the section `card` of the config.
"""

from collections.abc import Iterator, Mapping
import dataclasses
import json
import math
from typing import Any

from etils import epath

from vit_jax import console
from vit_jax import models
from vit_jax import objectives
from vit_jax import schema
from vit_jax.checkpoints import paths
from vit_jax.experiment import experiment as experiment_lib
from vit_jax.models import vit_config
from vit_jax.weights import hf_card

FILENAME = 'model_card.md'
MAX_NAMES = 20  # Class names are listed up to this number.
_HUB = 'hf://'  # Prefix of weights on the Hugging Face hub.


@dataclasses.dataclass(frozen=True)
class Origin:
  """Initial weights of a run.

  Attributes:
    path: checkpoint or file of weights; '' for random values.
    config: config of the checkpoint, if known.
  """
  path: str = ''
  config: Mapping[str, Any] = dataclasses.field(default_factory=dict)


def of_run(
    experiment: experiment_lib.Experiment, summary: Mapping[str, Any], *,
    workdir: epath.PathLike, title: str = '', origin: Origin = Origin(),
) -> str:
  """Returns the card of a finished run.

  Args:
    experiment: the experiment.
    summary: content of `summary.json`, possibly of an older version.
    workdir: workdir of the run.
    title: name of the model; by default the name of the workdir.
    origin: initial weights.
  """
  config = experiment.config
  predicts = isinstance(config.objective, objectives.SupervisedConfig)
  task = 'image-classification' if predicts else 'image-feature-extraction'
  if predicts and experiment.dataset.targets:
    task = ''  # Hugging Face has no task for image regression.
  family = ('resnet' if config.model.name == 'resnet'
            else 'vision-transformer')
  hub = origin.path.removeprefix(_HUB) if origin.path.startswith(_HUB) else ''
  return hf_card.render(
      title or epath.Path(workdir).name, config.card,
      task=task,
      tags=('jax', 'flax', family), base_model=hub,
      results=list(_results(experiment, summary['metrics'])),
      sections={
          'Model': _list(_model(experiment, summary)),
          'Data': _list(_data(experiment)),
          'Training': _list(_training(experiment, summary, origin)),
          'Results': _measured(experiment, summary),
          'Cost': _cost(summary),
          hf_card.USE: use(workdir, predicts=predicts),
          'Intended use and limits': _list({
              'Intended use': config.card.intended_use,
              'Limits': config.card.limits,
              'Licence of the weights': config.card.licence,
              'Licence of the data': 'see its authors; not checked'})})


def use(path: epath.PathLike, *, predicts: bool) -> str:
  """Returns the section on how to use a model.

  Args:
    path: argument of `vit_jax.load`.
    predicts: whether it predicts classes or numbers.
  """
  command, call = 'predict', "model.predict('cat.jpg')"
  if not predicts:
    command = 'features --output=features.npz'
    call = "model.features('cat.jpg')  # [width]"
  return (f'```bash\npython main.py {command} --model={path} photos/\n```\n\n'
          '```python\nimport vit_jax\n'
          f'model = vit_jax.load({str(path)!r})\n{call}\n```')


def moved(text: str, path: epath.PathLike) -> str:
  """Returns a card with the new path of its model."""
  return hf_card.with_section(text, hf_card.USE, use(
      path, predicts='main.py predict' in text))


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
  rows |= {
      'Parameters': f'{summary["parameters"]:,}',
      'Resolution': f'{height} x {width} pixels, {channels} channels',
      'Grid': ' x '.join(map(str, models.grid(model, (height, width)))),
      'Targets' if experiment.dataset.targets else 'Classes':
          f'{experiment.dataset.num_classes:,}'}
  return rows


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
    origin: Origin,
) -> dict[str, str]:
  config = experiment.config
  steps = summary['steps']
  optimizer = schema.to_plain(config.optimizer)
  schedule = optimizer.pop('schedule')
  data = schema.to_plain(config.data)
  model = schema.to_plain(config.model)
  return {
      'Started from': _origin(origin, config.seed),
      'Length': (
          f'{steps:,} steps of {config.batch_size:,} images, '
          f'{_epochs(steps, experiment)} epochs'
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


def _epochs(steps: int, experiment: experiment_lib.Experiment) -> str:
  return console.format_number(steps / experiment.steps_per_epoch)


def _origin(origin: Origin, seed: int) -> str:
  if not origin.path:
    return f'random values (seed {seed})'
  source = origin.config.get('data', {}).get('source')
  return f'`{paths.shown(origin.path)}`' + (
      f', trained on {source}' if source else '')


def _results(
    experiment: experiment_lib.Experiment, metrics: Mapping[str, float],
) -> Iterator[hf_card.Result]:
  for name, section in experiment.config.evals.items():
    found = {key.removeprefix(f'{name}/'): value
             for key, value in metrics.items() if key.startswith(f'{name}/')}
    dataset = experiment.dataset
    usual = dataset.eval_split if not section.source else 'default split'
    yield hf_card.Result(
        evaluator=name, dataset=section.source or dataset.name,
        split=section.split or usual,
        # A summary read from JSON has None instead of NaN.
        metrics={k: math.nan if v is None else v
                 for k, v in found.items() if k != 'examples'})


def _measured(
    experiment: experiment_lib.Experiment, summary: Mapping[str, Any],
) -> str:
  """Returns a table of the metrics of the last and the best checkpoint."""
  best = {'metrics': {}, **(summary.get('best') or {})}
  columns = ['Evaluator', 'Data', 'Images', 'Metric',
             f'Last (step {summary["steps"]:,})']
  if best['metrics']:
    columns.append(f'Best (step {best["step"]:,})')
  rows = []
  for result in _results(experiment, summary['metrics']):
    images = summary['metrics'].get(f'{result.evaluator}/examples')
    for metric in result.metrics:
      key = f'{result.evaluator}/{metric}'
      rows.append([
          result.evaluator, f'{result.dataset}, split `{result.split}`',
          'unknown' if images is None else f'{images:,.0f}', metric,
          *(_number(key, values.get(key)) for values in
            (summary['metrics'], best['metrics'])[:len(columns) - 4])])
  if not rows:
    return 'Not evaluated: the config has no evaluators.'
  chosen = (f'\n\nThe best checkpoint was chosen by `{best["metric"]}`.'
            if best['metrics'] else '')
  return hf_card.table(columns, rows) + chosen


def _number(key: str, value: float | None) -> str:
  if value is None or not math.isfinite(value):
    return '–'
  text = console.format_metrics({key: value}, digits=4)
  return text.removeprefix(f'{key} ')


def _cost(summary: Mapping[str, Any]) -> str:
  exaflops = summary.get('exaflops', 0.0)
  return _list({
      'Images seen': f'{summary["images"]:,}',
      'Operations': (f'{console.format_flops(1e18 * exaflops)} = '
                     f'{console.format_number(exaflops)} exaFLOPs'),
      'Core-hours': ', '.join(
          f'{console.format_number(hours)} on {kind}' for kind, hours in
          summary.get('core_hours_by_kind', {}).items()) or 'unknown',
      'Devices': f'{summary["devices"]} x {summary["device_kind"]}',
      'Time': console.format_secs(summary['secs']) + ', over all restarts'})


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
