"""Collectives are found in handwritten and in compiled programs."""

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P
import pytest

from tests.extras.plan.compiled import test_memory_traffic
from vit_jax.extras.plan.compiled import collectives


def entry(*lines, before=''):
  body = '\n'.join(f'  {line}' for line in lines)
  return (f'HloModule jit_f, is_scheduled=true, num_partitions=8\n\n{before}\n'
          f'ENTRY %main (p: f32[8,128]) -> f32[64,128] {{\n{body}\n}}\n')


def one(text):
  found, = collectives.find(text)
  return found


@pytest.mark.parametrize('groups, size', [
    ('{{0,1},{2,3},{4,5},{6,7}}', 2),
    ('{{0,1,2,3,4,5,6,7}}', 8),
    ('[2,4]<=[8]', 4),
    ('[4,2]<=[2,2,2]T(1,0,2)', 2),
    ("mesh['x'=8,'y'=1] {'x'}", 8),
    ("mesh['x'=4,'y'=2], device_ids=([2,4]T(1,0)) {'y'}", 2),
    ("mesh['x'=4,'y'=2] {'x','y'}", 8),
    ("mesh['x'=8] {'x':(2)4}", 4),
    ("mesh['x'=4,'y'=2]", 8),
    ('{}', 8),
])
def test_every_notation_of_groups_is_parsed(groups, size):
  text = entry(
      '%p = f32[8,128]{1,0} parameter(0)',
      'ROOT %all-reduce.1 = f32[8,128]{1,0} all-reduce(%p), channel_id=1, '
      f'replica_groups={groups}, use_global_device_ids=true, to_apply=%add')
  assert one(text) == collectives.Collective(
      'all-reduce', bytes=4096, group_size=size, shapes=('f32[8,128]',))


GROUPS = 'replica_groups={{0,1,2,3},{4,5,6,7}}, dimensions={0}'
DONE = 'ROOT %done = f32[32,128]{1,0}'


@pytest.mark.parametrize('lines, kind, size, wire', [
    # Gathered results, and operands of a reduce-scatter.
    (['%a = bf16[32,128]{1,0:T(8,128)(2,1)S(1)} all-gather(%p), ' + GROUPS],
     'all-gather', 8192, 6144),
    (['%a = f32[8,128]{1,0} reduce-scatter(%p), to_apply=%add, ' + GROUPS],
     'reduce-scatter', 16384, 12288),
    (['%a = (f32[8,128]{1,0}, f32[]) all-reduce(%p, %q), to_apply=%add, '
      + GROUPS], 'all-reduce', 4100, 6150),
    (['%a = (s8[2,128]{1,0}, s8[2,128]{1,0}, /*index=2*/s8[2,128]{1,0}, '
      's8[2,128]{1,0}) all-to-all(%p, %q, %r, %s), ' + GROUPS],
     'all-to-all', 1024, 768),
    # Asynchronous: start and done.
    (['%a = (f32[8,128]{1,0}, f32[32,128]{1,0}) all-gather-start(%p), '
      + GROUPS, DONE + ' all-gather-done(%a)'], 'all-gather', 16384, 12288),
    (['%a = ((f32[8,128]{1,0}, f32[8]{0}), (f32[32,128]{1,0}, f32[32]{0})) '
      'all-gather-start(%p, %q), ' + GROUPS,
      '%b = (f32[32,128]{1,0}, f32[32]{0}) all-gather-done(%a)'],
     'all-gather', 16512, 12384),
    (['%a = (f32[8,128]{1,0}, f32[8]{0}) all-reduce-start(%p, %q), '
      'to_apply=%add, ' + GROUPS,
      '%b = (f32[8,128]{1,0}, f32[8]{0}) all-reduce-done(%a)'],
     'all-reduce', 4128, 6192),
    (['%a = (f32[8]{0}, f32[8]{0}, u32[]{:S(2)}, u32[]{:S(2)}) '
      'collective-permute-start(%p), source_target_pairs={{0,1},{1,2}}',
      '%b = f32[8]{0} collective-permute-done(%a)'],
     'collective-permute', 32, 32),
])
def test_bytes_are_those_of_whole_arrays(lines, kind, size, wire):
  found = one(entry(*lines))
  assert (found.kind, found.bytes, found.wire_bytes) == (kind, size, wire)
  assert found.count == 1


WRAPPED = """
%wrapped (q: f32[8,128]) -> f32[2,128] {
  %q = f32[8,128]{1,0} parameter(0)
  ROOT %inner = f32[2,128]{1,0} reduce-scatter(%q), \
replica_groups=[2,4]<=[8], dimensions={0}, to_apply=%add
}
"""


def test_a_wrapped_collective_counts_once():
  text = entry(
      '%s = ((f32[8,128]{1,0}), f32[2,128]{1,0}, u32[]) async-start(%p), '
      'calls=%wrapped',
      '%u = ((f32[8,128]{1,0}), f32[2,128]{1,0}, u32[]) async-update(%s), '
      'calls=%wrapped',
      'ROOT %d = f32[2,128]{1,0} async-done(%u), calls=%wrapped',
      before=WRAPPED)
  found = one(text)
  assert (found.kind, found.bytes, found.group_size) == (
      'reduce-scatter', 4096, 4)


REDUCE_SCATTER_OF_TPU = """
%all-reduce-scatter.1 (input: f32[64,128]) -> f32[8,128] {
  %input = f32[64,128]{1,0:T(8,128)} parameter(0)
  %all-reduce.2 = f32[64,128]{1,0:T(8,128)} all-reduce(%input), channel_id=5, \
replica_groups={{0,1,2,3,4,5,6,7}}, to_apply=%add
  %partition-id.1 = u32[] partition-id()
  ROOT %dynamic-slice.1 = f32[8,128]{1,0:T(8,128)} dynamic-slice(\
%all-reduce.2, %partition-id.1), \
dynamic_slice_sizes={8,128}
}
"""


def test_an_all_reduce_fused_with_a_slice_is_a_reduce_scatter():
  found = one(entry(
      'ROOT %fusion.1 = f32[8,128]{1,0:T(8,128)} fusion(%p), kind=kCustom, '
      'calls=%all-reduce-scatter.1',
      before=REDUCE_SCATTER_OF_TPU))
  assert found == collectives.Collective(
      'reduce-scatter', bytes=32768, group_size=8, shapes=('f32[64,128]',))


def spread(name):
  return f"""
%{name} (q: bf16[8,128]) -> bf16[64,128] {{
  %q.{name} = bf16[8,128]{{1,0}} parameter(0)
  ROOT %all-gather.{name} = bf16[64,128]{{1,0}} \
all-gather(%q.{name}), channel_id=7, \
replica_groups=[1,8]<=[8], dimensions={{0}}, \
frontend_attributes={{chain_id="0"}}
}}
"""


def test_a_collective_spread_over_fusions_counts_once():
  found = one(entry(
      *(f'%{name} = bf16[64,128]{{1,0}} fusion(%p), kind=kCustom, '
        f'calls=%{name}' for name in ('start', 'step', 'done')),
      before=''.join(map(spread, ('start', 'step', 'done')))))
  assert (found.kind, found.bytes) == ('all-gather', 16384)


# The loop of five iterations with an all-reduce, in a loop of three.
LOOPS = test_memory_traffic.LOOP.split('\n\n', 1)[1].split('ENTRY')[0].replace(
    '  ROOT %next', '  %all-reduce.1 = f32[8]{0} all-reduce(%product), '
    'replica_groups={}, to_apply=%add\n  ROOT %next') + """
%outer_body (o: f32[8]) -> f32[8] {
  %o = f32[8]{0} parameter(0)
  %all-to-all.1 = f32[8]{0} all-to-all(%o), replica_groups={}, dimensions={0}
  ROOT %while.1 = f32[8]{0} while(%o), condition=%condition, body=%body
}
"""


def test_nested_loops_multiply():
  outer, inner = collectives.find(entry(
      'ROOT %while.2 = f32[8]{0} while(%p), condition=%less, body=%outer_body, '
      'backend_config={"known_trip_count":{"n":"3"}}', before=LOOPS))
  assert (outer.kind, outer.loops, outer.count) == ('all-to-all', (3,), 3)
  assert (inner.kind, inner.loops, inner.count) == ('all-reduce', (3, 5), 15)
  assert collectives.total([inner, outer]) == {
      'all-reduce': collectives.Total(15, 15 * 32, 15 * 56.0),
      'all-to-all': collectives.Total(3, 3 * 32, 3 * 28.0)}


def compiled(f, **axes):
  mesh = jax.make_mesh(
      tuple(axes.values()), tuple(axes),
      axis_types=(jax.sharding.AxisType.Auto,) * len(axes))
  mapped = jax.shard_map(
      f, mesh=mesh, in_specs=P(tuple(axes)), out_specs=P(tuple(axes)),
      check_vma=False)
  x = jax.ShapeDtypeStruct((256, 64), jnp.float32)
  return jax.jit(mapped).lower(x).compile().as_text()


@pytest.mark.parametrize('f, kind, size, group_size', [
    (lambda x: jax.lax.psum(x, 'a'), 'all-reduce', 8192, 4),
    (lambda x: jax.lax.all_gather(x, 'b'), 'all-gather', 16384, 2),
    (lambda x: jax.lax.psum_scatter(x, ('a', 'b')), 'reduce-scatter', 8192, 8),
    (lambda x: jax.lax.all_to_all(x, 'a', 0, 0), 'all-to-all', 8192, 4),
    (lambda x: jax.lax.ppermute(x, 'b', [(0, 1), (1, 0)]),
     'collective-permute', 8192, 2),
])
def test_every_kind_is_found_in_a_compiled_program(f, kind, size, group_size):
  def on_rows(x):  # 32 x 64 per device.
    return f(x.reshape(8, 4, 64) if kind == 'reduce-scatter' else
             x.reshape(4, 8, 64) if kind == 'all-to-all' else x).sum(
                 keepdims=True).reshape(1, 1)

  found = one(compiled(on_rows, a=4, b=2))
  assert (found.kind, found.bytes, found.group_size, found.count) == (
      kind, size, group_size, 1)
