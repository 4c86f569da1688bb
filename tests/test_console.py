"""Terminal tables and formatting of numbers, durations and metrics."""

import io
import sys

import pytest
import rich.console

from vit_jax import console as console_lib


def shown(title, headings, rows, *, width=80, **options):
  """Returns the text of a table in a pipe."""
  file = io.StringIO()
  console_lib.table(title, headings, rows, console=rich.console.Console(
      file=file, force_terminal=False, width=width), **options)
  return file.getvalue()


@pytest.mark.parametrize(('show', 'by_value'), [
    (console_lib.format_number, {
        0: '0.00', 0.03124: '0.0312', 12.34: '12.3', 14210: '14,210',
        3e-5: '3.0e-05', float('nan'): 'nan', -2.5: '-2.50'}),
    (console_lib.format_secs, {
        7.2: '0:07', 59.7: '1:00', 750: '12:30', 11100: '3:05:00'})])
def test_numbers_have_three_digits_and_durations_minutes(show, by_value):
  assert {value: show(value) for value in by_value} == by_value


def test_a_table_aligns_numbers_right_and_fits_80_columns_in_a_pipe():
  lines = [line.rstrip() for line in shown(
      'Result', ['stage', 'accuracy', 'steps', 'secs'],
      [['pretrain [a]', None, 2000, 61.25], ['finetune', '98.1 %', 600, 9.5]],
  ).splitlines()]
  assert max(map(len, lines)) <= 80
  assert lines[0] == 'Result'
  row, = [line for line in lines if 'pretrain' in line]
  other, = [line for line in lines if 'finetune' in line]
  assert row.split() == ['pretrain', '[a]', '–', '2,000', '61.2']
  assert other.split() == ['finetune', '98.1', '%', '600', '9.50']
  assert row.index('2,000') + 5 == other.index('600') + 3


def test_a_report_in_a_terminal_has_four_lines_unless_it_is_verbose(
    monkeypatch):
  def brief(*lines, terminal=True):
    return console_lib.brief(lines, console=rich.console.Console(
        width=10, force_terminal=terminal))

  assert brief(*'abcd') == [*'abcd']
  assert brief('a' * 11, *'bcd') == ['a' * 9 + '…', *'bcd']
  *first, last = brief(*'abcde')
  assert (first, last) == ([*'abc'], '  and 2 l…')
  assert brief(*'abcde', terminal=False) == [*'abcde']  # Logs have all.
  monkeypatch.setattr(console_lib, 'verbose', True)
  assert brief(*'abcde') == [*'abcde']


def test_lines_are_wrapped_between_words_but_not_commands(monkeypatch):
  monkeypatch.setenv('COLUMNS', '20')
  file = io.StringIO()
  text = ('prepare it once on any machine:\n  tfds build name --data_dir=folder'
          '\n  declared by a.json: mean=0.5')
  monkeypatch.setattr(sys, 'stdout', file)
  console_lib.print_lines(text)
  assert file.getvalue() == f'{text}\n'
  file.truncate(file.seek(0))
  console_lib.print_lines(text, in_logs=True)
  assert file.getvalue().splitlines() == [
      'prepare it once on', '  any machine:', text.splitlines()[1],
      '  declared by', '    a.json: mean=0.5']


SUMMARY = ['stage', 'steps', 'images', 'train loss', 'held out', '']


@pytest.mark.parametrize(('headings', 'rows', 'width', 'whole'), [
    (SUMMARY, [['finetune', 20, 320, 0.725, 'root_mean_square_error',
                'a long text that may well be broken into lines']], 80,
     ['root_mean_square_error']),
    (SUMMARY, [['pretrain', 2500, 80_000, 4.54, 'mean_average_precision',
                '70.31 %']], 58, ['2,500', '80,000', '4.54', '70.31 %']),
    (['stage', 'steps', 'images', 'train loss', 'metric', 'last', 'best',
      'of step'], [['mine', 2000, 42_468, 0.725, 'test/mean_absolute_error',
                    42468, 41999, 1800]], 76, [
                        '2,000', '42,468', '42,468', '41,999', '1,800']),
    (['image', '1.', '', '2.', ''], [
        [f'{i}' + '/folder' * 60 + '/x.jpg', 'Appenzeller sennenhund',
         '71.0 %', 'a ' * 200 + 'dog', '9.0 %'] for i in range(4)], 80,
     4 * ['.jpg', 'dog', '71.0 %', '9.0 %'])],
    ids=['words', 'numbers', 'narrow', 'long texts'])
def test_a_table_fits_and_breaks_no_number_word_or_end_of_a_text(
    headings, rows, width, whole):
  text = shown('Table', headings, rows, width=width)
  assert max(map(len, text.splitlines())) <= width
  assert len(text.splitlines()) <= 5 + 4 * 6
  for word in whole:
    assert text.count(word) == whole.count(word), word


def test_sizes_counts_and_metrics_have_units():
  assert [console_lib.format_count(n, 'class') for n in (1, 1000)] == [
      '1 class', '1,000 classes']
  assert console_lib.format_bytes(3 * 2**30) == '3.0 GiB'
  assert console_lib.format_flops(1.24e12) == '1.24 TFLOP'
  for value, is_fraction, expected in (
      (0.9722, True, '97.22 %'), (0.113, False, '0.113'),
      (float('nan'), True, '–')):
    assert console_lib.format_metric(value, is_fraction=is_fraction) == expected


@pytest.mark.parametrize('text', ['x' * 30, '馬' * 15, 'bird 🐦 bird ' * 3])
def test_wide_characters_count_as_two_columns(text):
  for width in range(4, 26):
    assert width - 2 <= console_lib.cell_len(
        console_lib.shorten(text, width)) <= width
  assert console_lib.shorten('馬馬', 4) == '馬馬'
