/* SPDX-License-Identifier: Apache-2.0 */
/* Two calls commute if neither writes what the other reads or writes. Places of different bases
 * never overlap, because a firing binds different slots. Ops outside the table of kernels, and ops
 * without outputs, may have other effects: they stay in place, and no call moves past them. */
#include "kernels/cuda/order.h"

#include "base/base.h"
#include "kernels/cuda/ops.h"
#include "ops/facets.h"

static sli_span span_of(sl_place place, const sl_type *type) {
  if (place.base < 0 || type->ndim < 0) return (sli_span){-1, 0, 0};
  return (sli_span){place.base, place.offset, place.offset + sl_type_bytes(type)};
}

sli_span sli_input_span(const sl_program_call *c, int i) {
  return span_of(c->in[i], &c->in_type[i]);
}

sli_span sli_output_span(const sl_program_call *c, int o) {
  return span_of(c->out[o], &c->out_type[o]);
}

bool sli_spans_overlap(sli_span a, sli_span b) {
  return a.base >= 0 && a.base == b.base && a.begin < b.end && b.begin < a.end;
}

bool sli_call_reads(const sl_program_call *c, sli_span span) {
  uint32_t added_to = c->accumulate | c->accumulate_span | sli_op_memory(c->op)->updates;
  for (int i = 0; i < c->nin; i++)
    if (sli_spans_overlap(sli_input_span(c, i), span)) return true;
  for (int o = 0; o < c->nout; o++)
    if (sli_bit(added_to, o) && sli_spans_overlap(sli_output_span(c, o), span)) return true;
  return false;
}

bool sli_call_writes(const sl_program_call *c, sli_span span) {
  for (int o = 0; o < c->nout; o++)
    if (sli_spans_overlap(sli_output_span(c, o), span)) return true;
  return false;
}

static bool is_known(const sl_program_call *c) { return c->nout > 0 && sli_cuda_op_find(c->op); }

bool sli_calls_commute(const sl_program_call *a, const sl_program_call *b) {
  if (!is_known(a) || !is_known(b)) return false;
  for (int o = 0; o < a->nout; o++)
    if (sli_call_reads(b, sli_output_span(a, o)) || sli_call_writes(b, sli_output_span(a, o)))
      return false;
  for (int o = 0; o < b->nout; o++)
    if (sli_call_reads(a, sli_output_span(b, o))) return false;
  return true;
}
