"""Parameter trees: path names, rules over paths, sizes, differences."""

from collections.abc import Callable, Mapping, Sequence
import itertools
import re
from typing import Any, TypeVar

import flax.traverse_util
import jax
import numpy as np

from vit_jax.exceptions import UserError

T = TypeVar('T')


def path_name(path: Sequence[Any]) -> str:
  """Returns a JAX key path as 'encoder/layers/mlp/kernel'."""
  return jax.tree_util.keystr(tuple(path), simple=True, separator='/')


def flatten(tree: Any) -> dict[str, Any]:
  """Returns the leaves of a tree by path name, in tree order."""
  leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
  return {path_name(path): leaf for path, leaf in leaves}


def unflatten(leaves: Mapping[str, T]) -> dict[str, Any]:
  """Inverse of `flatten`: returns nested dicts.

  Raises:
    UserError: if one path is a prefix of another ('a' and 'a/b').
  """
  for name in leaves:
    parents = name.split('/')[:-1]
    for prefix in itertools.accumulate(parents, '{}/{}'.format):
      if prefix in leaves:
        raise UserError(
            f'{prefix!r} is a leaf, but {name!r} needs it to be a dict.')
  return flax.traverse_util.unflatten_dict(dict(leaves), sep='/')


def select(tree: Any, chosen: Any) -> dict[str, Any]:
  """Returns the leaves for which the same leaf of `chosen` is true."""
  keep = flatten(chosen)
  return unflatten(
      {name: leaf for name, leaf in flatten(tree).items() if keep[name]})


def without(tree: Mapping[str, Any], *names: str) -> dict[str, Any]:
  """Returns a tree without some of its top-level entries."""
  return {name: value for name, value in tree.items() if name not in names}


def update(tree: Any, other: Any) -> dict[str, Any]:
  """Returns the leaves of both trees; leaves of `other` take precedence."""
  return unflatten({**flatten(tree), **flatten(other)})


def map_with_name(function: Callable[..., T], tree: Any, *rest: Any) -> Any:
  """Maps `function(name, leaf, ...)` over a tree."""
  return jax.tree_util.tree_map_with_path(
      lambda path, *leaves: function(path_name(path), *leaves), tree, *rest)


def map_rules(
    tree: Any, rules: Sequence[tuple[str, T]], *, default: T, where: str,
    optional: Sequence[str] = (),
) -> Any:
  """Returns a tree with the value of the first matching rule of each leaf.

  Args:
    tree: a tree of parameters or shapes.
    rules: (regular expression, value) pairs; expressions match whole paths.
    default: value of leaves without a match.
    where: config key of the rules, for error messages.
    optional: expressions that may match nothing, such as those of defaults.

  Raises:
    UserError: if another rule is not the first match of any parameter.
  """
  compiled = []
  for pattern, _ in rules:
    try:
      compiled.append(re.compile(pattern))
    except re.error as error:
      raise UserError(
          f'{where}: {pattern!r} is not a regular expression: {error}.'
      ) from error

  first_match = {name: next((i for i, p in enumerate(compiled)
                             if p.fullmatch(name)), None)
                 for name in flatten(tree)}
  for i, (pattern, _) in enumerate(rules):
    if i not in first_match.values() and pattern not in optional:
      shadowed = any(map(compiled[i].fullmatch, first_match))
      raise UserError(
          f'{where}: the rule {pattern!r} matches no parameter'
          + ', except those of earlier rules' * shadowed
          + f'. Parameters: {", ".join(first_match)}.')
  return map_with_name(
      lambda name, _: default if (i := first_match[name]) is None
      else rules[i][1], tree)


def num_elements(tree: Any) -> int:
  """Returns the number of array elements in a tree of arrays or shapes."""
  return sum(int(np.prod(leaf.shape)) for leaf in jax.tree.leaves(tree))


def num_bytes(tree: Any) -> int:
  """Returns the unsharded size in bytes of a tree of arrays or shapes."""
  return sum(int(np.prod(leaf.shape)) * leaf.dtype.itemsize
             for leaf in jax.tree.leaves(tree))


def differences(expected: Any, found: Any, of: str = 'shape') -> list[str]:
  """Returns one line per leaf whose name or attribute, `of`, differs."""
  want, have = ({name: getattr(leaf, of) for name, leaf in
                 flatten(tree).items()} for tree in (expected, found))
  return [f'{name}: expected {want.get(name, "nothing")}, found '
          f'{have.get(name, "nothing")}'
          for name in sorted(want.keys() | have.keys())
          if want.get(name) != have.get(name)]
