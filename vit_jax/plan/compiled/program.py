"""What a compiled program does: products, and bytes between chip and memory.

The compiler's own figures (`cost_analysis`) take the body of a loop once, and a
scanned encoder is one loop. Here each body counts as often as it runs:

    flops   2 x multiply-adds of matrix products and convolutions, where the
            kernel lies within the (dilated, padded) image
    bytes   of operands and results of every instruction that is run by itself;
            of a fusion what goes in and out; of a slice the slice; of an update
            in place the update

as XLA's HloCostAnalysis counts. Of a TPU's programs the layouts are known:
what they keep on the chip, `S(1)`, costs memory nothing, and arrays are as
large as their tiles, `T(8,128)`.
"""

from collections.abc import Iterator, Mapping, Sequence
import dataclasses
import functools
import math
import re

from vit_jax.plan.compiled import hlo

# Take no time, or are counted where they start or where they lead.
_FREE = frozenset((
    'parameter', 'constant', 'tuple', 'get-tuple-element', 'bitcast',
    'after-all', 'opt-barrier', 'partition-id', 'replica-id', 'domain',
    'add-dependency', 'async-update', 'async-done', 'copy-done'))
_SLICES = frozenset(('dynamic-slice', 'slice', 'gather'))
# Libraries among whose results is room to work in, of bytes.
_LIBRARY = re.compile('_target="__(cublas|cudnn|onednn)')
_ROOM = ('u8[', 's8[')
_ON_HOST = '5'  # The memory space that is neither on the chip nor beside it.


@dataclasses.dataclass(frozen=True)
class Work:
  """What a step does on one device.

  Attributes:
    flops: of matrix products and convolutions.
    bytes: read from and written to the device's memory.
    unknown_loops: loops whose length the program does not say; counted as one.
  """
  flops: int = 0
  bytes: int = 0
  unknown_loops: int = 0

  def __add__(self, other: 'Work') -> 'Work':
    return Work(self.flops + other.flops, self.bytes + other.bytes,
                self.unknown_loops + other.unknown_loops)

  def __mul__(self, times: int) -> 'Work':
    return dataclasses.replace(
        self, flops=self.flops * times, bytes=self.bytes * times)


def work(text: str, *, loops_once: bool = False) -> Work:
  """Counts what a compiled program does on one device.

  Args:
    text: of `jax.stages.Compiled.as_text()`.
    loops_once: counts a loop's body once, as the compiler does.

  Raises:
    ValueError: if this is not the text of a compiled program.
  """
  program = hlo.parse(text)
  return _Count(program, loops_once=loops_once).run(program.entry)


class _Count:
  """Adds up a program, computation by computation."""

  def __init__(self, program: hlo.Program, *, loops_once: bool):
    self._program = program
    self._loops_once = loops_once
    # The methods' results by computation: many fusions call the same.
    self.run = functools.cache(self._run)
    self._flops = functools.cache(self._flops_inside)
    self._instructions = functools.cache(self._by_name)

  def _run(self, computation: str) -> Work:
    """Counts a computation whose instructions are run one by one."""
    total = Work()
    for instruction in self._program.computations.get(computation, ()):
      total += self._instruction(instruction, computation)
    return total

  def _instruction(self, i: hlo.Instruction, computation: str) -> Work:
    if i.opcode == 'while':
      trips = self._program.trip_count(i)
      inner = sum((self.run(name) for name in (
          *hlo.names(i.rest, 'body'), *hlo.names(i.rest, 'condition'))), Work())
      if self._loops_once or trips is None:
        return inner + Work(unknown_loops=trips is None)
      return inner * trips
    if i.opcode == 'conditional':
      return max((self.run(name) for name in i.called),
                 key=lambda w: (w.flops, w.bytes), default=Work())
    if i.opcode == 'call' or i.opcode == 'async-start':
      return sum((self.run(name) for name in i.called), Work())
    if i.opcode in _FREE or i.opcode.endswith(('-done', '-update')):
      return Work()
    return Work(flops=self._flops_of(i, computation),
                bytes=self._bytes_of(i, computation))

  def _by_name(self, computation: str) -> Mapping[str, hlo.Instruction]:
    return {i.name: i for i in self._program.computations.get(computation, ())}

  # Operations.

  def _flops_inside(self, computation: str) -> int:
    return sum(self._flops_of(i, computation)
               for i in self._program.computations.get(computation, ()))

  def _flops_of(self, i: hlo.Instruction, computation: str) -> int:
    shapes = [x.shape for x in self._operands(i, computation)]
    if i.opcode == 'dot':
      return _product_flops(i.shape, shapes[0], _numbers(
          i.rest, 'lhs_contracting_dims={'))
    if i.opcode == 'convolution':
      return _convolution_flops(i, shapes[0], shapes[1], i.shape)
    if i.opcode == 'custom-call':
      return _library_flops(i, shapes)
    return sum(self._flops(name) for name in i.called)

  # Bytes.

  def _bytes_of(self, i: hlo.Instruction, computation: str) -> int:
    operands = self._operands(i, computation)
    if i.opcode == 'fusion':
      (called,) = i.called
      return self._written(called, hlo.elements(i.shape)) + sum(
          self._read(called, index, operand.shape)
          for index, operand in enumerate(operands))
    if i.opcode in _SLICES:
      return 2 * _bytes(i.shape)
    if i.opcode == 'dynamic-update-slice':
      return 2 * _bytes(operands[1].shape)
    if i.opcode.endswith('-start'):
      # The result names the operand again, and what the hardware needs.
      parts = hlo.elements(i.shape)
      result = parts[1] if len(parts) > 1 else parts[0]
      return _bytes(result) + sum(_bytes(x.shape) for x in operands)
    if i.opcode == 'custom-call' and _LIBRARY.search(i.rest):
      first, *others = hlo.elements(i.shape)
      results = [first, *(x for x in others if not x.startswith(_ROOM))]
      return sum(map(_bytes, (*results, *(x.shape for x in operands))))
    return _bytes(i.shape) + sum(_bytes(x.shape) for x in operands)

  def _read(self, computation: str, index: int, shape: str) -> int:
    """Returns what a fusion reads of one of its operands."""
    inside = self._program.computations.get(computation, ())
    parameter = next((
        i for i in inside if i.opcode == 'parameter'
        and i.rest.startswith(f'{index})')), None)
    if parameter is None:
      return _bytes(shape)
    whole, parts = _bytes(shape), 0
    # The fusion's own text says nothing of where a parameter lies.
    if not whole:
      return 0
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
    """Yields who uses a value, and as which operand; through bitcasts."""
    for i in self._program.computations.get(computation, ()):
      for position, operand in enumerate(_operand_names(i.rest)):
        if operand == name:
          if i.opcode == 'bitcast':
            yield from self._users(computation, i.name)
          else:
            yield i, position

  def _written(self, computation: str, shapes: Sequence[str]) -> int:
    """Returns what a fusion writes: all its results, or updates in place."""
    by_name = self._instructions(computation)
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
        return min(_bytes(shape),
                   _bytes(self._operands(root, computation)[1].shape))
      if root.opcode == 'fusion':
        return self._written(root.called[0], [shape])
    return _bytes(shape)

  def _operands(
      self, i: hlo.Instruction, computation: str) -> list[hlo.Instruction]:
    by_name = self._instructions(computation)
    return [by_name[name] for name in _operand_names(i.rest)
            if name in by_name]


def _operand_names(rest: str) -> list[str]:
  """Returns the names before the parenthesis that ends the operands."""
  depth = 1
  for end, letter in enumerate(rest):
    depth += (letter == '(') - (letter == ')')
    if depth == 0:
      return re.findall(r'%([^\s,()]+)', rest[:end])
  return []


def _product_flops(
    result: str, left: str, contracted: Sequence[int]) -> int:
  ((_, sizes),) = hlo.arrays(result)
  ((_, left_sizes),) = hlo.arrays(left)
  return 2 * math.prod(sizes) * math.prod(left_sizes[d] for d in contracted)


def _library_flops(i: hlo.Instruction, shapes: Sequence[str]) -> int:
  """Returns the operations of what cuBLAS, cuDNN or oneDNN computes."""
  fused = re.search(r'_target="__cudnn\$fmha\w*?Softmax(Backward)?"', i.rest)
  if fused:  # Two products; back, one of them again and four others.
    weights = re.search(
        r'"intermediate_tensor_shape".*?"dimensions":\s*\[(.*?)\]', i.rest)
    assert weights is not None, i.name
    ((_, sizes),) = hlo.arrays(shapes[0])
    return (5 if fused[1] else 2) * 2 * sizes[-1] * math.prod(
        int(n) for n in re.findall(r'\d+', weights[1]))
  contracted = _numbers(i.rest, '"lhs_contracting_dimensions":[')
  if contracted:
    return _product_flops(hlo.elements(i.shape)[0], shapes[0], contracted)
  found = re.search(
      r'_target="__cudnn\$conv(Forward|BackwardInput|BackwardFilter|Bias)',
      i.rest)
  if not found:
    return 0
  result = hlo.elements(i.shape)[0]
  # A gradient's labels and window are those of the convolution that it is of.
  first, second, *_ = shapes
  roles = {'BackwardInput': (result, second, first),
           'BackwardFilter': (first, result, second)}
  return _convolution_flops(i, *roles.get(found[1], (first, second, result)))


def _convolution_flops(i: hlo.Instruction, *shapes: str) -> int:
  """Returns the operations, from the shapes of image, kernel and result."""
  found = re.search(r'dim_labels=(\w+)_(\w+)->(\w+)', i.rest)
  assert found is not None, i.name
  sizes = [dict(zip(labels, hlo.arrays(shape)[0][1])) for labels, shape in zip(
      found.groups(), shapes)]
  image, kernel, result = sizes
  window = dict(re.findall(r'(\w+)=([\dx_\-]+)', (re.search(
      r'window=\{([^}]*)\}', i.rest) or ['', ''])[1]))
  count = 2 * result['b'] * result['f'] * kernel['i']
  for axis in sorted(set(kernel) - {'i', 'o'}):
    def setting(name: str, default: str, at: int = int(axis)) -> str:
      return window[name].split('x')[at] if name in window else default

    before = int(setting('pad', '0_0').split('_')[0])
    count *= _touching(
        length=image[axis], kernel=kernel[axis], positions=result[axis],
        stride=int(setting('stride', '1')), before=before,
        spread=int(setting('lhs_dilate', '1')),
        gap=int(setting('rhs_dilate', '1')))
  return count


@functools.cache
def _touching(
    *, length: int, kernel: int, positions: int, stride: int, before: int,
    spread: int, gap: int,
) -> int:
  """Returns how often an element of a kernel meets one of the image."""
  end = (length - 1) * spread + 1
  return sum(
      0 <= (place := at * stride + k * gap - before) < end
      and place % spread == 0
      for at in range(positions) for k in range(kernel))


def _numbers(text: str, before: str) -> list[int]:
  """Returns the numbers of 'before1,2}' or 'before"1","2"]'."""
  found = re.search(re.escape(before) + r'([\d,"\s]*)', text)
  return [int(n) for n in re.findall(r'\d+', found[1])] if found else []


_ARRAY = re.compile(r'([a-z]\w*)\[([\d,<=]*)\](?:\{([^}]*)\})?')


@functools.cache
def _bytes(shape: str) -> int:
  """Returns what arrays take of the device's memory, tiles and all."""
  return math.ceil(sum(
      _array_bytes(*found) for found in _ARRAY.findall(shape)))


def _array_bytes(dtype: str, sizes: str, layout: str) -> float:
  if re.search(rf'S\((?!{_ON_HOST}\)|0\))', layout):
    return 0
  lengths = [int(n.lstrip('<=')) for n in sizes.split(',') if n]
  order, _, tiling = layout.partition(':')
  tile = re.match(r'T\(([\d,]+)\)', tiling)
  if tile and lengths:
    minor = [int(n) for n in order.split(',') if n]
    # The last of a tile's dimensions is the minormost.
    for side, axis in zip(reversed(tile[1].split(',')), minor):
      lengths[axis] = -(-lengths[axis] // int(side)) * int(side)
  return math.prod(lengths) * hlo.itemsize(dtype)
