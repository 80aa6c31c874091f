/* SPDX-License-Identifier: Apache-2.0 */
/* Functions of two numbers with broadcasting, from binary.def, and `where`. */
#include "kernels/cuda/fold.cuh"

namespace {

using namespace sli;

template <typename V> __device__ inline V pick_of(bool mask, V a, V b) { return mask ? a : b; }

#define FUNCTION(name, expression)                                       \
  struct name {                                                          \
    template <typename V> static __device__ inline V of(V a, V b, V d) { \
      const V zero = 0;                                                  \
      (void)a, (void)b, (void)d, (void)zero;                             \
      return expression;                                                 \
    }                                                                    \
  };
#define BINARY(name, flops, unread, partial, y, da, db) \
  FUNCTION(name##_y, y) FUNCTION(name##_da, da) FUNCTION(name##_db, db)
#define COMPARE(name, y) FUNCTION(name##_y, (y) ? V(1) : V(0))
#include "ops/binary.def"
#undef BINARY
#undef COMPARE

FUNCTION(where_y, a != zero ? b : d)
FUNCTION(where_da, a != zero ? d : zero)
FUNCTION(where_db, a != zero ? zero : d)

template <typename F> void run_any(const sl_call *call, int o, void *stream) {
  if (call->in_type[0].dtype == SL_F64) fold_output<F, double>(call, o, stream);
  else fold_output<F, float>(call, o, stream);
}

/* Computes a gradient from the condition and dy. */
template <typename F> void run_where(const sl_call *call, int o, void *stream) {
  const sl_type *types[SLI_SPACE_ARRAYS] = {&call->in_type[0], nullptr, &call->in_type[3],
                                            &call->out_type[o]};
  fold_args g = {};
  g.in[0] = operand_of(call, 0);
  g.in[2] = operand_of(call, 3);
  g.space = sli_space_make(&call->in_type[3], types);
  g.out = call->out[o];
  g.dtype = call->out_type[o].dtype;
  g.add = accumulates(call, o);
  g.factor = 1;
  fold<F, float>(stream, g);
}

} // namespace

#define BINARY(name, flops, unread, partial, y, da, db)                                           \
  void sli_cuda_##name(const sl_call *call, void *stream) { run_any<name##_y>(call, 0, stream); } \
  void sli_cuda_##name##_b(const sl_call *call, void *stream) {                                   \
    run_any<name##_da>(call, 0, stream);                                                          \
    run_any<name##_db>(call, 1, stream);                                                          \
  }
#define COMPARE(name, y)                                    \
  void sli_cuda_##name(const sl_call *call, void *stream) { \
    fold_output<name##_y, double>(call, 0, stream);         \
  }
#include "ops/binary.def"

void sli_cuda_where(const sl_call *call, void *stream) {
  fold_output<where_y, float>(call, 0, stream);
}

void sli_cuda_where_b(const sl_call *call, void *stream) {
  run_where<where_da>(call, 0, stream);
  run_where<where_db>(call, 1, stream);
}
