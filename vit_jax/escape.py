"""Escapes text of unknown origin for terminals and spreadsheets.

Names of files, classes and arrays can contain terminal commands, line breaks
and formulas.
"""

import re
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


def csv_cell(value: Any) -> Any:
  """Puts an apostrophe in front of text that spreadsheets would calculate.

  Plain numbers, such as '-0.5', remain as they are.
  """
  is_formula = isinstance(value, str) and value.startswith(
      _FORMULA) and not _NUMBER.fullmatch(value)
  return f"'{value}" if is_formula else value
