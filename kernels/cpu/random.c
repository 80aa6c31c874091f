/* Rows that draw random numbers. */
#include <math.h>

#include "kernels/cpu/chunk.h"
#include "kernels/kernels.h"

/* Draws for the elements of a chunk, at most 64 at once, and hands them on: words[] of whole
 * blocks, of which those from `skip` on are for elements at .. at + n. */
enum { DRAWN = 64 };
typedef void use(const sl_call *call, const uint32_t *words, int64_t skip, int64_t at, int64_t n);

static void draw_stretch(const sl_call *call, int64_t where, int64_t at, int64_t count, use *fn) {
  uint32_t words[DRAWN];
  while (count > 0) {
    int64_t skip = where % 4, n = SLI_MIN(count, DRAWN - skip);
    for (int64_t b = 0; 4 * b < skip + n; b++) sl_call_random(call, where / 4 + b, words + 4 * b);
    fn(call, words, skip, at, n);
    where += n;
    at += n;
    count -= n;
  }
}

static void draw_chunk(const sl_call *call, int i, use *fn) {
  sli_range r = sli_elements(&call->out_type[0], i);
  for (int64_t run, at = r.begin; at < r.end; at += run) {
    int64_t where = sl_call_where(call, at, &run);
    run = SLI_MIN(run, r.end - at);
    draw_stretch(call, where, at, run, fn);
  }
}

/* In [0, 1), exact in f32. */
static float fraction(uint32_t word) { return (float)(int32_t)(word >> 8) * 0x1p-24f; }

/* ---- dropout ------------------------------------------------------------------------ */

static sl_status dropout_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  (void)nin;
  SLI_TRY(sli_want_array("x", &in[0], SL_F32, in[0].ndim ? -1 : 0));
  if (!(attrs->value >= 0 && attrs->value < 1))
    return sl_fail(SL_E_SHAPE, "attrs.value, how likely an element is dropped, must be in [0, 1), "
                   "not %g", (double)attrs->value);
  out[0] = in[0];
  return SL_OK;
}

static void drop(const sl_call *call, const uint32_t *words, int64_t skip, int64_t at, int64_t n) {
  const float *x = (const float *)call->in[0] + at;
  float *y = (float *)call->out[0] + at, scale = 1 / (1 - call->attrs->value);
  uint32_t below = (uint32_t)((double)call->attrs->value * 0x1p32);
  for (int64_t i = 0; i < n; i++) y[i] = words[skip + i] < below ? 0 : x[i] * scale;
}

static void dropout_chunk(void *arg, int i) { draw_chunk(arg, i, drop); }

static void dropout_cpu(const sl_call *call) {
  sli_for_elements(call, &call->out_type[0], dropout_chunk);
}

SLI_COST(dropout_cost, 0, 1, 25)

/* ---- numbers ------------------------------------------------------------------------ */

static sl_status numbers_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  (void)attrs, (void)nin;
  SLI_TRY(sli_want_array("like", &in[0], in[0].dtype, in[0].ndim ? -1 : 0));
  out[0] = in[0];
  out[0].dtype = SL_F32;
  return SL_OK;
}

static void draw_uniform(const sl_call *call, const uint32_t *words, int64_t skip, int64_t at,
                         int64_t n) {
  float *y = (float *)call->out[0] + at, low = call->attrs->value, high = call->attrs->upper;
  for (int64_t i = 0; i < n; i++) y[i] = low + (high - low) * fraction(words[skip + i]);
}

/* Box and Muller's: a pair of words makes a pair of numbers. */
static float normal(const uint32_t *words, int64_t i) {
  const uint32_t *pair = words + (i & ~1);
  float radius = sqrtf(-2 * logf(1 - fraction(pair[0])));
  float angle = 6.2831853071795865f * fraction(pair[1]);
  return radius * (i & 1 ? sinf(angle) : cosf(angle));
}

static void draw_normal(const sl_call *call, const uint32_t *words, int64_t skip, int64_t at,
                        int64_t n) {
  float *y = (float *)call->out[0] + at;
  for (int64_t i = 0; i < n; i++)
    y[i] = call->attrs->value + call->attrs->upper * normal(words, skip + i);
}

static void uniform_chunk(void *arg, int i) { draw_chunk(arg, i, draw_uniform); }
static void normal_chunk(void *arg, int i) { draw_chunk(arg, i, draw_normal); }

static void uniform_cpu(const sl_call *call) {
  sli_for_elements(call, &call->out_type[0], uniform_chunk);
}

static void normal_cpu(const sl_call *call) {
  sli_for_elements(call, &call->out_type[0], normal_chunk);
}

SLI_COST(numbers_cost, 0, 1, 40)

/* ---- rows --------------------------------------------------------------------------- */

/* The way back drops what the way there has dropped. */
const sl_op sl_op_dropout = {
    .name = "dropout", .min_in = 1, .max_in = 1, .nout = 1,
    .narrow_in = 1, .narrow_out = 1, .cheap = true, .located = true,
    .pieces = SL_PIECES_ELEMENTS, .over = {1},
    .infer = dropout_infer, .cost = dropout_cost, .cpu = dropout_cpu,
    .grad = {{.op = &sl_op_dropout, .cls = SL_CLASS_B, .in = {SL_DOUT(0)}, .nof = 1, .of = {0}}},
};

const sl_op sl_op_uniform = {
    .name = "uniform", .min_in = 1, .max_in = 1, .nout = 1,
    .cheap = true, .located = true, .unread = 1,
    .pieces = SL_PIECES_ELEMENTS,
    .infer = numbers_infer, .cost = numbers_cost, .cpu = uniform_cpu,
};

const sl_op sl_op_normal = {
    .name = "normal", .min_in = 1, .max_in = 1, .nout = 1,
    .cheap = true, .located = true, .unread = 1,
    .pieces = SL_PIECES_ELEMENTS,
    .infer = numbers_infer, .cost = numbers_cost, .cpu = normal_cpu,
};
