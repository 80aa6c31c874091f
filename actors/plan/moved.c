/* SPDX-License-Identifier: Apache-2.0 */
/* Traffic between devices.
 *
 * A call that reads a register on another device moves the array, or the part that its op declares.
 * Data that a firing reads twice is moved once. A link or a copy that writes a register on another
 * device moves the contents of a slot. A collective moves what a ring does. The plan therefore
 * determines what each firing moves, and the number of firings what a run has moved. Data read in
 * every firing, or by two actors, is moved each time; data worth caching has a register of its own.
 * What one stage passes to another counts once for each key and device, as between processes,
 * whichever actors read it. */
#include "actors/plan/plan.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "ops/collective.h"

const char *sl_traffic_name(sl_traffic traffic) {
  static const char *const names[SL_TRAFFIC_COUNT] = {
#define X(name, text) [SL_TRAFFIC_##name] = text,
      SL_TRAFFIC_TABLE(X)
#undef X
  };
  return (unsigned)traffic < SL_TRAFFIC_COUNT ? names[traffic] : "?";
}

/* True if an earlier input of this call, or of a call before it, reads the same data. */
static bool is_read_before(const sl_program *program, int first, int call, int input) {
  const sl_program_call *now = &program->calls[call];
  for (int c = first; c <= call; c++) {
    const sl_program_call *then = &program->calls[c];
    int n = c < call ? then->nin : input;
    bool alike = !sli_op_is(then->op, SL_OP_PART) ||
                 (sli_op_is(now->op, SL_OP_PART) && then->attrs.user == now->attrs.user);
    for (int i = 0; i < n && alike; i++)
      if (then->in[i].base == now->in[input].base && then->in[i].offset == now->in[input].offset)
        return true;
  }
  return false;
}

/* Bytes that the calls of one variant read from an input slot. */
static uint64_t read_bytes(const sl_program *program, int variant, int port) {
  int first = variant * program->ncalls;
  uint64_t sum = 0;
  for (int c = first; c < first + program->ncalls; c++) {
    const sl_program_call *call = &program->calls[c];
    for (int i = 0; i < call->nin; i++) {
      if (call->in[i].base != port || is_read_before(program, first, c, i)) continue;
      sl_type type = call->in_type[i];
      if (sli_op_is(call->op, SL_OP_PART)) type = sl_part_type(&type, call->attrs.user);
      sum += sl_type_bytes(&type);
    }
  }
  return sum;
}

/* True for parameters, gradients and optimizer state. Their exchange among the devices of a
 * sequence counts as data-parallel traffic. */
static bool is_of_parameters(const sl_register *r) {
  return r->memory == SL_MEMORY_PARAMETERS || r->memory == SL_MEMORY_GRADIENTS ||
         r->memory == SL_MEMORY_OPTIMIZER;
}

/* Purpose of traffic between two devices. Rows with data-dependent counts are dispatched to experts
 * and back, except between devices that share the rows of a served tick; other exchanges of these
 * devices count as data-parallel. */
static sl_traffic traffic_of(const sl_plan *plan, const sl_register *r, int32_t from, int32_t to) {
  const sl_device *a = &plan->devices[from], *b = &plan->devices[to];
  if (r->peer) return SL_TRAFFIC_PEER;
  if (r->aside) return SL_TRAFFIC_ASIDE;
  if (a->at[SL_AT_STAGE] != b->at[SL_AT_STAGE]) return SL_TRAFFIC_PIPELINE;
  if (r->rows && a->at[SL_AT_SEQUENCE] == b->at[SL_AT_SEQUENCE]) return SL_TRAFFIC_EXPERT;
  if (a->at[SL_AT_DATA] != b->at[SL_AT_DATA] || a->at[SL_AT_EXPERT] != b->at[SL_AT_EXPERT])
    return SL_TRAFFIC_DATA;
  if (a->at[SL_AT_SEQUENCE] == b->at[SL_AT_SEQUENCE]) return SL_TRAFFIC_TENSOR;
  return is_of_parameters(r) ? SL_TRAFFIC_DATA : SL_TRAFFIC_SEQUENCE;
}

static bool sits_out(const sl_plan *plan, const sl_port *p, int64_t firing) {
  uint32_t flags;
  sl_map_key(&plan->maps[p->map], firing, &flags);
  return flags & SL_SKIP;
}

/* Number of a step's firings that read a port with a variant of the program. again[firing]: those
 * that read what has been moved before; NULL: none. */
static uint64_t firings_with(const sl_plan *plan, int32_t actor, const sl_port *p, int variant,
                             const bool *again) {
  const sl_actor *a = &plan->actors[actor];
  const sl_program *program = a->program;
  uint64_t n = 0;
  for (int32_t f = 0; f < a->firings_per_step; f++) {
    if (sits_out(plan, p, f) || (again && again[f])) continue;
    int piece = program && program->pieces ? sl_plan_tick(plan, actor, f).piece : 0;
    n += !program || !program->pieces || program->pieces[piece].variant == variant;
  }
  return n;
}

/* Valid rows per step in the slots that a port reads or writes, according to the register's table;
 * all rows if it has no table. */
static uint64_t planned_rows(const sl_plan *plan, int32_t actor, const sl_port *p) {
  const sl_register *r = &plan->regs[p->reg];
  uint64_t rows = 0;
  for (int32_t f = 0; f < plan->actors[actor].firings_per_step; f++) {
    uint32_t flags;
    int64_t key = sl_map_key(&plan->maps[p->map], f, &flags);
    if (!(flags & SL_SKIP))
      rows += (uint64_t)(r->nlengths ? r->lengths[key % r->nlengths] : r->rows);
  }
  return rows;
}

/* Bytes that a step reads at an input. If the valid length selects the variant, the largest variant
 * counts. */
static uint64_t input_bytes(const sl_plan *plan, int32_t actor, int32_t port, const bool *again) {
  const sl_actor *a = &plan->actors[actor];
  const sl_program *program = a->program;
  int variants = program ? SLI_MAX(program->nvariants, 1) : 0;
  uint64_t sum = 0;
  int32_t base = a->bases ? a->bases[port] : port;
  for (int v = program && program->buckets ? variants - 1 : 0; v < variants; v++) {
    uint64_t each = read_bytes(program, v, base);
    if (each) sum += each * firings_with(plan, actor, &a->in[port], v, again);
  }
  return sum;
}

/* Parameters of the traffic count for an actor: a number of steps in which it fires, and the rows
 * read at each input; NULL: full slots. */
typedef struct moves {
  const sli_flow *flow;
  void (*fn)(void *ctx, int32_t from, int32_t to, sl_traffic traffic, uint64_t bytes);
  void *ctx;
  uint64_t steps;
  const _Atomic uint64_t *read;
} moves;

static uint64_t rows_read(const moves *m, const sl_plan *plan, int32_t actor, int32_t port) {
  if (m->read) return atomic_load_explicit(&m->read[port], memory_order_relaxed);
  return m->steps * planned_rows(plan, actor, &plan->actors[actor].in[port]);
}

/* Rows that the calls of variant 0 have room for. */
static int32_t first_bucket(const sl_program *p, const sl_register *r, int32_t port) {
  bool varies = p->buckets && p->base_length[port] == p->base_length[p->bucket_base];
  return varies ? p->buckets[0] : r->rows;
}

/* Bytes read from an input slot, in proportion to its rows. */
static uint64_t moved_in(const moves *m, const sl_plan *plan, int32_t actor, int32_t port,
                         const bool *again) {
  const sl_actor *a = &plan->actors[actor];
  const sl_register *r = &plan->regs[a->in[port].reg];
  if (!r->rows || !(m->read || r->nlengths) || !a->program)
    return m->steps * input_bytes(plan, actor, port, again);
  if (!input_bytes(plan, actor, port, again)) return 0;
  uint64_t rows = (uint64_t)first_bucket(a->program, r, port);
  return rows_read(m, plan, actor, port) * (read_bytes(a->program, 0, port) / rows);
}

/* ---- reads of what has been moved before --------------------------------------------------- */

/* Bytes that a firing may read at an actor's first port for a register. */
static uint64_t reader_bytes(const sl_plan *plan, int32_t actor, int32_t reg) {
  const sl_actor *a = &plan->actors[actor];
  const sl_program *program = a->program;
  int32_t port = 0;
  while (a->in[port].reg != reg) port++;
  if (!program) return 0;
  int variant = program->buckets ? program->nvariants - 1 : 0;
  return read_bytes(program, variant, a->bases ? a->bases[port] : port);
}

/* True if what `reader` reads of a register is moved before what `actor` reads: the larger part
 * first, and whoever comes first in the plan. */
static bool moves_before(const sl_plan *plan, int32_t reader, int32_t actor, int32_t reg) {
  const sl_actor *a = &plan->actors[reader], *b = &plan->actors[actor];
  if (reader == actor || sli_every(a) != sli_every(b) ||
      plan->queues[a->queue].device != plan->queues[b->queue].device)
    return false;
  uint64_t its = reader_bytes(plan, reader, reg), own = reader_bytes(plan, actor, reg);
  return its > own || (its == own && reader < actor);
}

/* Largest key that any firing of a step takes. */
static int64_t last_key(const sl_plan *plan, const sli_reader *readers, int32_t count) {
  int64_t most = 0;
  for (int32_t i = 0; i < count; i++)
    for (int32_t f = 0; f < plan->actors[readers[i].actor].firings_per_step; f++) {
      uint32_t flags;
      most = SLI_MAX(most, sl_map_key(&plan->maps[readers[i].map], f, &flags));
    }
  return most;
}

/* Marks the keys that a step's firings read; again[firing], unless it is NULL: whether the key was
 * marked. */
static void mark_keys(const sl_actor *a, const sl_map *map, bool *marked, bool *again) {
  for (int32_t f = 0; f < a->firings_per_step; f++) {
    uint32_t flags;
    int64_t key = sl_map_key(map, f, &flags);
    if (flags & SL_SKIP || key < 0) continue;
    if (again) again[f] = marked[key];
    marked[key] = true;
  }
}

/* Returns for each firing of a step whether the key that it reads has been moved to its device
 * before. */
static bool *find_again(const moves *m, const sl_plan *plan, int32_t actor, int32_t port) {
  const sl_actor *a = &plan->actors[actor];
  int32_t reg = a->in[port].reg, count;
  const sli_reader *readers = sli_flow_readers(m->flow, reg, &count);
  bool *marked = sli_calloc((size_t)last_key(plan, readers, count) + 1, sizeof *marked);
  bool *again = sli_calloc((size_t)a->firings_per_step, sizeof *again);
  for (int32_t i = 0; i < count; i++)
    if (moves_before(plan, readers[i].actor, actor, reg))
      mark_keys(&plan->actors[readers[i].actor], &plan->maps[readers[i].map], marked, NULL);
  for (int32_t i = 0; i < port; i++)
    if (a->in[i].reg == reg) mark_keys(a, &plan->maps[a->in[i].map], marked, NULL);
  mark_keys(a, &plan->maps[a->in[port].map], marked, again);
  free(marked);
  return again;
}

/* ---- an actor's traffic -------------------------------------------------------------------- */

/* Bytes written to a register by an actor that copies its input there, `firings` times a step. */
static uint64_t moved_out(const moves *m, const sl_plan *plan, int32_t actor, const sl_register *r,
                          uint64_t firings) {
  if (r->rows && (m->read || r->nlengths)) return rows_read(m, plan, actor, 0) * sl_row_bytes(r);
  return m->steps * sl_slot_payload(r) * firings;
}

/* Input port that a firing copies from: the first that does not skip it. */
static const sl_port *copied(const sl_plan *plan, const sl_actor *a, int64_t firing) {
  for (int32_t i = 0; i < a->nin; i++)
    if (!sits_out(plan, &a->in[i], firing)) return &a->in[i];
  return NULL;
}

static bool between_spaces(const sl_plan *plan, const sl_port *from, const sl_port *to) {
  const sl_register *in = &plan->regs[from->reg], *out = &plan->regs[to->reg];
  return in->device == out->device && in->space != out->space;
}

static bool copies(const sl_plan *plan, const sl_actor *a) {
  bool any = false;
  for (int32_t i = 0; i < a->nin && a->nout; i++)
    any |= between_spaces(plan, &a->in[i], &a->out[0]);
  return any;
}

/* Reports copies between memories of one device, under the space that is not the device's own. */
static void find_copies(const sl_plan *plan, int32_t actor, const moves *m) {
  static const sl_traffic of[SL_SPACE_COUNT] = {
      [SL_SPACE_HOST] = SL_TRAFFIC_HOST, [SL_SPACE_DISK] = SL_TRAFFIC_DISK};
  const sl_actor *a = &plan->actors[actor];
  if (!copies(plan, a)) return;
  for (int32_t f = 0; f < a->firings_per_step; f++) {
    const sl_port *from = copied(plan, a, f);
    for (int32_t o = 0; from && o < a->nout; o++) {
      const sl_port *to = &a->out[o];
      if (sits_out(plan, to, f) || !between_spaces(plan, from, to)) continue;
      const sl_register *r = &plan->regs[to->reg];
      sl_space in = plan->regs[from->reg].space;
      if (r->rows && (m->read || r->nlengths) && f) continue; /* counted for all firings together */
      m->fn(m->ctx, r->device, r->device, of[in == SL_SPACE_DEVICE ? r->space : in],
            moved_out(m, plan, actor, r, 1));
    }
  }
}

/* Returns the device before this one in the ring of a queue's group, or SL_NONE if it is alone. */
static int32_t neighbour(const sl_plan *plan, int32_t queue) {
  int32_t before = SL_NONE, last = SL_NONE;
  for (int32_t i = 0; i < plan->nqueues; i++) {
    if (plan->queues[i].group != plan->queues[queue].group) continue;
    if (i < queue) before = plan->queues[i].device;
    if (i != queue) last = plan->queues[i].device;
  }
  return before == SL_NONE ? last : before;
}

/* Reports what collectives bring, as if in a ring. Their calls' inputs are written together. */
static void find_collected(const sl_plan *plan, int32_t actor, const moves *m) {
  const sl_actor *a = &plan->actors[actor];
  int32_t here = plan->queues[a->queue].device, from = neighbour(plan, a->queue);
  for (int i = 0; from != SL_NONE && a->program && i < a->program->ncalls; i++) {
    double bytes = 0;
    const sl_program_call *call = &a->program->calls[i];
    const sl_port *port = &a->in[call->in[0].base];
    for (int v = 0; v < SLI_MAX(a->program->nvariants, 1); v++) {
      const sl_program_call *c = &call[v * a->program->ncalls];
      bytes += (double)firings_with(plan, actor, port, v, NULL) *
               sli_collective_received(c->op, &c->attrs, c->in_type, c->out_type);
    }
    m->fn(m->ctx, from, here, traffic_of(plan, &plan->regs[port->reg], from, here),
          m->steps * (uint64_t)bytes);
  }
}

static void find_moves(const sl_plan *plan, int32_t actor, const moves *m) {
  const sl_actor *a = &plan->actors[actor];
  int32_t here = plan->queues[a->queue].device;
  if (plan->queues[a->queue].group) find_collected(plan, actor, m);
  for (int32_t i = 0; i < a->nin; i++) {
    const sl_register *r = &plan->regs[a->in[i].reg];
    if (r->device == here) continue;
    sl_traffic traffic = traffic_of(plan, r, r->device, here);
    bool *again = traffic == SL_TRAFFIC_PIPELINE ? find_again(m, plan, actor, i) : NULL;
    m->fn(m->ctx, r->device, here, traffic, moved_in(m, plan, actor, i, again));
    free(again);
  }
  for (int32_t o = 0; o < a->nout; o++) {
    const sl_register *r = &plan->regs[a->out[o].reg];
    if (r->device != here)
      m->fn(m->ctx, here, r->device, traffic_of(plan, r, here, r->device),
            moved_out(m, plan, actor, r, firings_with(plan, actor, &a->out[o], 0, NULL)));
  }
  find_copies(plan, actor, m);
}

void sl_plan_moves(const sl_plan *plan,
                   void (*fn)(void *ctx, int32_t from, int32_t to, sl_traffic traffic,
                              uint64_t bytes),
                   void *ctx) {
  sli_flow *flow = sli_flow_create(plan);
  moves m = {.flow = flow, .fn = fn, .ctx = ctx, .steps = 1};
  for (int32_t a = 0; a < plan->nactors; a++)
    if (plan->actors[a].every <= 1) find_moves(plan, a, &m);
  sli_flow_destroy(flow);
}

static void add_to_device(void *ctx, int32_t from, int32_t device, sl_traffic traffic,
                          uint64_t bytes) {
  uint64_t(*to)[SL_TRAFFIC_COUNT] = ctx;
  (void)from;
  to[device][traffic] += bytes;
}

void sl_plan_moved(const sl_plan *plan, uint64_t (*to)[SL_TRAFFIC_COUNT]) {
  memset(to, 0, (size_t)plan->ndevices * sizeof *to);
  sl_plan_moves(plan, add_to_device, to);
}

static void add_to_total(void *ctx, int32_t from, int32_t to, sl_traffic traffic, uint64_t bytes) {
  uint64_t *total = ctx;
  (void)from, (void)to;
  total[traffic] += bytes;
}

void sli_plan_add_moved(const sli_flow *flow, const sl_plan *plan, int32_t actor, uint64_t steps,
                        const _Atomic uint64_t *read, uint64_t bytes[SL_TRAFFIC_COUNT]) {
  if (steps || read) find_moves(plan, actor, &(moves){flow, add_to_total, bytes, steps, read});
}
