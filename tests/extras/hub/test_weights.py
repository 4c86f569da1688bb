"""Addresses of weights on the Hugging Face hub."""

from unittest import mock

import huggingface_hub
import pytest

from vit_jax.weights import download


def test_a_hub_without_network_is_an_error_that_names_the_model(monkeypatch):
  class ConnectError(Exception):  # As of its HTTP client: not an OSError.
    pass

  monkeypatch.setattr(
      huggingface_hub, 'list_repo_files', mock.Mock(side_effect=ConnectError))
  with pytest.raises(OSError, match='hf://user/model could not be fetched'):
    download.fetch('hf://user/model')


def test_a_repository_without_weights_is_listed(monkeypatch):
  monkeypatch.setattr(huggingface_hub, 'list_repo_files',
                      mock.Mock(return_value=['a.onnx', 'config.json']))
  with pytest.raises(ValueError, match='It holds a.onnx, config.json'):
    download.fetch('hf://user/model')


def test_an_address_without_a_user_is_an_error():
  with pytest.raises(ValueError, match='hf://user/model.*but is hf://model'):
    download.fetch('hf://model')


def test_an_error_of_our_own_code_is_not_one_of_the_connection(monkeypatch):
  monkeypatch.setattr(
      huggingface_hub, 'list_repo_files', mock.Mock(return_value=[None]))
  with pytest.raises(AttributeError):
    download.fetch('hf://user/model')
