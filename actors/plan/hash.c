/* SPDX-License-Identifier: Apache-2.0 */
/* Hash of a plan's fields. Two plans with equal hashes run the same actors on the same slots, with
 * the same settings, and give the same results.
 *
 * Each field is hashed as a word, or as text with its length, in a fixed order, and each table with
 * its number of rows. A step of the hash is a bijection of the state for a given word, and of the
 * word for a given state. Plans that differ in one word therefore have different hashes; plans that
 * differ in more collide with probability 2^-64.
 *
 * The hash leaves out settings private to a process (threads, budgets, choice of GPU) and fields
 * that sl_plan_finish derives. Ops hash the records that attrs.user points to. */
#include "actors/plan/plan.h"

#include <string.h>

#include "ops/ops.h"

static void word(uint64_t *h, uint64_t value) { *h = sli_hash_word(*h, value); }
static void number(uint64_t *h, int64_t value) { word(h, (uint64_t)value); }
static void real(uint64_t *h, double value) { *h = sli_hash_real(*h, value); }

static void text(uint64_t *h, const char *value) {
  size_t length = value ? strlen(value) : 0;
  word(h, length);
  *h = sli_hash(*h, value, length);
}

/* ---- programs ------------------------------------------------------------------------ */

/* Tags of settings that are hashed only if set, so that a plan without them keeps its hash. */
enum {
  URGENT = 80,
  ROWS = 90,
  LENGTHS,
  IN_LENGTH,
  OUT_LENGTH,
  BUCKETS,
  SECONDS,
  PEER,
  BASES = 100,
  EXPERT,
  LANE = 120,
  GROUP = 121,
  SHARES
};

static void setting(uint64_t *h, int which, uint64_t value) {
  if (!value) return;
  number(h, which);
  word(h, value);
}

/* Hashes the numbers of valid lengths, if there are any. */
static void hash_lengths(uint64_t *h, int which, int count, const int16_t *lengths) {
  for (int i = 0; lengths && i < count; i++)
    setting(h, which, (uint64_t)(lengths[i] + 1) << 32 | (uint64_t)(lengths[i] + 1 ? i : 0));
}

static void hash_arguments(uint64_t *h, int count, const sl_type *types, const sl_place *places) {
  number(h, count);
  for (int i = 0; i < count; i++) {
    *h = sli_hash_type(*h, &types[i]);
    number(h, places[i].base);
    word(h, places[i].offset);
  }
}

static void hash_call(uint64_t *h, const sl_program_call *call) {
  text(h, call->op->name);
  text(h, call->name);
  *h = sli_hash_attrs(*h, call->op, &call->attrs, call->nin);
  hash_arguments(h, call->nin, call->in_type, call->in);
  hash_arguments(h, call->nout, call->out_type, call->out);
  word(h, call->accumulate);
  word(h, call->accumulate_span);
  hash_lengths(h, IN_LENGTH, call->nin, call->in_length);
  hash_lengths(h, OUT_LENGTH, call->nout, call->out_length);
}

static void hash_program(uint64_t *h, const sl_program *program, int pieces) {
  word(h, program != NULL);
  if (!program) return;
  int variants = SLI_MAX(program->nvariants, 1);
  number(h, program->nbases);
  number(h, variants);
  number(h, program->ncalls);
  for (int c = 0; c < variants * program->ncalls; c++) hash_call(h, &program->calls[c]);
  word(h, program->pieces != NULL);
  for (int k = 0; program->pieces && k < pieces; k++) {
    number(h, program->pieces[k].row);
    number(h, program->pieces[k].rows);
    number(h, program->pieces[k].variant);
  }
  for (int e = 0; e < program->nlengths; e++) setting(h, ROWS, (uint64_t)program->length_rows[e]);
  hash_lengths(h, LENGTHS, program->nlengths ? program->nbases : 0, program->base_length);
  for (int v = 0; program->buckets && v < variants; v++)
    setting(h, BUCKETS, (uint64_t)program->buckets[v]);
}

/* ---- the tables ---------------------------------------------------------------------- */

static void hash_device(uint64_t *h, const sl_device *d) {
  text(h, d->name);
  text(h, d->kind);
  number(h, d->process);
  for (int a = 0; a < SL_AT_EXPERT; a++) number(h, d->at[a]);
  setting(h, EXPERT, (uint64_t)d->at[SL_AT_EXPERT]);
  for (int s = 0; s <= SL_SPACE_HOST; s++) word(h, d->room[s].workspace_bytes);
  setting(h, SL_SPACE_DISK, d->room[SL_SPACE_DISK].workspace_bytes);
}

static void hash_queue(uint64_t *h, const sl_queue *q) {
  text(h, q->name);
  number(h, q->device);
  text(h, q->ops->name);
  number(h, q->space);
  number(h, q->run_ahead);
  for (int c = 0; c < SL_CLASS_COUNT; c++) word(h, q->class_order[c]);
  word(h, q->lazy_w);
  number(h, q->watermark);
  real(h, q->look_ahead);
  word(h, q->apart);
  if (q->lane) setting(h, LANE, 1), text(h, q->lane);
  setting(h, GROUP, (uint64_t)q->group);
  number(h, q->order ? q->norder : SL_NONE);
  for (int32_t i = 0; q->order && i < q->norder; i++) number(h, q->order[i]);
}

static void hash_map(uint64_t *h, const sl_map *m) {
  number(h, m->period);
  number(h, m->stride);
  for (uint32_t i = 0; i < m->period; i++) {
    number(h, m->entries[i].offset);
    word(h, m->entries[i].flags);
  }
}

static void hash_register(uint64_t *h, const sl_register *r) {
  text(h, r->name);
  text(h, r->quota_name);
  number(h, r->quota);
  number(h, sli_quota_most(r));
  number(h, r->pool);
  number(h, r->kept);
  number(h, r->initial);
  word(h, r->held);
  number(h, r->device);
  number(h, r->space);
  number(h, r->memory);
  word(h, r->slot_bytes);
  word(h, r->payload_bytes);
  number(h, r->shares);
  number(h, r->aliases);
  real(h, r->activation);
  word(h, r->aside);
  setting(h, ROWS, (uint64_t)r->rows);
  setting(h, LENGTHS, (uint64_t)r->nlengths);
  setting(h, PEER, r->peer);
  for (int32_t i = 0; i < r->nlengths; i++) number(h, r->lengths[i]);
}

static void hash_ports(uint64_t *h, int32_t count, const sl_port *ports) {
  number(h, count);
  for (int32_t i = 0; i < count; i++) {
    number(h, ports[i].reg);
    number(h, ports[i].map);
  }
}

static void hash_durations(uint64_t *h, const sl_rows_seconds *d) {
  for (int32_t i = 0; i < d->count; i++) real(h, d->rows[i]), real(h, d->seconds[i]);
}

static void hash_actor(uint64_t *h, const sl_actor *a, int pieces) {
  text(h, a->name);
  number(h, a->cls);
  number(h, a->queue);
  number(h, a->stage);
  number(h, a->chunk);
  number(h, a->ticks);
  if (a->own_ticks) number(h, a->own_ticks);
  number(h, a->firings_per_step);
  number(h, sli_every(a));
  word(h, a->source);
  number(h, a->rank);
  number(h, a->rank_group);
  number(h, a->rank_stride);
  number(h, a->rank_shift);
  setting(h, URGENT, a->urgent);
  hash_ports(h, a->nin, a->in);
  hash_ports(h, a->nout, a->out);
  for (int32_t p = 0; a->bases && p < a->nin + a->nout; p++)
    setting(h, BASES, (uint64_t)(p - a->bases[p]));
  real(h, a->seconds);
  setting(h, SECONDS, (uint64_t)a->nseconds);
  for (int32_t i = 0; i < a->nseconds; i++) real(h, a->seconds_table[i]);
  setting(h, SHARES, (uint64_t)a->nshares);
  for (int32_t i = 0; i < a->nshares; i++) real(h, a->shares[i].part), real(h, a->shares[i].rate);
  hash_durations(h, &a->by_rows);
  hash_durations(h, &a->by_picks);
  hash_program(h, a->program, pieces);
}

uint64_t sli_plan_hash(const sl_plan *plan) {
  const int32_t counts[] = {plan->microbatches, plan->pieces, plan->ndevices, plan->nqueues,
                            plan->npools,       plan->nmaps,  plan->nregs,    plan->nactors};
  uint64_t h = SLI_HASH_SEED;
  for (size_t i = 0; i < SLI_COUNT(counts); i++) number(&h, counts[i]);
  for (int32_t i = 0; i < plan->ndevices; i++) hash_device(&h, &plan->devices[i]);
  for (int32_t i = 0; i < plan->nqueues; i++) hash_queue(&h, &plan->queues[i]);
  for (int32_t i = 0; i < plan->npools; i++) {
    text(&h, plan->pools[i].name);
    number(&h, plan->pools[i].quota);
  }
  for (int32_t i = 0; i < plan->nmaps; i++) hash_map(&h, &plan->maps[i]);
  for (int32_t i = 0; i < plan->nregs; i++) hash_register(&h, &plan->regs[i]);
  for (int32_t i = 0; i < plan->nactors; i++) hash_actor(&h, &plan->actors[i], plan->pieces);
  return h;
}
