"""Collective operations of a compiled program.

    compiled = train_step.lower(state, batch).compile()
    for row in collectives.find(compiled.as_text()):
      print(row.kind, row.count, row.bytes, row.group_size)

All devices run the same program. Backends represent collectives differently: an
operation may be split into start and done, wrapped in a computation, or fused
with overlapping computation. Each is one record here. Replica groups are
accepted in all three notations: `{{0,1},{2,3}}`, `[2,2]<=[4]` and
`mesh['x'=2,'y'=2] {'x'}`.
"""

from collections.abc import Iterator, Sequence
import dataclasses
import math
import re

from vit_jax.extras.plan.compiled import hlo

KINDS = ('all-reduce', 'all-gather', 'reduce-scatter', 'all-to-all',
         'collective-permute')


@dataclasses.dataclass(frozen=True)
class Collective:
  """One collective operation of a compiled program.

  Attributes:
    kind: one of `KINDS`.
    bytes: size of the whole arrays per execution: results of an all-gather,
      operands of a reduce-scatter; without padding.
    group_size: number of devices in a group; 2 for a permutation.
    loops: iterations of each enclosing loop, outermost first; None if unknown.
    shapes: the whole arrays, such as 'f32[64,128]'.
  """
  kind: str
  bytes: int
  group_size: int
  loops: Sequence[int | None] = ()
  shapes: Sequence[str] = ()

  @property
  def count(self) -> int:
    """Executions per step; a loop of unknown length counts as one."""
    return math.prod(1 if n is None else n for n in self.loops)

  @property
  def wire_bytes(self) -> float:
    """Bytes that a device sends per execution in a ring algorithm.

    Each of n devices sends (n - 1) / n of the array, and twice that in an
    all-reduce (reduce-scatter and all-gather).
    """
    if self.kind == 'collective-permute':
      return float(self.bytes)
    rounds = 2 if self.kind == 'all-reduce' else 1
    return rounds * self.bytes * (self.group_size - 1) / self.group_size


@dataclasses.dataclass(frozen=True)
class Total:
  """Sum over all collectives of a kind in a step.

  Attributes:
    count: number of executions.
    bytes: size of the whole arrays.
    wire_bytes: bytes that a device sends.
  """
  count: int
  bytes: int
  wire_bytes: float


def find(text: str) -> list[Collective]:
  """Returns the collectives of a program, in program order.

  All branches of a conditional are included.

  Args:
    text: `jax.stages.Compiled.as_text()`.

  Raises:
    UserError: if the text is not a compiled program.
  """
  program = hlo.parse(text)
  return list(_walk(program, program.entry, (), set()))


def total(collectives: Sequence[Collective]) -> dict[str, Total]:
  """Returns the sums over a step for each kind that occurs."""
  sums = {}
  for kind in KINDS:
    rows = [c for c in collectives if c.kind == kind]
    if rows:
      sums[kind] = Total(
          count=sum(c.count for c in rows),
          bytes=sum(c.count * c.bytes for c in rows),
          wire_bytes=sum(c.count * c.wire_bytes for c in rows))
  return sums


def _walk(
    program: hlo.Program, computation: str, loops: tuple[int | None, ...],
    seen: set[str],
) -> Iterator[Collective]:
  """Yields the collectives of a computation nested in `loops`.

  `seen` holds the channels of collectives spread over several fusions (TPU).
  """
  for instruction in program.instructions(computation):
    kind = instruction.opcode.removesuffix('-start').removeprefix('ragged-')
    if kind in KINDS:
      channel = _attribute(instruction.rest, 'channel_id')
      if 'chain_id=' not in instruction.rest or channel not in seen:
        yield _record(program, instruction, kind, loops)
      seen.add(channel)
    elif not instruction.opcode.endswith(('-done', '-update')):
      inner = loops if instruction.opcode != 'while' else (
          *loops, program.trip_count(instruction))
      for name in instruction.called:
        for found in _walk(program, name, inner, seen):
          # An all-reduce fused with a slice (TPU) is a reduce-scatter.
          yield (dataclasses.replace(found, kind='reduce-scatter')
                 if 'all-reduce-scatter' in name else found)


def _record(
    program: hlo.Program, instruction: hlo.Instruction, kind: str,
    loops: tuple[int | None, ...],
) -> Collective:
  group_size = _group_size(instruction.rest, program.devices)
  shape = instruction.shape
  if instruction.opcode.endswith('-start') and kind != 'all-reduce':
    # Operands, results, and hardware state.
    _, shape, *_ = hlo.elements(shape)
  arrays = [(dtype, sizes) for dtype, sizes, _ in hlo.arrays(shape)]
  if kind == 'reduce-scatter':
    dimension = int(_attribute(instruction.rest, 'dimensions') or 0)
    arrays = [
        (dtype, tuple(n * (group_size if i == dimension else 1)
                      for i, n in enumerate(sizes)))
        for dtype, sizes in arrays]
  elif kind == 'collective-permute':
    group_size = 2
  return Collective(
      kind=kind, group_size=group_size, loops=loops,
      bytes=math.ceil(sum(
          math.prod(sizes) * hlo.itemsize(dtype) for dtype, sizes in arrays)),
      shapes=tuple(f'{dtype}[{",".join(map(str, sizes))}]'
                   for dtype, sizes in arrays))


def _group_size(rest: str, devices: int) -> int:
  """Returns the number of devices per replica group; by default all."""
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
    # 'x' is a whole axis, and 'x':(2)4 is four devices of it.
    return math.prod(
        int(part or sizes[name]) for name, part in re.findall(
            r"'([^']*)'(?::\(\d+\)(\d+))?", found[2]))
  return devices


def _attribute(rest: str, name: str) -> str:
  found = re.search(r'\b' + name + r'=\{?(\d+)', rest)
  return found[1] if found else ''
