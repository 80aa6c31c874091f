/* The trace file, version 1. All numbers little-endian.
 *
 *     head      struct head, 64 bytes: magic, version, sizes, facts of the run
 *     sections  head.nsections times struct section: what lies where
 *     data      each section an array of equal items
 *
 * There is a section of strings (bytes, each string ended by a zero) and one
 * each of devices, queues, registers, actors and firings; names are offsets
 * into the strings. The firings come last, so that a file cut short, by a full
 * disk on its way somewhere else, say, loses only its newest ones.
 *
 * A section says how long its items are. Later versions may make items longer
 * and add sections: a reader takes the part of an item that it knows and
 * passes over sections that it does not. A change beyond that raises the
 * version, which old readers refuse.
 *
 * Nothing is believed before it is checked: every offset lies in the file,
 * every name ends in the strings, every index points into its table. */
#include <sluice/trace.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "io/atomic.h"

static const char magic[8] = {'S', 'L', 'T', 'R', 'A', 'C', 'E', '\n'};

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the file is laid out by memcpy");

enum section_id { STRINGS = 1, DEVICES, QUEUES, REGISTERS, ACTORS, FIRINGS, SECTIONS };

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
};
_Static_assert(sizeof(struct section) == 24, "no padding");

struct device_item {
  uint32_t name, kind;
  int32_t threads;
  uint32_t reserved;
};

struct queue_item {
  uint32_t name;
  int32_t device;
};

struct register_item {
  uint32_t name, quota_name;
  int32_t quota, device, producer;
  uint32_t memory;
  uint64_t slot_bytes;
};

struct actor_item {
  uint32_t name, cls;
  int32_t queue, device, stage, chunk;
};

struct firing_item {
  uint64_t start_ns, end_ns;
  int64_t firing, tick, step;
  int32_t actor, microbatch, piece;
  int32_t reg;
  uint32_t wait, reserved;
};
_Static_assert(sizeof(struct firing_item) == 64, "no padding");

static const uint32_t item_bytes[SECTIONS] = {
    [STRINGS] = 1,
    [DEVICES] = sizeof(struct device_item),
    [QUEUES] = sizeof(struct queue_item),
    [REGISTERS] = sizeof(struct register_item),
    [ACTORS] = sizeof(struct actor_item),
    [FIRINGS] = sizeof(struct firing_item),
};

static const char *const section_names[SECTIONS] = {
    [STRINGS] = "strings", [DEVICES] = "devices", [QUEUES] = "queues",
    [REGISTERS] = "registers", [ACTORS] = "actors", [FIRINGS] = "firings"};

/* ---- writing ------------------------------------------------------------------- */

typedef struct text_table {
  char *bytes;
  size_t used, capacity;
} text_table;

static uint32_t add_text(text_table *t, const char *text) {
  if (!text) text = "";
  size_t n = strlen(text) + 1, at = t->used;
  if (at + n > t->capacity) {
    t->capacity = SLI_MAX(2 * t->capacity, at + n);
    t->bytes = sli_realloc(t->bytes, t->capacity, 1);
  }
  memcpy(t->bytes + at, text, n);
  t->used += n;
  return (uint32_t)at;
}

/* The sections as arrays, ready to be written. */
typedef struct image {
  text_table strings;
  const void *data[SECTIONS];
  uint64_t count[SECTIONS];
} image;

static void *add_section(image *im, enum section_id id, uint64_t count) {
  void *items = sli_calloc(count, item_bytes[id]);
  im->data[id] = items;
  im->count[id] = count;
  return items;
}

static void add_plan(image *im, const sl_plan *plan) {
  text_table *t = &im->strings;
  struct device_item *device = add_section(im, DEVICES, (uint64_t)plan->ndevices);
  for (int32_t i = 0; i < plan->ndevices; i++) {
    const sl_device *d = &plan->devices[i];
    device[i] = (struct device_item){add_text(t, d->name), add_text(t, d->kind), d->threads, 0};
  }
  struct queue_item *queue = add_section(im, QUEUES, (uint64_t)plan->nqueues);
  for (int32_t i = 0; i < plan->nqueues; i++)
    queue[i] = (struct queue_item){add_text(t, plan->queues[i].name), plan->queues[i].device};
  struct register_item *reg = add_section(im, REGISTERS, (uint64_t)plan->nregs);
  for (int32_t i = 0; i < plan->nregs; i++) {
    const sl_register *r = &plan->regs[i];
    reg[i] = (struct register_item){add_text(t, r->name), add_text(t, r->quota_name), r->quota,
                                    r->device, r->producer, r->memory, r->slot_bytes};
  }
  struct actor_item *actor = add_section(im, ACTORS, (uint64_t)plan->nactors);
  for (int32_t i = 0; i < plan->nactors; i++) {
    const sl_actor *a = &plan->actors[i];
    actor[i] = (struct actor_item){add_text(t, a->name), a->cls, a->queue,
                                   plan->queues[a->queue].device, a->stage, a->chunk};
  }
}

static void add_firings(image *im, const sl_plan *plan, const sl_trace_record *records,
                        size_t count) {
  struct firing_item *item = add_section(im, FIRINGS, count);
  for (size_t i = 0; i < count; i++) {
    const sl_trace_record *r = &records[i];
    sl_tick tick = sl_plan_tick(plan, r->actor, r->firing);
    bool waited = r->wait == SL_WAIT_INPUT || r->wait == SL_WAIT_CREDIT;
    item[i] = (struct firing_item){.start_ns = r->start_ns, .end_ns = r->end_ns,
                                   .firing = r->firing, .tick = tick.number, .step = tick.step,
                                   .actor = r->actor, .microbatch = tick.microbatch,
                                   .piece = tick.piece, .reg = waited ? (int32_t)r->reg : SL_NONE,
                                   .wait = r->wait};
  }
}

static sl_status write_image(sli_atomic_file *file, const struct head *head, const image *im) {
  struct section table[SECTIONS - 1];
  uint64_t at = sizeof *head + sizeof table;
  for (int id = 1; id < SECTIONS; id++) {
    at = (at + 7) & ~UINT64_C(7);
    table[id - 1] = (struct section){(uint32_t)id, item_bytes[id], im->count[id], at};
    at += im->count[id] * item_bytes[id];
  }
  sl_status status = sli_atomic_write(file, head, sizeof *head);
  if (!status) status = sli_atomic_write(file, table, sizeof table);
  uint64_t done = sizeof *head + sizeof table;
  for (int id = 1; id < SECTIONS && !status; id++) {
    static const char zeros[8];
    const struct section *s = &table[id - 1];
    status = sli_atomic_write(file, zeros, s->offset - done);
    if (!status) status = sli_atomic_write(file, im->data[id], s->count * s->item_bytes);
    done = s->offset + s->count * s->item_bytes;
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
  add_plan(&im, plan);
  add_firings(&im, plan, records, count);
  im.data[STRINGS] = im.strings.bytes;
  im.count[STRINGS] = im.strings.used;
  struct head head = {.version = SL_TRACE_VERSION, .head_bytes = sizeof head,
                      .nsections = SECTIONS - 1, .section_bytes = sizeof(struct section),
                      .plan_hash = plan->hash, .clock = clock,
                      .microbatches = plan->microbatches, .pieces = plan->pieces,
                      .steps = sl_runtime_steps(rt), .dropped = dropped};
  memcpy(head.magic, magic, sizeof magic);
  status = write_image(&file, &head, &im);
  for (int id = 1; id < SECTIONS; id++) free((void *)im.data[id]);
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
  unsigned char *bytes; /* the whole file; strings stay here */
  size_t count;
};

/* A file on its way to becoming a trace. */
typedef struct reading {
  const char *path;
  const unsigned char *bytes;
  size_t count;
  struct section sections[SECTIONS]; /* id 0: not there */
  sl_trace *trace;
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
  if (head->version > SL_TRACE_VERSION || head->version < 1)
    return sl_fail(SL_E_INPUT, "%s has version %u; this program reads up to version %d", r->path,
                   head->version, SL_TRACE_VERSION);
  if (head->head_bytes < sizeof *head || head->section_bytes < sizeof(struct section) ||
      head->nsections > 1000 || head->section_bytes > 4096 || head->clock > SL_CLOCK_VIRTUAL ||
      head->microbatches < 1 || head->pieces < 1)
    return sl_fail(SL_E_INPUT, "%s is damaged in its head", r->path);
  return SL_OK;
}

/* Notes where each known section lies. Firings may be cut short; anything else
 * must be whole. */
static sl_status read_sections(reading *r, const struct head *head) {
  uint64_t table = head->head_bytes;
  if (table + (uint64_t)head->nsections * head->section_bytes > r->count)
    return sl_fail(SL_E_INPUT, "%s is truncated in its table of sections", r->path);
  for (uint32_t i = 0; i < head->nsections; i++) {
    struct section s;
    memcpy(&s, r->bytes + table + (uint64_t)i * head->section_bytes, sizeof s);
    if (s.id < 1 || s.id >= SECTIONS) continue;
    const char *name = section_names[s.id];
    if (r->sections[s.id].id || s.item_bytes < item_bytes[s.id] || s.count > INT32_MAX)
      return sl_fail(SL_E_INPUT, "%s is damaged: its section of %s is impossible", r->path, name);
    uint64_t room = s.offset < r->count ? (r->count - s.offset) / s.item_bytes : 0;
    if (s.count > room && s.id != FIRINGS)
      return sl_fail(SL_E_INPUT, "%s is truncated in its %s", r->path, name);
    if (s.count > room) s.count = room, r->trace->truncated = true;
    r->sections[s.id] = s;
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

static sl_status damaged(const reading *r, enum section_id id, uint64_t index) {
  return sl_fail(SL_E_INPUT, "%s is damaged: item %llu of its %s is impossible", r->path,
                 (unsigned long long)index, section_names[id]);
}

static sl_status read_devices(reading *r) {
  sl_trace *t = r->trace;
  t->ndevices = (int32_t)r->sections[DEVICES].count;
  sl_trace_device *out = sli_arena_alloc(r->arena, (size_t)t->ndevices * sizeof *out);
  t->devices = out;
  for (int32_t i = 0; i < t->ndevices; i++) {
    struct device_item d;
    get_item(r, DEVICES, (uint64_t)i, &d);
    out[i] = (sl_trace_device){get_text(r, d.name), get_text(r, d.kind), d.threads};
    if (!out[i].name || !out[i].kind) return damaged(r, DEVICES, (uint64_t)i);
  }
  t->nqueues = (int32_t)r->sections[QUEUES].count;
  sl_trace_queue *queue = sli_arena_alloc(r->arena, (size_t)t->nqueues * sizeof *queue);
  t->queues = queue;
  for (int32_t i = 0; i < t->nqueues; i++) {
    struct queue_item q;
    get_item(r, QUEUES, (uint64_t)i, &q);
    queue[i] = (sl_trace_queue){get_text(r, q.name), q.device};
    if (!queue[i].name || !in_table(q.device, t->ndevices)) return damaged(r, QUEUES, (uint64_t)i);
  }
  return SL_OK;
}

static sl_status read_registers(reading *r) {
  sl_trace *t = r->trace;
  t->nregs = (int32_t)r->sections[REGISTERS].count;
  sl_trace_register *out = sli_arena_alloc(r->arena, (size_t)t->nregs * sizeof *out);
  t->regs = out;
  for (int32_t i = 0; i < t->nregs; i++) {
    struct register_item g;
    get_item(r, REGISTERS, (uint64_t)i, &g);
    out[i] = (sl_trace_register){get_text(r, g.name), get_text(r, g.quota_name), g.quota, g.device,
                                 g.producer, (sl_memory)g.memory, g.slot_bytes};
    if (!out[i].name || !out[i].quota_name || !in_table(g.device, t->ndevices) ||
        g.memory >= SL_MEMORY_COUNT || !none_or_in_table(g.producer, t->nactors))
      return damaged(r, REGISTERS, (uint64_t)i);
  }
  return SL_OK;
}

static sl_status read_actors(reading *r) {
  sl_trace *t = r->trace;
  t->nactors = (int32_t)r->sections[ACTORS].count;
  sl_trace_actor *out = sli_arena_alloc(r->arena, (size_t)t->nactors * sizeof *out);
  t->actors = out;
  for (int32_t i = 0; i < t->nactors; i++) {
    struct actor_item a;
    get_item(r, ACTORS, (uint64_t)i, &a);
    out[i] = (sl_trace_actor){get_text(r, a.name), (sl_class)a.cls, a.queue, a.device, a.stage,
                              a.chunk};
    if (!out[i].name || a.cls >= SL_CLASS_COUNT || !in_table(a.queue, t->nqueues) ||
        !in_table(a.device, t->ndevices) || a.stage < SL_NONE || a.chunk < SL_NONE)
      return damaged(r, ACTORS, (uint64_t)i);
  }
  return SL_OK;
}

static sl_status read_firings(reading *r) {
  sl_trace *t = r->trace;
  t->nfirings = r->sections[FIRINGS].count;
  sl_trace_firing *out = sli_arena_alloc(r->arena, t->nfirings * sizeof *out);
  t->firings = out;
  for (size_t i = 0; i < t->nfirings; i++) {
    struct firing_item f;
    get_item(r, FIRINGS, i, &f);
    if (!in_table(f.actor, t->nactors) || !none_or_in_table(f.reg, t->nregs) ||
        f.wait >= SL_WAIT_COUNT || f.end_ns < f.start_ns)
      return damaged(r, FIRINGS, i);
    out[i].record = (sl_trace_record){.start_ns = f.start_ns, .end_ns = f.end_ns,
                                      .firing = f.firing, .actor = f.actor, .wait = f.wait & 7,
                                      .reg = f.reg < 0 ? 0 : (uint32_t)f.reg & 0x1fffffff};
    out[i].tick = (sl_tick){.number = f.tick, .step = f.step, .microbatch = f.microbatch,
                            .piece = f.piece};
  }
  return SL_OK;
}

static sl_status read_all(reading *r) {
  struct head head;
  sl_status status = read_head(r, &head);
  if (!status) status = read_sections(r, &head);
  if (!status) status = read_devices(r);
  if (!status) status = read_actors(r); /* before registers, which point at them */
  if (!status) status = read_registers(r);
  if (!status) status = read_firings(r);
  if (status) return status;
  sl_trace *t = r->trace;
  t->version = (int)head.version;
  t->plan_hash = head.plan_hash;
  t->clock = (sl_clock)head.clock;
  t->microbatches = head.microbatches;
  t->pieces = head.pieces;
  t->steps = head.steps;
  t->dropped = head.dropped;
  return SL_OK;
}

sl_status sl_trace_read(const char *path, sl_trace **out) {
  unsigned char *bytes = NULL;
  size_t count = 0;
  sl_status status = load(path, &bytes, &count);
  if (status) return status;
  sl_trace *trace = sli_calloc(1, sizeof *trace);
  trace->memory = sli_calloc(1, sizeof *trace->memory);
  *trace->memory = (struct sli_trace_memory){.bytes = bytes, .count = count};
  reading r = {.path = path, .bytes = bytes, .count = count, .trace = trace,
               .arena = &trace->memory->arena};
  status = read_all(&r);
  if (status) {
    sl_trace_destroy(trace);
    return status;
  }
  *out = trace;
  return SL_OK;
}

void sl_trace_destroy(sl_trace *trace) {
  if (!trace) return;
  sli_arena_fini(&trace->memory->arena);
  free(trace->memory->bytes);
  free(trace->memory);
  free(trace);
}
