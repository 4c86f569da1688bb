"""Annotated types and shapes are checked while the tests run."""

from beartype import roar
import jaxtyping
import numpy as np
import pytest

from vit_jax import classes
from vit_jax import console
from vit_jax import losses

WRONG = (roar.BeartypeCallHintViolation, jaxtyping.TypeCheckError)


@pytest.mark.parametrize('call', [
    lambda: console.format_number('many'),
    lambda: classes.Classes('the model', count='many'),
    lambda: losses.softmax_cross_entropy(np.zeros(3), np.zeros(3, int)),
    lambda: losses.softmax_cross_entropy(np.zeros((3, 5)), np.zeros(2, int))],
    ids=['function', 'dataclass', 'rank of an array', 'sizes of an axis'])
def test_a_wrong_type_or_shape_is_an_error(call):
  with pytest.raises(WRONG):
    call()
