"""Model card of a finished run: `model_card.md` in the workdir.

YAML metadata, then Markdown, as on https://huggingface.co/docs/hub/model-cards;
see `model_card.md.jinja`. The content comes from the config, the data, the
counters and the last evaluation. Licence, use and limits come from the section
`card` of the config.
"""

from collections.abc import Mapping, Sequence
import functools
import json
import math
import pathlib
import re
import shlex
import types
from typing import Any

from etils import epath
import huggingface_hub

from vit_jax import console
from vit_jax import escape
from vit_jax import metrics as metrics_lib
from vit_jax import schema
from vit_jax.checkpoints import paths
from vit_jax.data import mixture
from vit_jax.exceptions import UserError
from vit_jax.experiment import config as config_lib
from vit_jax.experiment import experiment as experiment_lib
from vit_jax.extras.cards import config as card_config
from vit_jax.run import log_rows

# Also keeps bare addresses from becoming links: www.example.org, https://, a@b.
_MARKUP = re.compile(r'[\\`*_\[\]<>|~$&!:@]|(?<=www)\.', re.IGNORECASE)
MAX_NAMES = 20  # Class names are listed up to this number.
_HUB = 'hf://'  # Prefix of weights on the Hugging Face hub.
_USE = '## How to use it'  # Heading of the section with the model's path.


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
  config, dataset = experiment.config, experiment.dataset
  title = escape.line(title or epath.Path(workdir).name)
  results = _results(experiment, summary)
  names = dataset.class_names or ()
  model, optimizer = map(schema.to_plain, (config.model, config.optimizer))
  card = huggingface_hub.ModelCard.from_template(
      _metadata(title, experiment, results, origin),
      template_path=str(pathlib.Path(__file__).with_suffix('.md.jinja')),
      console=console, markdown=_markdown, code=_code, words=_words,
      count='{:,}'.format,
      operations=lambda ops: '; '.join(map(_words, ops)) or 'none',
      names=lambda several: ', '.join(map(_markdown, several)),
      title=title, config=config, model=config.model, dataset=dataset,
      summary=summary, results=results,
      class_names=names if len(names) <= MAX_NAMES else (),
      origin=paths.display(origin) if origin else '',
      source=source_config.get('data', {}).get('source'),
      mixture=mixture.describe(
          config.data.mixture, dataset.source, summary['images']),
      optimizer={**optimizer, 'schedule': None},
      regularisation={
          'mixup': config.data.mixup, 'cutmix': config.data.cutmix,
          **{name: value for name, value in model.items()
             if 'dropout' in name or name == 'stochastic_depth'}},
      use=_use(workdir, predicts=config.objective.trains_head))
  return f'{card}\n'


def of_weights(
    repository: str, description: str, *, predicts: bool, licence: str | None,
) -> str:
  """Returns a short card of weights without a run, for a hub repository."""
  task = 'image-classification' if predicts else 'image-feature-extraction'
  data = huggingface_hub.ModelCardData(
      license=licence, pipeline_tag=task,
      tags=['jax', 'flax', 'vision-transformer'])
  use = _use(f'hf://{repository}', predicts=predicts)
  return (f'---\n{data.to_yaml().strip()}\n---\n\n'
          f'# {repository.split("/")[1]}\n\n'
          f'{_markdown(description)}\n\n{use}\n')


def for_hub(text: str, *, library: str, licence: str) -> str:
  """Returns a card that states the library of the weights, and the licence.

  Raises a `UserError` if neither `licence` nor the card states a licence.
  """
  card = huggingface_hub.ModelCard(text if not licence else re.sub(
      r'^(- \*\*Licence of the weights:\*\*) .*', rf'\1 {licence}', text,
      flags=re.MULTILINE))
  data: Any = card.data
  data.library_name, data.license = library, licence or data.license
  if data.license in (None, 'unknown'):
    raise UserError(
        'The licence of the weights is unknown; without one, nobody else may '
        'use them. Add --licence=apache-2.0, or another identifier from '
        'https://huggingface.co/docs/hub/repositories-licenses')
  return str(card)


def licence(text: str) -> str | None:
  """Returns the licence in the metadata of a card, if there is one."""
  data: Any = huggingface_hub.ModelCard(text).data
  return data.license


def replace_path(
    text: str, path: epath.PathLike, *, predicts: bool) -> str:
  """Returns a card with `path` as the new path of its model."""
  use = _use(path, predicts=predicts)
  return re.sub(
      rf'^{_USE}\n.*?(?=^## |\Z)', lambda _: f'{use}\n\n', text, count=1,
      flags=re.MULTILINE | re.DOTALL)


def without_metrics(text: str) -> str:
  """Returns a card without the metrics in its metadata."""
  card = huggingface_hub.ModelCard(text)
  data: Any = card.data
  data.eval_results = data.model_name = data.metrics = None
  return str(card)


def _task(experiment: experiment_lib.Experiment) -> str:
  objective = experiment.config.objective
  if objective.uses_labels:  # Hugging Face has no task for image regression.
    return '' if experiment.dataset.targets else 'image-classification'
  return ('image-segmentation' if objective.uses_masks
          else 'image-feature-extraction')


def _metadata(
    title: str, experiment: experiment_lib.Experiment,
    results: Sequence[Mapping[str, Any]], origin: str,
) -> huggingface_hub.ModelCardData:
  config, task = experiment.config, _task(experiment)
  # Each result must name a task, and YAML parsers may reject NaN.
  found = [row['result'] for row in results
           if task and row['result'].metric_value is not None]
  family = {'resnet': 'resnet', 'vit': 'vision-transformer'}.get(
      config.model.name)
  is_stated = config.card.licence != card_config.CardConfig.licence
  return huggingface_hub.ModelCardData(
      license=config.card.licence if is_stated else 'unknown',
      library_name='vit_jax', pipeline_tag=task or None,
      tags=['jax', 'flax', *filter(None, [family, task])],
      base_model=(origin.removeprefix(_HUB)
                  if origin.startswith(_HUB) else None),
      metrics=list(dict.fromkeys(r.metric_type for r in found)) or None,
      eval_results=found or None, model_name=title if found else None)


def _use(path: epath.PathLike, *, predicts: bool) -> str:
  command, call = 'predict', "model.predict('cat.jpg')"
  if not predicts:
    command = 'features --output=features.npz'
    call = "model.features('cat.jpg')  # [width]"
  quoted = shlex.quote(escape.line(str(path)))
  return (f'{_USE}\n\n'
          f'```bash\npython main.py {command} --model={quoted} photos/\n```\n\n'
          '```python\nimport vit_jax\n'
          f'model = vit_jax.load({str(path)!r})\n{call}\n```')


def _results(
    experiment: experiment_lib.Experiment, summary: Mapping[str, Any],
) -> list[dict[str, Any]]:
  """Returns the metrics of the last and the best checkpoint.

  `result` is that of the checkpoint which other commands read.
  """
  declared = config_lib.declared_metrics(experiment.config)
  best = (summary.get('best') or {}).get('metrics', {})
  rows = []
  for key in summary['metrics']:
    evaluator, _, metric = key.partition('/')
    if evaluator not in experiment.config.evals or metric == 'examples':
      continue
    read = experiment.data_of(evaluator)
    last, at_best, chosen = (  # JSON stores NaN as null.
        None if (value := values.get(key)) is None or not math.isfinite(value)
        else value for values in (
            summary['metrics'], best, log_rows.chosen_metrics(summary)))
    show = functools.partial(
        console.format_metric, digits=4,
        is_fraction=metrics_lib.find(key, declared).is_fraction)
    rows.append({
        'images': summary['metrics'].get(f'{evaluator}/examples'),
        'last': show(last), 'best': show(at_best),
        'result': huggingface_hub.EvalResult(
            task_type=_task(experiment), dataset_type=escape.line(read.name),
            dataset_name=escape.line(read.name),
            dataset_split=escape.line(read.split), metric_type=metric,
            metric_name=key, metric_value=chosen)})
  return rows


def _words(section: Any) -> str:
  """Returns text such as 'adam, learning_rate 0.001', without unset values."""
  plain = dict(schema.to_plain(section))
  names = [str(plain.pop(key)) for key in ('name', 'op') if key in plain]
  return ', '.join(names + [
      f'{key} {_value(value)}' for key, value in plain.items()
      if value not in (None, False, 0, '', [], ())])


def _value(value: Any) -> str:
  if isinstance(value, Mapping):  # A duration, {'percent': 10}, and the like.
    return ' '.join(f'{v} {k}' for k, v in value.items() if v is not None)
  return value if isinstance(value, str) else json.dumps(value)


def _markdown(text: str) -> str:
  """Returns text that Markdown shows as it is."""
  return _MARKUP.sub(r'\\\g<0>', escape.line(text))


def _code(text: str) -> str:
  """Returns text as a Markdown code span."""
  return f"`{escape.line(text).replace('`', chr(39))}`"
