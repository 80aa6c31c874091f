/* SPDX-License-Identifier: Apache-2.0 */
/* Sizes and rules shared by gated linear attention (linear_attention.c) and the gated delta rule
 * (delta_rule.c), for their ops and kernels. */
#ifndef SLUICE_OPS_LINEAR_ATTENTION_H
#define SLUICE_OPS_LINEAR_ATTENTION_H

#include <math.h>

#include <sluice/op.h>

/* Heads of each array. Either several query heads read the state of one key head, as in grouped
 * attention, or several states share queries and keys, as in Mamba-2's groups. */
typedef struct sli_linear_shape {
  int64_t batch, positions, heads;
  int64_t q_heads, k_heads, v_heads; /* v_heads: heads of v, of the gates and of the states */
  int64_t dk, dv;                    /* widths of a head's keys and values */
  bool per_head;                     /* one gate for all channels of a head */
} sli_linear_shape;

/* Returns the shape. All these ops have q, k, v and the gates as their first inputs. */
static inline sli_linear_shape sli_linear_shape_of(const sl_attrs *attrs, const sl_type *in) {
  int64_t heads = attrs->attention.heads,
          few = attrs->attention.kv_heads ? attrs->attention.kv_heads : heads;
  bool shared = few != heads && in[0].dim[2] == in[1].dim[2];
  int64_t q_heads = shared ? few : heads, v_heads = shared ? heads : few;
  sli_linear_shape s = {in[0].dim[0], in[0].dim[1], heads, q_heads, few, v_heads, 0, 0, false};
  s.dk = in[0].dim[2] / q_heads;
  s.dv = in[2].dim[2] / v_heads;
  s.per_head = shared || in[3].dim[2] != in[1].dim[2];
  return s;
}

/* Number of gates per position. */
static inline int64_t sli_linear_gates(const sli_linear_shape *s) {
  return s->v_heads * (s->per_head ? 1 : s->dk);
}

/* Numbers in a sequence's gradient record: the gradients of the query heads' states, then those of
 * the gates, which are f64 sums and take the space of two numbers each. */
static inline int64_t sli_linear_carry(const sli_linear_shape *s) {
  return s->heads * s->dk * s->dv + 2 * sli_linear_gates(s);
}

/* Numbers in a share's record after each state: the sums of the logarithms of its gates. */
static inline int64_t sli_linear_gap(const sli_linear_shape *s) { return s->per_head ? 1 : s->dk; }

static inline float sli_linear_scale(const sl_attrs *attrs, int64_t dk) {
  return attrs->attention.scale != 0 ? attrs->attention.scale : 1.0f / sqrtf((float)dk);
}

#ifdef __cplusplus
extern "C" {
#endif

/* Checks q, k, v and the gates. */
sl_status sli_linear_want(const sl_attrs *attrs, const sl_type *in);
/* Checks that an input has `width` numbers for each position of q. */
sl_status sli_linear_want_rows(const char *name, const sl_type *type, const sl_type *q,
                               int64_t width);
sl_type sli_linear_output(const sl_attrs *attrs, const sl_type *in);
sl_type sli_linear_state(const sl_attrs *attrs, const sl_type *in);
sl_type sli_linear_carry_type(const sl_attrs *attrs, const sl_type *in);
/* Fills in the splits of `nin` inputs and `nout` outputs by sequences or heads, and those of the
 * `nstates` states, which follow the outputs. Returns the number of signatures. */
int sli_linear_signatures(int nin, int nout, int nstates, sl_signature *out);
/* Cost of `sweeps` walks along the positions, with two products each. */
void sli_linear_cost(const sl_attrs *attrs, const sl_type *in, int sweeps, double *flops,
                     double *bytes);

#ifdef __cplusplus
}
#endif
#endif
