"""What devices say to each other in a step: read from the compiled program.

    compiled = train_step.lower(state, batch).compile()
    for row in collectives.find(compiled.as_text()):
      print(row.kind, row.count, row.bytes, row.group_size)

The text is XLA's optimised program of one device, which is the same for all.
Programs for CPUs, GPUs and TPUs write the same things differently: an operation
may be split in a start and a done, wrapped in a computation of its own, or
fused with what computes meanwhile. Here each is one record.

The format: openxla.org/xla/operation_semantics; replica groups of all three
notations, `{{0,1},{2,3}}`, `[2,2]<=[4]` and `mesh['x'=2,'y'=2] {'x'}`.
"""

from collections.abc import Iterator, Sequence
import dataclasses
import math
import re

KINDS = ('all-reduce', 'all-gather', 'reduce-scatter', 'all-to-all',
         'collective-permute')


@dataclasses.dataclass(frozen=True)
class Collective:
  """One collective operation of a compiled program.

  Attributes:
    kind: one of `KINDS`.
    bytes: of one execution on one device, of the whole arrays: the result of
      an all-gather, the operands of a reduce-scatter; of the other kinds
      operands and results are as large. Without the padding of tiled layouts.
    group_size: devices that take part together; of a permutation 2.
    loops: how often each loop around it runs, outermost first; None where the
      program does not say.
    shapes: of the whole arrays, as 'f32[64,128]'; all are counted in `bytes`.
    name: of the instruction.
    source: the operation in JAX that it is for: 'jit(step)/.../dot_general'.
  """
  kind: str
  bytes: int
  group_size: int
  loops: Sequence[int | None] = ()
  shapes: Sequence[str] = ()
  name: str = ''
  source: str = ''

  @property
  def count(self) -> int:
    """Executions a step; a loop of unknown length counts as one."""
    return math.prod(1 if n is None else n for n in self.loops)

  @property
  def wire_bytes(self) -> float:
    """Bytes that a device sends for one execution, around a ring.

    Each of n devices passes on n - 1 of n parts, of an all-reduce twice: first
    to sum them, then to share the sums.
    """
    if self.kind == 'collective-permute':
      return float(self.bytes)
    rounds = 2 if self.kind == 'all-reduce' else 1
    return rounds * self.bytes * (self.group_size - 1) / self.group_size


@dataclasses.dataclass(frozen=True)
class Total:
  """All collectives of a kind in a step, on one device.

  Attributes:
    count: executions.
    bytes: of the whole arrays.
    wire_bytes: that the device sends, around rings.
  """
  count: int
  bytes: int
  wire_bytes: float


def find(text: str) -> list[Collective]:
  """Returns the collectives that one device runs, in the program's order.

  Those of all branches of a conditional are listed, although one branch runs.

  Args:
    text: of the optimised program: `jax.stages.Compiled.as_text()`.

  Raises:
    ValueError: if this is not the text of such a program.
  """
  computations, entry = _parse(text)
  if entry is None:
    raise ValueError(
        'The text has no ENTRY computation: it is not a compiled program. Take '
        'it from jitted.lower(...).compile().as_text().')
  header = text[:text.find('\n')]
  devices = max(
      [int(n) for n in re.findall(
          r'(?:num_partitions|replica_count)=(\d+)', header)] or [1])
  return _Walk(computations, devices).walk(entry, ())


def total(collectives: Sequence[Collective]) -> dict[str, Total]:
  """Returns the sums over a step of each kind that occurs."""
  sums = {}
  for kind in KINDS:
    rows = [c for c in collectives if c.kind == kind]
    if rows:
      sums[kind] = Total(
          count=sum(c.count for c in rows),
          bytes=sum(c.count * c.bytes for c in rows),
          wire_bytes=sum(c.count * c.wire_bytes for c in rows))
  return sums


# ---------------------------------------------------------------------------
# The text as instructions.


@dataclasses.dataclass(frozen=True)
class _Instruction:
  """`name = shape opcode(operands), attributes`."""
  name: str
  shape: str
  opcode: str
  rest: str
  is_root: bool

  @property
  def called(self) -> list[str]:
    """The computations that it runs, without those that only add numbers."""
    if self.opcode == 'call':
      return _names(self.rest, 'to_apply')
    if self.opcode == 'conditional':
      return (_names(self.rest, 'branch_computations')
              + _names(self.rest, 'true_computation')
              + _names(self.rest, 'false_computation'))
    if self.opcode == 'custom-call':
      return _names(self.rest, 'called_computations')
    return _names(self.rest, 'calls')


_COMPUTATION = re.compile(r'^(ENTRY )?%?([^\s(]+) \(.*\{\s*$')
_INSTRUCTION = re.compile(r'^\s+(ROOT )?%?([^\s=]+) = (.*)$')
_ARRAY = re.compile(r'([a-z]\w*)\[([\d,<=]*)\]')
_COMMENT = re.compile(r'/\*.*?\*/')
_TRIP_COUNT = re.compile(r'"known_trip_count":\s*\{"n":\s*"?(\d+)')
_OP_NAME = re.compile(r'op_name="([^"]*)"')


def _parse(text: str) -> tuple[dict[str, list[_Instruction]], str | None]:
  """Returns instructions by computation, and which one is the entry."""
  computations: dict[str, list[_Instruction]] = {}
  entry = None
  current: list[_Instruction] = []
  for line in text.splitlines():
    if (found := _INSTRUCTION.match(line)) is not None:
      shape, after = _split_shape(found[3])
      opcode, _, rest = after.partition('(')
      current.append(_Instruction(
          found[2], shape, opcode, rest, is_root=bool(found[1])))
    elif (found := _COMPUTATION.match(line)) is not None:
      current = computations.setdefault(found[2], [])
      if found[1]:
        entry = found[2]
  return computations, entry


def _split_shape(text: str) -> tuple[str, str]:
  """Splits 'shape opcode(...' where the shape, maybe a tuple, ends."""
  if not text.startswith('('):
    shape, _, after = text.partition(' ')
    return shape, after
  depth = 0
  for i, letter in enumerate(text):
    depth += (letter == '(') - (letter == ')')
    if depth == 0:
      return text[:i + 1], text[i + 1:].lstrip()
  return text, ''


def _names(rest: str, attribute: str) -> list[str]:
  """Returns the names in `attribute=%a` or `attribute={%a, %b}`."""
  found = re.search(
      r'\b' + attribute + r'=(?:\{([^}]*)\}|%?([^\s,)}]+))', rest)
  if not found:
    return []
  names = found[1] if found[1] is not None else found[2]
  return [name.strip().lstrip('%') for name in names.split(',') if name.strip()]


def _elements(shape: str) -> list[str]:
  """Returns the elements of a tuple's shape; of an array's, itself."""
  shape = _COMMENT.sub('', shape)
  if not shape.startswith('('):
    return [shape]
  elements, depth, start = [], 0, 1
  for i, letter in enumerate(shape):
    depth += (letter in '([{') - (letter in ')]}')
    if (letter == ',' and depth == 1) or depth == 0:
      elements.append(shape[start:i].strip())
      start = i + 1
  return elements


def _arrays(shape: str) -> list[tuple[str, tuple[int, ...]]]:
  """Returns type and dimensions of each array of a shape, however nested."""
  return [
      (dtype, tuple(int(n.lstrip('<=')) for n in sizes.split(',') if n))
      for dtype, sizes in _ARRAY.findall(re.sub(r'\{[^}]*\}', '', shape))]


def _itemsize(dtype: str) -> float:
  """Returns the bytes of 'f32', 'bf16', 'f8e4m3fn', 's4' or 'pred'."""
  if dtype == 'pred':
    return 1
  bits = re.match(r'[a-z]+(\d+)', dtype)
  return int(bits[1]) / 8 if bits else 0  # 'token' has none.


# ---------------------------------------------------------------------------
# The instructions as they run.


class _Walk:
  """Follows the program from its entry through loops, calls and fusions."""

  def __init__(
      self, computations: dict[str, list[_Instruction]], devices: int):
    self._computations = computations
    self._devices = devices

  def walk(
      self, computation: str, loops: tuple[int | None, ...],
  ) -> list[Collective]:
    """Returns the collectives of a computation inside `loops`."""
    found = []
    seen = set()
    for row, key in self._listed(computation, loops):
      # A TPU may spread one over several fusions: start, steps, and done.
      if key is None or key not in seen:
        found.append(row)
      seen.add(key)
    return found

  def _listed(
      self, computation: str, loops: tuple[int | None, ...],
  ) -> Iterator[tuple[Collective, str | None]]:
    for instruction in self._computations.get(computation, ()):
      kind = instruction.opcode.removesuffix('-start').removeprefix('ragged-')
      if kind in KINDS:
        yield (self._record(instruction, kind, loops),
               _chain(instruction.rest))
      elif instruction.opcode == 'while':
        inner = (*loops, self._trip_count(instruction))
        for name in (*_names(instruction.rest, 'body'),
                     *_names(instruction.rest, 'condition')):
          yield from ((row, None) for row in self.walk(name, inner))
      elif instruction.opcode.endswith(('-done', '-update')):
        continue  # Counted where it starts.
      elif any('all-reduce-scatter' in name for name in instruction.called):
        yield self._reduce_scatter(instruction, loops), None
      elif instruction.opcode == 'fusion':
        for name in instruction.called:
          yield from self._listed(name, loops)
      else:
        for name in instruction.called:
          yield from ((row, None) for row in self.walk(name, loops))

  def _record(
      self, instruction: _Instruction, kind: str,
      loops: tuple[int | None, ...],
  ) -> Collective:
    group_size = self._group_size(instruction.rest)
    shape = instruction.shape
    if instruction.opcode.endswith('-start') and kind != 'all-reduce':
      # Operands, results, and what the hardware needs.
      _, shape, *_ = _elements(shape)
    arrays = _arrays(shape)
    if kind == 'reduce-scatter':
      dimension = int(_attribute(instruction.rest, 'dimensions') or 0)
      arrays = [
          (dtype, tuple(n * (group_size if i == dimension else 1)
                        for i, n in enumerate(sizes)))
          for dtype, sizes in arrays]
    elif kind == 'collective-permute':
      group_size = 2
    return _collective(instruction, kind, arrays, group_size, loops)

  def _reduce_scatter(
      self, instruction: _Instruction, loops: tuple[int | None, ...],
  ) -> Collective:
    """A TPU's: an all-reduce fused with the slice that a device keeps of it."""
    (whole, _), *others = self._listed(instruction.called[0], loops)
    assert whole.kind == 'all-reduce' and not others, instruction.name
    return dataclasses.replace(
        whole, kind='reduce-scatter', name=instruction.name,
        source=_source(instruction.rest) or whole.source)

  def _group_size(self, rest: str) -> int:
    """Returns the devices of each replica group."""
    if found := re.search(r'replica_groups=\[(?:\d+,)*(\d+)\]<=', rest):
      return int(found[1])
    if found := re.search(r'replica_groups=\{\{([\d,]+)\}', rest):
      return len(found[1].split(','))
    if found := re.search(
        r'replica_groups=mesh\[([^\]]*)\]'
        r'(?:, device_ids=\([^ ]*\))?(?: \{([^}]*)\})?', rest):
      sizes = dict(re.findall(r"'([^']*)'=(\d+)", found[1]))
      if found[2] is None:
        return math.prod(map(int, sizes.values()))
      # 'x', or a part of it: 'x':(2)4 is four of its eight, say.
      return math.prod(
          int(part or sizes[name]) for name, part in re.findall(
              r"'([^']*)'(?::\(\d+\)(\d+))?", found[2]))
    return self._devices  # No groups: all together.

  def _trip_count(self, loop: _Instruction) -> int | None:
    """Returns how often a loop's body runs, or None if nothing says so.

    JAX's loops of known length count from 0 in ones, up to the constant of
    their condition. A compiler may write that as a fusion, with the constant
    in or outside.
    """
    if found := _TRIP_COUNT.search(loop.rest):
      return int(found[1])
    condition, = _names(loop.rest, 'condition')
    reached = [
        i for name in self._reached(condition)
        for i in self._computations.get(name, ())]
    limits = {int(i.rest.partition(')')[0]) for i in reached
              if i.opcode == 'constant' and re.match(r'[su]\d+\[\]', i.shape)}
    compares = [i for i in reached if i.opcode == 'compare']
    if (len(limits) == len(compares) == 1
        and 'direction=LT' in compares[0].rest):
      return limits.pop()
    return None

  def _reached(self, computation: str) -> Iterator[str]:
    yield computation
    for instruction in self._computations.get(computation, ()):
      for name in instruction.called:
        yield from self._reached(name)


def _collective(
    instruction: _Instruction, kind: str,
    arrays: Sequence[tuple[str, tuple[int, ...]]], group_size: int,
    loops: tuple[int | None, ...],
) -> Collective:
  return Collective(
      kind=kind, group_size=group_size, loops=loops,
      bytes=math.ceil(sum(
          math.prod(sizes) * _itemsize(dtype) for dtype, sizes in arrays)),
      shapes=tuple(f'{dtype}[{",".join(map(str, sizes))}]'
                   for dtype, sizes in arrays),
      name=instruction.name, source=_source(instruction.rest))


def _source(rest: str) -> str:
  found = _OP_NAME.search(rest)
  return found[1] if found else ''


def _chain(rest: str) -> str | None:
  """Returns what the parts of one spread over several fusions share."""
  if 'chain_id=' not in rest:
    return None
  return _attribute(rest, 'channel_id')


def _attribute(rest: str, name: str) -> str | None:
  found = re.search(r'\b' + name + r'=\{?(\d+)', rest)
  return found[1] if found else None
