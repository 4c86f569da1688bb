"""docs/config.md, which lists the keys of the leaves, too."""

from docs import config_reference


def test_the_page_is_current_and_describes_every_key():
  page = config_reference.PATH.read_text()
  assert page == config_reference.markdown(), (
      'Run `python -m docs.config_reference`.')
  rows = [line for line in page.splitlines() if line.startswith('| `')]
  assert len(rows) > 200
  for leaf, path in config_reference.LEAVES.items():
    text = path.read_text()
    assert text == config_reference.with_keys(text, leaf)
    assert len(text.splitlines()) > len(text.partition('## `')[0].splitlines())
  assert [row for row in rows if row.endswith('|  |')] == []
