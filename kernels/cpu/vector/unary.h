/* SPDX-License-Identifier: Apache-2.0 */
/* Vectorised functions of one number, from unary.def. */

#define exp_of vexp
#define log_of vlog
#define sqrt_of vsqrt
#define sigmoid_of sigmoid
#define abs_of vabs
#define tanh_of vtanh
#define pick_of pick
#define erf_of verf
#define normal_of vnormal
#define sin_of vsin
#define cos_of vcos
#define softplus_of vsoftplus
#define floor_of vfloor

#define UNARY(name, how, flops, y_, dx_)                                                \
  static void unary_##name##_chunk(void *arg, int i) {                                  \
    const sl_call *call = arg;                                                          \
    const float *x = call->in[0];                                                       \
    float *y = call->out[0];                                                            \
    vec c = set(call->attrs->function.c), u = set(call->attrs->function.u), zero = {0}; \
    (void)c, (void)u, (void)zero;                                                       \
    FOR_EACH(call, i, at, n) {                                                          \
      vec v = load_ahead(x + at, n);                                                    \
      store_ahead(y + at, y_, n);                                                       \
    }                                                                                   \
  }                                                                                     \
  UNARY_BACK_##how(name, dx_)

#define UNARY_BACK(name, dx_)                                                           \
  static void unary_##name##_b_chunk(void *arg, int i) {                                \
    const sl_call *call = arg;                                                          \
    const float *x = call->in[0], *dy = call->in[1];                                    \
    float *dx = call->out[0];                                                           \
    vec c = set(call->attrs->function.c), u = set(call->attrs->function.u), zero = {0}; \
    (void)c, (void)u, (void)zero;                                                       \
    FOR_EACH(call, i, at, n) {                                                          \
      vec v = load_ahead(x + at, n), d = load_ahead(dy + at, n);                        \
      store_ahead(dx + at, dx_, n);                                                     \
    }                                                                                   \
  }
#define UNARY_BACK_IN UNARY_BACK
#define UNARY_BACK_OUT UNARY_BACK
#define UNARY_BACK_BOUNDS UNARY_BACK
#define UNARY_BACK_CAP UNARY_BACK
#define UNARY_BACK_SAME(name, dx_)
#define UNARY_BACK_THROUGH(name, dx_)
#define UNARY_BACK_DETACHED(name, dx_)

#include "ops/unary.def"
#undef UNARY

static sli_chunk_fn *const unary_chunks[SLI_UNARIES] = {
#define UNARY(name, ...) [SLI_UNARY_##name] = unary_##name##_chunk,
#include "ops/unary.def"
#undef UNARY
};

#define UNARY_ENTRY_IN(name) [SLI_UNARY_##name] = unary_##name##_b_chunk,
#define UNARY_ENTRY_OUT UNARY_ENTRY_IN
#define UNARY_ENTRY_BOUNDS UNARY_ENTRY_IN
#define UNARY_ENTRY_CAP UNARY_ENTRY_IN
#define UNARY_ENTRY_SAME(name)
#define UNARY_ENTRY_THROUGH(name)
#define UNARY_ENTRY_DETACHED(name)
static sli_chunk_fn *const unary_b_chunks[SLI_UNARIES] = {
#define UNARY(name, how, ...) UNARY_ENTRY_##how(name)
#include "ops/unary.def"
#undef UNARY
};
