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
  rows = [line for page in pages for line in page.splitlines()
          if line.startswith('| `')]
  assert len(rows) > 300
  assert [row for row in rows if row.endswith('|  |')] == []


def test_the_list_of_configs_is_current():
  assert config_reference.CONFIGS.read_text() == config_reference.configs(), (
      'Run `python -m docs.config_reference`.')
