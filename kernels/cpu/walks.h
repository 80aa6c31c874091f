/* SPDX-License-Identifier: Apache-2.0 */
/* Walks of states along sequences, for the kernels of linear attention and of the delta rule. */
#ifndef SLUICE_CPU_WALKS_H
#define SLUICE_CPU_WALKS_H

#include "kernels/cpu/chunk.h"
#include "ops/linear_attention.h"

/* Inputs that all these ops begin with. */
enum { SLI_WALK_Q, SLI_WALK_K, SLI_WALK_V, SLI_WALK_GATES };

/* Array [batch, positions, heads' numbers] as an operand or a sum. */
sli_walked sli_walk_array(const sli_linear_shape *s, const float *x, int64_t heads, int64_t width);
sli_walk_sum sli_walk_sum_of(const sli_linear_shape *s, float *y, int64_t heads, int64_t width);
/* Input i of a call: q, k, v, or the gates. */
sli_walked sli_walk_input(const sl_call *call, const sli_linear_shape *s, int i);

/* A walk with the call's gates, through states that the heads of o share. */
sli_walk sli_walk_of(const sl_call *call, const sli_linear_shape *s, sli_walk_kind kind);
/* A walk of gradients of states, one for each head of o, in a record of gradients. */
sli_walk sli_walk_back_of(const sl_call *call, const sli_linear_shape *s, sli_walk_kind kind);

/* Runs a walk of states [dk, dv] by rows of keys, with lanes of values; or the other way round. */
void sli_walk_values(const sl_call *call, const sli_linear_shape *s, sli_walk *w);
void sli_walk_keys(const sl_call *call, const sli_linear_shape *s, sli_walk *w);

/* Arrays that give the gradients of gates: of gates of channels from q, dq, k, dk,
 * those of heads from o, do, v, dv. */
typedef struct sli_gate_gradients {
  const sl_call *call; /* q, k, v, gates, ... */
  sli_linear_shape shape;
  const float *dq, *dk, *dv, *o, *dout;
  float *dgates;
  float *carry; /* the record of gradients; NULL: starts from 0 and is dropped */
  bool starts;
  /* of a share of the positions: states behind it and the gradients of those, over the factor of
   * the scores, which sums begin with; NULL: they begin with zeros */
  const float *end, *behind;
} sli_gate_gradients;
void sli_gate_gradients_run(const sli_gate_gradients *g);

/* Walks of a tick's sequences. `make` fills in the walk of `rows` rows from `row` on. */
typedef void sli_make_walk(const sl_call *call, const sli_linear_shape *s, int32_t row,
                           sli_walk *w);
void sli_walk_served(const sl_call *call, int states, sli_make_walk *make);
size_t sli_walk_served_scratch(const sl_call *call, int threads);

#endif
