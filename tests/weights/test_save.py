"""A model is written whole or not at all, and never over anything."""

import pytest

from tests import random_models
from vit_jax.weights import save


@pytest.mark.parametrize(('form', 'settings', 'words'), [
    ('npz', {'registers': 2}, 'registers=2'),
    ('npz', {'axial': True, 'pooling': 'average'}, 'axial=True'),
    ('npz', {'layer_scale': 0.1}, 'no place for .*attention_scale'),
    ('timm', {'representation_layer': True}, 'no place for representation'),
    ('timm', {'position_at': 'shared'}, "position_at='shared'"),
    ('npz', {'parallel': True}, 'parallel=True'),
    ('timm', {'qk_norm': True}, 'qk_norm=True'),
    ('huggingface', {'norm': 'rms'}, "norm='rms'"),
    ('huggingface', {'pooling': 'average'}, "pooling='average'"),
    ('huggingface', {'final_norm': False}, 'final_norm=False'),
    ('huggingface', {'representation_layer': True}, 'no layer before its head'),
    ('huggingface', random_models.HYBRID, 'no convolutional network')])
def test_what_a_format_cannot_say_is_an_error(form, settings, words, tmp_path):
  with pytest.raises(ValueError, match=words):
    random_models.make_tiny(**settings).save(tmp_path / 'x', form=form)
  assert not list(tmp_path.iterdir())


def test_nothing_is_overwritten(tmp_path):
  (tmp_path / 'x').write_text('precious')
  for form in save.FORMATS:
    with pytest.raises(FileExistsError, match='exists already'):
      random_models.make_tiny().save(tmp_path / 'x', form=form)
  assert (tmp_path / 'x').read_text() == 'precious'


@pytest.mark.parametrize('form', save.FORMATS)
def test_a_save_that_fails_leaves_nothing(form, tmp_path, monkeypatch):
  def full(*_, **__):
    raise OSError('No space left on device')

  monkeypatch.setattr('os.rename', full)
  with pytest.raises(OSError, match='No space left'):
    random_models.make_tiny().save(tmp_path / 'folder' / 'x', form=form)
  assert not list((tmp_path / 'folder').iterdir())


def test_an_address_that_cannot_be_written_to_is_an_error(
    tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  for form in save.FORMATS:
    with pytest.raises(ValueError, match='https://host/x cannot be written to'):
      random_models.make_tiny().save('https://host/x', form=form)
  assert not list(tmp_path.iterdir())
