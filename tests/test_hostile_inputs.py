"""Damaged images and weights are read or explained."""

import pytest

from tests import fuzz


@pytest.mark.slow
@pytest.mark.filterwarnings('ignore')
def test_any_file_is_read_or_explained():
  # No parameters, because collecting them would build all readers.
  for name, reader in fuzz.readers().items():
    try:
      reader.check(max_examples=50 if name == 'image' else 8, derandomize=True)
    except Exception as error:
      error.add_note(f'The reader is {name}.')
      raise
