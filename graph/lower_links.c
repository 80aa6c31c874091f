/* What lies out of a reader's reach comes to it by links.
 *
 * A link is one more actor and a register at its far end. What another process reads
 * goes over a link to there. What lies in memory that the reader does not address,
 * a GPU's for the host or the other way round, is copied: by an actor on a copy queue of
 * its own, beside the passes, into a register with a quota of its own ("h2d" into a
 * device, "d2h" out of one, "d2d" from one to another), so that data comes early and
 * leaves late without a stall. Both together are hops one after another: out of the
 * device, to the other process, into its device. Where the kind of the devices knows a
 * direct way from one's memory into the other's, that is the only hop.
 *
 * On modelled devices with a crossing time, what another stage's device reads takes up to
 * two hops: the wire, which takes one thing after another, and the way, which takes time but
 * no turn. It goes to the device of the same rank, once; what its neighbours there read of
 * it is an exchange like all others between devices of a stage, whose readers take the time
 * themselves (lower_exchange.c). */
#include "graph/lower.h"

#include <string.h>

/* One way to a place, for all who read there. */
typedef struct link {
  int32_t from, to; /* registers */
  int device;
  sl_space space;
} link;

typedef enum way { WAY, WIRE, DIRECT, INTO, OUT_OF, BETWEEN, WAYS } way;
static const char *const copy_names[WAYS] = {[INTO] = "h2d", [OUT_OF] = "d2h", [BETWEEN] = "d2d"};

struct sli_links {
  int count, capacity;
  link *items;     /* in the lowering's arena */
  int32_t *queues; /* [WAYS * devices^2] by way, source and destination, or SL_NONE */
};

/* One hop, from a register to the one it makes. */
typedef struct hop {
  int32_t queue;
  int device;      /* where it ends */
  sl_space space;
  const char *mark, *quota_name; /* NULL: its source's */
  bool on_the_way; /* nothing is kept at its end */
  double seconds;
  sl_program *program;
} hop;

sli_links *sli_links_create(sli_lowering *l) {
  sli_links *x = sli_arena_alloc(&l->arena, sizeof *x);
  int ways = WAYS * l->devices * l->devices;
  x->queues = sli_arena_alloc(&l->arena, (size_t)ways * sizeof *x->queues);
  for (int i = 0; i < ways; i++) x->queues[i] = SL_NONE;
  return x;
}

bool sli_lower_copies(const sli_lowering *l, const char *quota_name) {
  bool known = false;
  for (int w = 0; w < WAYS && l->kind->copy; w++)
    known |= copy_names[w] && !strcmp(copy_names[w], quota_name);
  return known;
}

static double wire_seconds(const sl_hardware_link *link, size_t bytes) {
  return link->bytes_per_second > 0 ? (double)bytes / link->bytes_per_second : 0;
}

/* ---- one hop ------------------------------------------------------------------------ */

/* The register at the far end: like the one before, but for where it is. */
static int32_t add_end(sli_lowering *l, int32_t from, const sli_bundle *b, const hop *h) {
  sl_register far = l->plan->regs[from];
  far.name = sl_plan_format(l->plan, "%s%s", far.name, h->mark);
  far.device = h->device;
  far.space = h->space;
  far.activation = 0;
  far.initial = 0;
  far.pool = SL_NONE;
  far.shares = 0;
  far.over = 0;
  far.slot_bytes = h->on_the_way ? 0 : b->bytes;
  far.payload_bytes = h->on_the_way ? 0 : b->payload_bytes;
  if (h->quota_name) {
    int given = sli_lower_given(l, h->quota_name, l->groups[b->producer].stage);
    far.quota_name = h->quota_name;
    if (given) far.quota = given;
  }
  return sl_plan_add_register(l->plan, far);
}

/* In the order in which the data is made. */
static int32_t add_hop(sli_lowering *l, int32_t from, const sli_bundle *b, const hop *h) {
  sl_plan *plan = l->plan;
  const sli_group *by = &l->groups[b->producer];
  bool sparse = b->rate == SLI_PER_STORE, per_step = b->rate >= SLI_PER_STEP;
  int32_t every = sparse ? (int32_t)l->options->store_every : 1, ticks = l->m * l->k;
  sl_map_entry last = {every * ticks - 1, SL_FIRST | SL_LAST};
  int32_t reg = add_end(l, from, b, h);
  int32_t keys = per_step ? sl_plan_map_each(plan) : sli_lower_tick_map(l, by);
  const char *what = h->program ? "copy" : "send";
  sl_actor a = {.name = sl_plan_format(plan, "%s:%s", what, plan->regs[reg].name),
                .cls = SL_CLASS_C, .queue = h->queue, .stage = by->stage, .chunk = SL_NONE,
                .ticks = per_step ? sl_plan_add_map(plan, 1, every * ticks, &last) : keys,
                .firings_per_step = per_step ? 1 : ticks, .every = every,
                .nin = 1, .in = &(sl_port){from, keys}, .nout = 1, .out = &(sl_port){reg, keys},
                .program = h->program, .seconds = h->seconds};
  sl_plan_add_actor(plan, a);
  return reg;
}

/* The end of a link that is there already, or SL_NONE. */
static int32_t find_link(const sli_links *x, int32_t from, int device, sl_space space) {
  for (int i = 0; i < x->count; i++) {
    const link *k = &x->items[i];
    if (k->from == from && k->device == device && k->space == space) return k->to;
  }
  return SL_NONE;
}

static int32_t keep_link(sli_lowering *l, sli_links *x, int32_t from, int32_t to) {
  if (x->count == x->capacity) {
    int more = 2 * x->capacity + 16;
    link *items = sli_arena_alloc(&l->arena, (size_t)more * sizeof *items);
    if (x->count) memcpy(items, x->items, (size_t)x->count * sizeof *items);
    x->items = items;
    x->capacity = more;
  }
  const sl_register *end = &l->plan->regs[to];
  x->items[x->count++] = (link){from, to, end->device, end->space};
  return to;
}

static int32_t *queue_at(sli_lowering *l, sli_links *x, way way, int from, int to) {
  return &x->queues[((int)way * l->devices + from) * l->devices + to];
}

/* ---- between devices and processes ------------------------------------------------- */

static bool between_processes(const sli_lowering *l, int from, int to) {
  return l->plan->devices[from].process != l->plan->devices[to].process;
}

/* On modelled devices: where what a device of another stage reads arrives. */
static int arrival(const sli_lowering *l, const sli_bundle *b, int device) {
  return device - device % l->ranks + b->device % l->ranks;
}

/* Between devices of one stage the readers take the time. */
static sl_hardware_link link_to(const sli_lowering *l, const sli_bundle *b, int device) {
  if (b->device / l->ranks == device / l->ranks) return (sl_hardware_link){0, 0};
  return sli_lower_link(l, b->device, device);
}

/* What once a step goes to other stages takes time where a machine is modelled. */
static bool takes_time(const sli_lowering *l, const sli_bundle *b, int device) {
  bool often = b->rate == SLI_PER_TICK || (l->options->hardware && b->rate == SLI_PER_STEP);
  if (!often || l->groups[b->producer].host) return false;
  sl_hardware_link link = link_to(l, b, arrival(l, b, device));
  return link.seconds > 0 || wire_seconds(&link, b->bytes) > 0;
}

static bool crosses(const sli_lowering *l, const sli_bundle *b, int device) {
  if (b->producer == SL_NONE) return false;
  return between_processes(l, b->device, device) || takes_time(l, b, device);
}

static int32_t link_queue(sli_lowering *l, sli_links *x, way way, int from, int to) {
  bool real = between_processes(l, from, to);
  const char *name = way == DIRECT ? "direct" : real ? "link" : way == WIRE ? "wire" : "way";
  const sl_queue_ops *ops = real ? &sl_queue_link
                            : way == WIRE ? &sl_queue_timed : &sl_queue_delay;
  int32_t *q = queue_at(l, x, way, from, to);
  if (*q == SL_NONE)
    *q = sl_plan_add_queue(
        l->plan, (sl_queue){.name = sl_plan_format(l->plan, "%s@%d>%d", name, from, to),
                            .device = from, .ops = ops,
                            .run_ahead = way == WIRE ? 1 : l->m * l->k});
  return *q;
}

/* To the host's memory of another process, where that is not the device's own; or to
 * another modelled device. */
static int32_t cross(sli_lowering *l, sli_links *x, int32_t reg, const sli_bundle *b, int reader) {
  bool real = between_processes(l, b->device, reader);
  int device = real ? reader : arrival(l, b, reader);
  sl_space space = real ? sli_kind_host_space(l->kind) : SL_SPACE_DEVICE;
  sl_hardware_link link = link_to(l, b, device);
  double wire = wire_seconds(&link, b->bytes), way = link.seconds;
  int32_t from = reg, there = find_link(x, reg, device, space);
  if (there != SL_NONE) return there;
  if (wire > 0 && !real)
    reg = add_hop(l, reg, b, &(hop){.queue = link_queue(l, x, WIRE, b->device, device),
                                    .device = b->device, .on_the_way = true, .seconds = wire,
                                    .mark = sl_plan_format(l->plan, "~%d", device)});
  reg = add_hop(l, reg, b, &(hop){.queue = link_queue(l, x, WAY, b->device, device),
                                  .device = device, .space = space,
                                  .mark = sl_plan_format(l->plan, ">%d", device),
                                  .seconds = real ? wire + way : way});
  return keep_link(l, x, from, reg);
}

/* ---- between memories ----------------------------------------------------------------- */

static const sl_memory_ops *memory_of(const sli_lowering *l, int device, sl_space space) {
  return l->plan->devices[device].room[space].memory;
}

static bool is_far(const sl_memory_ops *memory) { return memory && memory->far; }

/* Do those who work in this space of this device address that register? */
static bool reaches(const sli_lowering *l, int device, sl_space space, int32_t reg) {
  const sl_register *r = &l->plan->regs[reg];
  const sl_memory_ops *here = memory_of(l, device, space);
  const sl_memory_ops *there = memory_of(l, r->device, r->space);
  if (!is_far(here) && !is_far(there)) return true;
  return here == there && l->plan->devices[device].number == l->plan->devices[r->device].number;
}

/* Copies one slot. */
static sl_program *copy_program(sli_lowering *l, const char *name, size_t bytes) {
  sl_plan *plan = l->plan;
  sl_program *program = sl_plan_alloc(plan, sizeof *program);
  sl_program_call *call = sl_plan_alloc(plan, sizeof *call);
  sl_place *places = sl_plan_alloc(plan, 2 * sizeof *places);
  sl_type *type = sl_plan_alloc(plan, sizeof *type);
  for (int i = 0; i < 2; i++) places[i] = (sl_place){i, 0};
  *type = SL_TYPE(SL_F32, (int64_t)(bytes / sizeof(float)));
  *call = (sl_program_call){.op = &sl_op_copy, .name = name, .nin = 1, .nout = 1, .in_type = type,
                            .out_type = type, .in = &places[0], .out = &places[1]};
  *program = (sl_program){.ncalls = 1, .calls = call, .nbases = 3, .nvariants = 1};
  return program;
}

static int32_t copy_queue(sli_lowering *l, sli_links *x, way way, int device) {
  int32_t *q = queue_at(l, x, way, device, device);
  if (*q == SL_NONE)
    *q = sl_plan_add_queue(
        l->plan, (sl_queue){.name = sl_plan_format(l->plan, "%s@%d", copy_names[way], device),
                            .device = device, .ops = l->kind->copy,
                            .run_ahead = l->kind->run_ahead});
  return *q;
}

static int32_t copy(sli_lowering *l, sli_links *x, int32_t from, const sli_bundle *b, int device,
                    sl_space space) {
  int32_t there = find_link(x, from, device, space);
  if (there != SL_NONE) return there;
  const sl_register *r = &l->plan->regs[from];
  bool out = is_far(memory_of(l, r->device, r->space)), in = is_far(memory_of(l, device, space));
  way way = out && in ? BETWEEN : out ? OUT_OF : INTO;
  hop h = {.queue = copy_queue(l, x, way, out ? r->device : device), .device = device,
           .space = space, .mark = sl_plan_format(l->plan, ">%s:%d", sl_space_name(space), device),
           .quota_name = copy_names[way], .program = copy_program(l, copy_names[way], b->bytes)};
  return keep_link(l, x, from, add_hop(l, from, b, &h));
}

/* ---- from one's memory into another's ---------------------------------------------------- */

/* Can a link take the register out of far memory into that of a device of another process? */
static bool is_direct(const sli_lowering *l, int32_t reg, int device, sl_space space) {
  const sl_register *r = &l->plan->regs[reg];
  const sl_device *from = &l->plan->devices[r->device], *to = &l->plan->devices[device];
  return l->direct && is_far(memory_of(l, r->device, r->space)) &&
         is_far(memory_of(l, device, space)) &&
         (l->options->devices.links == SL_LINKS_DIRECT || from->number != to->number);
}

static int32_t cross_directly(sli_lowering *l, sli_links *x, int32_t reg, const sli_bundle *b,
                              int device, sl_space space) {
  int32_t there = find_link(x, reg, device, space);
  if (there != SL_NONE) return there;
  sl_hardware_link way = link_to(l, b, device);
  hop h = {.queue = link_queue(l, x, DIRECT, b->device, device), .device = device, .space = space,
           .mark = sl_plan_format(l->plan, ">%d", device),
           .seconds = wire_seconds(&way, b->bytes) + way.seconds};
  return keep_link(l, x, reg, add_hop(l, reg, b, &h));
}

/* ---- all hops ---------------------------------------------------------------------------- */

int32_t sli_lower_near(sli_lowering *l, sli_links *x, int bundle, const sli_group *g) {
  const sli_bundle *b = &l->bundles[bundle];
  sl_space space = sli_lower_space(l, g);
  int32_t reg = b->reg;
  if (crosses(l, b, g->device)) {
    sl_space host = sli_kind_host_space(l->kind);
    bool real = between_processes(l, b->device, g->device);
    if (real && is_direct(l, reg, g->device, space))
      return cross_directly(l, x, reg, b, g->device, space);
    if (real && !reaches(l, b->device, host, reg)) reg = copy(l, x, reg, b, b->device, host);
    reg = cross(l, x, reg, b, g->device);
  }
  if (b->producer == SL_NONE || reaches(l, g->device, space, reg)) return reg;
  return copy(l, x, reg, b, g->device, space);
}
