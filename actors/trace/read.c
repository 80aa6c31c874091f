/* SPDX-License-Identifier: Apache-2.0 */
/* Reads a trace file. */
#include "actors/trace/format.h"

#include <stdio.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "actors/plan/plan.h"
#include "io/file.h"

struct sli_trace_memory {
  sli_arena arena;
  sl_plan *plan;
};

/* A file being read. */
typedef struct reading {
  const char *path;
  const unsigned char *bytes;
  size_t count;
  struct section sections[SECTIONS]; /* id 0: absent */
  sl_trace *trace;
  sl_plan *plan;
  sli_arena *arena;
  uint64_t orders, entries, ports; /* items claimed so far by queues, maps and actors */
} reading;

/* Limits larger than anything that is written. */
enum {
  NAME_MOST = 4096,
  MAPS_MOST = 1 << 16,
  SLOTS_MOST = 1 << 24,
  AHEAD_MOST = 1 << 16,
  THREADS_MOST = 1 << 16,
  DEVICES_MOST = 1 << 14
};
static const int64_t STEPS_MOST = INT64_C(1) << 40;

static sl_status read_head(reading *r, struct head *head) {
  if (r->count < sizeof trace_magic || memcmp(r->bytes, trace_magic, sizeof trace_magic))
    return sl_fail(SL_E_INPUT, "%s is not a Sluice trace", r->path);
  if (r->count < sizeof *head)
    return sl_fail(SL_E_INPUT, "%s is truncated in its header (%zu bytes)", r->path, r->count);
  memcpy(head, r->bytes, sizeof *head);
  if (head->version < TRACE_OLDEST || head->version > SL_TRACE_VERSION)
    return sl_fail(SL_E_INPUT, "%s has version %u; this program reads versions %d to %d", r->path,
                   head->version, TRACE_OLDEST, SL_TRACE_VERSION);
  if (head->head_bytes < sizeof *head || head->section_bytes < sizeof(struct section) ||
      head->nsections > 1000 || head->section_bytes > 4096 || head->clock > SL_CLOCK_VIRTUAL ||
      head->microbatches < 1 || head->pieces < 1 || head->steps < 0 || head->steps > STEPS_MOST ||
      (int64_t)head->microbatches * head->pieces > SLI_TICKS_MOST)
    return sl_fail(SL_E_INPUT, "%s is damaged in its header", r->path);
  return SL_OK;
}

/* Records a section if it is known, and checks its bytes. Firings and later sections may be cut
 * short or damaged; all others must be complete. */
static sl_status read_section(reading *r, struct section s) {
  if (s.id < 1 || s.id >= SECTIONS) return SL_OK;
  const char *name = section_names[s.id];
  if (r->sections[s.id].id || s.item_bytes < item_bytes[s.id] || s.count > INT32_MAX)
    return sl_fail(SL_E_INPUT, "%s is damaged: its section of %s is invalid", r->path, name);
  bool beyond = s.offset > r->count;
  if (section_optional(s.id) && (beyond || s.count > (r->count - s.offset) / s.item_bytes)) {
    r->trace->truncated = true;
    return SL_OK;
  }
  if (beyond && s.id == FIRINGS) s.offset = r->count;
  uint64_t room = beyond ? 0 : (r->count - s.offset) / s.item_bytes;
  if ((beyond || s.count > room) && s.id != FIRINGS)
    return sl_fail(SL_E_INPUT, "%s is truncated in its %s", r->path, name);
  if (s.count > room) {
    s.count = room;
    r->trace->truncated = true;
  } else if (sli_hash(SLI_HASH_SEED, r->bytes + s.offset, s.count * s.item_bytes) != s.hash) {
    if (section_optional(s.id)) s.count = 0;
    else if (s.id != FIRINGS) return sl_fail(SL_E_INPUT, "%s is damaged in its %s", r->path, name);
    r->trace->damaged = true;
  }
  r->sections[s.id] = s;
  return SL_OK;
}

static sl_status read_sections(reading *r, const struct head *head) {
  uint64_t table = head->head_bytes, bytes = (uint64_t)head->nsections * head->section_bytes;
  if (table > r->count || bytes > r->count - table)
    return sl_fail(SL_E_INPUT, "%s is truncated in its table of sections", r->path);
  if (head->version > TRACE_OLDEST &&
      head->checksum != trace_checksum(head, r->bytes + table, bytes))
    return sl_fail(SL_E_INPUT, "%s is damaged in its header", r->path);
  for (uint32_t i = 0; i < head->nsections; i++) {
    struct section s;
    memcpy(&s, r->bytes + table + (uint64_t)i * head->section_bytes, sizeof s);
    sl_status status = read_section(r, s);
    if (status) return status;
  }
  for (int id = 1; id < SECTIONS; id++)
    if (!r->sections[id].id && !section_optional((uint32_t)id))
      return sl_fail(SL_E_INPUT, "%s is damaged: it has no section of %s", r->path,
                     section_names[id]);
  const struct section *s = &r->sections[STRINGS];
  if (s->item_bytes != 1 || (s->count && r->bytes[s->offset + s->count - 1]))
    return sl_fail(SL_E_INPUT, "%s is damaged in its strings", r->path);
  return SL_OK;
}

static int32_t count_of(const reading *r, enum section_id id) {
  return (int32_t)r->sections[id].count;
}

static void get_item(const reading *r, enum section_id id, uint64_t index, void *item) {
  const struct section *s = &r->sections[id];
  memcpy(item, r->bytes + s->offset + index * s->item_bytes, item_bytes[id]);
}

/* Returns the text at an offset as one line that is safe to print. Returns NULL if the offset is
 * out of range or the text too long. */
static const char *get_text(const reading *r, uint32_t offset) {
  const struct section *s = &r->sections[STRINGS];
  const char *text = (const char *)r->bytes + s->offset + offset;
  if (offset >= s->count || strnlen(text, NAME_MOST) == NAME_MOST) return NULL;
  char plain[4 * NAME_MOST];
  sli_escape(plain, sizeof plain, text);
  for (char *c = plain; *c; c++)
    if (*c == '\n' || *c == '\t') *c = ' ';
  return strcmp(plain, text) ? sli_arena_strdup(r->arena, plain) : text;
}

/* Claims `count` items from `first` on; each item of a section belongs to one owner. */
static bool claim(const reading *r, enum section_id id, uint64_t first, uint64_t count,
                  uint64_t *claimed) {
  uint64_t all = r->sections[id].count;
  *claimed += count;
  return first <= all && count <= all - first && *claimed <= all;
}

static bool in_table(int32_t index, int32_t count) { return index >= 0 && index < count; }
static bool none_or_in_table(int32_t index, int32_t count) {
  return index == SL_NONE || in_table(index, count);
}

static sl_status impossible(const reading *r, enum section_id id, uint64_t index) {
  return sl_fail(SL_E_INPUT, "%s is damaged: item %llu of its %s is invalid", r->path,
                 (unsigned long long)index, section_names[id]);
}

/* Reads a fixed order; returns NULL if it is impossible. The actors are read later, but their
 * number is known. */
static const int32_t *read_order(reading *r, const struct queue_item *q) {
  if (q->norder < 0 || !claim(r, ORDERS, q->first_order, (uint64_t)q->norder, &r->orders))
    return NULL;
  int32_t *order = sl_plan_alloc(r->plan, ((size_t)q->norder + 1) * sizeof *order);
  for (int32_t i = 0; i < q->norder; i++) {
    get_item(r, ORDERS, (uint64_t)q->first_order + (uint64_t)i, &order[i]);
    if (!in_table(order[i], count_of(r, ACTORS))) return NULL;
  }
  return order;
}

/* Finds the queue ops of a name. A kind unknown to this program becomes timed, because the plan
 * runs only on the virtual clock. */
static const sl_queue_ops *find_ops(const char *name) {
  static const sl_queue_ops *const kinds[] = {&sl_queue_cpu, &sl_queue_null, &sl_queue_timed,
                                              &sl_queue_delay};
  for (size_t i = 0; i < SLI_COUNT(kinds); i++)
    if (!strcmp(kinds[i]->name, name)) return kinds[i];
  return &sl_queue_timed;
}

static sl_status read_queues(reading *r) {
  for (int32_t i = 0; i < count_of(r, DEVICES); i++) {
    struct device_item d;
    get_item(r, DEVICES, (uint64_t)i, &d);
    sl_device device = {.name = get_text(r, d.name),
                        .kind = get_text(r, d.kind),
                        .threads = d.threads,
                        .room[SL_SPACE_DEVICE].workspace_bytes = d.workspace_bytes};
    if (!device.name || !device.kind || d.threads < 0 || d.threads > THREADS_MOST ||
        i >= DEVICES_MOST || d.workspace_bytes > SIZE_MAX / 4)
      return impossible(r, DEVICES, (uint64_t)i);
    sl_plan_add_device(r->plan, device);
  }
  for (int32_t i = 0; i < count_of(r, QUEUES); i++) {
    struct queue_item q;
    get_item(r, QUEUES, (uint64_t)i, &q);
    sl_queue queue = {.name = get_text(r, q.name),
                      .device = q.device,
                      .threads = q.threads,
                      .run_ahead = q.run_ahead,
                      .lazy_w = q.lazy_w,
                      .watermark = q.watermark,
                      .look_ahead = q.look_ahead,
                      .apart = q.apart};
    const char *ops = get_text(r, q.ops);
    if (!queue.name || !ops || !in_table(q.device, r->plan->ndevices) || q.run_ahead < 1 ||
        q.run_ahead > AHEAD_MOST || q.norder < 0 || !(q.look_ahead >= 0 && q.look_ahead < 1e9))
      return impossible(r, QUEUES, (uint64_t)i);
    const int32_t *order = read_order(r, &q);
    if (!order) return impossible(r, QUEUES, (uint64_t)i);
    queue.norder = q.norder;
    queue.order = q.norder ? order : NULL;
    queue.ops = find_ops(ops);
    memcpy(queue.class_order, q.class_order, sizeof queue.class_order);
    sl_plan_add_queue(r->plan, queue);
  }
  return SL_OK;
}

/* Reads maps, numbered in file order: equal maps share a number, and the file has each once. */
static sl_status read_maps(reading *r) {
  for (int32_t i = 0; i < count_of(r, MAPS); i++) {
    struct map_item m;
    get_item(r, MAPS, (uint64_t)i, &m);
    if (!m.period || !claim(r, ENTRIES, m.first_entry, m.period, &r->entries) || m.stride < 0 ||
        m.stride > INT32_MAX || i >= MAPS_MOST)
      return impossible(r, MAPS, (uint64_t)i);
    sl_map_entry *entries = sli_calloc(m.period, sizeof *entries);
    for (uint32_t e = 0; e < m.period; e++) {
      struct entry_item from;
      get_item(r, ENTRIES, (uint64_t)m.first_entry + e, &from);
      entries[e] = (sl_map_entry){from.offset, from.flags};
    }
    int32_t map = sl_plan_add_map(r->plan, m.period, m.stride, entries);
    free(entries);
    if (map != i) return impossible(r, MAPS, (uint64_t)i);
  }
  return SL_OK;
}

static sl_status read_registers(reading *r) {
  int64_t slots = 0;
  double bytes = 0;
  for (int32_t i = 0; i < count_of(r, POOLS); i++) {
    struct pool_item p;
    get_item(r, POOLS, (uint64_t)i, &p);
    sl_pool pool = {get_text(r, p.name), p.quota};
    if (!pool.name || p.quota < 0 || p.quota > SLOTS_MOST) return impossible(r, POOLS, (uint64_t)i);
    sl_plan_add_pool(r->plan, pool);
  }
  for (int32_t i = 0; i < count_of(r, REGISTERS); i++) {
    struct register_item g;
    get_item(r, REGISTERS, (uint64_t)i, &g);
    sl_register reg = {.name = get_text(r, g.name),
                       .quota_name = get_text(r, g.quota_name),
                       .quota = g.quota,
                       .quota_most = g.quota_most,
                       .pool = g.pool,
                       .kept = g.kept,
                       .initial = g.initial,
                       .held = g.held,
                       .device = g.device,
                       .memory = (sl_memory)g.memory,
                       .space = (sl_space)g.space,
                       .shares = g.shares,
                       .aliases = g.over,
                       .slot_bytes = g.slot_bytes,
                       .activation = g.activation};
    slots += SLI_MAX(g.quota, g.quota_most);
    bytes += (double)g.slot_bytes * SLI_MAX(g.quota, g.quota_most);
    if (!reg.name || !reg.quota_name || g.quota < 1 || g.quota > SLOTS_MOST || g.initial < 0 ||
        g.quota_most < 0 || g.quota_most > SLOTS_MOST || slots > SLOTS_MOST ||
        g.initial > g.quota || g.kept < 0 || g.kept > SLOTS_MOST ||
        !in_table(g.device, r->plan->ndevices) || g.memory >= SL_MEMORY_COUNT ||
        g.space >= SL_SPACE_COUNT || g.shares < 0 || g.shares > i || g.over < 0 || g.over > i ||
        bytes > 0x1p62 || !none_or_in_table(g.pool, r->plan->npools) || !(g.activation >= 0))
      return impossible(r, REGISTERS, (uint64_t)i);
    sl_plan_add_register(r->plan, reg);
  }
  return SL_OK;
}

static sl_status read_actor(reading *r, uint64_t index, sl_port *ports) {
  struct actor_item a;
  get_item(r, ACTORS, index, &a);
  sl_actor actor = {.name = get_text(r, a.name),
                    .cls = (sl_class)a.cls,
                    .queue = a.queue,
                    .stage = a.stage,
                    .chunk = a.chunk,
                    .ticks = a.ticks,
                    .firings_per_step = a.firings_per_step,
                    .source = a.marks & 1,
                    .urgent = a.marks & 2,
                    .own_ticks = a.marks >> 2,
                    .rank = a.rank,
                    .rank_group = a.rank_group,
                    .rank_stride = a.rank_stride,
                    .rank_shift = a.rank_shift,
                    .nin = a.nin,
                    .nout = a.nout,
                    .every = a.every,
                    .seconds = a.seconds};
  if (!actor.name || a.marks < 0 || a.every < 0 || a.every > SLI_EVERY_MOST ||
      sl_class_letter((sl_class)a.cls) == '?' || !in_table(a.queue, r->plan->nqueues) ||
      (uint32_t)a.rank_shift > INT32_MAX / 2 || a.stage < SL_NONE || a.chunk < SL_NONE ||
      a.nin < 0 || a.nout < 0 || a.rank_group < 0 ||
      !claim(r, PORTS, a.first_port, (uint64_t)a.nin + (uint64_t)a.nout, &r->ports) ||
      !(a.seconds >= 0 && a.seconds < 1e9))
    return impossible(r, ACTORS, index);
  actor.in = ports + a.first_port;
  actor.out = actor.in + a.nin;
  sl_plan_add_actor(r->plan, actor);
  return SL_OK;
}

static sl_status read_actors(reading *r) {
  sl_port *ports = sli_calloc((size_t)count_of(r, PORTS) + 1, sizeof *ports);
  for (int32_t i = 0; i < count_of(r, PORTS); i++) {
    struct port_item p;
    get_item(r, PORTS, (uint64_t)i, &p);
    ports[i] = (sl_port){p.reg, p.map};
  }
  sl_status status = SL_OK;
  for (int32_t i = 0; i < count_of(r, ACTORS) && !status; i++)
    status = read_actor(r, (uint64_t)i, ports);
  free(ports);
  return status;
}

/* Reads which queues are lanes. Lanes that are lost leave queues that do not share. */
static void read_lanes(reading *r) {
  sl_plan *plan = r->plan;
  for (int i = 0; i < count_of(r, LANES); i++) {
    struct lane_item item;
    get_item(r, LANES, (uint64_t)i, &item);
    const char *name = get_text(r, item.name);
    if (name && in_table(item.queue, plan->nqueues) && plan->queues[item.queue].run_ahead <= 1)
      plan->queues[item.queue].lane = sli_arena_strdup(r->arena, name);
    else r->trace->damaged = true;
  }
}

static bool is_share(const struct share_item *s) {
  return s->part >= 1e-6 && s->part <= 1e3 && s->rate >= 1e-6 && s->rate <= 1e3;
}

/* Reads the shares of actors. */
static void read_shares(reading *r) {
  sl_plan *plan = r->plan;
  sl_share *shares = sl_plan_alloc(plan, ((size_t)count_of(r, SHARES) + 1) * sizeof *shares);
  for (int i = 0; i < count_of(r, SHARES); i++) {
    struct share_item item;
    get_item(r, SHARES, (uint64_t)i, &item);
    bool good = in_table(item.actor, plan->nactors) && is_share(&item);
    sl_actor *a = good ? &plan->actors[item.actor] : NULL;
    if (!a || !plan->queues[a->queue].lane ||
        (a->nshares && a->shares + a->nshares != shares + i)) {
      r->trace->damaged = true;
      continue;
    }
    shares[i] = (sl_share){item.part, item.rate};
    if (!a->nshares++) a->shares = &shares[i];
  }
}

static sl_status read_plan(reading *r) {
  sl_status status = read_queues(r);
  if (!status) status = read_maps(r);
  if (!status) status = read_registers(r);
  if (!status) status = read_actors(r);
  if (status) return status;
  read_lanes(r);
  read_shares(r);
  if (!sl_plan_finish(r->plan)) return SL_OK;
  return sl_fail(SL_E_INPUT, "%s is damaged: its plan is invalid: %s", r->path, sl_detail());
}

/* Checks that the plan is small enough to be run again, and that there are few enough firings to
 * follow through their ports. */
static sl_status check_size(const reading *r) {
  enum { TICKS_MOST = 1 << 24, TOUCHES_MOST = 1 << 28 };
  const sl_plan *plan = r->plan;
  int64_t ticks = 0, ports = 0;
  for (int32_t i = 0; i < plan->nactors; i++) {
    ticks += sli_ticks_period(plan, &plan->actors[i]);
    ports = SLI_MAX(ports, (int64_t)plan->actors[i].nin + 2 * (int64_t)plan->actors[i].nout);
  }
  if (ticks <= TICKS_MOST && ports * count_of(r, FIRINGS) <= TOUCHES_MOST) return SL_OK;
  return sl_fail(SL_E_INPUT, "%s is damaged: its plan is too large for its firings", r->path);
}

/* True if a run could have had this firing. */
static bool is_possible(const sl_plan *plan, const struct firing_item *f) {
  if (!in_table(f->actor, plan->nactors) || !none_or_in_table(f->reg, plan->nregs) ||
      f->wait >= SL_WAIT_COUNT || f->end_ns < f->start_ns || f->end_ns >> 56 || f->firing < 0 ||
      f->firing >> 31 || f->rows >> 31)
    return false;
  sl_tick tick = sl_plan_tick(plan, f->actor, f->firing);
  return tick.number == f->tick && tick.step == f->step && tick.microbatch == f->microbatch &&
         tick.piece == f->piece;
}

static int by_start(const void *a, const void *b) {
  const sl_trace_record *x = a, *y = b; /* the record comes first in a firing */
  if (x->start_ns != y->start_ns) return x->start_ns < y->start_ns ? -1 : 1;
  if (x->end_ns != y->end_ns) return x->end_ns < y->end_ns ? -1 : 1;
  if (x->actor != y->actor) return x->actor < y->actor ? -1 : 1;
  return x->firing < y->firing ? -1 : x->firing > y->firing;
}

static void read_firings(reading *r) {
  sl_trace *t = r->trace;
  size_t count = (size_t)count_of(r, FIRINGS);
  sl_trace_firing *out = sli_arena_alloc(r->arena, (count + 1) * sizeof *out);
  bool sorted = true;
  for (size_t i = 0; i < count; i++) {
    struct firing_item f;
    get_item(r, FIRINGS, i, &f);
    if (!is_possible(t->plan, &f)) {
      t->impossible++;
      t->damaged = true;
      continue;
    }
    size_t n = t->nfirings++;
    out[n].record = (sl_trace_record){.start_ns = f.start_ns,
                                      .end_ns = f.end_ns,
                                      .firing = f.firing,
                                      .actor = f.actor,
                                      .wait = f.wait & 7,
                                      .reg = f.reg < 0 ? 0 : (uint32_t)f.reg & 0x1fffffff};
    out[n].tick =
        (sl_tick){.number = f.tick, .step = f.step, .microbatch = f.microbatch, .piece = f.piece};
    out[n].rows = (int32_t)f.rows - 1;
    sorted = sorted && (!n || by_start(&out[n - 1], &out[n]) < 0);
  }
  if (!sorted) qsort(out, t->nfirings, sizeof *out, by_start);
  t->firings = out;
}

static int by_step(const void *a, const void *b) {
  const sl_trace_step *x = a, *y = b;
  return x->step < y->step ? -1 : x->step > y->step;
}

/* Derives the steps from the firings in the file. The steps section is for readers that need only
 * steps. */
static void find_steps(reading *r) {
  sl_trace *t = r->trace;
  sl_trace_step *steps = sli_arena_alloc(r->arena, (t->nfirings + 1) * sizeof *steps);
  size_t n = 0;
  for (size_t i = 0; i < t->nfirings; i++) {
    const sl_trace_record *f = &t->firings[i].record;
    steps[i] = (sl_trace_step){t->firings[i].tick.step, f->start_ns, f->end_ns, 1};
  }
  qsort(steps, t->nfirings, sizeof *steps, by_step);
  for (size_t i = 0; i < t->nfirings; i++) {
    if (!n || steps[n - 1].step != steps[i].step) {
      steps[n++] = steps[i];
      continue;
    }
    steps[n - 1].start_ns = SLI_MIN(steps[n - 1].start_ns, steps[i].start_ns);
    steps[n - 1].end_ns = SLI_MAX(steps[n - 1].end_ns, steps[i].end_ns);
    steps[n - 1].firings++;
  }
  t->nsteps = n;
  t->step = steps;
}

static void read_cores(reading *r) {
  struct cores_item item = {0};
  if (r->sections[CORES].count) get_item(r, CORES, 0, &item);
  if (item.ran_ns >> 62 || item.coreless_ns >> 62) return;
  r->trace->ran_ns = item.ran_ns, r->trace->coreless_ns = item.coreless_ns;
}

static const double *get_counts(reading *r, uint64_t first, uint64_t n) {
  double *values = sli_arena_alloc(r->arena, (n + 1) * sizeof *values);
  bool finite = true;
  for (uint64_t i = 0; i < n; finite &= isfinite(values[i++]) != 0)
    get_item(r, COUNTS, first + i, &values[i]);
  return finite ? values : NULL;
}

/* Reads the complete counters. */
static void read_counters(reading *r) {
  sl_trace *t = r->trace;
  sl_trace_counter *all =
      sli_arena_alloc(r->arena, ((size_t)count_of(r, COUNTERS) + 1) * sizeof *all);
  uint64_t claimed = 0;
  for (int i = 0; i < count_of(r, COUNTERS); i++) {
    struct counter_item item;
    get_item(r, COUNTERS, (uint64_t)i, &item);
    const char *name = get_text(r, item.name);
    sl_trace_counter to = {.name = name ? sli_arena_strdup(r->arena, name) : NULL, .n = item.n};
    bool whole = name && claim(r, COUNTS, item.first, 2 * (uint64_t)item.n, &claimed);
    to.sum = whole ? get_counts(r, item.first, item.n) : NULL;
    to.last = to.sum ? get_counts(r, (uint64_t)item.first + item.n, item.n) : NULL;
    if (to.last) all[t->ncounters++] = to;
    else t->damaged = true;
  }
  t->counters = all;
}

static sl_status read_all(reading *r) {
  struct head head;
  sl_status status = read_head(r, &head);
  if (!status) status = read_sections(r, &head);
  if (status) return status;
  sl_trace *t = r->trace;
  r->plan = t->memory->plan = sl_plan_create(head.microbatches, head.pieces);
  t->plan = r->plan;
  t->version = (int)head.version;
  t->plan_hash = head.plan_hash;
  t->clock = (sl_clock)head.clock;
  t->steps = head.steps;
  t->dropped = head.dropped;
  status = read_plan(r);
  if (!status) status = check_size(r);
  if (status) return status;
  read_firings(r);
  find_steps(r);
  read_cores(r);
  read_counters(r);
  return SL_OK;
}

sl_status sl_trace_read(const char *path, sl_trace **out) {
  void *bytes = NULL;
  size_t count = 0;
  sl_status status = sli_file_map(path, &bytes, &count);
  if (status) return status;
  sl_trace *trace = sli_calloc(1, sizeof *trace);
  trace->memory = sli_calloc(1, sizeof *trace->memory);
  reading r = {
      .path = path, .bytes = bytes, .count = count, .trace = trace, .arena = &trace->memory->arena};
  status = read_all(&r);
  if (bytes) munmap(bytes, count);
  if (status) {
    sl_trace_destroy(trace);
    return status;
  }
  *out = trace;
  return SL_OK;
}

void sl_trace_destroy(sl_trace *trace) {
  if (!trace) return;
  sl_plan_destroy(trace->memory->plan);
  sli_arena_fini(&trace->memory->arena);
  free(trace->memory);
  free(trace);
}
