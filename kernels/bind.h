/* SPDX-License-Identifier: Apache-2.0 */
/* Binding of a program's calls to addresses, shared by all queues that run programs. */
#ifndef SLUICE_KERNELS_BIND_H
#define SLUICE_KERNELS_BIND_H

#include <sluice/program.h>

#include "base/base.h"

/* Number of calls over all variants. */
static inline int sli_program_call_count(const sl_program *program) {
  return program->ncalls * (program->nvariants ? program->nvariants : 1);
}

/* A call as seen by prepare() and scratch(): types and attrs, no data. */
static inline sl_call sli_call_shape(const sl_program_call *c) {
  return (sl_call){.op = c->op,
                   .attrs = &c->attrs,
                   .nin = c->nin,
                   .nout = c->nout,
                   .in_type = c->in_type,
                   .out_type = c->out_type,
                   .state = c->state};
}

/* Returns in *state the state shared by calls of one device, as sl_op_memory.keeps allows; the
 * first call creates it. `device` is the plan's number or the GPU's. Callable from any thread. */
typedef sl_status sli_prepare(const sl_call *call, void **state);
sl_status sli_state_share(const sl_call *call, int32_t device, sli_prepare *prepare, void **state);
/* Drops one use of a shared state. Returns true for the last user, which must then release the
 * state. */
bool sli_state_leave(const void *state);

/* Returns the smallest variant (shape bucket) with room for the valid length. */
static inline int sli_program_bucket(const sl_program *program, const sl_firing *firing) {
  const int32_t *valid_rows = firing->lengths ? firing->lengths[program->bucket_base] : NULL;
  int v = valid_rows ? 0 : program->nvariants - 1;
  while (v + 1 < program->nvariants && program->buckets[v] < *valid_rows) v++;
  return v;
}

/* Returns the variant for this firing's piece or valid length, and sets *tick to the tick that its
 * calls see. */
static inline int sli_program_variant(const sl_program *program, const sl_firing *firing,
                                      sl_tick *tick) {
  *tick = firing->tick;
  if (program->buckets) return sli_program_bucket(program, firing);
  if (!program->pieces) return 0;
  const sl_program_piece *piece = &program->pieces[tick->piece];
  tick->row = piece->row;
  tick->rows = piece->rows;
  return piece->variant;
}

/* Returns the program->ncalls calls of the firing's variant. */
static inline const sl_program_call *sli_program_calls(const sl_program *program,
                                                       const sl_firing *firing, sl_tick *tick) {
  return program->calls + sli_program_variant(program, firing, tick) * program->ncalls;
}

/* Valid lengths of a firing, by number. */
typedef struct sli_lengths {
  int count, nread;      /* nread: lengths that an input supplies */
  int32_t *valid, *room; /* [count] valid rows, and rows the calls have room for */
} sli_lengths;

/* Loads the initial lengths of a firing: full, unless an input supplies another number. `numbers`
 * has room for two numbers per length. */
static inline sli_lengths sli_lengths_load(const sl_program *program, const sl_firing *firing,
                                           int32_t *numbers) {
  sli_lengths x = {program->nlengths, program->nread, numbers, numbers + program->nlengths};
  for (int e = 0; e < x.count; e++) x.valid[e] = x.room[e] = program->length_rows[e];
  for (int b = 0; b < program->nread && firing->lengths && x.count; b++)
    if (program->base_length[b] >= 0 && firing->lengths[b])
      x.valid[program->base_length[b]] = *firing->lengths[b];
  if (program->buckets)
    x.room[program->base_length[program->bucket_base]] =
        program->buckets[sli_program_bucket(program, firing)];
  return x;
}

/* Stores the final lengths of a firing beside the slots that it filled. */
static inline void sli_lengths_keep(const sli_lengths *x, const sl_program *program,
                                    const sl_firing *firing) {
  if (!firing->lengths || !x->count) return;
  int32_t *noted = firing->lengths[program->nbases - 1];
  for (int b = program->nread; b < program->nbases - 1; b++)
    if (program->base_length[b] >= 0 && firing->lengths[b])
      *noted = *firing->lengths[b] = x->valid[program->base_length[b]];
}

/* Number of an argument's valid length, from call->in_length or out_length; SL_NONE if it has
 * none. */
static inline int sli_length_of(const int16_t *which, int i) { return which ? which[i] : -1; }
static inline int32_t sli_argument_rows(const sli_lengths *x, const int16_t *which, int i) {
  int e = sli_length_of(which, i);
  return e >= 0 ? x->valid[e] : -1;
}

/* Returns an argument's type, cut to its valid length. */
static inline sl_type sli_valid_type(const sli_lengths *x, const int16_t *which, int i,
                                     const sl_type *type) {
  sl_type cut = *type;
  int e = sli_length_of(which, i);
  if (e < 0) return cut;
  int d = cut.dim[0] == x->room[e] ? 0 : 1;
  cut.dim[d] = SLI_MIN(cut.dim[d], (int64_t)x->valid[e]);
  return cut;
}

static inline void *sli_place_address(sl_place place, void *const *bases) {
  return place.base < 0 || !bases[place.base] ? NULL : (char *)bases[place.base] + place.offset;
}

/* Fills in[nin], out[nout] and *call, except its scratch and team. Returns false if nothing needs
 * the call's output in this firing. */
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
  *call = (sl_call){.op = c->op,
                    .attrs = &c->attrs,
                    .nin = c->nin,
                    .nout = c->nout,
                    .in_type = c->in_type,
                    .out_type = c->out_type,
                    .in = in,
                    .out = out,
                    .accumulate = accumulate,
                    .state = c->state,
                    .tick = *tick};
  return wanted;
}

#endif
