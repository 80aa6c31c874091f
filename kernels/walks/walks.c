/* SPDX-License-Identifier: Apache-2.0 */
/* Settings of walks of states. */
#include "kernels/walks/walks.h"

sli_walked sli_walk_array(const sli_linear_shape *s, const float *x, int64_t heads, int64_t width) {
  return (sli_walked){x, heads * width, s->heads / heads, width};
}

sli_walk_sum sli_walk_sum_of(const sli_linear_shape *s, float *y, int64_t heads, int64_t width) {
  return (sli_walk_sum){.y = y, .row = heads * width, .group = s->heads / heads, .factor = 1};
}

sli_walked sli_walk_input(const sl_call *call, const sli_linear_shape *s, int i) {
  const int64_t heads[] = {s->q_heads, s->k_heads, s->v_heads, s->v_heads};
  return sli_walk_array(s, call->in[i], heads[i], call->in_type[i].dim[2] / heads[i]);
}

sli_walk sli_walk_of(const sl_call *call, const sli_linear_shape *s, sli_walk_kind kind) {
  return (sli_walk){.kind = kind,
                    .batch = s->batch,
                    .positions = s->positions,
                    .heads = s->heads,
                    .groups = s->k_heads,
                    .per_head = s->per_head,
                    .g = sli_walk_input(call, s, SLI_WALK_GATES),
                    .states = s->v_heads,
                    .state_group = s->heads / s->v_heads};
}

sli_walk sli_walk_back_of(const sl_call *call, const sli_linear_shape *s, sli_walk_kind kind) {
  sli_walk w = sli_walk_of(call, s, kind);
  w.states = s->heads;
  w.state_group = 1;
  w.state_rest = 2 * sli_linear_gates(s);
  return w;
}

void sli_walk_by_values(const sli_linear_shape *s, sli_walk *w) {
  w->rows = s->dk, w->lanes = s->dv;
  w->state_row = s->dv, w->state_lane = 1;
}

void sli_walk_by_keys(const sli_linear_shape *s, sli_walk *w) {
  w->rows = s->dv, w->lanes = s->dk;
  w->state_row = 1, w->state_lane = s->dv;
  w->by_lane = true;
}
