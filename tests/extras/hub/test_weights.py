"""Addresses of weights on the Hugging Face hub."""

from unittest import mock

import huggingface_hub
import pytest

from vit_jax.weights import download


class ConnectError(Exception):
  """As of the hub's HTTP client: not an OSError."""


@pytest.mark.parametrize(('answer', 'error', 'words'), [
    ({'side_effect': ConnectError}, OSError,
     'hf://user/model could not be fetched'),
    ({'return_value': ['a.onnx', 'config.json']}, ValueError,
     'It holds a.onnx, config.json'),
    # An error of our own code is not one of the connection.
    ({'return_value': [None]}, AttributeError, "'NoneType' object")])
def test_what_a_hub_lacks_is_an_error(answer, error, words, monkeypatch):
  monkeypatch.setattr(
      huggingface_hub, 'list_repo_files', mock.Mock(**answer))
  with pytest.raises(error, match=words):
    download.fetch('hf://user/model')


def test_an_address_without_a_user_is_an_error():
  with pytest.raises(ValueError, match='hf://user/model.*but is hf://model'):
    download.fetch('hf://model')
