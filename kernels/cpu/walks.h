/* SPDX-License-Identifier: Apache-2.0 */
/* Walks of states along sequences, for the kernels of linear attention and of the delta rule. */
#ifndef SLUICE_KERNELS_CPU_WALKS_H
#define SLUICE_KERNELS_CPU_WALKS_H

#include "kernels/cpu/chunk.h"
#include "ops/linear_attention.h"

/* Leading inputs of all these ops. */
enum { SLI_WALK_Q, SLI_WALK_K, SLI_WALK_V, SLI_WALK_GATES };

/* Return the array [batch, positions, heads' numbers] as an operand or as a sum. */
sli_walked sli_walk_array(const sli_linear_shape *s, const float *x, int64_t heads, int64_t width);
sli_walk_sum sli_walk_sum_of(const sli_linear_shape *s, float *y, int64_t heads, int64_t width);
/* Returns input i of a call: q, k, v, or the gates. */
sli_walked sli_walk_input(const sl_call *call, const sli_linear_shape *s, int i);

/* Returns a walk with the call's gates, through states that the heads of o share. */
sli_walk sli_walk_of(const sl_call *call, const sli_linear_shape *s, sli_walk_kind kind);
/* Returns a walk of the gradients of states, one for each head of o, in a gradient record. */
sli_walk sli_walk_back_of(const sl_call *call, const sli_linear_shape *s, sli_walk_kind kind);

/* Run a walk of states [dk, dv]: the first by rows of keys, with lanes of values; the second with
 * the roles exchanged. */
void sli_walk_values(const sl_call *call, const sli_linear_shape *s, sli_walk *w);
void sli_walk_keys(const sl_call *call, const sli_linear_shape *s, sli_walk *w);

/* Arrays that give the gradients of gates: for gates of channels from q, dq, k, dk; for gates of
 * heads from o, do, v, dv. */
typedef struct sli_gate_gradients {
  const sl_call *call; /* q, k, v, gates, ... */
  sli_linear_shape shape;
  const float *dq, *dk, *dv, *o, *dout;
  float *dgates;
  float *carry; /* gradient record; NULL: sums start from 0 and are dropped */
  bool starts;
  /* for a share of the positions: states after it and their gradients, divided by the scale of the
   * scores, with which the sums begin; NULL: sums begin with zeros */
  const float *end, *behind;
} sli_gate_gradients;
void sli_gate_gradients_run(const sli_gate_gradients *g);

/* Walks of a tick's sequences. `make` fills in the walk of `rows` rows, the first of which is
 * `row`. */
typedef void sli_make_walk(const sl_call *call, const sli_linear_shape *s, int32_t row,
                           sli_walk *w);
void sli_walk_served(const sl_call *call, int states, sli_make_walk *make);
size_t sli_walk_served_scratch(const sl_call *call, int threads);

#endif
