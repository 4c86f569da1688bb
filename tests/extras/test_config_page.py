"""The lists of keys and of configs are those of the code."""

from docs import config_reference


def test_the_pages_are_current_and_describe_every_key():
  pages = [config_reference.PATH.read_text()]
  assert pages[0] == config_reference.markdown(), (
      'Run `python -m docs.config_reference`.')
  for path, leaves in config_reference.LEAVES.items():
    pages.append(path.read_text())
    assert pages[-1] == config_reference.with_keys(pages[-1], leaves)
    assert '\n### `' in pages[-1]
  rows = [row for page in pages for row in keys(page)]
  assert len(rows) > 250
  assert [row for row in rows if row.endswith('|  |')] == []
  assert sorted({row for row in rows if rows.count(row) > 1}) == []
  assert len({row.split('`')[1] for row in keys(pages[0])}) <= 200


def keys(page):
  """Returns the rows of the generated tables of a page."""
  generated = page.partition(config_reference.MARK)[2] or page
  return [row for row in generated.splitlines() if row.startswith('| `')]


def test_the_list_of_configs_is_current():
  assert config_reference.CONFIGS.read_text() == config_reference.configs(), (
      'Run `python -m docs.config_reference`.')
