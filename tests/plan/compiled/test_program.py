"""What a program does, counted from its text: by hand, and as XLA counts."""

import jax
import jax.numpy as jnp
import pytest

from vit_jax.plan.compiled import program

# A loop of five products; on the way a slice of stacked weights, as of a
# scanned encoder, and results stacked in place.
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
# The slice in and out, the counter; two operands and a result; in and out.
BODY = (2 * MATRIX + COUNTER) + 3 * MATRIX + (2 * MATRIX + COUNTER)
CONDITION = 2 * COUNTER + 1  # The number, the constant, the answer.


def test_a_loop_counts_as_often_as_it_runs():
  assert program.work(LOOP) == program.Work(
      flops=5 * 2 * 8**3, bytes=5 * (BODY + CONDITION))


def test_the_compiler_s_way_counts_it_once():
  assert program.work(LOOP, loops_once=True) == program.Work(
      flops=2 * 8**3, bytes=BODY + CONDITION)


def test_a_loop_of_unknown_length_is_told():
  unknown = LOOP.replace('direction=LT', 'direction=NE')
  assert program.work(unknown).unknown_loops == 1
  assert program.work(unknown).flops == 2 * 8**3


@pytest.mark.parametrize(('shape', 'size'), [
    ('f32[8,8]{1,0}', 256), ('bf16[8,8]{1,0}', 128), ('pred[3]', 3),
    ('s4[8]{0}', 4), ('(f32[2]{0}, bf16[2]{0})', 12), ('f32[]', 4),
    # Of a TPU: whole tiles, by the order of the dimensions in memory.
    ('f32[7,100]{1,0:T(8,128)}', 8 * 128 * 4),
    ('f32[7,100]{0,1:T(8,128)}', 128 * 104 * 4),
    ('bf16[3,7,64]{2,1,0:T(8,128)(2,1)}', 3 * 8 * 128 * 2),
    ('f32[300]{0:T(256)}', 512 * 4),
    # On the chip; on the host, which is further away than memory.
    ('f32[8,128]{1,0:T(8,128)S(1)}', 0), ('f32[8,128]{1,0:T(8,128)S(5)}', 4096),
])
def test_an_array_takes_what_its_layout_says(shape, size):
  text = (f'HloModule m\n\nENTRY %e (p: {shape}) -> {shape} {{\n'
          f'  %p = {shape} parameter(0)\n  ROOT %r = {shape} negate(%p)\n}}\n')
  assert program.work(text).bytes == 2 * size


@pytest.mark.parametrize('settings', [
    {'window_strides': (2, 2), 'padding': ((0, 0), (0, 0))},
    {'window_strides': (1, 2), 'padding': ((1, 1), (2, 0))},
    {'window_strides': (1, 1), 'padding': ((2, 2), (2, 2)),
     'lhs_dilation': (2, 1), 'rhs_dilation': (1, 2)},
    {'window_strides': (1, 1), 'padding': 'SAME', 'feature_group_count': 2},
])
def test_a_convolution_counts_as_xla_counts_it(settings):
  groups = settings.get('feature_group_count', 1)

  def convolve(image, kernel):
    return jax.lax.conv_general_dilated(
        image, kernel, dimension_numbers=('NHWC', 'HWIO', 'NHWC'), **settings)

  compiled = jax.jit(convolve).lower(
      jnp.zeros((2, 8, 9, 4)), jnp.zeros((3, 3, 4 // groups, 6))).compile()
  assert program.work(compiled.as_text()).flops == (
      compiled.cost_analysis()['flops'])


# Of a convolution from 8 x 9 x 4 to 4 x 4 x 6: image, kernel and result.
CONVOLVED = ('f32[2,8,9,4]', 'f32[3,3,4,6]', 'f32[2,4,4,6]')


@pytest.mark.parametrize(('target', 'operands', 'result'), [
    ('Forward', (0, 1), 2), ('BackwardInput', (2, 1), 0),
    ('BackwardFilter', (0, 2), 1), ('BiasActivationForward', (0, 1), 2)])
def test_a_convolution_of_cudnn_counts_as_that_which_it_is_or_leads_back(
    target, operands, result):
  def convolve(image, kernel):
    return jax.lax.conv_general_dilated(
        image, kernel, (2, 2), ((1, 0), (0, 0)),
        dimension_numbers=('NHWC', 'HWIO', 'NHWC'))

  shapes = [jnp.zeros([int(n) for n in shape[4:-1].split(',')])
            for shape in CONVOLVED]
  want = jax.jit(convolve).lower(*shapes[:2]).compile()
  first, second = (CONVOLVED[n] for n in operands)
  shape = f'({CONVOLVED[result]}, u8[4096])'
  found = program.work(
      f'HloModule m\n\nENTRY %e (a: {first}, b: {second}) -> {shape} {{\n'
      f'  %a = {first} parameter(0)\n  %b = {second} parameter(1)\n'
      f'  ROOT %c = {shape} custom-call(%a, %b), '
      'window={size=3x3 stride=2x2 pad=1_0x0_0}, dim_labels=b01f_01io->b01f, '
      f'custom_call_target="__cudnn$conv{target}"\n}}\n')
  assert found.flops == want.cost_analysis()['flops']
  # Without the room that the library takes to work in.
  assert found.bytes == sum(x.nbytes for x in shapes)


@pytest.mark.parametrize(('target', 'results', 'products'), [
    ('Softmax', ('bf16[2,3,6,8]', 'f32[2,3,6]', 'u8[4096]'), 2),
    ('SoftmaxBackward', ('bf16[2,3,6,8]',) * 3 + ('u8[0]',), 5)])
def test_fused_attention_of_cudnn_counts_as_its_products(
    target, results, products):
  array = 'bf16[2,6,3,8]'
  config = ('{"cudnn_fmha_backend_config": {"intermediate_tensor_shape": '
            '{"element_type": "BF16", "dimensions": ["2", "3", "6", "6"]}, '
            '"bmm1_dot_dimension_numbers": {"lhs_contracting_dimensions": '
            '["3"]}}}')
  found = program.work(
      f'HloModule m\n\nENTRY %main (a: {array}) -> ({", ".join(results)}) {{\n'
      f'  %a = {array} parameter(0)\n'
      f'  ROOT %c = ({", ".join(results)}) custom-call(%a, %a, %a), '
      f'custom_call_target="__cudnn$fmha{target}", backend_config={config}\n'
      '}\n')
  assert found.flops == products * 2 * (2 * 3 * 6 * 6) * 8
  one = 2 * 6 * 3 * 8 * 2
  written = {2: one + 2 * 3 * 6 * 4, 5: 3 * one}[products]
  assert found.bytes == 3 * one + written


def test_what_is_no_program_is_an_error():
  with pytest.raises(ValueError, match='no ENTRY'):
    program.work('something else')
