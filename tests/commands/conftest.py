"""Messages in one line each, however long the temporary folders are."""

import pytest


@pytest.fixture(autouse=True)
def wide_terminal(monkeypatch):
  monkeypatch.setenv('COLUMNS', '1000')
