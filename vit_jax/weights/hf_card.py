"""Model card in the format of Hugging Face: YAML metadata, then Markdown.

`vit_jax.run.model_card` supplies the content. Format:
https://huggingface.co/docs/hub/model-cards.
"""

from collections.abc import Iterator, Mapping, Sequence
import dataclasses
import math
import re
from typing import Any

LIBRARY = 'vit_jax'
USE = 'How to use it'  # Heading of the section with the model's path.
_UNKNOWN = 'unknown'  # Hugging Face's value for a licence that is not stated.


@dataclasses.dataclass(frozen=True)
class CardConfig:
  """Section `card`: facts about a model that no run knows.

  Attributes:
    licence: of the weights, as Hugging Face calls it, such as 'apache-2.0' or
      'cc-by-4.0'; 'other' if the limits or the use explain it.
    intended_use: purpose of the model.
    limits: unsuitable uses and known failures.
  """
  licence: str = 'not stated'
  intended_use: str = 'not stated'
  limits: str = 'not stated'


@dataclasses.dataclass(frozen=True)
class Result:
  """Metrics of an evaluator.

  Attributes:
    evaluator: its name.
    dataset: data set.
    split: of the data set.
    metrics: by name, without the evaluator's.
  """
  evaluator: str
  dataset: str
  split: str
  metrics: Mapping[str, float]


def render(
    title: str, config: CardConfig, *, task: str, tags: Sequence[str],
    results: Sequence[Result], sections: Mapping[str, str],
    base_model: str = '',
) -> str:
  """Returns the text of a card.

  Args:
    title: name of the model.
    config: section `card`.
    task: Hugging Face's name of the task; '' if it has none: then the metadata
      contain no results, since each must name a task.
    tags: search terms.
    results: of the evaluators; values that are not finite are omitted.
    sections: Markdown by heading.
    base_model: 'user/model' on the hub that the training started from.
  """
  # Configs import this module; the library takes 0.2 s to import.
  import huggingface_hub
  found = list(_eval_results(results, task)) if task else []
  licence = config.licence
  metadata = huggingface_hub.ModelCardData(
      license=_UNKNOWN if licence == CardConfig.licence else licence,
      library_name=LIBRARY, pipeline_tag=task or None,
      tags=list(dict.fromkeys([*tags, *([task] if task else [])])),
      base_model=base_model or None,
      metrics=list(dict.fromkeys(r.metric_type for r in found)) or None,
      eval_results=found or None, model_name=title if found else None)
  body = [f'## {heading}\n\n{content.strip()}\n'
          for heading, content in sections.items()]
  return '\n'.join(
      [f'---\n{metadata.to_yaml().strip()}\n---\n', f'# {title}\n', *body])


def _eval_results(results: Sequence[Result], task: str) -> Iterator[Any]:
  import huggingface_hub
  for result in results:
    for name, value in result.metrics.items():
      if math.isfinite(value):
        yield huggingface_hub.EvalResult(
            task_type=task, dataset_type=result.dataset,
            dataset_name=result.dataset, dataset_split=result.split,
            metric_type=name, metric_value=value,
            metric_name=f'{result.evaluator}/{name}')


def table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
  """Returns a Markdown table."""
  lines = [columns, ['---'] * len(columns), *rows]
  return '\n'.join(
      '| ' + ' | '.join(str(cell).replace('|', '\\|') for cell in line) + ' |'
      for line in lines)


def with_section(text: str, heading: str, content: str) -> str:
  """Replaces the section of a heading; a card without it stays as it is."""
  pattern = re.compile(
      rf'^## {re.escape(heading)}\n.*?(?=^## |\Z)', re.MULTILINE | re.DOTALL)
  return pattern.sub(
      lambda _: f'## {heading}\n\n{content.strip()}\n\n', text, count=1
  ).rstrip('\n') + '\n'
