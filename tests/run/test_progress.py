"""Progress is shown as a bar in a terminal and as lines otherwise."""

import io
import re

import pytest
import rich.console

from vit_jax.run import progress as progress_lib


def make_console(*, terminal=False, width=80):
  return rich.console.Console(
      file=io.StringIO(), force_terminal=terminal, width=width,
      color_system=None, legacy_windows=False, _environ={})


def text_of(console):
  return console.file.getvalue()


def test_without_a_terminal_each_update_is_one_line():
  console = make_console()
  with progress_lib.Progress(
      1000, title='pretrain', console=console) as progress:
    progress.advance(5)
    progress.update(10, {'loss': 2.3456, 'images_per_sec': 812.4})
    progress.update(1000, {'loss': 0.0123, 'images_per_sec': 14210, 'mfu': 1})
  first, last = text_of(console).splitlines()
  assert re.fullmatch(
      r'pretrain  10/1,000  loss 2\.35  images/s 812  [\d:]+ left', first)
  assert last == 'pretrain  1,000/1,000  loss 0.0123  images/s 14,210'
  assert '\033' not in text_of(console)


@pytest.mark.parametrize('width', [80, 120])
def test_the_bar_fits_on_one_line(width):
  console = make_console(terminal=True, width=width)
  with progress_lib.Progress(
      1_039_800, start_step=1000, title='finetune', console=console
  ) as progress:
    progress.update(1500, {'loss': 2.3456, 'images_per_sec': 14210})
    progress.print('evaluated: accuracy 0.91')
  plain = re.sub(r'\033\[[\d;?]*[A-Za-z]', '', text_of(console))
  shown = re.split(r'[\r\n]+', plain)
  assert 'evaluated: accuracy 0.91' in [line.strip() for line in shown]
  bars = [line for line in shown if 'finetune' in line]
  assert bars and max(map(len, bars)) <= width
  assert '1,500/1,039,800  loss 2.35  images/s 14,210' in bars[-1]


def test_the_remaining_time_counts_from_the_resumed_step(monkeypatch):
  now = [100.0]
  monkeypatch.setattr(progress_lib.time, 'monotonic', lambda: now[0])
  console = make_console()
  with progress_lib.Progress(1000, start_step=900, console=console) as progress:
    for step in (910, 950):
      now[0] += 10
      progress.advance(step)
    progress.update(950, {})
  assert text_of(console) == '950/1,000  0:13 left\n'
