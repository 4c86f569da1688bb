"""Self-contained HTML pages: text is escaped, images are embedded.

Templates are `.html` files next to the modules that fill them. They extend
`page.html`, which holds the styles of every page.
"""

import base64
import dataclasses
import functools
import io
import pathlib
from typing import Any

from etils import epath
import jinja2
from PIL import Image

from vit_jax import atomic_files
from vit_jax import console


def write(path: epath.PathLike, template: str, **values: Any) -> None:
  """Writes a page.

  The template is a file below `vit_jax/extras/`, such as 'curation/page.html'.
  """
  atomic_files.write_text(
      path, _environment().get_template(template).render(**values))


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


@dataclasses.dataclass(frozen=True)
class Section:
  """A heading, a text, and a figure below it, for figures/figures.html.

  Attributes:
    title: heading.
    text: caption, or why there is no figure.
    picture: a PNG file, or None.
  """
  title: str
  text: str
  picture: epath.Path | None = None

  @property
  def url(self) -> str:
    """The figure as a URL, or ''."""
    return (data_url(self.picture.read_bytes(), kind='png') if self.picture
            else '')


@functools.cache
def _environment() -> jinja2.Environment:
  folder = pathlib.Path(__file__).parent
  environment = jinja2.Environment(
      loader=jinja2.FileSystemLoader(folder), autoescape=True,
      undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True)
  environment.filters['percent'] = console.format_percent
  environment.filters['number'] = '{:,}'.format
  return environment
