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
#include "graph/lower/ir.h"

#include <stdlib.h>
#include <string.h>

/* One way to a place, for all who read there; or for one of them. */
typedef struct link {
  int32_t from, to; /* registers */
  int device;
  sl_space space;
  int reader;       /* group, or SL_NONE: all */
  int before;       /* the link made before it that leads from there, or SL_NONE */
} link;

/* A hop whose end shares slots with others of its queue, device and lane: the actor is made when
 * all are known, in the order of these groups. */
typedef struct end {
  sl_actor actor;
  sl_port in[2], out[2]; /* data, and turns */
  const char *copies;    /* the call of its program, or NULL */
  int device;            /* where it ends */
  int64_t lane;
  int group;
} end;

typedef enum way { WAY, WIRE, DIRECT, INTO, OUT_OF, BETWEEN, WAYS } way;
static const char *const copy_names[WAYS] = {[INTO] = "h2d", [OUT_OF] = "d2h", [BETWEEN] = "d2d"};

struct sli_links {
  size_t count, capacity;
  link *items;
  size_t nnewest, newest_capacity;
  int *newest;     /* by register: the last of the links from there, or SL_NONE */
  int32_t *queues; /* [WAYS * devices^2] by way, source and destination, or SL_NONE */
  size_t nends, end_capacity;
  end *ends;
};

/* One hop, from a register to the one it makes. */
typedef struct hop {
  int32_t queue;
  int device;      /* where it ends */
  sl_space space;
  const char *mark, *quota_name; /* NULL: its source's */
  const char *copies; /* the call of its program; NULL: it has none */
  bool on_the_way; /* nothing is kept at its end */
  double seconds;
} hop;

/* What goes on a way, and for whom. */
typedef struct trip {
  const sli_bundle *b;
  int reader;      /* the one group that it is for, and which says how often; SL_NONE: for all
                      at the end, as often as it is made */
  bool begun;      /* a hop for that reader is behind it */
  int64_t lane;    /* of the ends, or SL_NONE */
  int group;       /* whose turn is that of the hops */
} trip;

sli_links *sli_links_create(sli_lowering *l) {
  sli_links *x = sli_arena_alloc(&l->arena, sizeof *x);
  int ways = WAYS * l->in->devices * l->in->devices;
  x->queues = sli_arena_alloc(&l->arena, (size_t)ways * sizeof *x->queues);
  for (int i = 0; i < ways; i++) x->queues[i] = SL_NONE;
  return x;
}

bool sli_lower_copies(const sli_lowering *l, const char *quota_name) {
  bool known = false;
  for (int w = 0; w < WAYS && l->in->kind->copy; w++)
    known |= copy_names[w] && !strcmp(copy_names[w], quota_name);
  return known;
}

static double wire_seconds(const sl_hardware_link *link, size_t bytes) {
  return link->bytes_per_second > 0 ? (double)bytes / link->bytes_per_second : 0;
}

/* ---- what is there for a moment ------------------------------------------------------- */

/* The first group that fills the same lane. */
static int first_of_lane(const sli_lowering *l, int group) {
  int first = 0;
  while (first < group && !sli_lower_same_lane(l, first, group)) first++;
  return first;
}

static bool is_alone_there(const sli_lowering *l, const sli_bundle *b, const sli_group *g) {
  int n = 0;
  for (int i = 0; i < b->nconsumers; i++) n += l->groups[b->consumers[i]].device == g->device;
  return n == 1;
}

/* Does an exchange read parameters that are kept elsewhere? Then they are brought to it when it
 * needs them, and it has no more of them at a time than the quota says. What several groups read
 * once a step comes once, and stays. */
static bool is_fetched(const sli_lowering *l, const sli_bundle *b, const sli_group *g) {
  return g->cls == SL_CLASS_C && !g->host && b->memory == SL_MEMORY_PARAMETERS &&
         b->rate == SLI_PER_STEP && b->initial &&
         (g->rate == SLI_PER_TICK || is_alone_there(l, b, g));
}

/* The lane of what a group fetches: one for each of the bundles that it fetches from a device. */
static int64_t fetch_lane(const sli_lowering *l, const sli_bundle *b, int group) {
  const sli_group *g = &l->groups[group];
  int nth = 0;
  for (int i = 0; &l->bundles[g->inputs[i]] != b; i++) {
    const sli_bundle *other = &l->bundles[g->inputs[i]];
    nth += other->device == b->device && is_fetched(l, other, g);
  }
  int64_t at = (int64_t)nth * l->in->devices + b->device;
  return l->nbundles + at * l->ngroups + first_of_lane(l, group);
}

static trip all_as_made(const sli_bundle *b) {
  return (trip){.b = b, .reader = SL_NONE, .lane = SL_NONE};
}

static trip trip_of(const sli_lowering *l, int bundle, const sli_group *g) {
  const sli_bundle *b = &l->bundles[bundle];
  trip t = all_as_made(b);
  int group = (int)(g - l->groups);
  if (b->brief) {
    t.lane = b->leader == SL_NONE ? bundle : b->leader;
    t.group = b->producer;
  } else if (is_fetched(l, b, g)) {
    t.lane = fetch_lane(l, b, group);
    t.reader = t.group = group;
  }
  return t;
}

/* ---- one hop ------------------------------------------------------------------------ */

/* The register at the far end: like the one before, but for where it is. */
static int32_t add_end(sli_lowering *l, int32_t from, const trip *t, const hop *h) {
  const char *whose = t->reader == SL_NONE || t->begun ? "" : l->groups[t->reader].name;
  const sli_bundle *b = t->b;
  int stage = l->groups[b->producer].stage, ticks = l->in->m * l->in->k;
  sl_register far = l->plan->regs[from];
  far.name = sl_plan_format(l->plan, "%s%s%s%s", far.name, h->mark, *whose ? ":" : "", whose);
  far.device = h->device;
  far.space = h->space;
  far.activation = 0;
  far.initial = 0;
  far.pool = SL_NONE;
  far.shares = 0;
  far.over = 0;
  far.slot_bytes = h->on_the_way ? 0 : b->bytes;
  far.payload_bytes = h->on_the_way ? 0 : b->payload_bytes;
  if (t->reader != SL_NONE) {
    int given = sli_lower_given(l, "gather", stage);
    far.quota_name = "gather";
    far.quota = given ? given : l->groups[t->reader].rate == SLI_PER_TICK ? SLI_MIN(2, ticks) : 1;
  }
  if (h->quota_name) {
    int given = sli_lower_given(l, h->quota_name, stage);
    far.quota_name = h->quota_name;
    if (given) far.quota = given;
  }
  return sl_plan_add_register(l->plan, far);
}

/* Copies one slot, of the first of `inputs` to the first output. */
static sl_program *copy_program(sli_lowering *l, const char *name, size_t bytes, int inputs,
                                int outputs) {
  sl_plan *plan = l->plan;
  sl_program *program = sl_plan_alloc(plan, sizeof *program);
  sl_program_call *call = sl_plan_alloc(plan, sizeof *call);
  sl_place *places = sl_plan_alloc(plan, 2 * sizeof *places);
  sl_type *type = sl_plan_alloc(plan, sizeof *type);
  places[0] = (sl_place){0, 0};
  places[1] = (sl_place){inputs, 0};
  *type = SL_TYPE(SL_F32, (int64_t)(bytes / sizeof(float)));
  *call = (sl_program_call){.op = &sl_op_copy, .name = name, .nin = 1, .nout = 1, .in_type = type,
                            .out_type = type, .in = &places[0], .out = &places[1]};
  *program = (sl_program){.ncalls = 1, .calls = call, .nbases = inputs + outputs + 1,
                          .nvariants = 1};
  return program;
}

static void add_hop_actor(sli_lowering *l, end *e) {
  const sl_register *r = &l->plan->regs[e->out[0].reg];
  e->actor.in = e->in;
  e->actor.out = e->out;
  if (e->copies)
    e->actor.program = copy_program(l, e->copies, r->slot_bytes, e->actor.nin, e->actor.nout);
  sl_plan_add_actor(l->plan, e->actor);
}

/* In the order in which the data is made. */
static int32_t add_hop(sli_lowering *l, sli_links *x, int32_t from, trip *t, const hop *h) {
  sl_plan *plan = l->plan;
  const sli_group *by = &l->groups[t->reader == SL_NONE ? t->b->producer : t->reader];
  sli_rate rate = t->reader == SL_NONE ? t->b->rate : by->rate;
  bool sparse = rate == SLI_PER_STORE, per_step = rate >= SLI_PER_STEP;
  int32_t every = sparse ? (int32_t)l->in->options->store_every : 1, ticks = l->in->m * l->in->k;
  sl_map_entry last = {every * ticks - 1, SL_FIRST | SL_LAST};
  int32_t reg = add_end(l, from, t, h);
  int32_t keys = per_step ? sl_plan_map_each(plan) : sli_lower_tick_map(l, by);
  bool often = t->reader != SL_NONE && !t->begun && !per_step; /* from what is made once a step */
  int32_t read = often ? sl_plan_map_span(plan, (uint32_t)ticks) : keys;
  t->begun = t->reader != SL_NONE;
  end e = {.actor = {.name = sl_plan_format(plan, "%s:%s", h->copies ? "copy" : "send",
                                            plan->regs[reg].name),
                     .cls = SL_CLASS_C, .queue = h->queue, .stage = by->stage, .chunk = SL_NONE,
                     .ticks = per_step ? sl_plan_add_map(plan, 1, every * ticks, &last) : keys,
                     .firings_per_step = per_step ? 1 : ticks, .every = every,
                     .nin = 1, .nout = 1, .seconds = h->seconds},
           .in = {{from, read}}, .out = {{reg, keys}}, .copies = h->copies,
           .device = h->device, .lane = t->lane, .group = t->group};
  if (t->lane == SL_NONE) {
    add_hop_actor(l, &e);
    return reg;
  }
  SLI_GROW(x->ends, x->nends, x->end_capacity);
  x->ends[x->nends++] = e;
  return reg;
}

/* The end of a link that is there already, or SL_NONE. */
static int32_t find_link(const sli_links *x, int32_t from, const trip *t, int device,
                         sl_space space) {
  const link *k;
  for (int i = (size_t)from < x->nnewest ? x->newest[from] : SL_NONE; i != SL_NONE; i = k->before) {
    k = &x->items[i];
    if (k->device == device && k->space == space && k->reader == t->reader) return k->to;
  }
  return SL_NONE;
}

static int32_t keep_link(sli_lowering *l, sli_links *x, int32_t from, int32_t to, const trip *t) {
  const sl_register *end = &l->plan->regs[to];
  while (x->nnewest <= (size_t)from) {
    SLI_GROW(x->newest, x->nnewest, x->newest_capacity);
    x->newest[x->nnewest++] = SL_NONE;
  }
  SLI_GROW(x->items, x->count, x->capacity);
  x->items[x->count] = (link){from, to, end->device, end->space, t->reader, x->newest[from]};
  x->newest[from] = (int)x->count++;
  return to;
}

static int32_t *queue_at(sli_lowering *l, sli_links *x, way way, int from, int to) {
  return &x->queues[((int)way * l->in->devices + from) * l->in->devices + to];
}

/* ---- between devices and processes ------------------------------------------------- */

static bool between_processes(const sli_lowering *l, int from, int to) {
  return l->plan->devices[from].process != l->plan->devices[to].process;
}

/* On modelled devices: where what a device of another stage reads arrives. */
static int arrival(const sli_lowering *l, const sli_bundle *b, int device) {
  return device - device % l->in->ranks + b->device % l->in->ranks;
}

/* Between devices of one stage the readers take the time. */
static sl_hardware_link link_to(const sli_lowering *l, const sli_bundle *b, int device) {
  if (b->device / l->in->ranks == device / l->in->ranks) return (sl_hardware_link){0, 0};
  return sli_lower_link(l->in, b->device, device);
}

/* What once a step goes to other stages takes time where a machine is modelled. */
static bool takes_time(const sli_lowering *l, const sli_bundle *b, int device) {
  bool often = b->rate == SLI_PER_TICK || (l->in->options->hardware && b->rate == SLI_PER_STEP);
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
                            .run_ahead = way == WIRE ? 1 : l->in->m * l->in->k});
  return *q;
}

/* To the host's memory of another process, where that is not the device's own; or to
 * another modelled device. */
static int32_t cross(sli_lowering *l, sli_links *x, int32_t reg, trip *t, int reader) {
  const sli_bundle *b = t->b;
  bool real = between_processes(l, b->device, reader);
  int device = real ? reader : arrival(l, b, reader);
  sl_space space = real ? sli_kind_host_space(l->in->kind) : SL_SPACE_DEVICE;
  sl_hardware_link link = link_to(l, b, device);
  double wire = wire_seconds(&link, b->bytes), way = link.seconds;
  int32_t from = reg, there = find_link(x, reg, t, device, space);
  if (there != SL_NONE) return there;
  if (wire > 0 && !real)
    reg = add_hop(l, x, reg, t, &(hop){.queue = link_queue(l, x, WIRE, b->device, device),
                                       .device = b->device, .on_the_way = true, .seconds = wire,
                                       .mark = sl_plan_format(l->plan, "~%d", device)});
  reg = add_hop(l, x, reg, t, &(hop){.queue = link_queue(l, x, WAY, b->device, device),
                                     .device = device, .space = space,
                                     .mark = sl_plan_format(l->plan, ">%d", device),
                                     .seconds = real ? wire + way : way});
  return keep_link(l, x, from, reg, t);
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

static int32_t copy_queue(sli_lowering *l, sli_links *x, way way, int device) {
  int32_t *q = queue_at(l, x, way, device, device);
  if (*q == SL_NONE)
    *q = sl_plan_add_queue(
        l->plan, (sl_queue){.name = sl_plan_format(l->plan, "%s@%d", copy_names[way], device),
                            .device = device, .ops = l->in->kind->copy,
                            .run_ahead = l->in->kind->run_ahead});
  return *q;
}

static int32_t copy(sli_lowering *l, sli_links *x, int32_t from, trip *t, int device,
                    sl_space space) {
  int32_t there = find_link(x, from, t, device, space);
  if (there != SL_NONE) return there;
  const sl_register *r = &l->plan->regs[from];
  bool out = is_far(memory_of(l, r->device, r->space)), in = is_far(memory_of(l, device, space));
  way way = out && in ? BETWEEN : out ? OUT_OF : INTO;
  hop h = {.queue = copy_queue(l, x, way, out ? r->device : device), .device = device,
           .space = space, .mark = sl_plan_format(l->plan, ">%s:%d", sl_space_name(space), device),
           .quota_name = copy_names[way], .copies = copy_names[way]};
  return keep_link(l, x, from, add_hop(l, x, from, t, &h), t);
}

/* ---- from one's memory into another's ---------------------------------------------------- */

/* Can a link take the register out of far memory into that of a device of another process? */
static bool is_direct(const sli_lowering *l, int32_t reg, int device, sl_space space) {
  const sl_register *r = &l->plan->regs[reg];
  const sl_device *from = &l->plan->devices[r->device], *to = &l->plan->devices[device];
  return l->in->direct && is_far(memory_of(l, r->device, r->space)) &&
         is_far(memory_of(l, device, space)) &&
         (l->in->options->devices.links == SL_LINKS_DIRECT || from->number != to->number);
}

static int32_t cross_directly(sli_lowering *l, sli_links *x, int32_t reg, trip *t, int device,
                              sl_space space) {
  const sli_bundle *b = t->b;
  int32_t there = find_link(x, reg, t, device, space);
  if (there != SL_NONE) return there;
  sl_hardware_link way = link_to(l, b, device);
  hop h = {.queue = link_queue(l, x, DIRECT, b->device, device), .device = device, .space = space,
           .mark = sl_plan_format(l->plan, ">%d", device),
           .seconds = wire_seconds(&way, b->bytes) + way.seconds};
  return keep_link(l, x, reg, add_hop(l, x, reg, t, &h), t);
}

/* ---- all hops ---------------------------------------------------------------------------- */

int32_t sli_lower_near(sli_lowering *l, sli_links *x, int bundle, const sli_group *g,
                       bool *often) {
  const sli_bundle *b = &l->bundles[bundle];
  sl_space space = sli_lower_space(l, g), host = sli_kind_host_space(l->in->kind);
  bool real = between_processes(l, b->device, g->device);
  bool copied = b->producer != SL_NONE && !reaches(l, g->device, space, b->reg);
  bool away = real || (copied && b->device != g->device);
  trip t = away ? trip_of(l, bundle, g) : all_as_made(b);
  int32_t reg = b->reg;
  if (crosses(l, b, g->device)) {
    if (real && is_direct(l, reg, g->device, space)) {
      reg = cross_directly(l, x, reg, &t, g->device, space);
    } else {
      trip out = t.reader == SL_NONE ? t : all_as_made(b); /* into the host's memory once for all */
      if (real && !reaches(l, b->device, host, reg)) reg = copy(l, x, reg, &out, b->device, host);
      reg = cross(l, x, reg, &t, g->device);
    }
  }
  if (b->producer != SL_NONE && !reaches(l, g->device, space, reg))
    reg = copy(l, x, reg, &t, g->device, space);
  *often = t.reader != SL_NONE && g->rate == SLI_PER_TICK;
  return reg;
}

/* ---- lanes -------------------------------------------------------------------------------- */

static int by_lane(const void *a, const void *b, void *lowering) {
  const end *x = a, *y = b;
  if (x->actor.queue != y->actor.queue) return x->actor.queue - y->actor.queue;
  if (x->device != y->device) return x->device - y->device;
  if (x->lane != y->lane) return x->lane < y->lane ? -1 : 1;
  return sli_lower_turn(lowering, x->group, y->group);
}

static bool is_same_lane(const end *x, const end *y) {
  return x->actor.queue == y->actor.queue && x->device == y->device && x->lane == y->lane;
}

/* Hands a turn on from an end to the next. */
static void add_turn(sli_lowering *l, end *from, end *to, bool first) {
  sl_plan *plan = l->plan;
  const char *name = plan->regs[to->out[0].reg].name;
  int32_t each = sl_plan_map_each(plan);
  int32_t reg = sl_plan_add_register(
      plan, (sl_register){.name = sl_plan_format(plan, "turn:%s", name), .quota_name = "turn",
                          .quota = 1, .pool = SL_NONE, .initial = first,
                          .device = plan->queues[to->actor.queue].device,
                          .memory = SL_MEMORY_ACTIVATIONS});
  from->out[from->actor.nout++] = (sl_port){reg, first ? sl_plan_map_lag(plan, 1, 1) : each};
  to->in[to->actor.nin++] = (sl_port){reg, each};
}

/* Two slots for all, where that is less than one for each. */
static bool saves(const sli_lowering *l, const end *ends, size_t n) {
  size_t sum = 0, most = 0;
  for (size_t i = 0; i < n; i++) {
    size_t bytes = l->plan->regs[ends[i].out[0].reg].slot_bytes;
    sum += bytes;
    most = SLI_MAX(most, bytes);
  }
  return 2 * most < sum;
}

/* The ends of one lane, in the order of their turns. What is fetched once a step has one slot
 * each unless the user or the lane gives it more. */
static void close_lane(sli_lowering *l, end *ends, size_t n) {
  sl_plan *plan = l->plan;
  int32_t leader = ends[0].out[0].reg;
  bool once = ends[0].lane >= l->nbundles && ends[0].actor.firings_per_step == 1 &&
              !sli_lower_given(l, "gather", ends[0].actor.stage);
  if (once && !saves(l, ends, n)) return;
  for (size_t i = 1; i < n; i++) leader = SLI_MIN(leader, ends[i].out[0].reg);
  for (size_t i = 0; i < n; i++) {
    sl_register *r = &plan->regs[ends[i].out[0].reg];
    if (ends[i].out[0].reg != leader) r->shares = leader + 1;
    if (once) r->quota = 2;
  }
  for (size_t i = 0; i < n; i++) add_turn(l, &ends[i], &ends[(i + 1) % n], i + 1 == n);
}

void sli_links_close(sli_lowering *l, sli_links *x) {
  if (x->nends) qsort_r(x->ends, x->nends, sizeof *x->ends, by_lane, l);
  for (size_t i = 0, n; i < x->nends; i += n) {
    end *first = &x->ends[i];
    for (n = 1; i + n < x->nends && is_same_lane(first, &first[n]);) n++;
    if (n > 1) close_lane(l, first, n);
    for (size_t k = 0; k < n; k++) add_hop_actor(l, &first[k]);
  }
  free(x->ends);
  free(x->items);
  free(x->newest);
}
