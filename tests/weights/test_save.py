"""A model is saved and nothing is overwritten."""

import jax
import pytest

from tests import random_models


def save(target, form, **settings):
  """Saves a model; returns the notes."""
  return random_models.make(
      {**random_models.TINY, **settings}, side=32).save(target, form=form)


@pytest.mark.parametrize('form', ['npz', 'orbax'])
def test_nothing_is_overwritten(form, tmp_path):
  (tmp_path / 'x').write_text('precious')
  with pytest.raises(ValueError, match='exists'):
    save(tmp_path / 'x', form)
  assert (tmp_path / 'x').read_text() == 'precious'
  assert len(list(tmp_path.iterdir())) == 1


def test_a_value_beyond_half_precision_is_an_error(tmp_path):
  model = random_models.make(random_models.TINY, side=32)
  large = model.with_params(jax.tree.map(lambda x: x + 1e5, model.params))
  with pytest.raises(ValueError, match='infinite as float16'):
    large.save(tmp_path / 'x', form='npz', dtype='float16')


def test_a_note_names_settings_that_the_library_ignores(tmp_path):
  note, = save(tmp_path / 'x', 'npz', gelu='exact')
  assert "gelu='tanh', this model with 'exact'" in note
  assert save(tmp_path / 'other', 'npz', gelu='tanh') == []
