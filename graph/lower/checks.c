/* SPDX-License-Identifier: Apache-2.0 */
/* Calls that check other calls. A call whose op checks its inputs (sl_op.check) has one before it,
 * on GPUs only with --check-finite. With --check-finite, every call has one after it, which checks
 * its outputs. Such a check waits for the GPU, which then runs one call at a time. */
#include <math.h>
#include <stdlib.h>

#include "graph/lower/ir.h"
#include "kernels/finite.h"

/* The checked call. */
typedef struct checked {
  const char *op, *actor;
  sl_runtime *const *rt;
  const sl_program_call *call;
} checked;

static checked *checked_create(const sli_lowering *l, int task, const sl_program_call *of) {
  checked *c = sl_plan_alloc(l->plan, sizeof *c);
  *c = (checked){of->name, sl_plan_format(l->plan, "%s", l->tasks[task].name), l->in->rt, of};
  return c;
}

/* ---- checks of inputs --------------------------------------------------------------- */

/* Checks the inputs, which `in` has in host memory. */
static void look_at(const sl_call *call, const void *const *in) {
  const checked *c = call->attrs->user;
  sl_call it = *call;
  it.in = in;
  it.op = c->call->op;
  it.attrs = &c->call->attrs;
  it.nout = c->call->nout;
  it.out_type = c->call->out_type;
  if (!*c->rt || !it.op->check(&it)) return;
  char *text =
      sli_format("op %s (%s), run by actor %s in step %lld, microbatch %d: %s", c->op, it.op->name,
                 c->actor, (long long)call->tick.step + 1, call->tick.microbatch, sl_detail());
  sl_runtime_fail(*c->rt, SL_E_INPUT, text);
  free(text);
}

static void look(const sl_call *call) { look_at(call, call->in); }

/* Checks copies of the inputs. A failure to copy is a failure of the stream, which the next call
 * detects. */
static void look_from_afar(const sl_call *call, void *stream) {
  void **in = sli_calloc((size_t)call->nin + 1, sizeof *in);
  bool all = true;
  for (int i = 0; i < call->nin && all; i++) {
    size_t bytes = call->in[i] ? sl_type_bytes(&call->in_type[i]) : 0;
    if (bytes) in[i] = sli_calloc(1, bytes);
    all = !bytes || sli_cuda_fetch(in[i], call->in[i], bytes, stream);
  }
  if (all) look_at(call, (const void *const *)in);
  for (int i = 0; i < call->nin; i++) free(in[i]);
  free(in);
}

static const sl_kernel look_kernels[] = {
    {.backend = "cpu", .run = look}, {.backend = "cuda", .launch = look_from_afar}, {0}};
static const sl_op look_op = {.name = "check", .max_in = -1, .kernels = look_kernels};

void sli_lower_check(const sli_lowering *l, int task, const sl_program_call *of,
                     sl_program_call *to) {
  *to = (sl_program_call){.op = &look_op,
                          .name = of->name,
                          .attrs = {.user = checked_create(l, task, of)},
                          .nin = of->nin,
                          .in_type = of->in_type,
                          .in = of->in,
                          .in_length = of->in_length};
}

/* ---- checks of outputs -------------------------------------------------------------- */

static double f32_at(const void *data, int64_t i) { return (double)((const float *)data)[i]; }
static double f64_at(const void *data, int64_t i) { return ((const double *)data)[i]; }
static double bf16_at(const void *data, int64_t i) {
  union {
    uint32_t bits;
    float value;
  } x = {(uint32_t)((const uint16_t *)data)[i] << 16};
  return (double)x.value;
}

static double (*const readers[SL_DTYPE_COUNT])(const void *data, int64_t i) = {
    [SL_F32] = f32_at, [SL_F64] = f64_at, [SL_BF16] = bf16_at};

/* Returns the first element that is not finite, or -1. */
static int64_t checks_find(const sl_call *call, void *stream, int i, double *value) {
  const sl_type *type = &call->in_type[i];
  const void *data = call->in[i];
  if (stream && data) return sli_cuda_first_not_finite(type, data, call->scratch, stream, value);
  double (*at)(const void *, int64_t) = readers[type->dtype];
  int64_t n = at && data ? sl_type_elements(type) : 0;
  for (int64_t i = 0; i < n; i++)
    if (!isfinite(*value = at(data, i))) return i;
  return -1;
}

static void report(const sl_call *call, int output, int64_t element, double value) {
  const checked *c = call->attrs->user;
  char type[SL_TYPE_TEXT];
  char *text = sli_format(
      "%s, run by actor %s in step %lld, microbatch %d, made element %lld of output %d, %s, "
      "%g",
      c->op, c->actor, (long long)call->tick.step + 1, call->tick.microbatch, (long long)element,
      output, sl_type_format(type, &call->in_type[output]), value);
  sl_runtime_fail(*c->rt, SL_E_NUMERIC, text);
  free(text);
}

/* Checks that all elements are finite. stream: NULL for arrays that the host can address. */
static void checks_check(const sl_call *call, void *stream) {
  const checked *c = call->attrs->user;
  for (int i = 0; i < call->nin && *c->rt; i++) {
    double value;
    int64_t element = checks_find(call, stream, i, &value);
    if (element < 0) continue;
    report(call, i, element, value);
    return;
  }
}

static void check_here(const sl_call *call) { checks_check(call, NULL); }

static size_t scratch(const sl_call *call, int threads) {
  (void)call, (void)threads;
  return SLI_CUDA_FINITE_SCRATCH;
}

static const sl_kernel finite_kernels[] = {
    {.backend = "cpu", .run = check_here, .scratch = scratch},
    {.backend = "cuda", .launch = checks_check, .scratch = scratch},
    {0}};
static const sl_op finite_op = {.name = "finite", .max_in = -1, .kernels = finite_kernels};

void sli_lower_finite(const sli_lowering *l, int task, const sl_program_call *of,
                      sl_program_call *to) {
  *to = (sl_program_call){.op = &finite_op,
                          .name = of->name,
                          .attrs = {.user = checked_create(l, task, of)},
                          .nin = of->nout,
                          .in_type = of->out_type,
                          .in = of->out,
                          .in_length = of->out_length};
}
