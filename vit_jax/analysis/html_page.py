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
/* Whole at first, however narrow the screen; what was asked for is moved. */
figure label { display: block; cursor: zoom-in; }
figure input { position: absolute; opacity: 0; }
figure input:focus-visible + img { outline: 2px solid #0072b2; }
figure label:has(:checked) { cursor: zoom-out; }
figure :checked + img { max-width: none; }
"""
_CSS_DPI = 96  # Dots of CSS in an inch, so that text is as large as it says.


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
    width, height = (
        max(1, round(_CSS_DPI * side / float(dpi)))
        for side, dpi in zip(image.size, image.info.get('dpi', (150, 150))))
  encoded = base64.b64encode(data).decode()
  title = html.escape(section.title)
  # Without a script: a picture is a box to tick, and ticked it is of full size.
  return (f'<figure><label title="Full size"><input type="checkbox" '
          f'aria-label="{title}, full size"><img alt="{title}" '
          f'width="{width}" height="{height}" '
          f'src="data:image/png;base64,{encoded}"></label></figure>')


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
