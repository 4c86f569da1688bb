"""The lists of keys in docs/config.md and on the pages of leaves."""

from docs import config_reference


def test_the_pages_are_current_and_describe_every_key():
  pages = [config_reference.PATH.read_text()]
  assert pages[0] == config_reference.markdown(), (
      'Run `python -m docs.config_reference`.')
  for path in dict.fromkeys(config_reference.LEAVES.values()):
    pages.append(path.read_text())
    assert pages[-1] == config_reference.with_keys(path)
    assert '\n## `' in pages[-1]
  rows = [line for page in pages for line in page.splitlines()
          if line.startswith('| `')]
  assert len(rows) > 300
  assert [row for row in rows if row.endswith('|  |')] == []
