"""docs/config.md, which lists the keys of the leaves, too."""

from docs import config_reference


def test_the_page_is_current_and_describes_every_key():
  page = config_reference.PATH.read_text()
  assert page == config_reference.markdown(), (
      'Run `python -m docs.config_reference`.')
  zoo = config_reference.ZOO.read_text()
  assert zoo == config_reference.with_keys_of_leaves(zoo)
  rows = [line for line in page.splitlines() if line.startswith('| `')]
  assert len(rows) > 200
  assert [row for row in rows if row.endswith('|  |')] == []
