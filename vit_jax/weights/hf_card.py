"""A model card as Hugging Face reads it: YAML, then Markdown for a person.

    ---
    license: apache-2.0
    model-index: ...
    ---
    # title
    ## section ...

Text alone: what there is to say comes from `vit_jax.run.model_card`. The form is
https://huggingface.co/docs/hub/model-cards, of October 2026.
"""

from collections.abc import Mapping, Sequence
import dataclasses
import math
import re
from typing import Any

import yaml

LIBRARY = 'vit_jax'
USE = 'How to use it'  # The section that says where the model is.
_UNKNOWN = 'unknown'  # Hugging Face's word for a licence that is not stated.


@dataclasses.dataclass(frozen=True)
class CardConfig:
  """Section `card`: what of a model no file says, for its card.

  Attributes:
    licence: of the weights, as Hugging Face calls it, such as 'apache-2.0' or
      'cc-by-4.0'; 'other' is one that the limits or the use explain.
    intended_use: what the model is for.
    limits: what it is not for, and where it is known to fail.
  """
  licence: str = 'not stated'
  intended_use: str = 'not stated'
  limits: str = 'not stated'


@dataclasses.dataclass(frozen=True)
class Result:
  """What an evaluator measured.

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
  """Returns the card.

  Args:
    title: name of the model.
    config: the section `card`.
    task: what the model does, as Hugging Face calls it; '' if it has no word
      for it: there is then no model-index either, which must name one.
    tags: words to be found by.
    results: of the evaluators; what is not finite is left out of the YAML,
      whose readers take numbers alone.
    sections: Markdown by heading.
    base_model: 'user/model' that the weights come from, if from there.
  """
  licence = config.licence
  front: dict[str, Any] = {
      'license': _UNKNOWN if licence == CardConfig.licence else licence,
      'library_name': LIBRARY, **({'pipeline_tag': task} if task else {}),
      'tags': list(dict.fromkeys([*tags, *([task] if task else [])]))}
  if base_model:
    front['base_model'] = base_model
  found = [index for result in results
           if task and (index := _result(result, task))['metrics']]
  if found:
    front['metrics'] = list(dict.fromkeys(
        metric['type'] for index in found for metric in index['metrics']))
    front['model-index'] = [{'name': title, 'results': found}]
  text = yaml.safe_dump(front, sort_keys=False, allow_unicode=True, width=1000)
  body = [f'## {heading}\n\n{content.strip()}\n'
          for heading, content in sections.items()]
  return '\n'.join([f'---\n{text}---\n', f'# {title}\n', *body])


def table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
  """Returns a table of Markdown."""
  lines = [columns, ['---'] * len(columns), *rows]
  return '\n'.join(
      '| ' + ' | '.join(str(cell).replace('|', '\\|') for cell in line) + ' |'
      for line in lines)


def with_section(text: str, heading: str, content: str) -> str:
  """Returns a card with a section in the place of the one of that heading.

  A card without it is returned as it is: a person has rewritten it.
  """
  pattern = re.compile(
      rf'^## {re.escape(heading)}\n.*?(?=^## |\Z)', re.MULTILINE | re.DOTALL)
  return pattern.sub(
      lambda _: f'## {heading}\n\n{content.strip()}\n\n', text, count=1
  ).rstrip('\n') + '\n'


def _result(result: Result, task: str) -> dict[str, Any]:
  return {
      'task': {'type': task},
      'dataset': {'name': result.dataset, 'type': result.dataset,
                  'split': result.split},
      'metrics': [
          {'type': name, 'value': value, 'name': f'{result.evaluator}/{name}'}
          for name, value in result.metrics.items() if math.isfinite(value)]}
