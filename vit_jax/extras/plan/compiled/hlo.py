"""Parser for compiled XLA programs: `jax.stages.Compiled.as_text()`.

A program maps names to computations, which are lists of instructions. Loops,
calls and fusions refer to the computations that they run. The format is
undocumented; openxla.org/xla/operation_semantics describes the operations.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
import dataclasses
import re

from vit_jax.exceptions import UserError

# Attributes that name the computations of an instruction, besides `calls`.
_CALLS: Mapping[str, Sequence[str]] = {
    'call': ('to_apply',), 'custom-call': ('called_computations',),
    'while': ('body', 'condition'),
    'conditional': (
        'branch_computations', 'true_computation', 'false_computation')}


@dataclasses.dataclass(frozen=True)
class Instruction:
  """`name = shape opcode(operands), attributes`."""
  name: str
  shape: str
  opcode: str
  rest: str
  is_root: bool

  @property
  def called(self) -> list[str]:
    """Computations that it runs, without reduction functions."""
    attributes = _CALLS.get(self.opcode, ('calls',))
    return [name for attribute in attributes
            for name in names(self.rest, attribute)]


_COMPUTATION = re.compile(r'^(ENTRY )?%?([^\s(]+) \(.*\{\s*$')
_INSTRUCTION = re.compile(r'^\s+(ROOT )?%?([^\s=]+) = (.*)$')
_ARRAY = re.compile(r'([a-z]\w*)\[([\d,<=]*)\](?:\{([^}]*)\})?')
_COMMENT = re.compile(r'/\*.*?\*/')
_TRIP_COUNT = re.compile(r'"known_trip_count":\s*\{"n":\s*"?(\d+)')


@dataclasses.dataclass(frozen=True)
class Program:
  """A compiled program.

  Attributes:
    computations: instructions by name, for each computation by name.
    entry: name of the computation that is run.
    devices: number of devices that run the program.
  """
  computations: Mapping[str, Mapping[str, Instruction]]
  entry: str
  devices: int

  def instructions(self, computation: str) -> Iterable[Instruction]:
    """Returns the instructions of a computation; none for an unknown one."""
    return self.computations.get(computation, {}).values()

  def trip_count(self, loop: Instruction) -> int | None:
    """Returns the number of iterations of a loop, or None if unknown.

    JAX loops of known length count from 0 in steps of 1 to the constant in
    their condition, which the compiler may have moved into a fusion.
    """
    if found := _TRIP_COUNT.search(loop.rest):
      return int(found[1])
    condition, = names(loop.rest, 'condition')
    reached = [
        i for name in self._reached(condition)
        for i in self.instructions(name)]
    limits = {int(i.rest.partition(')')[0]) for i in reached
              if i.opcode == 'constant' and re.match(r'[su]\d+\[\]', i.shape)}
    compares = [i for i in reached if i.opcode == 'compare']
    if (len(limits) == len(compares) == 1
        and 'direction=LT' in compares[0].rest):
      return limits.pop()
    return None

  def _reached(self, computation: str) -> Iterator[str]:
    yield computation
    for instruction in self.instructions(computation):
      for name in instruction.called:
        yield from self._reached(name)


def parse(text: str) -> Program:
  """Parses a compiled program.

  Raises:
    UserError: if the text is not a compiled program.
  """
  computations: dict[str, dict[str, Instruction]] = {}
  entry = None
  current: dict[str, Instruction] = {}
  for line in text.splitlines():
    if (found := _INSTRUCTION.match(line)) is not None:
      shape, after = _split_shape(found[3])
      opcode, _, rest = after.partition('(')
      current[found[2]] = Instruction(
          found[2], shape, opcode, rest, is_root=bool(found[1]))
    elif (found := _COMPUTATION.match(line)) is not None:
      current = computations.setdefault(found[2], {})
      if found[1]:
        entry = found[2]
  if entry is None:
    raise UserError(
        'The text has no ENTRY computation: it is not a compiled program. Use '
        'jitted.lower(...).compile().as_text().')
  header = text[:text.find('\n')]
  devices = max(
      [int(n) for n in re.findall(
          r'(?:num_partitions|replica_count)=(\d+)', header)] or [1])
  return Program(computations, entry, devices)


def _split_shape(text: str) -> tuple[str, str]:
  """Splits 'shape opcode(...' after the shape, which may be a tuple."""
  if not text.startswith('('):
    shape, _, after = text.partition(' ')
    return shape, after
  _, after = split(text[1:])
  return text.removesuffix(after), after.lstrip()


def split(text: str) -> tuple[list[str], str]:
  """Splits 'a, (b, c)) rest' into ['a', '(b, c)'] and ' rest'."""
  parts, depth, start = [], 0, 0
  for i, letter in enumerate(text):
    if depth == 0 and letter in ',)':
      parts.append(text[start:i].strip())
      start = i + 1
      if letter == ')':
        return parts, text[start:]
    depth += (letter in '([{') - (letter in ')]}')
  return [*parts, text[start:].strip()], ''


def names(rest: str, attribute: str) -> list[str]:
  """Returns the names in `attribute=%a` or `attribute={%a, %b}`."""
  found = re.search(r'\b' + attribute + r'=(?:\{([^}]*)\}|%?([^\s,)}]+))', rest)
  if not found:
    return []
  names = found[1] if found[1] is not None else found[2]
  return [name.strip().lstrip('%') for name in names.split(',') if name.strip()]


def elements(shape: str) -> list[str]:
  """Returns the element shapes of a tuple, or the array shape itself."""
  shape = _COMMENT.sub('', shape)
  return split(shape[1:])[0] if shape.startswith('(') else [shape]


def arrays(shape: str) -> list[tuple[str, tuple[int, ...], str]]:
  """Returns dtype, dimensions and layout of each array in a nested shape."""
  return [
      (dtype, tuple(int(n.lstrip('<=')) for n in sizes.split(',') if n), layout)
      for dtype, sizes, layout in _ARRAY.findall(shape)]


def itemsize(dtype: str) -> float:
  """Returns the bytes of 'f32', 'bf16', 'f8e4m3fn', 's4' or 'pred'."""
  if dtype == 'pred':
    return 1
  bits = re.match(r'[a-z]+(\d+)', dtype)
  return int(bits[1]) / 8 if bits else 0  # 'token' has no size.
