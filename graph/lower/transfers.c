/* SPDX-License-Identifier: Apache-2.0 */
/* Transfers: they bring data to readers that cannot address it.
 *
 * A transfer is a task that computes nothing and writes one buffer, a copy of the buffer it reads,
 * in memory nearer to the reader. Data for another process goes over a link to that process. Data
 * in memory that the reader cannot address (a GPU's for the host, or the reverse) is copied on a
 * separate queue, concurrently with passes. The copy's buffer has a separate role ("h2d" into a
 * device, "d2h" out of one, "d2d" between two), so that data arrives early and leaves late without
 * a stall. Both cases combined are consecutive transfers: out of the device, to the other process,
 * into its device. If devices of this kind can copy directly between their memories, that is the
 * only transfer.
 *
 * On modelled devices with a crossing time, data for another stage's device takes up to two
 * transfers: the wire, which carries one transfer at a time, and the flight, which takes time but
 * lets transfers overlap. The data is sent once, to the device of the same rank. Other devices of
 * that stage read it there as in any exchange between devices of a stage, and the readers pay the
 * time (exchange.c). */
#include "graph/lower/ir.h"

#include <stdlib.h>

/* Destination of transfers from a buffer, for all readers there or for one reader. */
typedef struct end {
  int buffer;
  int reader; /* task, or SL_NONE: all */
  bool oldest;
  int before; /* previous destination from the same buffer, or SL_NONE */
} end;

typedef struct transfers {
  sli_lowering *l;
  size_t count, capacity;
  end *ends;
  size_t nnewest, newest_capacity;
  int *newest; /* by buffer: its latest destination, or SL_NONE */
} transfers;

/* A buffer to bring to a reader. */
typedef struct trip {
  int origin; /* buffer */
  int reader; /* the only task that it is for, which sets the rate; SL_NONE: for all readers there,
                 at the rate at which it is written */
  int nth;
  bool begun;  /* a transfer for only this reader has been added */
  bool some;   /* only of offloaded pieces */
  bool oldest; /* oldest version of parameters, for rollouts ahead of training */
  bool away;   /* copies take turns at their destination if the original does where it is written */
} trip;

/* One transfer: from a buffer to its copy. */
typedef struct leg {
  sli_transfer_kind kind;
  int from, to; /* devices: where it runs, and its destination */
  sl_space home;
  const char *mark;
  sl_space target; /* home involved, for routes between homes */
  bool passing;    /* intermediate: no memory is used at its end */
  double seconds;
} leg;

static double wire_seconds(const sl_hardware_link *link, size_t bytes) {
  return link->bytes_per_second > 0 ? (double)bytes / link->bytes_per_second : 0;
}

/* ---- readers --------------------------------------------------------------------------- */

static trip trip_for_all(int buffer) { return (trip){.origin = buffer, .reader = SL_NONE}; }

static trip trip_away(const sli_lowering *l, int buffer, int task) {
  const sli_buffer *b = &l->buffers[buffer];
  trip t = trip_for_all(buffer);
  t.away = true;
  if (!sli_is_fetched(l, b, &l->tasks[task])) return t;
  t.reader = task;
  t.nth = sli_fetched_before(l, buffer, &l->tasks[task]);
  return t;
}

/* ---- one transfer ------------------------------------------------------------------------ */

/* Returns the rate of a transfer: that of the buffer, or of its only reader. If the reader sweeps
 * over pieces, but not over pieces of this buffer, the rate is once per piece. */
static sli_rate rate_of(const sli_lowering *l, const trip *t) {
  const sli_buffer *b = &l->buffers[t->origin];
  if (t->reader == SL_NONE) return b->rate;
  sli_rate rate = l->tasks[t->reader].rate;
  return sli_is_swept(b) ? rate : SLI_MAX(rate, SLI_PER_TICK);
}

static int add_transfer_task(sli_lowering *l, int from, const trip *t, const leg *g,
                             const char *name) {
  int about = t->reader == SL_NONE ? l->buffers[t->origin].producer : t->reader;
  const sli_task like = l->tasks[about];
  sli_transfer_task *h = sli_arena_alloc(&l->arena, sizeof *h);
  *h = (sli_transfer_task){.kind = g->kind,
                           .to = g->to,
                           .home = g->target,
                           .origin = t->origin,
                           .reader = t->reader,
                           .fetches = t->reader != SL_NONE && !t->begun,
                           .oldest = t->oldest,
                           .nth = t->nth};
  int at = sli_add_task(
      l, (sli_task){
             .name = sli_arena_format(&l->arena, "%s:%s", sli_transfer_kinds[g->kind].verb, name),
             .cls = SL_CLASS_C,
             .stage = like.stage,
             .device = g->from,
             .chunk = SL_NONE,
             .rank = like.rank,
             .level = like.level,
             .part = like.part,
             .about = about,
             .backward = like.backward,
             .seconds = g->seconds,
             .transfer = h,
             .pace = l->buffers[t->origin].pace,
             .rate = t->some ? SLI_PER_LEAVING : rate_of(l, t)});
  sli_add_port(&l->tasks[at], from, false);
  return at;
}

static sli_role end_role(const sli_lowering *l, int from, const sli_transfer_task *h) {
  const sli_transfer_traits *r = &sli_transfer_kinds[h->kind];
  if (h->kind == SLI_TRANSFER_FILL) return sli_roles[l->buffers[from].role].filled;
  if (h->kind == SLI_TRANSFER_SPILL) return l->buffers[h->origin].role;
  if (!r->ops && r->role != SLI_ROLES) return r->role;
  return h->fetches ? SLI_ROLE_GATHER : l->buffers[from].role;
}

/* Adds a transfer; returns the buffer at its end, a copy in another place. */
static int add_transfer(transfers *x, int from, trip *t, const leg *g) {
  sli_lowering *l = x->l;
  bool first = t->reader != SL_NONE && !t->begun;
  const char *name =
      sli_arena_format(&l->arena, "%s%s%s%s%s", l->buffers[from].name, g->mark, first ? ":" : "",
                       first ? l->tasks[t->reader].name : "", t->oldest ? ":oldest" : "");
  int by = add_transfer_task(l, from, t, g, name);
  const sli_buffer origin = l->buffers[t->origin];
  const sli_transfer_task *h = l->tasks[by].transfer;
  int at = sli_add_buffer(l, (sli_buffer){.name = name,
                                          .role = end_role(l, from, h),
                                          .producer = by,
                                          .rate = l->tasks[by].rate,
                                          .pace = origin.pace,
                                          .memory = origin.memory,
                                          .device = g->passing ? g->from : g->to,
                                          .aliases = SL_NONE,
                                          .aside = origin.aside,
                                          .transient = t->away,
                                          .bytes = g->passing ? 0 : origin.bytes,
                                          .payload_bytes = g->passing ? 0 : origin.payload_bytes,
                                          .valid_length = origin.valid_length});
  l->buffers[at].home = g->home;
  l->buffers[at].origin = t->origin;
  l->buffers[at].source = from;
  t->begun = t->reader != SL_NONE;
  return at;
}

/* Returns an existing destination, or SL_NONE. */
static int find_end(const transfers *x, int from, const trip *t, int device, sl_space home) {
  for (int i = (size_t)from < x->nnewest ? x->newest[from] : SL_NONE; i != SL_NONE;
       i = x->ends[i].before) {
    const sli_buffer *b = &x->l->buffers[x->ends[i].buffer];
    if (b->device == device && b->home == home && x->ends[i].reader == t->reader &&
        x->ends[i].oldest == t->oldest)
      return x->ends[i].buffer;
  }
  return SL_NONE;
}

static int keep_end(transfers *x, int from, int to, const trip *t) {
  while (x->nnewest <= (size_t)from) {
    SLI_GROW(x->newest, x->nnewest, x->newest_capacity);
    x->newest[x->nnewest++] = SL_NONE;
  }
  SLI_GROW(x->ends, x->count, x->capacity);
  x->ends[x->count] = (end){to, t->reader, t->oldest, x->newest[from]};
  x->newest[from] = (int)x->count++;
  return to;
}

/* ---- between devices and processes ------------------------------------------------- */

static int process_of(const sli_lowering *l, int device) {
  return sl_device_process(device, l->in->devices, l->in->options->parallel.processes);
}

static bool between_processes(const sli_lowering *l, int from, int to) {
  return process_of(l, from) != process_of(l, to);
}

/* Returns the device of a modelled stage where data for one of its devices arrives. */
static int arrival(const sli_lowering *l, const sli_buffer *b, int device) {
  return sli_device_at(l->in, sli_along_of(l->in, device), sli_rank_of(l->in, b->device));
}

/* Returns the link to a device. Within a stage, the readers pay the time instead. */
static sl_hardware_link link_to(const sli_lowering *l, const sli_buffer *b, int device) {
  if (sli_along_of(l->in, b->device) == sli_along_of(l->in, device))
    return (sl_hardware_link){0, 0};
  return sli_lower_link(l->in, b->device, device);
}

/* True if the transfer takes time. On modelled machines, data sent once a step to other stages
 * does. Devices that compute read each other's memory directly, whatever machine the plan
 * models. */
static bool takes_time(const sli_lowering *l, const sli_buffer *b, int device) {
  if (!l->in->kind->modelled) return false;
  bool often =
      b->rate == SLI_PER_TICK || (l->in->options->simulation.hardware && b->rate == SLI_PER_STEP);
  if (!often || l->tasks[b->producer].host) return false;
  sl_hardware_link link = link_to(l, b, arrival(l, b, device));
  return link.seconds > 0 || wire_seconds(&link, b->bytes) > 0;
}

/* Sends the buffer to a memory of another device, over a link that takes `how->seconds` more. */
static int send_over(transfers *x, int from, trip *t, int device, const leg *how) {
  sli_lowering *l = x->l;
  const sli_buffer *b = &l->buffers[t->origin];
  int there = find_end(x, from, t, device, how->home);
  if (there != SL_NONE) return there;
  sl_hardware_link link = link_to(l, b, device);
  leg g = *how;
  g.from = b->device;
  g.to = device;
  g.mark = sli_arena_format(&l->arena, ">%d", device);
  g.seconds = wire_seconds(&link, b->bytes) + link.seconds + how->seconds;
  return keep_end(x, from, add_transfer(x, from, t, &g), t);
}

/* Sends the buffer to the host memory of another process, unless that is the device's own
 * memory. */
static int send(transfers *x, int from, trip *t, int device) {
  const sli_buffer *b = &x->l->buffers[t->origin];
  const leg how = {.kind = SLI_TRANSFER_LINK,
                   .home = sli_kind_host_space(x->l->in->kind),
                   .seconds = sli_lower_process_link(x->l->in, b->device, device, b->bytes)};
  return send_over(x, from, t, device, &how);
}

/* Sends the buffer to another modelled device. */
static int fly(transfers *x, int from, trip *t, int reader) {
  sli_lowering *l = x->l;
  const sli_buffer b = l->buffers[t->origin];
  int device = arrival(l, &b, reader), there = find_end(x, from, t, device, SL_SPACE_DEVICE);
  if (there != SL_NONE) return there;
  sl_hardware_link link = link_to(l, &b, device);
  leg wire = {.kind = SLI_TRANSFER_WIRE,
              .from = b.device,
              .to = device,
              .passing = true,
              .mark = sli_arena_format(&l->arena, "~%d", device),
              .seconds = wire_seconds(&link, b.bytes)};
  leg flight = {.kind = SLI_TRANSFER_FLIGHT,
                .from = b.device,
                .to = device,
                .mark = sli_arena_format(&l->arena, ">%d", device),
                .seconds = link.seconds};
  int at = wire.seconds > 0 ? add_transfer(x, from, t, &wire) : from;
  return keep_end(x, from, add_transfer(x, at, t, &flight), t);
}

/* ---- between memories ----------------------------------------------------------------- */

static const sl_memory_ops *memory_of(const sli_lowering *l, sl_space space) {
  return l->in->kind->memory[space];
}

static bool is_far(const sli_lowering *l, sl_space space) {
  return memory_of(l, space) && memory_of(l, space)->far;
}

/* True if code that runs in this space of this device can address the buffer. */
static bool reaches(const sli_lowering *l, int device, sl_space space, const sli_buffer *b) {
  if (!is_far(l, space) && !is_far(l, b->home)) return true;
  return memory_of(l, space) == memory_of(l, b->home) &&
         sli_lower_number(l->in, device) == sli_lower_number(l->in, b->device);
}

/* Adds, on modelled devices, the passage through host memory, where transfers run one at a time. */
static int pass_memory(transfers *x, int from, const trip *t) {
  sli_lowering *l = x->l;
  const sli_buffer b = l->buffers[from];
  trip alone = {
      .origin = t->origin, .reader = t->reader, .nth = t->nth, .begun = true, .some = t->some};
  leg g = {
      .kind = SLI_TRANSFER_MEMORY,
      .from = b.device,
      .to = b.device,
      .home = b.home,
      .passing = true,
      .mark = "~memory",
      .seconds = wire_seconds(&(sl_hardware_link){.bytes_per_second = sli_lower_host_rate(l->in)},
                              l->buffers[t->origin].bytes)};
  return g.seconds > 0 ? add_transfer(x, from, &alone, &g) : from;
}

static int copy(transfers *x, int from, trip *t, int device, sl_space space) {
  sli_lowering *l = x->l;
  int there = find_end(x, from, t, device, space);
  if (there != SL_NONE) return there;
  const sli_buffer *b = &l->buffers[from];
  bool out = is_far(l, b->home), in = is_far(l, space);
  leg g = {.kind = out && in ? SLI_TRANSFER_D2D
                   : out     ? SLI_TRANSFER_D2H
                             : SLI_TRANSFER_H2D,
           .from = out ? b->device : device,
           .to = device,
           .home = space,
           .mark = sli_arena_format(&l->arena, ">%s:%d", sl_space_name(space), device)};
  if (out != in) g.seconds = sli_home_seconds(l, SL_SPACE_HOST, out, b->bytes);
  int through = out != in ? pass_memory(x, from, t) : from;
  return keep_end(x, from, add_transfer(x, through, t, &g), t);
}

/* ---- directly between two devices' memories --------------------------------------------- */

/* True if a link can take the buffer from device memory to that of another process's device. */
static bool is_direct(const sli_lowering *l, const sli_buffer *b, int device, sl_space space) {
  return l->in->direct && is_far(l, b->home) && is_far(l, space) &&
         (l->in->options->devices.links == SL_LINKS_DIRECT ||
          sli_lower_number(l->in, b->device) != sli_lower_number(l->in, device));
}

static int send_directly(transfers *x, int from, trip *t, int device, sl_space space) {
  return send_over(x, from, t, device, &(leg){.kind = SLI_TRANSFER_DIRECT, .home = space});
}

static bool is_weights(const sli_buffer *b) { return b->memory == SL_MEMORY_PARAMETERS; }

/* ---- to its home, and back ---------------------------------------------------------------- */

/* Returns the fraction of a spilled buffer that is written, since some pieces are not. */
static double written(const sli_lowering *l, const sli_buffer *b) {
  return b->role == SLI_ROLE_ACT_PART ? 1 - sli_lower_rematerialized(l) : 1;
}

/* Returns the seconds that a buffer takes to its target, or back from there. */
static double home_seconds(const sli_lowering *l, const sli_buffer *b, bool back) {
  if (b->target != SL_SPACE_PEER) return sli_home_seconds(l, b->target, back, b->bytes);
  sl_hardware_link link = sli_lower_link(l->in, b->device, sli_peer_of(l->in, b->device, b->peer));
  return wire_seconds(&link, b->bytes) + link.seconds;
}

/* True if that home reaches this space only through host memory. */
static bool by_host(const sli_lowering *l, sl_space home, sl_space space) {
  return home == SL_SPACE_DISK && is_far(l, space);
}

/* Returns the buffer at its home, which takes over the role; the original becomes a staging copy
 * that takes turns. Buffers without a producer start at their home. */
static int spill(transfers *x, int buffer) {
  sli_lowering *l = x->l;
  if (l->buffers[buffer].producer == SL_NONE) l->buffers[buffer].home = l->buffers[buffer].target;
  sli_buffer b = l->buffers[buffer];
  if (!sli_is_spilled(&b)) return buffer;
  trip t = trip_for_all(buffer);
  int there = find_end(x, buffer, &t, b.device, b.target);
  if (there != SL_NONE) return there;
  trip out = t;
  out.away = true;
  bool way = by_host(l, b.target, b.home);
  int from = way ? copy(x, buffer, &out, b.device, SL_SPACE_HOST) : buffer;
  leg g = {.kind = SLI_TRANSFER_SPILL,
           .from = b.device,
           .to = b.device,
           .home = b.target,
           .target = b.target,
           .mark = sli_arena_format(&l->arena, ">%s", sl_space_name(b.target)),
           .seconds = written(l, &b) * home_seconds(l, &b, false)};
  if (b.target == SL_SPACE_HOST) from = pass_memory(x, from, &t);
  there = keep_end(x, buffer, add_transfer(x, from, &t, &g), &t);
  l->buffers[there].initial = b.held ? 1 : b.initial;
  if (b.role == SLI_ROLE_ACT_PART) l->buffers[there].rate = SLI_PER_LEAVING;
  l->buffers[buffer].role = sli_staging_role(l, &b);
  l->buffers[buffer].transient = true;
  l->buffers[buffer].held = false;
  l->buffers[buffer].initial = 0;
  return there;
}

/* Brings a filled buffer on to a reader on another device. */
static int transfers_continue(transfers *x, int filled, trip *t, int task) {
  sli_lowering *l = x->l;
  int device = l->tasks[task].device, at = filled;
  sl_space space = sli_lower_space(l, &l->tasks[task]);
  if (between_processes(l, l->buffers[filled].device, device)) at = send(x, filled, t, device);
  return reaches(l, device, space, &l->buffers[at]) ? at : copy(x, at, t, device, space);
}

/* Returns the space in which a task needs its filled copy, on the device that fills it. For a
 * reader on another device this is host memory, from where the copy is forwarded. */
static sl_space fill_space(const sli_lowering *l, const sli_buffer *b, const sli_task *task) {
  return b->device == task->device ? sli_lower_space(l, task) : sli_kind_host_space(l->in->kind);
}

static int transfers_fill(transfers *x, int buffer, int task) {
  sli_lowering *l = x->l;
  int home = spill(x, buffer);
  sli_buffer b = l->buffers[buffer];
  sli_role role = sli_roles[l->buffers[home].role].filled;
  bool some = l->buffers[home].rate == SLI_PER_LEAVING;
  trip t = {.origin = buffer,
            .reader = task,
            .begun = true,
            .some = some,
            .away = true,
            .nth = sli_filled_before(l, &l->tasks[task], role, some)};
  sl_space near = fill_space(l, &b, &l->tasks[task]);
  sl_space to = by_host(l, b.target, near) ? SL_SPACE_HOST : near;
  leg g = {.kind = SLI_TRANSFER_FILL,
           .from = b.device,
           .to = b.device,
           .home = to,
           .target = b.target,
           .mark = sli_arena_format(&l->arena, "<%s", l->tasks[task].name),
           .seconds = home_seconds(l, &b, true)};
  int from = b.target == SL_SPACE_HOST ? pass_memory(x, home, &t) : home;
  int at = add_transfer(x, from, &t, &g);
  return to == near ? transfers_continue(x, at, &t, task) : copy(x, at, &t, b.device, near);
}

/* ---- piece by piece, to the home and back (sweep.c) --------------------------------------- */

/* Adds another output buffer to a transfer. */
static int add_end(sli_lowering *l, int by, int from, sli_buffer b) {
  const sli_buffer origin = l->buffers[l->tasks[by].transfer->origin];
  b.producer = by, b.aliases = SL_NONE, b.device = origin.device;
  b.pace = origin.pace, b.memory = origin.memory;
  b.bytes = origin.bytes, b.payload_bytes = origin.payload_bytes,
  b.valid_length = origin.valid_length;
  int at = sli_add_buffer(l, b);
  l->buffers[at].origin = l->tasks[by].transfer->origin;
  l->buffers[at].source = from;
  return at;
}

/* Spills a buffer piece by piece; returns the first of the pieces' buffers, which are
 * consecutive. */
static int spill_pieces(transfers *x, int buffer) {
  sli_lowering *l = x->l;
  sli_buffer b = l->buffers[buffer];
  trip t = trip_for_all(buffer);
  int there = find_end(x, buffer, &t, b.device, b.target);
  if (there != SL_NONE) return there;
  leg g = {.kind = SLI_TRANSFER_SPILL,
           .from = b.device,
           .to = b.device,
           .home = b.target,
           .target = b.target,
           .seconds = home_seconds(l, &b, false)};
  const char *name = sli_arena_format(&l->arena, "%s>%s", b.name, sl_space_name(b.target));
  int by = add_transfer_task(l, buffer, &t, &g, name);
  there = l->nbuffers;
  for (int j = 0; j < l->in->k; j++) {
    const char *piece = sli_arena_format(&l->arena, "%s.%d", name, j);
    int at = add_end(l, by, buffer,
                     (sli_buffer){.name = piece, .role = SLI_ROLE_KV, .rate = SLI_PER_MICROBATCH});
    l->buffers[at].home = b.target;
  }
  l->buffers[buffer].role = SLI_ROLE_KV_SPILL;
  l->buffers[buffer].transient = true;
  return keep_end(x, buffer, there, &t);
}

/* Fills pieces for a task that sweeps over the pieces up to its own. In the backward pass all
 * pieces come from their home; in the forward pass its own piece has just been written. */
static int fill_pieces(transfers *x, int buffer, int task) {
  sli_lowering *l = x->l;
  int first = spill_pieces(x, buffer), others = l->in->k - 1;
  sli_buffer b = l->buffers[buffer];
  bool backward = l->tasks[task].backward;
  trip t = {.origin = buffer, .reader = task, .begun = true, .away = true};
  leg g = {.kind = SLI_TRANSFER_FILL,
           .from = b.device,
           .to = b.device,
           .home = b.home,
           .target = b.target,
           .seconds = home_seconds(l, &b, true)};
  const char *name = sli_arena_format(&l->arena, "%s<%s", b.name, l->tasks[task].name);
  int by = add_transfer_task(l, backward ? first + others : buffer, &t, &g, name);
  for (int j = 0; j < others; j++) sli_add_port(&l->tasks[by], first + j, false);
  return add_end(
      l, by, backward ? first : buffer,
      (sli_buffer){
          .name = name, .role = SLI_ROLE_KV_FILL, .rate = SLI_PER_PAIR, .transient = true});
}

/* ---- all transfers ---------------------------------------------------------------------- */

/* Sends a buffer to a device of another process, or to its host. The copy into host memory here
 * is shared by all destinations. */
static int transfers_leave(transfers *x, int buffer, trip *t, int device, sl_space space) {
  sli_lowering *l = x->l;
  const sli_buffer *b = &l->buffers[buffer];
  sl_space host = sli_kind_host_space(l->in->kind);
  if (is_direct(l, b, device, space)) return send_directly(x, buffer, t, device, space);
  trip out = trip_for_all(buffer);
  out.away = t->reader == SL_NONE;
  out.oldest = t->oldest;
  int from = reaches(l, b->device, host, b) ? buffer : copy(x, buffer, &out, b->device, host);
  return send(x, from, t, device);
}

/* Adds a copy of a buffer for a device of another process or with memory of its own. Buffers
 * without a producer exist from the start of the run, so each device that cannot address one has a
 * copy from the start. */
static int stand_in(transfers *x, int buffer, int device, sl_space space) {
  sli_lowering *l = x->l;
  sli_buffer b = l->buffers[buffer];
  bool far = b.device != device && !reaches(l, device, space, &b);
  if (!far && !between_processes(l, b.device, device)) return buffer;
  trip t = trip_for_all(buffer);
  int there = find_end(x, buffer, &t, device, b.home);
  if (there != SL_NONE) return there;
  b.name = sli_arena_format(&l->arena, "%s>%d", b.name, device);
  b.device = device;
  b.nconsumers = 0;
  there = sli_add_buffer(l, b);
  l->buffers[there].nconsumers = l->buffers[buffer].nconsumers;
  l->buffers[there].origin = buffer;
  return keep_end(x, buffer, there, &t);
}

/* True for loans, which are read where they are written: their slots tell the lender what has come
 * back (ops/expert_loads.h), so a copy would return it too early. */
static bool is_lent(const sli_buffer *b) {
  return b->role == SLI_ROLE_LENT && b->rate == SLI_PER_TURN;
}

/* Returns the buffer through which a task reads another: itself, or the end of transfers. */
static int bring(transfers *x, int buffer, int task) {
  sli_lowering *l = x->l;
  const sli_buffer b = l->buffers[buffer];
  int device = l->tasks[task].device;
  sl_space space = sli_lower_space(l, &l->tasks[task]);
  if (sli_is_swept(&b)) return fill_pieces(x, buffer, task);
  if (sli_reads_homes(&l->tasks[task]) && b.target != SL_SPACE_DEVICE && is_weights(&b))
    return spill(x, buffer);
  if (b.target != SL_SPACE_DEVICE && sli_is_filled(l, &b, &l->tasks[task]))
    return transfers_fill(x, buffer, task);
  if (is_lent(&b)) return buffer;
  if (b.producer == SL_NONE) return stand_in(x, buffer, device, space);
  bool real = between_processes(l, b.device, device);
  bool far = !reaches(l, device, space, &b);
  bool copied = far && (b.device != device || sli_is_fetched(l, &b, &l->tasks[task]));
  trip t = real || copied ? trip_away(l, buffer, task) : trip_for_all(buffer);
  t.oldest = b.role == SLI_ROLE_PARAM && b.initial > 1 && sli_lower_ahead(l) &&
             l->tasks[task].pace == SLI_PACE_ROLLOUT;
  int at = buffer;
  if (real) at = transfers_leave(x, buffer, &t, device, space);
  else if (takes_time(l, &b, device)) at = fly(x, buffer, &t, device);
  return reaches(l, device, space, &l->buffers[at]) ? at : copy(x, at, &t, device, space);
}

/* Makes the updating task read the filled value that it updates. */
static void bring_back(transfers *x, int buffer) {
  int task = x->l->buffers[buffer].producer, at = transfers_fill(x, buffer, task);
  sli_add_port(&x->l->tasks[task], at, false);
}

/* True if the buffer is updated from its old value in a memory other than its home. */
static bool is_updated(const sli_lowering *l, int buffer) {
  const sli_buffer *b = &l->buffers[buffer];
  if (b->producer == SL_NONE || b->source != SL_NONE || !sli_is_spilled(b)) return false;
  return b->held || l->buffers[sli_buffer_home(l, buffer)].initial;
}

static bool is_aside(const sli_lowering *l, const sli_buffer *b) {
  bool aside = b->producer != SL_NONE && l->tasks[b->producer].stage == SL_NONE;
  for (int i = 0; i < b->nconsumers; i++) aside |= l->tasks[b->consumers[i]].stage == SL_NONE;
  return aside;
}

void sli_lower_transfers(sli_lowering *l) {
  transfers x = {.l = l};
  l->ncomputing = l->ntasks;
  for (int b = 0; b < l->nbuffers; b++) l->buffers[b].aside = is_aside(l, &l->buffers[b]);
  for (int g = 0; g < l->ncomputing; g++)
    for (int i = 0; i < l->tasks[g].ninputs; i++) {
      int near = bring(&x, l->tasks[g].inputs[i], g);
      l->tasks[g].inputs[i] = near;
    }
  for (int b = 0, n = l->nbuffers; b < n; b++)
    if (is_updated(l, b)) bring_back(&x, b);
  free(x.ends);
  free(x.newest);
}
