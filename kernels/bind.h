/* From a program's calls to calls with addresses: what all queues that run programs do. */
#ifndef SLUICE_BIND_H
#define SLUICE_BIND_H

#include <sluice/program.h>

#include "base/base.h"

/* Of all variants. */
static inline int sli_program_call_count(const sl_program *program) {
  return program->ncalls * (program->nvariants ? program->nvariants : 1);
}

/* A call as prepare() and scratch() see it: types and attrs, no data. */
static inline sl_call sli_call_shape(const sl_program_call *c) {
  return (sl_call){.op = c->op, .attrs = &c->attrs, .nin = c->nin, .nout = c->nout,
                   .in_type = c->in_type, .out_type = c->out_type, .state = c->state};
}

/* The state that calls of a device (by the plan's number of it, or a GPU's) share as sl_op.keeps
 * says: the first makes it. Any thread. */
typedef sl_status sli_prepare(const sl_call *call, void **state);
sl_status sli_state_share(const sl_call *call, int32_t device, sli_prepare *prepare, void **state);
/* Was that its last user? Then it is the caller's to release. */
bool sli_state_leave(const void *state);

/* The variant for this firing's piece, and the tick its calls are told. */
static inline int sli_program_variant(const sl_program *program, const sl_firing *firing,
                                      sl_tick *tick) {
  *tick = firing->tick;
  if (!program->pieces) return 0;
  const sl_program_piece *piece = &program->pieces[tick->piece];
  tick->row = piece->row;
  tick->rows = piece->rows;
  return piece->variant;
}

/* Its calls, program->ncalls of them. */
static inline const sl_program_call *sli_program_calls(const sl_program *program,
                                                       const sl_firing *firing, sl_tick *tick) {
  return program->calls + sli_program_variant(program, firing, tick) * program->ncalls;
}

static inline void *sli_place_address(sl_place place, void *const *bases) {
  return place.base < 0 || !bases[place.base] ? NULL : (char *)bases[place.base] + place.offset;
}

/* Fills in[nin] and out[nout], and all of *call but its scratch and team. False: what the
 * call would write is not wanted this time. */
static inline bool sli_call_bind(const sl_program_call *c, const sl_firing *firing,
                                 const sl_tick *tick, const void **in, void **out, sl_call *call) {
  uint32_t accumulate = c->accumulate;
  bool wanted = !c->nout;
  for (int i = 0; i < c->nin; i++) in[i] = sli_place_address(c->in[i], firing->bases);
  for (int o = 0; o < c->nout; o++) {
    out[o] = sli_place_address(c->out[o], firing->bases);
    wanted |= out[o] != NULL;
    if (sli_bit(c->accumulate_span, o) && !firing->first[c->out[o].base]) accumulate |= 1u << o;
  }
  *call = (sl_call){.op = c->op, .attrs = &c->attrs, .nin = c->nin, .nout = c->nout,
                    .in_type = c->in_type, .out_type = c->out_type, .in = in, .out = out,
                    .accumulate = accumulate, .state = c->state, .tick = *tick};
  return wanted;
}

#endif
