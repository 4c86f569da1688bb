"""A page of pictures that opens anywhere: one file, nothing fetched."""

import base64
from collections.abc import Sequence
import dataclasses
import html
import io

from etils import epath
from PIL import Image

_STYLE = """
:root { color-scheme: light dark; --text: #1b1b1b; --quiet: #555;
  --ground: #fff; --card: #fff; --line: #ddd; }
@media (prefers-color-scheme: dark) { :root { --text: #e8e8e8;
  --quiet: #aaa; --ground: #17191c; --line: #3a3d42; } }
body { font: 16px/1.5 system-ui, sans-serif; color: var(--text);
  background: var(--ground); margin: 0 auto; max-width: 62rem;
  padding: 1.5rem 1rem 4rem; overflow-wrap: anywhere; }
h1 { font-size: 1.5rem; margin: 0 0 .25rem; }
h2 { font-size: 1.15rem; margin: 2.5rem 0 .25rem; }
p { margin: .25rem 0 .75rem; max-width: 46rem; }
.quiet { color: var(--quiet); }
figure { margin: 0; padding: .75rem; background: var(--card);
  border: 1px solid var(--line); border-radius: .5rem; overflow-x: auto; }
figure img { display: block; max-width: 100%; height: auto; margin: 0 auto; }
/* On a narrow screen a picture is moved sideways, not shrunk to nothing. */
@media (max-width: 48rem) { figure img { max-width: none; } }
"""


@dataclasses.dataclass(frozen=True)
class Section:
  """A heading, a text, and a picture below it.

  Attributes:
    title: heading.
    text: what is seen, or why there is nothing.
    picture: a PNG file, or None.
  """
  title: str
  text: str
  picture: epath.Path | None = None


def write(
    path: epath.PathLike, *, title: str, text: str, sections: Sequence[Section],
) -> None:
  """Writes the page.

  Args:
    path: the .html file.
    title: of the page.
    text: below the title.
    sections: in their order.
  """
  parts = []
  for section in sections:
    parts.append(f'<h2>{html.escape(section.title)}</h2>'
                 f'<p>{html.escape(section.text)}</p>')
    if section.picture is not None:
      parts.append(_figure(section))
  epath.Path(path).write_text(document(title=title, text=text, body=parts))


def _figure(section: Section) -> str:
  assert section.picture is not None
  data = section.picture.read_bytes()
  with Image.open(io.BytesIO(data)) as image:
    # Of two dots a pixel: sharp on any screen, and as large as text is.
    width, height = (max(1, side // 2) for side in image.size)
  encoded = base64.b64encode(data).decode()
  return (f'<figure><img alt="{html.escape(section.title)}" width="{width}" '
          f'height="{height}" src="data:image/png;base64,{encoded}"></figure>')


def document(
    *, title: str, text: str, body: Sequence[str], style: str = '',
) -> str:
  """Returns a page in the colours that the reader's machine asks for.

  Args:
    title: of the page.
    text: below the title.
    body: HTML, in lines.
    style: CSS beside that of every page, which has the colours --text,
      --ground, --line and --quiet; --card is that of pictures, always white.
  """
  return '\n'.join([
      '<!doctype html>', '<html lang="en"><head><meta charset="utf-8">',
      '<meta name="viewport" content="width=device-width, initial-scale=1">',
      f'<title>{html.escape(title)}</title><style>{_STYLE}{style}</style>'
      '</head>', f'<body><h1>{html.escape(title)}</h1>',
      f'<p class="quiet">{html.escape(text)}</p>', *body, '</body></html>\n'])
