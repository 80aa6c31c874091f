/* SPDX-License-Identifier: Apache-2.0 */
/* Writes a trace: the plan and the records of a run, section by section. */
#include "actors/trace/format.h"

#include <stdlib.h>
#include <string.h>

#include "actors/run/run.h"
#include "io/atomic.h"

/* A section being written. */
typedef struct part {
  unsigned char *bytes;
  size_t used, capacity;
} part;

typedef struct image {
  part parts[SECTIONS];
} image;

/* Appends an item; returns its index. */
static uint32_t trace_write_put(image *im, enum section_id id, const void *item, size_t bytes) {
  part *p = &im->parts[id];
  size_t at = p->used;
  if (at + bytes > p->capacity) {
    p->capacity = SLI_MAX(2 * p->capacity, at + bytes);
    p->bytes = sli_realloc(p->bytes, p->capacity, 1);
  }
  memcpy(p->bytes + at, item, bytes);
  p->used += bytes;
  return (uint32_t)(at / item_bytes[id]);
}
#define PUT(im, id, item) trace_write_put(im, id, &(item), sizeof(item))

static uint32_t put_text(image *im, const char *text) {
  if (!text) text = "";
  return trace_write_put(im, STRINGS, text, strlen(text) + 1);
}

static void put_queues(image *im, const sl_plan *plan) {
  for (int32_t i = 0; i < plan->nqueues; i++) {
    const sl_queue *q = &plan->queues[i];
    struct queue_item item = {.name = put_text(im, q->name),
                              .ops = put_text(im, q->ops->name),
                              .device = q->device,
                              .threads = q->threads,
                              .run_ahead = q->run_ahead,
                              .lazy_w = q->lazy_w,
                              .watermark = q->watermark,
                              .look_ahead = q->look_ahead,
                              .norder = q->norder,
                              .apart = q->apart,
                              .first_order = (uint32_t)(im->parts[ORDERS].used / sizeof(int32_t))};
    for (int32_t k = 0; k < q->norder; k++) PUT(im, ORDERS, q->order[k]);
    struct lane_item lane = {i, q->lane ? put_text(im, q->lane) : 0};
    if (q->lane) PUT(im, LANES, lane);
    memcpy(item.class_order, q->class_order, sizeof q->class_order);
    PUT(im, QUEUES, item);
  }
}

static void put_maps(image *im, const sl_plan *plan) {
  for (int32_t i = 0; i < plan->nmaps; i++) {
    const sl_map *m = &plan->maps[i];
    struct map_item item = {.period = m->period, .stride = m->stride};
    for (uint32_t e = 0; e < m->period; e++) {
      struct entry_item entry = {m->entries[e].offset, m->entries[e].flags};
      uint32_t at = PUT(im, ENTRIES, entry);
      if (e == 0) item.first_entry = at;
    }
    PUT(im, MAPS, item);
  }
}

/* Writes registers with their final quotas, which may have changed during the run. */
static void put_registers(image *im, const sl_plan *plan, const sl_runtime *rt) {
  for (int32_t i = 0; i < plan->nregs; i++) {
    const sl_register *r = &plan->regs[i];
    struct register_item item = {.name = put_text(im, r->name),
                                 .quota_name = put_text(im, r->quota_name),
                                 .quota = sl_runtime_quota(rt, i),
                                 .quota_most = r->quota_most,
                                 .pool = r->pool,
                                 .kept = r->kept,
                                 .initial = r->initial,
                                 .held = r->held,
                                 .device = r->device,
                                 .memory = (uint16_t)r->memory,
                                 .space = (uint16_t)r->space,
                                 .shares = r->shares,
                                 .over = r->aliases,
                                 .slot_bytes = r->slot_bytes,
                                 .activation = r->activation};
    PUT(im, REGISTERS, item);
  }
}

static void put_actors(image *im, const sl_plan *plan) {
  for (int32_t i = 0; i < plan->nactors; i++) {
    const sl_actor *a = &plan->actors[i];
    struct actor_item item = {
        .name = put_text(im, a->name),
        .cls = a->cls,
        .queue = a->queue,
        .stage = a->stage,
        .chunk = a->chunk,
        .ticks = a->ticks,
        .firings_per_step = a->firings_per_step,
        .marks = a->source | a->urgent << 1 | a->own_ticks << 2,
        .rank = a->rank,
        .rank_group = a->rank_group,
        .rank_stride = a->rank_stride,
        .rank_shift = a->rank_shift,
        .nin = a->nin,
        .nout = a->nout,
        .every = a->every,
        .seconds = a->seconds,
        .first_port = (uint32_t)(im->parts[PORTS].used / sizeof(struct port_item))};
    for (int32_t p = 0; p < a->nin + a->nout; p++) {
      const sl_port *port = p < a->nin ? &a->in[p] : &a->out[p - a->nin];
      struct port_item to = {port->reg, port->map};
      PUT(im, PORTS, to);
    }
    PUT(im, ACTORS, item);
    for (int32_t t = 0; t < a->nshares; t++) {
      struct share_item share = {.actor = i, .part = a->shares[t].part, .rate = a->shares[t].rate};
      PUT(im, SHARES, share);
    }
  }
}

static void put_plan(image *im, const sl_plan *plan, const sl_runtime *rt) {
  for (int32_t i = 0; i < plan->ndevices; i++) {
    const sl_device *d = &plan->devices[i];
    struct device_item item = {.name = put_text(im, d->name),
                               .kind = put_text(im, d->kind),
                               .threads = d->threads,
                               .workspace_bytes = sl_plan_memory(plan, i, SL_MEMORY_WORKSPACE)};
    PUT(im, DEVICES, item);
  }
  put_queues(im, plan);
  for (int32_t i = 0; i < plan->npools; i++) {
    struct pool_item item = {put_text(im, plan->pools[i].name), plan->pools[i].quota};
    PUT(im, POOLS, item);
  }
  put_maps(im, plan);
  put_registers(im, plan, rt);
  put_actors(im, plan);
}

/* Adds a firing to its step; steps are ordered by their first firing. */
static void put_step(image *im, const struct firing_item *f) {
  part *p = &im->parts[STEPS];
  size_t n = p->used / sizeof(struct step_item);
  struct step_item *steps = (struct step_item *)p->bytes;
  while (n > 0 && steps[n - 1].step > f->step) n--;
  if (n == 0 || steps[n - 1].step != f->step) {
    struct step_item item = {f->step, f->start_ns, f->end_ns, 1};
    PUT(im, STEPS, item);
    steps = (struct step_item *)p->bytes;
    size_t after = p->used / sizeof item - 1 - n;
    memmove(&steps[n + 1], &steps[n], after * sizeof item);
    steps[n] = item;
    return;
  }
  steps[n - 1].start_ns = SLI_MIN(steps[n - 1].start_ns, f->start_ns);
  steps[n - 1].end_ns = SLI_MAX(steps[n - 1].end_ns, f->end_ns);
  steps[n - 1].firings++;
}

static void put_firing(image *im, const sl_plan *plan, const sl_trace_record *r, int32_t rows) {
  sl_tick tick = sl_plan_tick(plan, r->actor, r->firing);
  bool waited = r->wait == SL_WAIT_INPUT || r->wait == SL_WAIT_CREDIT;
  struct firing_item item = {.start_ns = r->start_ns,
                             .end_ns = r->end_ns,
                             .firing = r->firing,
                             .tick = tick.number,
                             .step = tick.step,
                             .actor = r->actor,
                             .microbatch = tick.microbatch,
                             .piece = tick.piece,
                             .reg = waited ? (int32_t)r->reg : SL_NONE,
                             .wait = r->wait,
                             .rows = (uint32_t)(rows + 1)};
  PUT(im, FIRINGS, item);
  put_step(im, &item);
}

static void put_cores(image *im, const sl_runtime *rt) {
  sl_runtime_counts counts = sl_runtime_count(rt);
  struct cores_item item = {counts.ran_ns, counts.coreless_ns};
  if (counts.ran_ns) PUT(im, CORES, item);
}

static void put_counter(image *im, const sl_trace_counter *t) {
  struct counter_item item = {.name = put_text(im, t->name),
                              .n = (uint32_t)t->n,
                              .first = (uint32_t)(im->parts[COUNTS].used / sizeof(double))};
  for (int64_t i = 0; i < t->n; i++) PUT(im, COUNTS, t->sum[i]);
  for (int64_t i = 0; i < t->n; i++) PUT(im, COUNTS, t->last[i]);
  PUT(im, COUNTERS, item);
}

static sl_status write_image(sli_atomic_file *file, struct head *head, const image *im) {
  struct section table[SECTIONS - 1];
  uint64_t at = sizeof *head + sizeof table;
  for (uint32_t id = 1; id < SECTIONS; id++) {
    const part *p = &im->parts[id];
    at = (at + 7) & ~UINT64_C(7);
    table[id - 1] = (struct section){id, item_bytes[id], p->used / item_bytes[id], at,
                                     sli_hash(SLI_HASH_SEED, p->bytes, p->used)};
    at += p->used;
  }
  head->checksum = trace_checksum(head, table, sizeof table);
  sl_status status = sli_atomic_write(file, head, sizeof *head);
  if (!status) status = sli_atomic_write(file, table, sizeof table);
  uint64_t done = sizeof *head + sizeof table;
  for (int id = 1; id < SECTIONS && !status; id++) {
    static const char zeros[8];
    status = sli_atomic_write(file, zeros, table[id - 1].offset - done);
    if (!status) status = sli_atomic_write(file, im->parts[id].bytes, im->parts[id].used);
    done = table[id - 1].offset + im->parts[id].used;
  }
  return status;
}

sl_status sl_trace_write(const char *path, const sl_plan *plan, const sl_runtime *rt,
                         sl_clock clock) {
  return sl_trace_write_counters(path, plan, rt, clock, 0, NULL);
}

/* Writes an image to a file and frees it. */
static sl_status write_file(const char *path, const sl_plan *plan, sl_clock clock, int64_t steps,
                            uint64_t dropped, image *im) {
  struct head head = {.version = SL_TRACE_VERSION,
                      .head_bytes = sizeof head,
                      .nsections = SECTIONS - 1,
                      .section_bytes = sizeof(struct section),
                      .plan_hash = plan->hash,
                      .clock = clock,
                      .microbatches = plan->microbatches,
                      .pieces = plan->pieces,
                      .steps = steps,
                      .dropped = dropped};
  sli_atomic_file file;
  sl_status status = sli_atomic_open(path, &file);
  memcpy(head.magic, trace_magic, sizeof trace_magic);
  if (!status) {
    status = write_image(&file, &head, im);
    if (status) sli_atomic_abandon(&file);
    else status = sli_atomic_commit(&file);
  }
  for (int id = 1; id < SECTIONS; id++) free(im->parts[id].bytes);
  return status;
}

sl_status sl_trace_write_counters(const char *path, const sl_plan *plan, const sl_runtime *rt,
                                  sl_clock clock, int ncounters, const sl_trace_counter *counters) {
  sl_trace_record *records = NULL;
  uint64_t dropped = 0;
  size_t count = sl_runtime_trace(rt, &records, &dropped);
  image im = {0};
  put_plan(&im, plan, rt);
  for (const sl_trace_record *r = records; r < records + count; r++)
    put_firing(&im, plan, r, sli_runtime_rows(rt, r->actor, r->firing));
  free(records);
  put_cores(&im, rt);
  for (int i = 0; i < ncounters; i++) put_counter(&im, &counters[i]);
  return write_file(path, plan, clock, sl_runtime_steps(rt), dropped, &im);
}

static int by_start(const void *a, const void *b) {
  const sl_trace_record *x = &((const sl_trace_firing *)a)->record,
                        *y = &((const sl_trace_firing *)b)->record;
  if (x->start_ns != y->start_ns) return x->start_ns < y->start_ns ? -1 : 1;
  if (x->end_ns != y->end_ns) return x->end_ns < y->end_ns ? -1 : 1;
  return x->actor != y->actor    ? (x->actor < y->actor ? -1 : 1)
         : x->firing < y->firing ? -1
                                 : x->firing > y->firing;
}

static bool is_firing(const sl_plan *plan, const sl_trace_record *r) {
  return r->actor >= 0 && r->actor < plan->nactors && r->reg < SLI_MAX((uint32_t)plan->nregs, 1u) &&
         r->firing >= 0 && r->end_ns >= r->start_ns;
}

sl_status sl_trace_snapshot_write(const char *path, const sl_plan *plan, const sl_runtime *rt,
                                  const sl_trace_snapshot *x) {
  for (size_t i = 0; i < x->nfirings; i++)
    if (!is_firing(plan, &x->firings[i].record))
      return sl_fail(SL_E_INPUT, "firing %zu of a snapshot names no actor", i);
  qsort(x->firings, x->nfirings, sizeof *x->firings, by_start);
  image im = {0};
  put_plan(&im, plan, rt);
  for (size_t i = 0; i < x->nfirings; i++)
    put_firing(&im, plan, &x->firings[i].record, x->firings[i].rows);
  return write_file(path, plan, SL_CLOCK_REAL, sl_runtime_begun(rt), x->dropped, &im);
}
