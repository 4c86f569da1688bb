"""Settings of the documentation site: `make docs`.

The pages are those of the repository; docs/README.md determines their order.
"""

import pathlib
import re

project = html_title = 'vit-jax'
extensions = ['myst_parser', 'sphinx.ext.autodoc', 'sphinx.ext.napoleon']
root_doc = 'README'
include_patterns = [
    '*.md', 'docs/**', 'configs/**', 'vit_jax/weights/bundled/*.md']
myst_enable_extensions = ['html_image']
myst_heading_anchors = 4
default_role = 'code'  # Docstrings quote code as `name`.
autodoc_member_order = 'bysource'
html_theme = 'furo'
html_copy_source = smartquotes = False

_TABLE = pathlib.Path(__file__).with_name('README.md').read_text()
_CONTENTS = '\n'.join([
    '', '```{toctree}', ':hidden:', 'docs/README',
    *(f'docs/{page}' for page in re.findall(r'\((\w+)\.md\)', _TABLE)),
    'configs/README', 'configs/paper/README',
    'vit_jax/weights/bundled/photos', 'CONTRIBUTING', 'SECURITY',
    'CODE_OF_CONDUCT', 'CHANGELOG', '```'])


def setup(app):
  """Adds the table of contents to the first page."""
  app.connect('source-read', lambda app, page, text: text.append(
      text.pop() + _CONTENTS * (page == root_doc)))
