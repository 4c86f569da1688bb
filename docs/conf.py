"""Settings of the documentation site: `make docs`.

The pages are those of the repository; docs/README.md groups and orders them.
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
napoleon_use_ivar = True  # The fields of a record are described once.
html_theme = 'furo'
html_static_path = html_css_files = ['site.css']
html_copy_source = smartquotes = False


def _toctree(caption, pages):
  return ['```{toctree}', ':hidden:', f':caption: {caption}', *pages, '```', '']


_READING_ORDER = pathlib.Path(__file__).with_name('README.md').read_text()
_CONTENTS = '\n'.join([
    '', *(line for group in _READING_ORDER.split('\n## ')[1:]
          for line in _toctree(group.split('\n')[0], (
              f'docs/{page}' for page in re.findall(r'\((\w+)\.md\)', group)))),
    *_toctree('Project', [
        'docs/README', 'configs/README', 'vit_jax/weights/bundled/photos',
        'CONTRIBUTING', 'SECURITY', 'CODE_OF_CONDUCT', 'CHANGELOG'])])


def setup(app):
  """Adds the table of contents to the first page."""
  app.connect('source-read', lambda app, page, text: text.append(
      text.pop() + _CONTENTS * (page == root_doc)))
