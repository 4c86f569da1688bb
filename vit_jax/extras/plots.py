"""Style of all plots: figures, panels, colours, fonts and legends."""

from collections.abc import Sequence
import functools
import io
import re
from typing import Any

from etils import epath

from vit_jax import atomic_files

# Colour-blind safe palette of Okabe and Ito (https://jfly.uni-koeln.de/color)
# with a dark red instead of yellow, which is too pale for a thin line.
COLOURS = ('#0072B2', '#D55E00', '#009E73', '#CC79A7', '#56B4E9', '#E69F00',
           '#000000', '#882255')
MARKERS = 'osD^vP'
_FONT = 'DejaVu Sans'  # Part of Matplotlib.
_DPI = 150


def new_figure(width: float, height: float, *, w_pad: float = 0.06) -> Any:
  """Returns a Matplotlib figure of a size in inches.

  Imported here, because importing Matplotlib takes a second. pyplot is
  avoided because its global state needs a display.
  """
  from matplotlib import figure
  from matplotlib import layout_engine
  return figure.Figure(
      figsize=(width, height), dpi=_DPI,
      layout=layout_engine.ConstrainedLayoutEngine(w_pad=w_pad, h_pad=0.06))


def new_panels(
    count: int, *, columns: int, width: float, height: float,
    title_inches: float = 0.0, w_pad: float = 0.06,
) -> tuple[Any, list[Any]]:
  """Returns a figure and its `count` panels, in rows of at most `columns`."""
  columns = min(columns, count)
  rows = -(-count // columns)
  fig = new_figure(width * columns, height * rows + title_inches, w_pad=w_pad)
  panels = list(fig.subplots(rows, columns, squeeze=False).flat)
  for axes in panels[count:]:
    axes.remove()
  return fig, panels[:count]


@functools.cache
def _find_font(character: str) -> str:
  """Returns the name of an installed font with a character, or ''."""
  from matplotlib import font_manager
  # These contain only boxes, or bitmaps that Matplotlib cannot draw.
  fonts = {font.fname: font.name for font in font_manager.fontManager.ttflist
           if not re.match('Last Resort|.*Color Emoji', font.name)}
  for path, name in sorted(
      fonts.items(), key=lambda font: (font[1] != _FONT, font[1])):
    if font_manager.get_font(path).get_char_index(ord(character)):
      return name
  return ''


def style(axes: Any, *, grid: bool = True) -> None:
  """Applies the common style: no frame, and a pale grid behind the data."""
  axes.spines[['top', 'right']].set_visible(False)
  if grid:
    axes.grid(True, color='#E5E5E5', linewidth=0.8)
    axes.set_axisbelow(True)


def percent(axis: Any) -> None:
  """Shows the fractions of an axis in percent."""
  axis.set_major_formatter(lambda value, _: f'{100 * value:.4g} %')


def title(fig: Any, text: str) -> None:
  """Writes a title above all panels, and widens the figure if it is cut."""
  # At 12 points, a bold letter is 0.1 inches wide.
  fig.set_figwidth(max(fig.get_figwidth(), 0.11 * len(text)))
  fig.suptitle(drawable(text), fontsize=12, fontweight='bold')


def legend(fig: Any, handles: Sequence[Any] = ()) -> None:
  """Draws a legend below all panels, in as many columns as fit."""
  handles = handles or [handle for axes in fig.axes for handle in
                        axes.get_legend_handles_labels()[0]]
  # At 9 points a letter is 0.08 inches wide, and a sample 0.65.
  entry_inches = 0.65 + 0.08 * max(len(str(h.get_label())) for h in handles)
  columns = int(fig.get_figwidth() // entry_inches)
  fig.legend(
      handles=handles, loc='outside lower center', frameon=False, fontsize=9,
      ncols=min(len(handles), max(1, columns)))


def drawable(text: str) -> str:
  """Returns a text that Matplotlib can draw.

  Characters that Matplotlib's font lacks are taken from other fonts; those that
  no font has become codes such as \\u99ac. Dollar signs are escaped, since they
  would start a formula.
  """
  import matplotlib
  shown = ''
  for character in text:
    font = _FONT if character == '\n' else _find_font(character)
    shown += character if font else character.encode(
        'ascii', 'backslashreplace').decode()
    if font and font not in matplotlib.rcParams['font.family']:
      matplotlib.rcParams['font.family'] = [
          *matplotlib.rcParams['font.family'], font]
  return shown.replace('$', r'\$')


def save(fig: Any, path: epath.PathLike) -> None:
  """Writes a figure, also to a bucket; the suffix determines the format.

  A copy of a .png file is written in Matplotlib's `savefig.format`, which users
  set in a file `matplotlibrc`, so that all figures can be vector graphics.
  """
  import matplotlib
  path, buffer = epath.Path(path), io.BytesIO()
  fig.savefig(buffer, format=path.suffix.removeprefix('.') or 'png')
  atomic_files.write_bytes(path, buffer.getvalue())
  also = f'.{matplotlib.rcParams["savefig.format"]}'
  if path.suffix == '.png' != also:
    save(fig, path.with_suffix(also))
