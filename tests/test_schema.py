"""Conversion of plain data to typed records, and its error messages."""

import dataclasses
import json
import re
from typing import Any, Literal

import pytest

from vit_jax import schema
from vit_jax.exceptions import UserError
from vit_jax.schema import Duration
from vit_jax.schema import FlagText


@dataclasses.dataclass(frozen=True)
class Inner:
  width: int = 4
  scale: float = 1.0


@dataclasses.dataclass(frozen=True)
class Record:
  rate: float
  steps: int = 1
  on: bool = False
  text: str = ''
  maybe_text: str | None = None
  size: int | tuple[int, int] = 8
  kind: Literal['none', 'full', 'some'] = 'full'
  inner: Inner = dataclasses.field(default_factory=Inner)
  maybe_inner: Inner | None = None
  warmup: Duration | None = None
  total: Duration = dataclasses.field(default_factory=lambda: Duration(steps=1))
  sizes: tuple[int, ...] = ()
  rules: tuple[tuple[str, float], ...] = ()
  weights: dict[str, float] = dataclasses.field(default_factory=dict)
  anything: Any = None


@dataclasses.dataclass(frozen=True)
class Positive:
  value: float

  def __post_init__(self):
    if self.value <= 0:
      raise UserError(f'value must be positive, got {self.value}.')


@dataclasses.dataclass(frozen=True)
class Holder:
  positive: Positive


def parse(**section):
  return schema.parse(Record, {'rate': 1.0} | section, where='model')


@pytest.mark.parametrize('key, value, expected', [
    ('rate', 3, 3.0),
    ('maybe_text', 'none', 'none'),  # Text in a file is text.
    ('size', [16, 32], (16, 32)),
    ('inner', {'width': 8}, Inner(width=8)),
    ('maybe_inner', {}, Inner()),
    ('warmup', {'epochs': 5}, Duration(epochs=5.0)),
    ('rules', [['a', 1], ('b', 2.5)], (('a', 1.0), ('b', 2.5))),
    ('weights', {'cat': 2}, {'cat': 2.0}),
    ('anything', {'free': [1, 'x']}, {'free': [1, 'x']}),
    # The text of a flag takes the type of its field.
    ('rate', FlagText('3e-4'), 3e-4),
    ('steps', FlagText('12'), 12),
    ('on', FlagText('true'), True),
    ('text', FlagText('12'), '12'),
    ('maybe_text', FlagText('none'), None),
    ('size', FlagText('(16, 32)'), (16, 32)),
    ('kind', FlagText('none'), 'none'),
    ('anything', FlagText('[{"on": false}]'), [{'on': False}]),
    ('warmup', FlagText('{"epochs": 5}'), Duration(epochs=5.0)),
    ('rules', FlagText('[("a.*", 2)]'), (('a.*', 2.0),)),
    ('anything', FlagText('word'), 'word'),
])
def test_values_and_text_become_the_annotated_type(key, value, expected):
  got = getattr(parse(**{key: value}), key)
  assert got == expected
  assert type(got) is type(expected)


@pytest.mark.parametrize('section, words', [
    ({'setps': 3}, "Unknown key model.setps. Did you mean 'steps'?"),
    ({'zzz': 3}, 'Unknown key model.zzz. Known keys: rate'),
    # Text is never evaluated.
    ({'steps': FlagText('__import__("os").getpid()')},
     'model.steps must be int'),
    ({'warmup': FlagText('{"epoch": 5}')}, "Did you mean 'epochs'?"),
    ({'total': 300}, 'model.total must be a duration with its unit'),
    ({'rate': 'fast'}, "model.rate must be float, but is 'fast'."),
    ({'rate': float('nan')}, 'model.rate is not a number (NaN).'),
    ({'steps': 1.5}, 'model.steps must be int, but is 1.5.'),
    ({'size': 'big'}, "model.size must be int or tuple, but is 'big'."),
    ({'kind': 'ful'}, "model.kind is 'ful'. Did you mean 'full'? Expected one "
                      "of 'none', 'full', 'some'."),
    ({'inner': 3}, 'model.inner must be a section with keys (Inner), but is '
                   '3.'),
    ({'sizes': [1, 'x']}, "model.sizes[1] must be int, but is 'x'."),
    ({'rules': [['a', 1, 2]]}, "model.rules[0] must have 2 entries, but is "
                               "['a', 1, 2]."),
    ({'weights': {'cat': 'x'}}, "model.weights.cat must be float, but is 'x'."),
])
def test_wrong_value_is_an_error_that_names_key_expected_and_found(
    section, words):
  with pytest.raises(ValueError, match=re.escape(words)):
    parse(**section)


@pytest.mark.parametrize('record, section, message', [
    (Record, {}, r'model needs the key\(s\) rate\.'),
    (Record, 'big', 'model must be a section with keys'),
    # The section is named once.
    (Holder, {'positive': {'value': -1}}, '^model.positive: value must be')])
def test_wrong_section_is_an_error_that_names_it(record, section, message):
  with pytest.raises(ValueError, match=message):
    schema.parse(record, section, where='model')


def test_duration_converts_every_unit_to_the_nearest_step():
  sizes = {'batch_size': 100, 'num_examples': 1_050, 'total_steps': 500}
  assert Duration(steps=7).to_steps(**sizes) == 7
  assert Duration(examples=1_060).to_steps(**sizes) == 11  # 10.6
  assert Duration(epochs=2).to_steps(**sizes) == 21
  assert Duration(percent=10).to_steps(**sizes) == 50
  assert all(isinstance(Duration(**{unit: 1}).to_steps(**sizes), int)
             for unit in schema.UNITS)


@pytest.mark.parametrize('total', [7, 337])
@pytest.mark.parametrize('percent', [10, 25, 100 / 3])
def test_percentages_of_the_run_are_due_at_its_last_step(total, percent):
  sizes = {'batch_size': 64, 'num_examples': 1437, 'total_steps': total}
  every = Duration(percent=percent)
  due = [step for step in range(1, total + 1) if every.is_due(step, **sizes)]
  assert due[-1] == total
  assert len(due) == min(total, round(100 / percent))


def test_epochs_of_a_fractional_number_of_steps_do_not_drift():
  sizes = {'batch_size': 256, 'num_examples': 50_000}  # 195.3 steps.
  due = [step for step in range(1, 1_955)
         if Duration(epochs=1).is_due(step, **sizes)]
  assert len(due) == 10
  assert all(abs(step - 195.3125 * (i + 1)) < 1 for i, step in enumerate(due))


def test_total_cannot_be_a_percentage_of_itself():
  with pytest.raises(ValueError, match='cannot be a percentage of itself'):
    Duration(percent=10).to_steps(batch_size=1, num_examples=1)


@pytest.mark.parametrize('fields, words', [
    ({}, 'A duration has exactly one unit'),
    ({'steps': 1, 'epochs': 2}, "got {'steps': 1, 'epochs': 2}. Units: steps, "
                                'examples, epochs, percent.'),
    ({'steps': -1}, "cannot be negative or infinite; got {'steps': -1}."),
    ({'epochs': float('nan')}, 'cannot be negative or infinite'),
])
def test_duration_needs_one_sensible_unit(fields, words):
  with pytest.raises(ValueError, match=re.escape(words)):
    Duration(**fields)


def test_record_round_trips_through_json():
  record = parse(
      size=[1, 2], inner={'width': 3}, warmup={'percent': 5}, sizes=[1, 2],
      rules=[['a', 1]], weights={'cat': 2}, kind='none')
  plain = schema.to_plain(record)
  assert plain['warmup'] == {'percent': 5.0}
  assert plain['rules'] == [['a', 1.0]]
  again = json.loads(json.dumps(plain))
  assert schema.parse(Record, again, where='model') == record


def test_assignment_is_split_at_the_first_equals_sign():
  key, value = schema.parse_assignment('a.b=c=d', usage='--set takes KEY=VALUE')
  assert (key, value) == ('a.b', 'c=d')
  assert isinstance(value, schema.FlagText)
  for text in ('a', '=1', 'a..b=1'):
    with pytest.raises(ValueError, match=f"takes KEY=VALUE, but got '{text}'"):
      schema.parse_assignment(text, usage='--set takes KEY=VALUE')
