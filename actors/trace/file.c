/* The trace file, version 2. All numbers little-endian.
 *
 *     head      struct head, 64 bytes: magic, version, sizes, facts of the run
 *     sections  head.nsections times struct section: what lies where
 *     data      each section an array of equal items
 *
 * There is a section of strings (bytes, each string ended by a zero), one for
 * each part of the plan (devices, queues, pools, registers, actors, ports, maps
 * and their entries), one of steps, and the firings; names are offsets into the
 * strings. The firings come last, so that a file cut short, by a full disk on
 * its way somewhere else, say, loses only its newest ones.
 *
 * A section says how long its items are. Later files may make items longer and
 * add sections: a reader takes the part of an item that it knows and passes
 * over sections that it does not. A change beyond that raises the version.
 *
 * Nothing is believed before it is checked: each section carries a hash of its
 * bytes; every offset lies in the file, every name ends in the strings, every
 * index points into its table. */
#include <sluice/trace.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "actors/plan/plan.h"
#include "io/atomic.h"

static const char magic[8] = {'S', 'L', 'T', 'R', 'A', 'C', 'E', '\n'};

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the file is laid out by memcpy");

/*  id           item                what it is called
 * In the order of the file. */
#define SECTION_TABLE(X)                                                       \
  X(STRINGS, char, "strings")                                                  \
  X(DEVICES, struct device_item, "devices")                                    \
  X(QUEUES, struct queue_item, "queues")                                       \
  X(ORDERS, int32_t, "fixed orders")                                           \
  X(POOLS, struct pool_item, "pools")                                          \
  X(MAPS, struct map_item, "maps")                                             \
  X(ENTRIES, struct entry_item, "map entries")                                 \
  X(REGISTERS, struct register_item, "registers")                              \
  X(PORTS, struct port_item, "ports")                                          \
  X(ACTORS, struct actor_item, "actors")                                       \
  X(STEPS, struct step_item, "steps")                                          \
  X(FIRINGS, struct firing_item, "firings")

enum section_id {
  NO_SECTION,
#define X(id, item, name) id,
  SECTION_TABLE(X)
#undef X
  SECTIONS
};

struct head {
  char magic[8];
  uint32_t version, head_bytes;
  uint32_t nsections, section_bytes;
  uint64_t plan_hash;
  uint32_t clock;
  int32_t microbatches, pieces;
  uint32_t reserved;
  int64_t steps;
  uint64_t dropped;
};
_Static_assert(sizeof(struct head) == 64, "no padding");

struct section {
  uint32_t id, item_bytes;
  uint64_t count, offset; /* from the start of the file */
  uint64_t hash;          /* of its bytes */
};
_Static_assert(sizeof(struct section) == 32, "no padding");

struct device_item {
  uint32_t name, kind;
  int32_t threads;
  uint32_t reserved;
  uint64_t workspace_bytes;
};

struct queue_item {
  uint32_t name, ops; /* "cpu", "timed", ... */
  int32_t device, threads, run_ahead, lazy_w, watermark;
  uint8_t class_order[8];
  int32_t norder;
  uint32_t first_order, apart;
  double look_ahead;
};
_Static_assert(sizeof(struct queue_item) == 56, "no padding");

struct pool_item {
  uint32_t name;
  int32_t quota;
};

struct map_item {
  uint32_t period, first_entry;
  int64_t stride;
};

struct entry_item {
  int32_t offset;
  uint32_t flags;
};

struct register_item {
  uint32_t name, quota_name;
  int32_t quota, pool, kept, initial, held, device;
  uint16_t memory, space;
  int32_t quota_most;
  int32_t shares, over;
  uint64_t slot_bytes;
  double activation;
};
_Static_assert(sizeof(struct register_item) == 64, "no padding");

struct port_item {
  int32_t reg, map;
};

struct actor_item {
  uint32_t name, cls;
  int32_t queue, stage, chunk, ticks, firings_per_step, source;
  int32_t rank, rank_group, rank_stride, rank_shift;
  int32_t nin, nout;
  uint32_t first_port; /* inputs, then outputs */
  int32_t every;
  double seconds;
};
_Static_assert(sizeof(struct actor_item) == 72, "no padding");

struct step_item {
  int64_t step;
  uint64_t start_ns, end_ns, firings;
};

struct firing_item {
  uint64_t start_ns, end_ns;
  int64_t firing, tick, step;
  int32_t actor, microbatch, piece;
  int32_t reg; /* what the queue waited for, or SL_NONE */
  uint32_t wait, reserved;
};
_Static_assert(sizeof(struct firing_item) == 64, "no padding");

static const uint32_t item_bytes[SECTIONS] = {
#define X(id, item, name) [id] = sizeof(item),
    SECTION_TABLE(X)
#undef X
};

static const char *const section_names[SECTIONS] = {
#define X(id, item, name) [id] = name,
    SECTION_TABLE(X)
#undef X
};

/* ---- writing ------------------------------------------------------------------- */

/* One section on its way into the file. */
typedef struct part {
  unsigned char *bytes;
  size_t used, capacity;
} part;

typedef struct image {
  part parts[SECTIONS];
} image;

/* Appends an item; returns its number. */
static uint32_t put(image *im, enum section_id id, const void *item, size_t bytes) {
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
#define PUT(im, id, item) put(im, id, &(item), sizeof(item))

static uint32_t put_text(image *im, const char *text) {
  if (!text) text = "";
  return put(im, STRINGS, text, strlen(text) + 1);
}

static void put_queues(image *im, const sl_plan *plan) {
  for (int32_t i = 0; i < plan->nqueues; i++) {
    const sl_queue *q = &plan->queues[i];
    struct queue_item item = {.name = put_text(im, q->name), .ops = put_text(im, q->ops->name),
                              .device = q->device, .threads = q->threads,
                              .run_ahead = q->run_ahead, .lazy_w = q->lazy_w,
                              .watermark = q->watermark, .look_ahead = q->look_ahead,
                              .norder = q->norder, .apart = q->apart,
                              .first_order = (uint32_t)(im->parts[ORDERS].used / sizeof(int32_t))};
    for (int32_t k = 0; k < q->norder; k++) PUT(im, ORDERS, q->order[k]);
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

/* Quotas as they were in the end: they may have been changed while it ran. */
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
                                 .over = r->over,
                                 .slot_bytes = r->slot_bytes,
                                 .activation = r->activation};
    PUT(im, REGISTERS, item);
  }
}

static void put_actors(image *im, const sl_plan *plan) {
  for (int32_t i = 0; i < plan->nactors; i++) {
    const sl_actor *a = &plan->actors[i];
    struct actor_item item = {
        .name = put_text(im, a->name), .cls = a->cls, .queue = a->queue, .stage = a->stage,
        .chunk = a->chunk, .ticks = a->ticks, .firings_per_step = a->firings_per_step,
        .source = a->source, .rank = a->rank, .rank_group = a->rank_group,
        .rank_stride = a->rank_stride, .rank_shift = a->rank_shift, .nin = a->nin,
        .nout = a->nout, .every = a->every, .seconds = a->seconds,
        .first_port = (uint32_t)(im->parts[PORTS].used / sizeof(struct port_item))};
    for (int32_t p = 0; p < a->nin + a->nout; p++) {
      const sl_port *port = p < a->nin ? &a->in[p] : &a->out[p - a->nin];
      struct port_item to = {port->reg, port->map};
      PUT(im, PORTS, to);
    }
    PUT(im, ACTORS, item);
  }
}

static void put_plan(image *im, const sl_plan *plan, const sl_runtime *rt) {
  for (int32_t i = 0; i < plan->ndevices; i++) {
    const sl_device *d = &plan->devices[i];
    struct device_item item = {.name = put_text(im, d->name), .kind = put_text(im, d->kind),
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

/* Steps in order of their first firing, which is their own. */
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

static void put_firings(image *im, const sl_plan *plan, const sl_trace_record *records,
                        size_t count) {
  for (size_t i = 0; i < count; i++) {
    const sl_trace_record *r = &records[i];
    sl_tick tick = sl_plan_tick(plan, r->actor, r->firing);
    bool waited = r->wait == SL_WAIT_INPUT || r->wait == SL_WAIT_CREDIT;
    struct firing_item item = {.start_ns = r->start_ns, .end_ns = r->end_ns, .firing = r->firing,
                               .tick = tick.number, .step = tick.step, .actor = r->actor,
                               .microbatch = tick.microbatch, .piece = tick.piece,
                               .reg = waited ? (int32_t)r->reg : SL_NONE, .wait = r->wait};
    PUT(im, FIRINGS, item);
    put_step(im, &item);
  }
}

static sl_status write_image(sli_atomic_file *file, const struct head *head, const image *im) {
  struct section table[SECTIONS - 1];
  uint64_t at = sizeof *head + sizeof table;
  for (uint32_t id = 1; id < SECTIONS; id++) {
    const part *p = &im->parts[id];
    at = (at + 7) & ~UINT64_C(7);
    table[id - 1] = (struct section){id, item_bytes[id], p->used / item_bytes[id], at,
                                     sli_hash(SLI_HASH_SEED, p->bytes, p->used)};
    at += p->used;
  }
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
  sli_atomic_file file;
  sl_status status = sli_atomic_open(path, &file);
  if (status) return status;
  sl_trace_record *records = NULL;
  uint64_t dropped = 0;
  size_t count = sl_runtime_trace(rt, &records, &dropped);
  image im = {0};
  put_plan(&im, plan, rt);
  put_firings(&im, plan, records, count);
  struct head head = {.version = SL_TRACE_VERSION, .head_bytes = sizeof head,
                      .nsections = SECTIONS - 1, .section_bytes = sizeof(struct section),
                      .plan_hash = plan->hash, .clock = clock,
                      .microbatches = plan->microbatches, .pieces = plan->pieces,
                      .steps = sl_runtime_steps(rt), .dropped = dropped};
  memcpy(head.magic, magic, sizeof magic);
  status = write_image(&file, &head, &im);
  for (int id = 1; id < SECTIONS; id++) free(im.parts[id].bytes);
  free(records);
  if (status) {
    sli_atomic_abandon(&file);
    return status;
  }
  return sli_atomic_commit(&file);
}

/* ---- reading ------------------------------------------------------------------- */

struct sli_trace_memory {
  sli_arena arena;
  sl_plan *plan;
};

/* A file on its way to becoming a trace. */
typedef struct reading {
  const char *path;
  const unsigned char *bytes;
  size_t count;
  struct section sections[SECTIONS]; /* id 0: not there */
  sl_trace *trace;
  sl_plan *plan;
  sli_arena *arena;
} reading;

static sl_status load(const char *path, unsigned char **out, size_t *count) {
  FILE *file = fopen(path, "rb");
  if (!file) return sl_fail(SL_E_INPUT, "cannot open %s: %s", path, strerror(errno));
  unsigned char *bytes = NULL;
  size_t used = 0, capacity = 0, got = 1;
  while (got) {
    if (used == capacity) {
      capacity = capacity ? 2 * capacity : (size_t)1 << 16;
      bytes = sli_realloc(bytes, capacity, 1);
    }
    used += got = fread(bytes + used, 1, capacity - used, file);
  }
  bool bad = ferror(file);
  int error = errno;
  fclose(file);
  if (bad) {
    free(bytes);
    return sl_fail(SL_E_INPUT, "cannot read %s: %s", path, strerror(error));
  }
  *out = bytes;
  *count = used;
  return SL_OK;
}

static sl_status read_head(reading *r, struct head *head) {
  if (r->count < sizeof magic || memcmp(r->bytes, magic, sizeof magic))
    return sl_fail(SL_E_INPUT, "%s is not a Sluice trace", r->path);
  if (r->count < sizeof *head)
    return sl_fail(SL_E_INPUT, "%s is truncated in its head (%zu bytes)", r->path, r->count);
  memcpy(head, r->bytes, sizeof *head);
  if (head->version != SL_TRACE_VERSION)
    return sl_fail(SL_E_INPUT, "%s has version %u; this program reads version %d", r->path,
                   head->version, SL_TRACE_VERSION);
  if (head->head_bytes < sizeof *head || head->section_bytes < sizeof(struct section) ||
      head->nsections > 1000 || head->section_bytes > 4096 || head->clock > SL_CLOCK_VIRTUAL ||
      head->microbatches < 1 || head->pieces < 1 || head->steps < 0)
    return sl_fail(SL_E_INPUT, "%s is damaged in its head", r->path);
  return SL_OK;
}

/* Notes one section if it is known, and checks its bytes. Firings may be cut
 * short or damaged; anything else must be whole. */
static sl_status read_section(reading *r, struct section s) {
  if (s.id < 1 || s.id >= SECTIONS) return SL_OK;
  const char *name = section_names[s.id];
  if (r->sections[s.id].id || s.item_bytes < item_bytes[s.id] || s.count > INT32_MAX)
    return sl_fail(SL_E_INPUT, "%s is damaged: its section of %s is impossible", r->path, name);
  bool beyond = s.offset > r->count;
  if (beyond && s.id == FIRINGS) s.offset = r->count;
  uint64_t room = beyond ? 0 : (r->count - s.offset) / s.item_bytes;
  if ((beyond || s.count > room) && s.id != FIRINGS)
    return sl_fail(SL_E_INPUT, "%s is truncated in its %s", r->path, name);
  if (s.count > room) {
    s.count = room;
    r->trace->truncated = true;
  } else if (sli_hash(SLI_HASH_SEED, r->bytes + s.offset, s.count * s.item_bytes) != s.hash) {
    if (s.id != FIRINGS) return sl_fail(SL_E_INPUT, "%s is damaged in its %s", r->path, name);
    r->trace->damaged = true;
  }
  r->sections[s.id] = s;
  return SL_OK;
}

static sl_status read_sections(reading *r, const struct head *head) {
  uint64_t table = head->head_bytes;
  if (table + (uint64_t)head->nsections * head->section_bytes > r->count)
    return sl_fail(SL_E_INPUT, "%s is truncated in its table of sections", r->path);
  for (uint32_t i = 0; i < head->nsections; i++) {
    struct section s;
    memcpy(&s, r->bytes + table + (uint64_t)i * head->section_bytes, sizeof s);
    sl_status status = read_section(r, s);
    if (status) return status;
  }
  for (int id = 1; id < SECTIONS; id++)
    if (!r->sections[id].id)
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

/* NULL if the offset is outside. */
static const char *get_text(const reading *r, uint32_t offset) {
  const struct section *s = &r->sections[STRINGS];
  return offset < s->count ? (const char *)r->bytes + s->offset + offset : NULL;
}

static bool in_table(int32_t index, int32_t count) { return index >= 0 && index < count; }
static bool none_or_in_table(int32_t index, int32_t count) {
  return index == SL_NONE || in_table(index, count);
}

static sl_status impossible(const reading *r, enum section_id id, uint64_t index) {
  return sl_fail(SL_E_INPUT, "%s is damaged: item %llu of its %s is impossible", r->path,
                 (unsigned long long)index, section_names[id]);
}

/* NULL if it is impossible. The actors are read later: their number is known. */
static const int32_t *read_order(reading *r, const struct queue_item *q) {
  if (q->norder < 0 || q->first_order + (uint64_t)q->norder > r->sections[ORDERS].count)
    return NULL;
  int32_t *order = sl_plan_alloc(r->plan, ((size_t)q->norder + 1) * sizeof *order);
  for (int32_t i = 0; i < q->norder; i++) {
    get_item(r, ORDERS, (uint64_t)q->first_order + (uint64_t)i, &order[i]);
    if (!in_table(order[i], count_of(r, ACTORS))) return NULL;
  }
  return order;
}

/* What runs a queue of that name; a kind this program does not have is only
 * ever run on the virtual clock. */
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
    sl_device device = {.name = get_text(r, d.name), .kind = get_text(r, d.kind),
                        .threads = d.threads,
                        .room[SL_SPACE_DEVICE].workspace_bytes = d.workspace_bytes};
    if (!device.name || !device.kind || d.threads < 0 || d.workspace_bytes > SIZE_MAX / 4)
      return impossible(r, DEVICES, (uint64_t)i);
    sl_plan_add_device(r->plan, device);
  }
  for (int32_t i = 0; i < count_of(r, QUEUES); i++) {
    struct queue_item q;
    get_item(r, QUEUES, (uint64_t)i, &q);
    sl_queue queue = {.name = get_text(r, q.name), .device = q.device, .threads = q.threads,
                      .run_ahead = q.run_ahead, .lazy_w = q.lazy_w, .watermark = q.watermark,
                      .look_ahead = q.look_ahead, .apart = q.apart};
    const char *ops = get_text(r, q.ops);
    if (!queue.name || !ops || !in_table(q.device, r->plan->ndevices) || q.run_ahead < 1 ||
        q.run_ahead > 1 << 24)
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

/* Maps are numbered as they come: equal ones share a number, and the file has
 * each once. */
static sl_status read_maps(reading *r) {
  for (int32_t i = 0; i < count_of(r, MAPS); i++) {
    struct map_item m;
    get_item(r, MAPS, (uint64_t)i, &m);
    uint64_t last = (uint64_t)m.first_entry + m.period;
    if (!m.period || last > r->sections[ENTRIES].count || llabs(m.stride) > INT32_MAX)
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
  for (int32_t i = 0; i < count_of(r, POOLS); i++) {
    struct pool_item p;
    get_item(r, POOLS, (uint64_t)i, &p);
    sl_pool pool = {get_text(r, p.name), p.quota};
    if (!pool.name) return impossible(r, POOLS, (uint64_t)i);
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
                       .over = g.over,
                       .slot_bytes = g.slot_bytes,
                       .activation = g.activation};
    if (!reg.name || !reg.quota_name || g.quota < 1 || g.quota > 1 << 24 || g.initial < 0 ||
        g.quota_most < 0 || g.quota_most > 1 << 24 || g.initial > g.quota || g.kept < 0 ||
        !in_table(g.device, r->plan->ndevices) || g.memory >= SL_MEMORY_COUNT ||
        g.space >= SL_SPACE_COUNT || g.shares < 0 || g.shares > i || g.over < 0 || g.over > i ||
        g.slot_bytes > SIZE_MAX >> 32 || !none_or_in_table(g.pool, r->plan->npools) ||
        !(g.activation >= 0))
      return impossible(r, REGISTERS, (uint64_t)i);
    sl_plan_add_register(r->plan, reg);
  }
  return SL_OK;
}

static sl_status read_actor(reading *r, uint64_t index, sl_port *ports) {
  struct actor_item a;
  get_item(r, ACTORS, index, &a);
  sl_actor actor = {.name = get_text(r, a.name), .cls = (sl_class)a.cls, .queue = a.queue,
                    .stage = a.stage, .chunk = a.chunk, .ticks = a.ticks,
                    .firings_per_step = a.firings_per_step, .source = a.source, .rank = a.rank,
                    .rank_group = a.rank_group, .rank_stride = a.rank_stride,
                    .rank_shift = a.rank_shift, .nin = a.nin, .nout = a.nout,
                    .in = ports + a.first_port, .out = ports + a.first_port + a.nin,
                    .every = a.every, .seconds = a.seconds};
  if (!actor.name || a.every < 0 || a.every > 1 << 24 || sl_class_letter((sl_class)a.cls) == '?' || !in_table(a.queue, r->plan->nqueues) ||
      a.stage < SL_NONE || a.chunk < SL_NONE || a.nin < 0 || a.nout < 0 || a.rank_group < 0 ||
      a.first_port + (uint64_t)a.nin + (uint64_t)a.nout > r->sections[PORTS].count ||
      !(a.seconds >= 0 && a.seconds < 1e9))
    return impossible(r, ACTORS, index);
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

static sl_status read_plan(reading *r) {
  sl_status status = read_queues(r);
  if (!status) status = read_maps(r);
  if (!status) status = read_registers(r);
  if (!status) status = read_actors(r);
  if (status) return status;
  if (sl_plan_finish(r->plan)) {
    char *why = sli_strdup(sl_detail());
    sl_fail(SL_E_INPUT, "%s is damaged: its plan is impossible: %s", r->path, why);
    free(why);
    return SL_E_INPUT;
  }
  return SL_OK;
}

/* A firing that a run could have had. */
static bool is_possible(const sl_plan *plan, const struct firing_item *f) {
  if (!in_table(f->actor, plan->nactors) || !none_or_in_table(f->reg, plan->nregs) ||
      f->wait >= SL_WAIT_COUNT || f->end_ns < f->start_ns || f->end_ns > INT64_MAX ||
      f->firing < 0 || f->firing > INT64_MAX >> 24)
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
    out[n].record = (sl_trace_record){.start_ns = f.start_ns, .end_ns = f.end_ns,
                                      .firing = f.firing, .actor = f.actor, .wait = f.wait & 7,
                                      .reg = f.reg < 0 ? 0 : (uint32_t)f.reg & 0x1fffffff};
    out[n].tick = (sl_tick){.number = f.tick, .step = f.step, .microbatch = f.microbatch,
                            .piece = f.piece};
    sorted = sorted && (!n || by_start(&out[n - 1], &out[n]) < 0);
  }
  if (!sorted) qsort(out, t->nfirings, sizeof *out, by_start);
  t->firings = out;
}

static void read_steps(reading *r) {
  sl_trace *t = r->trace;
  t->nsteps = (size_t)count_of(r, STEPS);
  sl_trace_step *steps = sli_arena_alloc(r->arena, (t->nsteps + 1) * sizeof *steps);
  for (size_t i = 0; i < t->nsteps; i++) {
    struct step_item s;
    get_item(r, STEPS, i, &s);
    steps[i] = (sl_trace_step){s.step, s.start_ns, s.end_ns, s.firings};
  }
  t->step = steps;
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
  if (status) return status;
  read_firings(r);
  read_steps(r);
  return SL_OK;
}

sl_status sl_trace_read(const char *path, sl_trace **out) {
  unsigned char *bytes = NULL;
  size_t count = 0;
  sl_status status = load(path, &bytes, &count);
  if (status) return status;
  sl_trace *trace = sli_calloc(1, sizeof *trace);
  trace->memory = sli_calloc(1, sizeof *trace->memory);
  reading r = {.path = path, .bytes = bytes, .count = count, .trace = trace,
               .arena = &trace->memory->arena};
  status = read_all(&r);
  free(bytes);
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
