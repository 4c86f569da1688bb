"""Self-contained HTML pages: text is escaped, images are embedded.

Every page is a list of sections, each with a text, a figure or a table, and is
made by the same template, `page.html`.
"""

import base64
from collections.abc import Sequence
import dataclasses
import functools
import io
import pathlib

from etils import epath
import jinja2
from PIL import Image

from vit_jax import atomic_files

_MAX_ROWS = 1000  # Of each table.


@dataclasses.dataclass(frozen=True)
class Thumbnail:
  """An image in a cell of a table.

  Attributes:
    url: see `thumbnail`; '' for an image that could not be read.
    side: width and height of its box in pixels.
    title: description, shown where the pointer rests.
    caption: text below the image, which may have several lines.
  """
  url: str
  side: int
  title: str
  caption: str = ''


@dataclasses.dataclass(frozen=True)
class Section:
  """A heading, and below it a text, a figure and a table, as far as given.

  Attributes:
    title: heading.
    text: caption, or why there is nothing to show.
    picture: a PNG file, or None.
    columns: headings of the table, if it has any.
    rows: cells of the table: text, numbers, or thumbnails.
  """
  title: str
  text: str = ''
  picture: epath.Path | None = None
  columns: Sequence[str] = ()
  rows: Sequence[Sequence[str | float | Sequence[Thumbnail]]] = ()

  @property
  def url(self) -> str:
    """The figure as a URL, or ''."""
    return (data_url(self.picture.read_bytes(), kind='png') if self.picture
            else '')


def write(
    path: epath.PathLike, *, title: str, text: str, sections: Sequence[Section],
) -> None:
  """Writes a page."""
  atomic_files.write_text(path, _template().render(
      title=title, text=text, sections=sections, max_rows=_MAX_ROWS))


def thumbnail(image: Image.Image, *, side: int) -> str:
  """Returns a data URL of an image, reduced to at most `side` pixels.

  Images that are smaller already are stored as PNG, others as JPEG.
  """
  is_small = max(image.size) <= side
  image = image.convert('RGB')
  image.thumbnail((side, side))
  buffer = io.BytesIO()
  image.save(buffer, 'PNG' if is_small else 'JPEG', quality=80)
  return data_url(buffer.getvalue(), kind='png' if is_small else 'jpeg')


def data_url(data: bytes, *, kind: str) -> str:
  """Returns the content of an image file as a URL."""
  return f'data:image/{kind};base64,{base64.b64encode(data).decode()}'


@functools.cache
def _template() -> jinja2.Template:
  environment = jinja2.Environment(
      loader=jinja2.FileSystemLoader(pathlib.Path(__file__).parent),
      autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True,
      lstrip_blocks=True)
  return environment.get_template('page.html')
