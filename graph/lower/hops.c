/* Transfers (hops): data out of a reader's reach is brought to it.
 *
 * A hop is a group that computes nothing and makes one bundle, a copy of the one it reads, in
 * memory nearer to the reader. Data for another process goes over a link to that process. Data
 * in memory that the reader does not address (a GPU's for the host, or the reverse) is copied on
 * a queue of its own, beside the passes. The copy's bundle has a role of its own ("h2d" into a
 * device, "d2h" out of one, "d2d" between two), so that data arrives early and leaves late
 * without a stall. Both cases together are hops one after another: out of the device, to the
 * other process, into its device. Where the kind of the devices has a direct way between their
 * memories, that is the only hop.
 *
 * On modelled devices with a crossing time, data for another stage's device takes up to two
 * hops: the wire, which carries one transfer at a time, and the flight, which takes time but
 * lets transfers overlap. The data goes once, to the device of the same rank. Other devices of
 * that stage read it there as in any exchange between devices of a stage, and the readers pay
 * the time (exchange.c). */
#include "graph/lower/ir.h"

#include <stdlib.h>

/* Destination of transfers from a bundle, for all readers there or for one of them. */
typedef struct end {
  int bundle;
  int reader;  /* group, or SL_NONE: all */
  int before;  /* previous destination from the same bundle, or SL_NONE */
} end;

typedef struct hops {
  sli_lowering *l;
  size_t count, capacity;
  end *ends;
  size_t nnewest, newest_capacity;
  int *newest; /* by bundle: its latest destination, or SL_NONE */
} hops;

/* Bundle that is brought somewhere, and its reader. */
typedef struct trip {
  int origin;  /* bundle */
  int reader;  /* the only group that it is for, which sets the rate; SL_NONE: for all at the
                  end, at the rate at which it is made */
  int nth;
  bool begun;  /* a transfer for this reader alone has been made */
  bool some;   /* only of offloaded pieces */
  bool away;   /* copies take turns at their destination, if the original does where it is made */
} trip;

/* One transfer: from a bundle to the copy it makes. */
typedef struct leg {
  sli_route route;
  int from, to;    /* devices: where it runs, and its destination */
  sl_space home;
  const char *mark;
  sl_space stay;   /* home involved, for routes between homes */
  bool passing;    /* intermediate: no memory is used at its end */
  double seconds;
} leg;

static double wire_seconds(const sl_hardware_link *link, size_t bytes) {
  return link->bytes_per_second > 0 ? (double)bytes / link->bytes_per_second : 0;
}

/* ---- readers --------------------------------------------------------------------------- */

static trip trip_for_all(int bundle) { return (trip){.origin = bundle, .reader = SL_NONE}; }

static trip trip_away(const sli_lowering *l, int bundle, int group) {
  const sli_bundle *b = &l->bundles[bundle];
  trip t = trip_for_all(bundle);
  t.away = true;
  if (!sli_is_fetched(l, b, &l->groups[group])) return t;
  t.reader = group;
  t.nth = sli_fetched_before(l, bundle, &l->groups[group]);
  return t;
}

/* ---- one hop ------------------------------------------------------------------------ */

/* Returns the rate of a transfer: that of the bundle, or of its only reader. If the reader goes
 * over pieces, but not over those of this bundle, the rate is once per piece. */
static sli_rate rate_of(const sli_lowering *l, const trip *t) {
  const sli_bundle *b = &l->bundles[t->origin];
  if (t->reader == SL_NONE) return b->rate;
  sli_rate rate = l->groups[t->reader].rate;
  return sli_is_swept(b) ? rate : SLI_MAX(rate, SLI_PER_TICK);
}

static int add_hop_group(sli_lowering *l, int from, const trip *t, const leg *g, const char *name) {
  int about = t->reader == SL_NONE ? l->bundles[t->origin].producer : t->reader;
  const sli_group like = l->groups[about];
  sli_hop *h = sli_arena_alloc(&l->arena, sizeof *h);
  *h = (sli_hop){.route = g->route, .to = g->to, .home = g->stay, .origin = t->origin, .reader = t->reader,
                 .fetches = t->reader != SL_NONE && !t->begun, .nth = t->nth};
  int at = sli_add_group(
      l, (sli_group){.name = sli_arena_format(&l->arena, "%s:%s", sli_routes[g->route].verb, name),
                     .cls = SL_CLASS_C, .stage = like.stage, .device = g->from, .chunk = SL_NONE,
                     .rank = like.rank, .level = like.level, .part = like.part, .about = about,
                     .back = like.back, .seconds = g->seconds, .hop = h,
                     .eval = l->bundles[t->origin].eval,
                     .rate = t->some ? SLI_PER_LEAVING : rate_of(l, t)});
  sli_add_port(&l->groups[at], from, false);
  return at;
}

static sli_role end_role(const sli_lowering *l, int from, const sli_hop *h) {
  const sli_route_row *r = &sli_routes[h->route];
  if (h->route == SLI_ROUTE_FILL) return sli_roles[l->bundles[from].role].filled;
  if (h->route == SLI_ROUTE_SPILL) return l->bundles[h->origin].role;
  if (!r->ops && r->role != SLI_ROLES) return r->role;
  return h->fetches ? SLI_ROLE_GATHER : l->bundles[from].role;
}

/* Adds a transfer; returns the bundle at its end, a copy of the one before in another place. */
static int add_hop(hops *x, int from, trip *t, const leg *g) {
  sli_lowering *l = x->l;
  bool first = t->reader != SL_NONE && !t->begun;
  const char *name = sli_arena_format(&l->arena, "%s%s%s%s", l->bundles[from].name, g->mark,
                                      first ? ":" : "", first ? l->groups[t->reader].name : "");
  int by = add_hop_group(l, from, t, g, name);
  const sli_bundle origin = l->bundles[t->origin];
  const sli_hop *h = l->groups[by].hop;
  int at = sli_add_bundle(
      l, (sli_bundle){.name = name, .role = end_role(l, from, h), .producer = by,
                      .rate = l->groups[by].rate, .eval = origin.eval, .memory = origin.memory,
                      .device = g->passing ? g->from : g->to,
                      .over = SL_NONE, .aside = origin.aside, .transient = t->away,
                      .bytes = g->passing ? 0 : origin.bytes,
                      .payload_bytes = g->passing ? 0 : origin.payload_bytes,
                      .extent = origin.extent});
  l->bundles[at].home = g->home;
  l->bundles[at].origin = t->origin;
  l->bundles[at].source = from;
  t->begun = t->reader != SL_NONE;
  return at;
}

/* Returns an existing destination, or SL_NONE. */
static int find_end(const hops *x, int from, const trip *t, int device, sl_space home) {
  for (int i = (size_t)from < x->nnewest ? x->newest[from] : SL_NONE; i != SL_NONE;
       i = x->ends[i].before) {
    const sli_bundle *b = &x->l->bundles[x->ends[i].bundle];
    if (b->device == device && b->home == home && x->ends[i].reader == t->reader)
      return x->ends[i].bundle;
  }
  return SL_NONE;
}

static int keep_end(hops *x, int from, int to, const trip *t) {
  while (x->nnewest <= (size_t)from) {
    SLI_GROW(x->newest, x->nnewest, x->newest_capacity);
    x->newest[x->nnewest++] = SL_NONE;
  }
  SLI_GROW(x->ends, x->count, x->capacity);
  x->ends[x->count] = (end){to, t->reader, x->newest[from]};
  x->newest[from] = (int)x->count++;
  return to;
}

/* ---- between devices and processes ------------------------------------------------- */

static int process_of(const sli_lowering *l, int device) {
  return sl_device_process(device, l->in->devices, l->in->options->processes);
}

static bool between_processes(const sli_lowering *l, int from, int to) {
  return process_of(l, from) != process_of(l, to);
}

/* Returns the device of a modelled stage where data for one of its devices arrives. */
static int arrival(const sli_lowering *l, const sli_bundle *b, int device) {
  return sli_device_at(l->in, sli_along_of(l->in, device), sli_rank_of(l->in, b->device));
}

/* Returns the link to a device. Within a stage, the readers pay the time instead. */
static sl_hardware_link link_to(const sli_lowering *l, const sli_bundle *b, int device) {
  if (sli_along_of(l->in, b->device) == sli_along_of(l->in, device)) return (sl_hardware_link){0, 0};
  return sli_lower_link(l->in, b->device, device);
}

/* True if the transfer takes time. On modelled machines, data sent once a step to other stages
 * does. Devices that compute read each other's memory directly, whatever machine their plan is
 * made for. */
static bool takes_time(const sli_lowering *l, const sli_bundle *b, int device) {
  if (!l->in->kind->modelled) return false;
  bool often = b->rate == SLI_PER_TICK || (l->in->options->hardware && b->rate == SLI_PER_STEP);
  if (!often || l->groups[b->producer].host) return false;
  sl_hardware_link link = link_to(l, b, arrival(l, b, device));
  return link.seconds > 0 || wire_seconds(&link, b->bytes) > 0;
}

/* Sends the bundle to the host memory of another process, unless that is the device's own
 * memory. */
static int send(hops *x, int from, trip *t, int device) {
  sli_lowering *l = x->l;
  const sli_bundle *b = &l->bundles[t->origin];
  sl_space host = sli_kind_host_space(l->in->kind);
  int there = find_end(x, from, t, device, host);
  if (there != SL_NONE) return there;
  sl_hardware_link link = link_to(l, b, device);
  leg g = {.route = SLI_ROUTE_LINK, .from = b->device, .to = device, .home = host,
           .mark = sli_arena_format(&l->arena, ">%d", device),
           .seconds = wire_seconds(&link, b->bytes) + link.seconds +
                      sli_lower_process_link(l->in, b->device, device, b->bytes)};
  return keep_end(x, from, add_hop(x, from, t, &g), t);
}

/* Sends the bundle to another modelled device. */
static int fly(hops *x, int from, trip *t, int reader) {
  sli_lowering *l = x->l;
  const sli_bundle b = l->bundles[t->origin];
  int device = arrival(l, &b, reader), there = find_end(x, from, t, device, SL_SPACE_DEVICE);
  if (there != SL_NONE) return there;
  sl_hardware_link link = link_to(l, &b, device);
  leg wire = {.route = SLI_ROUTE_WIRE, .from = b.device, .to = device, .passing = true,
              .mark = sli_arena_format(&l->arena, "~%d", device),
              .seconds = wire_seconds(&link, b.bytes)};
  leg flight = {.route = SLI_ROUTE_FLIGHT, .from = b.device, .to = device,
                .mark = sli_arena_format(&l->arena, ">%d", device), .seconds = link.seconds};
  int at = wire.seconds > 0 ? add_hop(x, from, t, &wire) : from;
  return keep_end(x, from, add_hop(x, at, t, &flight), t);
}

/* ---- between memories ----------------------------------------------------------------- */

static const sl_memory_ops *memory_of(const sli_lowering *l, sl_space space) {
  return l->in->kind->memory[space];
}

static bool is_far(const sli_lowering *l, sl_space space) {
  return memory_of(l, space) && memory_of(l, space)->far;
}

/* True if code that runs in this space of this device can address the bundle. */
static bool reaches(const sli_lowering *l, int device, sl_space space, const sli_bundle *b) {
  if (!is_far(l, space) && !is_far(l, b->home)) return true;
  return memory_of(l, space) == memory_of(l, b->home) &&
         sli_lower_number(l->in, device) == sli_lower_number(l->in, b->device);
}

/* Adds, on modelled devices, the passage through host memory, where transfers run one at a time. */
static int pass_memory(hops *x, int from, const trip *t) {
  sli_lowering *l = x->l;
  const sli_bundle b = l->bundles[from];
  trip alone = {.origin = t->origin, .reader = t->reader, .nth = t->nth, .begun = true,
                .some = t->some};
  leg g = {.route = SLI_ROUTE_MEMORY, .from = b.device, .to = b.device, .home = b.home,
           .passing = true, .mark = "~memory",
           .seconds = wire_seconds(&(sl_hardware_link){.bytes_per_second = sli_lower_host_rate(l->in)},
                                   l->bundles[t->origin].bytes)};
  return g.seconds > 0 ? add_hop(x, from, &alone, &g) : from;
}

static int copy(hops *x, int from, trip *t, int device, sl_space space) {
  sli_lowering *l = x->l;
  int there = find_end(x, from, t, device, space);
  if (there != SL_NONE) return there;
  const sli_bundle *b = &l->bundles[from];
  bool out = is_far(l, b->home), in = is_far(l, space);
  leg g = {.route = out && in ? SLI_ROUTE_D2D : out ? SLI_ROUTE_D2H : SLI_ROUTE_H2D,
           .from = out ? b->device : device, .to = device, .home = space,
           .mark = sli_arena_format(&l->arena, ">%s:%d", sl_space_name(space), device)};
  if (out != in) g.seconds = sli_home_seconds(l, SL_SPACE_HOST, out, b->bytes);
  int through = out != in ? pass_memory(x, from, t) : from;
  return keep_end(x, from, add_hop(x, through, t, &g), t);
}

/* ---- directly between two devices' memories --------------------------------------------- */

/* True if a link can take the bundle from device memory to that of another process's device. */
static bool is_direct(const sli_lowering *l, const sli_bundle *b, int device, sl_space space) {
  return l->in->direct && is_far(l, b->home) && is_far(l, space) &&
         (l->in->options->devices.links == SL_LINKS_DIRECT ||
          sli_lower_number(l->in, b->device) != sli_lower_number(l->in, device));
}

static int send_directly(hops *x, int from, trip *t, int device, sl_space space) {
  sli_lowering *l = x->l;
  const sli_bundle *b = &l->bundles[t->origin];
  int there = find_end(x, from, t, device, space);
  if (there != SL_NONE) return there;
  sl_hardware_link link = link_to(l, b, device);
  leg g = {.route = SLI_ROUTE_DIRECT, .from = b->device, .to = device, .home = space,
           .mark = sli_arena_format(&l->arena, ">%d", device),
           .seconds = wire_seconds(&link, b->bytes) + link.seconds};
  return keep_end(x, from, add_hop(x, from, t, &g), t);
}

/* ---- to its home, and back ---------------------------------------------------------------- */

/* Returns the share of a spilled bundle that is written: some pieces are not. */
static double written(const sli_lowering *l, const sli_bundle *b) {
  return b->role == SLI_ROLE_ACT_PART ? 1 - sli_lower_again(l) : 1;
}

/* True if that home reaches this space only through host memory. */
static bool by_host(const sli_lowering *l, sl_space home, sl_space space) {
  return home == SL_SPACE_DISK && is_far(l, space);
}

/* Returns the bundle at its home, which takes over the role; the original becomes a staging copy
 * that takes turns. Bundles without a producer are at their home from the start. */
static int spill(hops *x, int bundle) {
  sli_lowering *l = x->l;
  if (l->bundles[bundle].producer == SL_NONE) l->bundles[bundle].home = l->bundles[bundle].stay;
  sli_bundle b = l->bundles[bundle];
  if (!sli_is_spilled(&b)) return bundle;
  trip t = trip_for_all(bundle);
  int there = find_end(x, bundle, &t, b.device, b.stay);
  if (there != SL_NONE) return there;
  trip out = t;
  out.away = true;
  bool way = by_host(l, b.stay, b.home);
  int from = way ? copy(x, bundle, &out, b.device, SL_SPACE_HOST) : bundle;
  leg g = {.route = SLI_ROUTE_SPILL, .from = b.device, .to = b.device, .home = b.stay,
           .stay = b.stay, .mark = sli_arena_format(&l->arena, ">%s", sl_space_name(b.stay)),
           .seconds = written(l, &b) * sli_home_seconds(l, b.stay, false, b.bytes)};
  if (b.stay == SL_SPACE_HOST) from = pass_memory(x, from, &t);
  there = keep_end(x, bundle, add_hop(x, from, &t, &g), &t);
  l->bundles[there].initial = b.held ? 1 : b.initial;
  if (b.role == SLI_ROLE_ACT_PART) l->bundles[there].rate = SLI_PER_LEAVING;
  l->bundles[bundle].role = sli_staging_role(l, &b);
  l->bundles[bundle].transient = true;
  l->bundles[bundle].held = false;
  l->bundles[bundle].initial = 0;
  return there;
}

/* Brings a filled bundle on to a reader on another device. */
static int go_on(hops *x, int filled, trip *t, int group) {
  sli_lowering *l = x->l;
  int device = l->groups[group].device, at = filled;
  sl_space space = sli_lower_space(l, &l->groups[group]);
  if (between_processes(l, l->bundles[filled].device, device)) at = send(x, filled, t, device);
  return reaches(l, device, space, &l->bundles[at]) ? at : copy(x, at, t, device, space);
}

/* Returns the space in which a group wants its filled copy on the device that fills it. For a
 * reader on another device, that is host memory, from where the copy goes on. */
static sl_space fill_space(const sli_lowering *l, const sli_bundle *b, const sli_group *g) {
  return b->device == g->device ? sli_lower_space(l, g) : sli_kind_host_space(l->in->kind);
}

static int fill(hops *x, int bundle, int group) {
  sli_lowering *l = x->l;
  int home = spill(x, bundle);
  sli_bundle b = l->bundles[bundle];
  sli_role role = sli_roles[l->bundles[home].role].filled;
  bool some = l->bundles[home].rate == SLI_PER_LEAVING;
  trip t = {.origin = bundle, .reader = group, .begun = true, .some = some, .away = true,
            .nth = sli_filled_before(l, &l->groups[group], role, some)};
  sl_space near = fill_space(l, &b, &l->groups[group]);
  sl_space to = by_host(l, b.stay, near) ? SL_SPACE_HOST : near;
  leg g = {.route = SLI_ROUTE_FILL, .from = b.device, .to = b.device, .home = to,
           .stay = b.stay, .mark = sli_arena_format(&l->arena, "<%s", l->groups[group].name),
           .seconds = sli_home_seconds(l, b.stay, true, b.bytes)};
  int from = b.stay == SL_SPACE_HOST ? pass_memory(x, home, &t) : home;
  int at = add_hop(x, from, &t, &g);
  return to == near ? go_on(x, at, &t, group) : copy(x, at, &t, b.device, near);
}

/* ---- piece by piece, to the home and back (sweep.c) --------------------------------------- */

/* Adds one more bundle that a transfer makes. */
static int add_end(sli_lowering *l, int by, int from, sli_bundle b) {
  const sli_bundle origin = l->bundles[l->groups[by].hop->origin];
  b.producer = by, b.over = SL_NONE, b.device = origin.device;
  b.eval = origin.eval, b.memory = origin.memory;
  b.bytes = origin.bytes, b.payload_bytes = origin.payload_bytes, b.extent = origin.extent;
  int at = sli_add_bundle(l, b);
  l->bundles[at].origin = l->groups[by].hop->origin;
  l->bundles[at].source = from;
  return at;
}

/* Returns the first of the pieces at their home; the others follow it. */
static int spill_pieces(hops *x, int bundle) {
  sli_lowering *l = x->l;
  sli_bundle b = l->bundles[bundle];
  trip t = trip_for_all(bundle);
  int there = find_end(x, bundle, &t, b.device, b.stay);
  if (there != SL_NONE) return there;
  leg g = {.route = SLI_ROUTE_SPILL, .from = b.device, .to = b.device, .home = b.stay, .stay = b.stay,
           .seconds = sli_home_seconds(l, b.stay, false, b.bytes)};
  const char *name = sli_arena_format(&l->arena, "%s>%s", b.name, sl_space_name(b.stay));
  int by = add_hop_group(l, bundle, &t, &g, name);
  there = l->nbundles;
  for (int j = 0; j < l->in->k; j++) {
    const char *piece = sli_arena_format(&l->arena, "%s.%d", name, j);
    int at = add_end(l, by, bundle, (sli_bundle){.name = piece, .role = SLI_ROLE_KV,
                                                 .rate = SLI_PER_MICROBATCH});
    l->bundles[at].home = b.stay;
  }
  l->bundles[bundle].role = SLI_ROLE_KV_SPILL;
  l->bundles[bundle].transient = true;
  return keep_end(x, bundle, there, &t);
}

/* Fills pieces for a group that sweeps over the pieces up to its own. In the backward pass all
 * of them come from their home; in the forward pass its own piece has just been made. */
static int fill_pieces(hops *x, int bundle, int group) {
  sli_lowering *l = x->l;
  int first = spill_pieces(x, bundle), others = l->in->k - 1;
  sli_bundle b = l->bundles[bundle];
  bool back = l->groups[group].back;
  trip t = {.origin = bundle, .reader = group, .begun = true, .away = true};
  leg g = {.route = SLI_ROUTE_FILL, .from = b.device, .to = b.device, .home = b.home, .stay = b.stay,
           .seconds = sli_home_seconds(l, b.stay, true, b.bytes)};
  const char *name = sli_arena_format(&l->arena, "%s<%s", b.name, l->groups[group].name);
  int by = add_hop_group(l, back ? first + others : bundle, &t, &g, name);
  for (int j = 0; j < others; j++) sli_add_port(&l->groups[by], first + j, false);
  return add_end(l, by, back ? first : bundle, (sli_bundle){.name = name, .role = SLI_ROLE_KV_FILL,
                                                           .rate = SLI_PER_PAIR,
                                                           .transient = true});
}

/* ---- all transfers ---------------------------------------------------------------------- */

/* Sends a bundle to a device of another process, or to its host. The copy into host memory here
 * is shared by all destinations. */
static int leave(hops *x, int bundle, trip *t, int device, sl_space space) {
  sli_lowering *l = x->l;
  const sli_bundle *b = &l->bundles[bundle];
  sl_space host = sli_kind_host_space(l->in->kind);
  if (is_direct(l, b, device, space)) return send_directly(x, bundle, t, device, space);
  trip out = trip_for_all(bundle);
  out.away = t->reader == SL_NONE;
  int from = reaches(l, b->device, host, b) ? bundle : copy(x, bundle, &out, b->device, host);
  return send(x, from, t, device);
}

/* Bundles without a producer exist from the start of the run, so each process that reads one
 * gets its own copy from then on. */
static int stand_in(hops *x, int bundle, int device) {
  sli_lowering *l = x->l;
  sli_bundle b = l->bundles[bundle];
  if (!between_processes(l, b.device, device)) return bundle;
  trip t = trip_for_all(bundle);
  int there = find_end(x, bundle, &t, device, b.home);
  if (there != SL_NONE) return there;
  b.name = sli_arena_format(&l->arena, "%s>%d", b.name, device);
  b.device = device;
  b.nconsumers = 0;
  there = sli_add_bundle(l, b);
  l->bundles[there].nconsumers = l->bundles[bundle].nconsumers;
  l->bundles[there].origin = bundle;
  return keep_end(x, bundle, there, &t);
}

/* Returns the bundle through which a group reads another: itself, or the end of transfers. */
static int bring(hops *x, int bundle, int group) {
  sli_lowering *l = x->l;
  const sli_bundle b = l->bundles[bundle];
  int device = l->groups[group].device;
  sl_space space = sli_lower_space(l, &l->groups[group]);
  if (sli_is_swept(&b)) return fill_pieces(x, bundle, group);
  if (b.stay != SL_SPACE_DEVICE && sli_is_filled(l, &b, &l->groups[group]))
    return fill(x, bundle, group);
  if (b.producer == SL_NONE) return stand_in(x, bundle, device);
  bool real = between_processes(l, b.device, device);
  bool copied = !reaches(l, device, space, &b) && b.device != device;
  trip t = real || copied ? trip_away(l, bundle, group) : trip_for_all(bundle);
  int at = bundle;
  if (real) at = leave(x, bundle, &t, device, space);
  else if (takes_time(l, &b, device)) at = fly(x, bundle, &t, device);
  return reaches(l, device, space, &l->bundles[at]) ? at : copy(x, at, &t, device, space);
}

/* Lets the updating group read the filled value that it updates. */
static void bring_back(hops *x, int bundle) {
  int group = x->l->bundles[bundle].producer, at = fill(x, bundle, group);
  sli_add_port(&x->l->groups[group], at, false);
}

/* True if the bundle is updated from its old value in another memory than its home. */
static bool is_updated(const sli_lowering *l, int bundle) {
  const sli_bundle *b = &l->bundles[bundle];
  if (b->producer == SL_NONE || b->source != SL_NONE || !sli_is_spilled(b)) return false;
  return b->held || l->bundles[sli_bundle_home(l, bundle)].initial;
}

static bool is_aside(const sli_lowering *l, const sli_bundle *b) {
  bool aside = b->producer != SL_NONE && l->groups[b->producer].stage == SL_NONE;
  for (int i = 0; i < b->nconsumers; i++) aside |= l->groups[b->consumers[i]].stage == SL_NONE;
  return aside;
}

void sli_lower_hops(sli_lowering *l) {
  hops x = {.l = l};
  l->ncomputing = l->ngroups;
  for (int b = 0; b < l->nbundles; b++) l->bundles[b].aside = is_aside(l, &l->bundles[b]);
  for (int g = 0; g < l->ncomputing; g++)
    for (int i = 0; i < l->groups[g].ninputs; i++) {
      int near = bring(&x, l->groups[g].inputs[i], g);
      l->groups[g].inputs[i] = near;
    }
  for (int b = 0, n = l->nbundles; b < n; b++)
    if (is_updated(l, b)) bring_back(&x, b);
  free(x.ends);
  free(x.newest);
}
