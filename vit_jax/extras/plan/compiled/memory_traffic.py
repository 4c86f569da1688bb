"""Bytes that a compiled program moves between a device and its memory.

XLA's `cost_analysis` counts the body of a loop once, and a scanned encoder is
one loop. Here each loop body counts as often as it runs. Otherwise the rules
follow XLA's HloCostAnalysis: every instruction reads its operands and
writes its results, but a fusion moves only its inputs and outputs, a slice only
the slice, and an in-place update only the update. TPU layouts are respected:
arrays in on-chip memory, `S(1)`, cost nothing, and others are padded to their
tiles, `T(8,128)`.
"""

from collections.abc import Iterator, Sequence
import functools
import math
import re

from vit_jax.extras.plan.compiled import hlo

# Instructions without traffic, or whose traffic is counted elsewhere.
_FREE = frozenset((
    'parameter', 'constant', 'tuple', 'get-tuple-element', 'bitcast',
    'after-all', 'opt-barrier', 'partition-id', 'replica-id', 'domain',
    'add-dependency'))
_SLICES = frozenset(('dynamic-slice', 'slice', 'gather'))
# Calls whose results include workspace, as arrays of bytes.
_LIBRARY_CALL = re.compile('_target="__(cublas|cudnn|onednn)')
_WORKSPACE = ('u8[', 's8[')
# Uninitialized memory, such as for the results that a loop stacks.
_ALLOCATION = '_target="AllocateBuffer"'
_HOST_SPACE = '5'  # Memory spaces other than 0 and this one are on the chip.


def count(text: str) -> int:
  """Returns the bytes read and written per device.

  A loop of unknown length counts once.

  Args:
    text: `jax.stages.Compiled.as_text()`.

  Raises:
    UserError: if this is not the text of a compiled program.
  """
  program = hlo.parse(text)
  return _Counter(program).computation(program.entry)


class _Counter:
  """Sums traffic over the computations of a program."""

  def __init__(self, program: hlo.Program):
    self._program = program
    # Many fusions call the same computations.
    self.computation = functools.cache(self._computation)

  def _computation(self, name: str) -> int:
    return sum(self._instruction(i, name)
               for i in self._program.instructions(name))

  def _instruction(self, i: hlo.Instruction, computation: str) -> int:
    if i.opcode == 'while':
      trips = self._program.trip_count(i)
      return (1 if trips is None else trips) * sum(
          map(self.computation, i.called))
    if i.opcode == 'conditional':
      return max(map(self.computation, i.called), default=0)
    if i.opcode in ('call', 'async-start'):
      return sum(map(self.computation, i.called))
    if (i.opcode in _FREE or i.opcode.endswith(('-done', '-update'))
        or _ALLOCATION in i.rest):
      return 0
    return self._bytes_of(i, computation)

  def _bytes_of(self, i: hlo.Instruction, computation: str) -> int:
    operands = [x.shape for x in self._operands(i, computation)]
    if i.opcode == 'fusion':
      (called,) = i.called
      return self._written(called, hlo.elements(i.shape)) + sum(
          self._read(called, index, shape)
          for index, shape in enumerate(operands))
    if i.opcode in _SLICES:
      return 2 * _bytes(i.shape)
    if i.opcode == 'dynamic-update-slice':
      return 2 * _bytes(operands[1])
    results = hlo.elements(i.shape)
    if i.opcode == 'copy-start':  # Results: the copy, then the operand.
      results = results[:1]
    elif i.opcode.endswith('-start'):  # Results: the operand, then the result.
      results = results[1:2] or results
      if i.opcode == 'slice-start':
        operands = [_layout_of(operands[0], results[0])]
    elif i.opcode == 'custom-call' and _LIBRARY_CALL.search(i.rest):
      results = results[:1] + [
          x for x in results[1:] if not x.startswith(_WORKSPACE)]
    return sum(map(_bytes, (*results, *operands)))

  def _read(self, computation: str, index: int, shape: str) -> int:
    """Returns the bytes that a fusion reads from one of its operands."""
    parameter = next((
        i for i in self._program.instructions(computation)
        if i.opcode == 'parameter' and i.rest.startswith(f'{index})')), None)
    whole, parts = _bytes(shape), 0
    if parameter is None:
      return whole
    for user, position in self._users(computation, parameter.name):
      if user.opcode in _SLICES and position == 0:
        parts += _bytes(user.shape)
      elif user.opcode == 'dynamic-update-slice' and position == 0:
        pass  # In place.
      elif user.opcode == 'fusion':
        parts += self._read(user.called[0], position, shape)
      else:
        return whole
    return min(whole, parts)

  def _users(
      self, computation: str, name: str,
  ) -> Iterator[tuple[hlo.Instruction, int]]:
    """Yields users of a value or its bitcasts, and its operand position."""
    for i in self._program.instructions(computation):
      for position, operand in enumerate(_operand_names(i.rest)):
        if operand == name and i.opcode == 'bitcast':
          yield from self._users(computation, i.name)
        elif operand == name:
          yield i, position

  def _written(self, computation: str, shapes: Sequence[str]) -> int:
    """Returns the bytes that a fusion writes."""
    by_name = self._program.computations.get(computation, {})
    root = next((i for i in by_name.values() if i.is_root), None)
    roots: Sequence[hlo.Instruction | None] = [root]
    if root is not None and root.opcode == 'tuple':
      roots = [by_name.get(name) for name in _operand_names(root.rest)]
    if len(roots) != len(shapes):
      return sum(map(_bytes, shapes))
    return sum(self._written_by(root, computation, shape)
               for root, shape in zip(roots, shapes))

  def _written_by(
      self, root: hlo.Instruction | None, computation: str, shape: str) -> int:
    while root is not None and root.opcode == 'bitcast':
      root = next(iter(self._operands(root, computation)), None)
    if root is not None and _bytes(shape):
      if root.opcode == 'dynamic-update-slice':
        update = self._operands(root, computation)[1]
        return min(_bytes(shape), _bytes(update.shape))
      if root.opcode == 'fusion':
        return self._written(root.called[0], [shape])
    return _bytes(shape)

  def _operands(
      self, i: hlo.Instruction, computation: str) -> list[hlo.Instruction]:
    by_name = self._program.computations.get(computation, {})
    return [by_name[name] for name in _operand_names(i.rest) if name in by_name]


def _operand_names(rest: str) -> list[str]:
  """Returns the names before the parenthesis that closes the operands."""
  return re.findall(r'%([^\s,()]+)', ', '.join(hlo.split(rest)[0]))


def _layout_of(source: str, shape: str) -> str:
  """Returns the dimensions of `shape` with the layout of `source`."""
  return shape.partition('{')[0] + ''.join(source.partition('{')[1:])


@functools.cache
def _bytes(shape: str) -> int:
  """Returns the size of arrays in device memory, padded to whole tiles."""
  return math.ceil(sum(_array_bytes(*found) for found in hlo.arrays(shape)))


def _array_bytes(dtype: str, sizes: Sequence[int], layout: str) -> float:
  if re.search(rf'S\((?!{_HOST_SPACE}\)|0\))', layout):
    return 0
  lengths = list(sizes)
  minor_to_major, _, tiling = layout.partition(':')
  tile = re.match(r'T\(([\d,]+)\)', tiling)
  if tile and lengths:
    axes = [int(n) for n in minor_to_major.split(',') if n]
    # The last dimension of a tile is the minormost.
    for side, axis in zip(reversed(tile[1].split(',')), axes):
      lengths[axis] = -(-lengths[axis] // int(side)) * int(side)
  return math.prod(lengths) * hlo.itemsize(dtype)
