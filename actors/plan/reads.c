/* SPDX-License-Identifier: Apache-2.0 */
/* Checks that everything a program's calls read has been written, in each of its firings.
 *
 * A call reads slots and the workspace. A slot is valid unless its port skips the firing; an input
 * that the op does not need may be skipped. The workspace is valid where earlier calls have
 * written. A slot's register has a valid length, identified by number. An argument in the slot must
 * use that number, and the length is known only after an input brings it or a call sets it. The
 * check finds reads of another piece's rows, or with another piece's length, whatever code made the
 * plan. */
#include <stdlib.h>
#include <string.h>

#include <sluice/ops.h>

#include "actors/plan/plan.h"
#include "kernels/bind.h"
#include "ops/ops.h"

/* Range of workspace bytes that have been written in a firing. */
typedef struct stretch {
  size_t begin, end;
} stretch;

typedef struct reading {
  const sl_plan *plan;
  const sl_actor *actor;
  const sl_program *program;
  bool *there; /* [bases] the base has a slot in the firing */
  bool *known; /* [lengths] the valid length is known */
  int nwritten;
  stretch *written;  /* [calls' outputs] sorted, with gaps between them */
  uint64_t *checked; /* [variants] hash of the inputs it was last checked with; 0: not yet */
} reading;

static int32_t ports_of(const reading *r) { return r->actor->nin + r->actor->nout; }

static sl_tick tick_of(const reading *r, int64_t firing) {
  uint32_t flags;
  return sli_tick(r->plan, sl_map_key(&r->plan->maps[r->actor->ticks], firing, &flags));
}

static const sl_register *register_of(const reading *r, int32_t port) {
  const sl_actor *a = r->actor;
  return &r->plan->regs[(port < a->nin ? a->in : a->out - a->nin)[port].reg];
}

static bool takes_part(const reading *r, int32_t port, int64_t firing) {
  const sl_actor *a = r->actor;
  uint32_t flags;
  sl_map_key(&r->plan->maps[(port < a->nin ? a->in : a->out - a->nin)[port].map], firing, &flags);
  return !(flags & SL_SKIP);
}

/* ---- arguments in slots --------------------------------------------------------------------- */

/* Checks that an argument uses the valid length of its slot. */
static sl_status check_number(const reading *r, const sl_program_call *c, bool output, int i) {
  sl_place place = (output ? c->out : c->in)[i];
  int e = sli_length_of(output ? c->out_length : c->in_length, i);
  if (place.base < 0 || place.base >= ports_of(r) || !r->program->nlengths) return SL_OK;
  if (r->program->base_length[place.base] == e) return SL_OK;
  return sl_fail(
      SL_E_INPUT,
      "actor %s, op %s: %s %d is in register %s, but its row count is that of another register",
      r->actor->name, c->name ? c->name : c->op->name, output ? "output" : "input", i,
      register_of(r, place.base)->name);
}

static sl_status check_numbers(const reading *r) {
  sl_status status = SL_OK;
  for (int k = 0; k < sli_program_call_count(r->program) && !status; k++) {
    const sl_program_call *c = &r->program->calls[k];
    for (int i = 0; i < c->nin && !status; i++) status = check_number(r, c, false, i);
    for (int o = 0; o < c->nout && !status; o++) status = check_number(r, c, true, o);
  }
  return status;
}

/* ---- a firing ------------------------------------------------------------------------------- */

/* Adds a range, merged with the ranges it touches. */
static void write_stretch(reading *r, size_t begin, size_t end) {
  int first = 0, last;
  while (first < r->nwritten && r->written[first].end < begin) first++;
  for (last = first; last < r->nwritten && r->written[last].begin <= end; last++) {
    begin = SLI_MIN(begin, r->written[last].begin);
    end = SLI_MAX(end, r->written[last].end);
  }
  memmove(&r->written[first + 1], &r->written[last],
          (size_t)(r->nwritten - last) * sizeof *r->written);
  r->nwritten += 1 - (last - first);
  r->written[first] = (stretch){begin, end};
}

static bool is_written(const reading *r, size_t begin, size_t end) {
  int i = 0;
  while (i < r->nwritten && r->written[i].end < end) i++;
  return begin == end || (i < r->nwritten && r->written[i].begin <= begin);
}

static sl_status no_value(const reading *r, const sl_program_call *c, int i, int64_t firing,
                          const char *why) {
  sl_tick tick = tick_of(r, firing);
  return sl_fail(
      SL_E_INPUT, "actor %s, op %s: input %d does not exist in microbatch %d, piece %d: %s",
      r->actor->name, c->name ? c->name : c->op->name, i, tick.microbatch, tick.piece, why);
}

static sl_status check_read(const reading *r, const sl_program_call *c, int i, int64_t firing) {
  sl_place place = c->in[i];
  int e = sli_length_of(c->in_length, i);
  if (place.base < 0) return SL_OK;
  if (place.base < ports_of(r) && !r->there[place.base])
    return i < c->op->min_in ? no_value(r, c, i, firing, "its port skips this firing") : SL_OK;
  if (place.base == ports_of(r) &&
      !is_written(r, place.offset, place.offset + sl_type_bytes(&c->in_type[i])))
    return no_value(r, c, i, firing, "no call has computed it");
  if (e >= 0 && !r->known[e])
    return no_value(r, c, i, firing, "the number of its valid rows is not known");
  return SL_OK;
}

/* Marks a call's outputs as written for later calls. */
static void write_outputs(reading *r, const sl_program_call *c) {
  for (int o = 0; o < c->nout; o++) {
    sl_place place = c->out[o];
    int e = sli_length_of(c->out_length, o);
    if (e >= 0 && sli_bit_on(sli_op_rows(c->op)->fills, o)) r->known[e] = true;
    if (place.base == ports_of(r))
      write_stretch(r, place.offset, place.offset + sl_type_bytes(&c->out_type[o]));
  }
}

/* True if the firing runs the call: some output is wanted, and the source of a copy is not skipped.
 * An actor that copies between several pairs of ports runs one copy per firing. */
static bool is_run(const reading *r, const sl_program_call *c) {
  bool wanted = !c->nout;
  for (int o = 0; o < c->nout; o++) {
    int32_t base = c->out[o].base;
    wanted |= base >= 0 && (base >= ports_of(r) || r->there[base]);
  }
  bool copies = sli_op_is(c->op, SL_OP_COPY) && c->in[0].base >= 0 && c->in[0].base < ports_of(r);
  return wanted && (!copies || r->there[c->in[0].base]);
}

/* Checks that every output slot's valid length has been set. */
static sl_status check_filled(const reading *r, int64_t firing) {
  for (int32_t p = r->program->nread; p < ports_of(r) && r->program->nlengths; p++) {
    int e = r->program->base_length[p];
    if (e < 0 || r->known[e] || !takes_part(r, p, firing)) continue;
    return sl_fail(SL_E_INPUT, "actor %s, register %s: no call sets the number of its valid rows",
                   r->actor->name, register_of(r, p)->name);
  }
  return SL_OK;
}

static sl_status check_variant(reading *r, int variant, int64_t firing) {
  const sl_program_call *calls = &r->program->calls[variant * r->program->ncalls];
  sl_status status = SL_OK;
  r->nwritten = 0;
  for (int k = 0; k < r->program->ncalls && !status; k++) {
    const sl_program_call *c = &calls[k];
    if (!is_run(r, c)) continue;
    for (int i = 0; i < c->nin && !status; i++) status = check_read(r, c, i, firing);
    write_outputs(r, c);
  }
  return status ? status : check_filled(r, firing);
}

/* Resets the state to a firing's start. Returns a hash of it. */
static uint64_t begin_firing(reading *r, int64_t firing) {
  const sl_actor *a = r->actor;
  uint64_t hash = 1;
  memset(r->there, 0, (size_t)ports_of(r) * sizeof *r->there);
  memset(r->known, 0, (size_t)r->program->nlengths * sizeof *r->known);
  for (int32_t p = 0; p < ports_of(r); p++) {
    bool there = takes_part(r, p, firing);
    hash = sli_hash_word(hash, there);
    if (!there) continue;
    r->there[a->bases ? a->bases[p] : p] = true;
    int e = r->program->nlengths ? r->program->base_length[p] : SL_NONE;
    if (e >= 0 && p < r->program->nread) r->known[e] = true;
  }
  return hash | 1;
}

/* Variant that a firing runs, if the piece selects it. */
static int variant_of(const reading *r, int64_t firing) {
  return r->program->pieces ? r->program->pieces[tick_of(r, firing).piece].variant : 0;
}

/* Checks each variant of a firing, unless it was last checked with the same inputs. If the valid
 * length selects the variant, checks all. */
static sl_status check_firing(reading *r, int64_t firing) {
  int variant = variant_of(r, firing),
      end = r->program->buckets ? r->program->nvariants : variant + 1;
  sl_status status = SL_OK;
  for (; variant < end && !status; variant++) {
    uint64_t hash = begin_firing(r, firing);
    if (r->checked[variant] == hash) continue;
    r->checked[variant] = hash;
    status = check_variant(r, variant, firing);
  }
  return status;
}

static bool sits_out(const sl_plan *plan, const sl_actor *a) {
  bool any = false;
  for (int32_t p = 0; p < a->nin; p++) {
    const sl_map *map = &plan->maps[a->in[p].map];
    for (uint32_t i = 0; i < map->period && !any; i++) any = map->entries[i].flags & SL_SKIP;
  }
  return any;
}

/* Largest number of ranges that calls write. */
static size_t most_written(const sl_program *program) {
  size_t most = 1;
  for (int k = 0; k < sli_program_call_count(program); k++) most += (size_t)program->calls[k].nout;
  return most;
}

sl_status sli_plan_check_reads(const sl_plan *plan, const sl_actor *a) {
  const sl_program *program = a->program;
  if (!program || !program->ncalls || (!program->nlengths && !sits_out(plan, a))) return SL_OK;
  size_t variants = (size_t)SLI_MAX(program->nvariants, 1);
  reading r = {plan,
               a,
               program,
               .there = sli_calloc((size_t)(a->nin + a->nout) + 1, sizeof *r.there),
               .known = sli_calloc((size_t)program->nlengths + 1, sizeof *r.known),
               .written = sli_calloc(most_written(program), sizeof *r.written),
               .checked = sli_calloc(variants, sizeof *r.checked)};
  sl_status status = check_numbers(&r);
  for (int64_t n = 0; n < a->firings_per_step && !status; n++) status = check_firing(&r, n);
  free(r.there);
  free(r.known);
  free(r.written);
  free(r.checked);
  return status;
}
