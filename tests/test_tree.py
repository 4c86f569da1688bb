"""Parameter trees."""

import re
from typing import NamedTuple

import flax.struct
import jax
import jax.numpy as jnp
import pytest

from vit_jax import tree


class Pair(NamedTuple):
  mu: dict
  nu: dict


@flax.struct.dataclass
class State:
  step: jax.Array
  params: dict


def shape(*sizes, dtype=jnp.float32):
  return jax.ShapeDtypeStruct(sizes, dtype)


PARAMS = {
    'encoder': {'mlp': {'kernel': shape(2, 3, 4), 'bias': shape(2, 4)}},
    'head': {'kernel': shape(4, 5), 'bias': shape(5)},
}
NAMES = ['encoder/mlp/bias', 'encoder/mlp/kernel', 'head/bias', 'head/kernel']


def test_names_are_paths_in_the_order_of_the_leaves():
  flat = tree.flatten(PARAMS)
  assert list(flat) == NAMES
  assert list(flat.values()) == jax.tree.leaves(PARAMS)


def test_paths_include_tuples_dataclasses_and_lists():
  state = (Pair({'a': 1}, {'a': 2}), [State(3, {'b': {'c': 4}})])
  assert tree.flatten(state) == {
      '0/mu/a': 1, '0/nu/a': 2, '1/0/step': 3, '1/0/params/b/c': 4}


def test_unflatten_undoes_flatten():
  assert tree.unflatten(tree.flatten(PARAMS)) == PARAMS
  assert tree.unflatten({}) == {}


@pytest.mark.parametrize('names', [('a', 'a/b'), ('a/b', 'a'),
                                   ('x/a', 'x/a/b/c')])
def test_path_that_is_a_prefix_of_another_is_an_error(names):
  with pytest.raises(ValueError, match='is a leaf, but'):
    tree.unflatten(dict.fromkeys(names, 1))


def rules(pairs, default=0):
  return tree.flatten(
      tree.map_rules(PARAMS, pairs, default=default, where='rules'))


def test_first_rule_that_matches_the_whole_path_applies():
  got = rules([('head/kernel', 3), ('.*/kernel', 2), ('head/.*', 1)])
  assert got == dict(zip(NAMES, [0, 2, 1, 3]))


@pytest.mark.parametrize(('pairs', 'words'), [
    ([('.*', 1), ('haed/.*', 2)],
     "the rule 'haed/.*' matches no parameter. Parameters: "
     + ', '.join(NAMES)),
    ([('head', 1)], "'head' matches no parameter"),  # Not the whole name.
    ([('.*', 1), ('head/.*', 2)], "the rule 'head/.*' matches no parameter, "
     'except those of earlier rules.'),
    ([('*head', 1)], "'*head' is not a regular expression")])
def test_useless_rules_are_errors(pairs, words):
  with pytest.raises(ValueError, match=re.escape(words)):
    rules(pairs)


def test_sizes_count_elements_and_bytes():
  sizes = {'a': shape(2, 3), 'b': shape(dtype=jnp.int32),
           'c': shape(5, dtype=jnp.bfloat16), 'd': shape(0, 4),
           'beyond_32_bits': shape(70_000, 70_000)}
  assert tree.num_elements(sizes) == 6 + 1 + 5 + 0 + 70_000**2
  assert tree.num_bytes(sizes) == 24 + 4 + 10 + 0 + 4 * 70_000**2
  assert tree.num_elements({}) == tree.num_bytes({}) == 0


def test_differences_list_missing_unexpected_and_reshaped_leaves():
  found = {'encoder': {'mlp': PARAMS['encoder']['mlp'], 'new': shape(1)},
           'head': {'kernel': shape(4, 10)}}
  assert tree.differences(PARAMS, found) == [
      'encoder/new: expected nothing, found (1,)',
      'head/bias: expected (5,), found nothing',
      'head/kernel: expected (4, 5), found (4, 10)',
  ]
