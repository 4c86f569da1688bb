"""Escapes text of unknown origin for terminals and spreadsheets.

Names of files, classes and arrays can contain terminal commands, line breaks
and formulas. `wrap` is here because errors are also printed where the
libraries of `console` are missing.
"""

import re
import textwrap
from typing import Any

# ASCII controls, controls of text direction, separators of lines, and bytes of
# file names that are not UTF-8.
_CONTROLS = re.compile(
    r'[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069'
    r'\ud800-\udfff]')
# https://owasp.org/www-community/attacks/CSV_Injection
_NUMBER = re.compile(r'[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?', re.ASCII)
_FORMULA = ('=', '+', '-', '@', '\t', '\r', '\n', '＝', '＋', '－', '＠')


def line(text: str) -> str:
  r"""Returns text for one line of a terminal: a line break becomes '\n'."""
  return _CONTROLS.sub(lambda found: ascii(found[0])[1:-1], text)


def lines(text: str) -> str:
  """Returns text for a terminal, with its line breaks."""
  return '\n'.join(map(line, text.split('\n')))


def wrap(text: str, *, width: int) -> str:
  """Wraps lines between words; continued lines are indented.

  Indented lines are wrapped only if they begin with a key ('  model: ...'):
  others may be commands to copy.
  """
  return '\n'.join(
      line if re.match(r'  (?!\S[^:]*: )', line) else textwrap.fill(
          line, width, break_long_words=False, break_on_hyphens=False,
          subsequent_indent='    ' if line.startswith('  ') else '  ')
      for line in text.split('\n'))


def csv_cell(value: Any) -> Any:
  """Puts an apostrophe in front of text that spreadsheets would calculate.

  Plain numbers, such as '-0.5', remain as they are.
  """
  is_formula = isinstance(value, str) and value.startswith(
      _FORMULA) and not _NUMBER.fullmatch(value)
  return f"'{value}" if is_formula else value
