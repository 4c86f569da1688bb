"""Memory traffic of compiled programs, compared with sums by hand."""

import pytest

from vit_jax.extras.plan.compiled import memory_traffic

# Five iterations, each of which slices stacked weights, as a scanned encoder
# does, multiplies them, and writes the result into a stack in place.
LOOP = """HloModule jit_f, num_partitions=1

%slice (p0: f32[5,8,8], p1: s32[]) -> f32[8,8] {
  %p0 = STACK parameter(0)
  %p1 = s32[] parameter(1)
  %zero = s32[] constant(0)
  %part = f32[1,8,8]{2,1,0} dynamic-slice(%p0, %p1, %zero, %zero)
  ROOT %flat = PART bitcast(%part)
}

%stack (q0: f32[5,8,8], q1: f32[8,8], q2: s32[]) -> f32[5,8,8] {
  %q0 = STACK parameter(0)
  %q1 = PART parameter(1)
  %q2 = s32[] parameter(2)
  %none = s32[] constant(0)
  %row = f32[1,8,8]{2,1,0} bitcast(%q1)
  ROOT %put = STACK dynamic-update-slice(%q0, %row, %q2, %none)
}

%body (state: (s32[], f32[5,8,8], f32[5,8,8])) -> (s32[], f32[5,8,8]) {
  %state = STATE parameter(0)
  %i = s32[] get-tuple-element(%state), index=0
  %weights = STACK get-tuple-element(%state), index=1
  %results = STACK get-tuple-element(%state), index=2
  %weight = PART fusion(%weights, %i), kind=kLoop, calls=%slice
  %product = PART dot(%weight, %weight), lhs_contracting_dims={1}
  %stacked = STACK fusion(%results, %product, %i), kind=kLoop, calls=%stack
  ROOT %next = STATE tuple(%i, %weights, %stacked)
}

%condition (s: (s32[], f32[5,8,8], f32[5,8,8])) -> pred[] {
  %s = STATE parameter(0)
  %n = s32[] get-tuple-element(%s), index=0
  %five = s32[] constant(5)
  ROOT %less = pred[] compare(%n, %five), direction=LT
}

ENTRY %main (a: (s32[], f32[5,8,8], f32[5,8,8])) -> f32[5,8,8] {
  %a = STATE parameter(0)
  ROOT %loop = STATE while(%a), condition=%condition, body=%body
}
"""
LOOP = (LOOP.replace('STATE', '(s32[], STACK, STACK)')
        .replace('STACK', 'f32[5,8,8]{2,1,0}').replace('PART', 'f32[8,8]{1,0}'))
MATRIX = 8 * 8 * 4
COUNTER = 4
# Slice and counter; operands and result of the product; update and counter.
BODY = (2 * MATRIX + COUNTER) + 3 * MATRIX + (2 * MATRIX + COUNTER)
CONDITION = 2 * COUNTER + 1  # Counter, constant, result.


def test_a_loop_counts_once_per_iteration():
  assert memory_traffic.count(LOOP) == 5 * (BODY + CONDITION)


def test_a_loop_of_unknown_length_counts_once():
  unknown = LOOP.replace('direction=LT', 'direction=NE')
  assert memory_traffic.count(unknown) == BODY + CONDITION


def count(*lines):
  """Returns the traffic of a program of a few instructions."""
  body = '\n'.join(f'  {line}' for line in lines)
  return memory_traffic.count(
      f'HloModule m\n\nENTRY %e (a: f32[]) -> f32[] {{\n{body}\n}}\n')


@pytest.mark.parametrize(('shape', 'size'), [
    ('f32[8,8]{1,0}', 256), ('bf16[8,8]{1,0}', 128), ('pred[3]', 3),
    ('s4[8]{0}', 4), ('(f32[2]{0}, bf16[2]{0})', 12), ('f32[]', 4),
    # TPU layouts are padded to whole tiles.
    ('f32[7,100]{1,0:T(8,128)}', 8 * 128 * 4),
    ('f32[7,100]{0,1:T(8,128)}', 128 * 104 * 4),
    ('bf16[3,7,64]{2,1,0:T(8,128)(2,1)}', 3 * 8 * 128 * 2),
    ('f32[300]{0:T(256)}', 512 * 4),
    # On-chip memory; host memory.
    ('f32[8,128]{1,0:T(8,128)S(1)}', 0), ('f32[8,128]{1,0:T(8,128)S(5)}', 4096),
])
def test_arrays_are_padded_as_their_layout_says(shape, size):
  assert count(f'%p = {shape} parameter(0)',
               f'ROOT %r = {shape} negate(%p)') == 2 * size


def test_the_workspace_of_a_library_call_is_not_traffic():
  assert count(
      '%a = f32[8,8] parameter(0)',
      'ROOT %c = (f32[8,8], u8[4096]) custom-call(%a, %a), '
      'custom_call_target="__cublas$gemm"') == 3 * MATRIX


TILED = 'f32[8,128]{1,0:T(8,128)}'  # 4,096 bytes.
ON_CHIP = 'f32[8,128]{1,0:T(8,128)S(1)}'


@pytest.mark.parametrize(('instruction', 'size'), [
    (f'({ON_CHIP}, TILED, u32[]) copy-start(%a)', 4096),
    ('(TILED, TILED, u32[]) copy-start(%a)', 2 * 4096),
    ('((f32[16,128]{1,0:T(8,128)}), ' + ON_CHIP + ', s32[]) '
     'slice-start(%pair), slice={[0:8], [0:128]}', 4096),
    ('TILED custom-call(), custom_call_target="AllocateBuffer"', 0),
])
def test_asynchronous_copies_move_only_what_they_copy(instruction, size):
  assert count(
      f'%a = {TILED} parameter(0)',
      '%pair = f32[16,128]{1,0:T(8,128)} parameter(1)',
      f'ROOT %r = {instruction.replace("TILED", TILED)}') == size


def test_other_text_is_an_error():
  with pytest.raises(ValueError, match='no ENTRY'):
    memory_traffic.count('something else')
