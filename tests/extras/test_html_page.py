"""One template makes every page."""

import re

from vit_jax.extras import html_page


def test_cells_are_escaped_text_numbers_or_images(tmp_path):
  image = html_page.Thumbnail('data:image/png;base64,', 64, '<a "b">', '<i>')
  html_page.write(
      tmp_path / 'page.html', title='<title>', text='<text>', sections=[
          html_page.Section('<one>', '<why>', columns=['<name>', 'count'],
                            rows=[['<cell>', 1234], [[image], 5]]),
          html_page.Section('two', 'no table')])
  page = (tmp_path / 'page.html').read_text()
  for word in ('title', 'text', 'one', 'why', 'name', 'cell', 'i'):
    assert f'&lt;{word}&gt;' in page
  assert 'alt="&lt;a &#34;b&#34;&gt;"' in page
  assert re.findall('<td class="number">(.*)</td>', page) == ['1,234', '5']
  assert page.count('<table>') == 1


def test_long_tables_end_with_the_number_of_other_rows(tmp_path, monkeypatch):
  monkeypatch.setattr(html_page, '_MAX_ROWS', 2)
  html_page.write(tmp_path / 'page.html', title='', text='', sections=[
      html_page.Section('long', rows=[['row']] * 5)])
  page = (tmp_path / 'page.html').read_text()
  assert page.count('<td>row</td>') == 2 and 'and 3 more' in page
