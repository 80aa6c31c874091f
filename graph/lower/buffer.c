/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors to buffers.
 *
 * A tensor that only its own task reads is in the task's workspace. Tensors with disjoint
 * lifetimes share offsets there, and an op may write its output in place of an input (in_place.c).
 * A tensor that other tasks read becomes part of a buffer. All tensors made by one task for the
 * same readers at the same rate form one buffer, because they become ready together and are
 * freed together. Parameters, gradient sums and optimizer state follow the same rule; they
 * differ in their rate (a slot lasts a whole step) and in the tasks that write them. */
#include "graph/build/build.h"
#include "graph/lower/ir.h"
#include "ops/collective.h"
#include "graph/passes/passes.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* Properties of a tensor that determine which buffer it belongs to. */
typedef struct traits {
  int producer;
  int nconsumers;
  int *consumers;
  sli_rate rate;
  sli_role role;
  bool held, transient, frozen;
  bool near; /* in device memory, though the host writes it */
  sli_pace pace;
  int initial;
  int device;
  int aliases;
  const sl_tensor *alone; /* tensor with a valid length, or of a delay, which shares no slot; else
                             NULL */
} traits;

/* ---- readers and producers ------------------------------------------------------ */

/* Adds a reader; tasks come in order. The array grows to powers of two. The task that writes a
 * delay reads it as any other. */
static void add_reader(sli_lowering *l, sli_uses *u, int t, int task) {
  int n = u->count[t];
  bool own = u->producer[t] == task && !sli_delay_after(l->in->g->tensors[t]);
  if (own || (n && u->tasks[t][n - 1] == task)) return;
  if (!(n & (n - 1))) {
    int *more = sli_arena_alloc(&l->arena, (size_t)SLI_MAX(2 * n, 1) * sizeof *more);
    if (n) memcpy(more, u->tasks[t], (size_t)n * sizeof *more);
    u->tasks[t] = more;
  }
  u->tasks[t][u->count[t]++] = task;
}

static void find_producers(sli_lowering *l, sli_uses *u) {
  for (int t = 0; t < l->in->g->ntensors; t++) u->producer[t] = SL_NONE;
  for (int gi = 0; gi < l->ntasks; gi++)
    for (int i = 0; i < l->tasks[gi].nnodes; i++) {
      const sli_node *n = l->tasks[gi].nodes[i];
      for (int o = 0; o < n->nout; o++) {
        if (!n->out[o]) continue;
        int t = n->out[o]->id;
        u->producer[t] = gi;
        u->first[t] = u->last[t] = i;
        u->summed[t] = sli_bit(n->accumulate_span, o);
        u->state[t] = sli_bit(sli_op_memory(n->op)->updates, o);
      }
    }
}

static void find_readers(sli_lowering *l, sli_uses *u) {
  for (int gi = 0; gi < l->ntasks; gi++)
    for (int i = 0; i < l->tasks[gi].nnodes; i++) {
      const sli_node *n = l->tasks[gi].nodes[i];
      for (int a = 0; a < n->nin; a++) {
        if (!n->in[a]) continue;
        const sli_delay *delay = sli_delay_before(n->in[a]);
        if (delay) add_reader(l, u, delay->next->id, gi);
        if (delay) continue;
        int t = n->in[a]->id;
        const sl_tensor *kept = n->rematerialized ? NULL : n->in[a]->kept;
        if (kept) add_reader(l, u, kept->id, gi);
        add_reader(l, u, t, gi);
        u->swept[t] |= sli_bit(sli_op_cut(n->op)->sweeps, a);
        if (u->producer[t] == gi) u->last[t] = SLI_MAX(u->last[t], i);
      }
    }
}

static sli_uses find_uses(sli_lowering *l) {
  size_t n = (size_t)l->in->g->ntensors;
  sli_uses u = {.producer = sli_arena_alloc(&l->arena, n * sizeof *u.producer),
                .count = sli_arena_alloc(&l->arena, n * sizeof *u.count),
                .tasks = sli_arena_alloc(&l->arena, n * sizeof *u.tasks),
                .first = sli_arena_alloc(&l->arena, n * sizeof *u.first),
                .last = sli_arena_alloc(&l->arena, n * sizeof *u.last),
                .in_place_of = sli_arena_alloc(&l->arena, n * sizeof *u.in_place_of),
                .summed = sli_arena_alloc(&l->arena, n),
                .state = sli_arena_alloc(&l->arena, n),
                .swept = sli_arena_alloc(&l->arena, n)};
  find_producers(l, &u);
  find_readers(l, &u);
  sli_lower_in_place(l, &u);
  return u;
}

/* ---- traits ----------------------------------------------------------------------- */

static bool any_reader(const sli_lowering *l, const traits *t, bool (*is)(const sli_task *g)) {
  for (int i = 0; i < t->nconsumers; i++)
    if (is(&l->tasks[t->consumers[i]])) return true;
  return false;
}

static bool is_backward(const sli_task *task) { return task->backward; }
static bool is_weight(const sli_task *task) { return task->cls == SL_CLASS_W; }
static bool is_beside(const sli_task *task) { return task->cls == SL_CLASS_L; }

static bool leaves_stage(const sli_lowering *l, const traits *t, int stage) {
  for (int i = 0; i < t->nconsumers; i++)
    if (l->tasks[t->consumers[i]].stage != stage) return true;
  return false;
}

/* True if another visit of the stage reads the buffer, which other stages may run before. */
static bool leaves_visit(const sli_lowering *l, const traits *t, const sli_task *from) {
  bool any = false;
  for (int i = 0; i < t->nconsumers; i++) {
    const sli_task *to = &l->tasks[t->consumers[i]];
    any |= to->visit != from->visit && to->backward == from->backward && !to->host;
  }
  return any;
}

/* Returns the role of a buffer per tick. Values between tasks of one pass on one stage are
 * "inner". */
static sli_role tick_role(const sli_lowering *l, const traits *t) {
  const sli_task *from = &l->tasks[t->producer];
  if (from->cls == SL_CLASS_L) return SLI_ROLE_LOAD;
  if (any_reader(l, t, is_beside)) return SLI_ROLE_REPORT;
  if (sli_is_sharded_task(l, from) && !leaves_stage(l, t, from->stage)) return SLI_ROLE_SHARDED;
  if (leaves_stage(l, t, from->stage) || leaves_visit(l, t, from))
    return from->backward ? SLI_ROLE_BWD : SLI_ROLE_FWD;
  if (any_reader(l, t, is_weight) && from->cls != SL_CLASS_C)
    return from->backward ? SLI_ROLE_DY : SLI_ROLE_ACT_W;
  return !from->backward && any_reader(l, t, is_backward) ? SLI_ROLE_ACT_B : SLI_ROLE_INNER;
}

/* Adds readers to those of t; both lists are sorted. */
static void read_also(sli_lowering *l, traits *t, const int *more, int n) {
  int *all = sli_arena_alloc(&l->arena, (size_t)(t->nconsumers + n) * sizeof *all), count = 0;
  for (int i = 0, k = 0; i < t->nconsumers || k < n;) {
    int a = i < t->nconsumers ? t->consumers[i] : INT_MAX, b = k < n ? more[k] : INT_MAX;
    all[count++] = SLI_MIN(a, b);
    i += a <= b, k += b <= a;
  }
  t->consumers = all;
  t->nconsumers = count;
}

/* Adds B and W as readers. In a split backward pass, W follows B on every tick. A tensor that both
 * read is therefore freed after W, like a tensor that only W reads; this applies if B and W are one
 * task each. */
static void widen_to_stage(sli_lowering *l, traits *t) {
  if (t->role != SLI_ROLE_ACT_W) return;
  const sli_task *from = &l->tasks[t->producer];
  int *both = sli_arena_alloc(&l->arena, 2 * sizeof *both), n = 0;
  for (int i = *sli_newest_on(l, from->stage, from->rank); i != SL_NONE; i = l->tasks[i].before) {
    const sli_task *g = &l->tasks[i];
    if (g->phase || sli_is_sharded_task(l, g)) continue;
    if (g->cls != SL_CLASS_B && g->cls != SL_CLASS_W) continue;
    if (n == 2) return;
    both[1 - n++] = i; /* the latest task comes last */
  }
  read_also(l, t, both + 2 - n, n);
}

/* Marks state that its producer updates in place. A record that other tasks read spans the
 * microbatch. A record without readers is private; if blocks take all pieces of a microbatch in
 * turn, they share slots for it, unless it persists across microbatches. */
static void mark_record(sli_lowering *l, traits *t, bool lasts) {
  bool update = l->tasks[t->producer].rate == SLI_PER_STEP;
  if (t->pace == SLI_PACE_SPAN) {
    t->rate = SLI_PER_STEP;
    t->role = SLI_ROLE_SPAN;
    return;
  }
  t->rate = update ? SLI_PER_STEP : SLI_PER_MICROBATCH;
  t->held = !t->nconsumers && (update || lasts || !l->in->layers);
  t->transient = !t->nconsumers && !t->held;
  t->role = update                           ? SLI_ROLE_STATE
            : lasts                          ? SLI_ROLE_RECORD
            : t->nconsumers                  ? SLI_ROLE_KV
            : l->tasks[t->producer].backward ? SLI_ROLE_DKV
                                             : SLI_ROLE_CACHE;
}

static bool lasts(const sl_tensor *t) {
  return sli_bit(sli_op_memory(t->producer->op)->lasts, t->output);
}

/* True if the host writes a tensor in device memory. */
static bool is_near(const sli_lowering *l, const sl_tensor *t) {
  return sli_bit(sli_op_memory(t->producer->op)->near, t->output) &&
         sli_kind_host_space(l->in->kind) != SL_SPACE_DEVICE;
}

/* True for a parameter, or a copy that the update hands over for an evaluation. */
static bool is_param(const sl_tensor *t) {
  return t->param || (t->producer->pace == SLI_PACE_EVAL && t->producer->cls == SL_CLASS_U);
}

/* True for a parameter that is all-gathered from its shards. */
static bool is_gathered(const sl_tensor *t) {
  const sli_node *n = t->producer;
  return n->cls == SL_CLASS_C && n->nin && is_param(n->in[0]); /* constant zeros have no input */
}

/* Returns the input that comes from the same device. */
static const sl_tensor *own_input(const sli_node *n) {
  for (int i = 0; i < n->nin; i++)
    if (n->in[i]->rank == n->rank) return n->in[i];
  return NULL;
}

/* Returns this device's own summand of a sum that is all-reduced, or NULL. */
static const sl_tensor *summand_of(const sli_node *whole) {
  const sli_node *sum = NULL;
  if (whole->op == &sl_op_all_reduce) return whole->in[0];
  const sl_tensor *t = whole->op == &sl_op_join ? own_input(whole) : NULL;
  if (t) sum = t->producer;
  if (!sum || (sum->op != &sl_op_sum && sum->op != &sl_op_sum_part)) return NULL;
  t = own_input(sum);
  return t && t->producer && t->producer->op == &sl_op_slice ? t->producer->in[0] : t;
}

/* Returns the buffer of this device's own summand of a gradient that is all-reduced, else
 * SL_NONE. The whole gradient may alias the summand. The join of the parts runs after every
 * reader of the summand, each of which made a part for some device. The next step's summand is
 * made with weights computed from the whole. */
static int summand_buffer(const sli_lowering *l, const sl_tensor *tensor, int device) {
  const sl_tensor *t = summand_of(tensor->producer);
  int at = t ? l->spots[t->id].buffer : SL_NONE;
  if (at == SL_NONE) return SL_NONE;
  const sli_buffer *b = &l->buffers[at];
  bool fits = b->memory == SL_MEMORY_GRADIENTS && b->rate == SLI_PER_STEP && b->device == device &&
              b->aliases == SL_NONE;
  for (int i = 0; i < b->nconsumers; i++) fits &= l->tasks[b->consumers[i]].cls == SL_CLASS_C;
  return fits ? at : SL_NONE;
}

static traits param_traits(const sli_lowering *l, traits t, const sl_tensor *tensor) {
  t.rate = SLI_PER_STEP;
  t.role = SLI_ROLE_PARAM;
  t.initial = 1;
  bool apart = tensor->storage || sli_home_given(l->in->options, SLI_ROLE_PARAM);
  t.frozen = t.producer != SL_NONE && !tensor->update && apart;
  t.device = sli_lower_device(l, l->stage_of[tensor->home], tensor->rank);
  return t;
}

/* Sets the role. State that is updated in place is a record. */
static void set_role(sli_lowering *l, traits *t, const sl_tensor *tensor, bool state, bool summed) {
  const sli_task *from = &l->tasks[t->producer];
  bool beside = from->cls == SL_CLASS_L, once = t->rate == SLI_PER_STEP; /* beside: losses */
  if (t->pace && !from->pace) t->role = SLI_ROLE_EVAL;
  else if (is_gathered(tensor)) t->role = SLI_ROLE_GATHER;
  else if (from->phase == SLI_PHASE_PACK) t->role = SLI_ROLE_PACKED;
  else if (tensor->transient && !summed) t->role = SLI_ROLE_REDUCE;
  else if (state) mark_record(l, t, lasts(tensor));
  else if (summed && !beside) t->role = SLI_ROLE_GRAD;
  else if (once && from->cls == SL_CLASS_C) t->role = SLI_ROLE_REDUCE;
  else if (once) t->role = beside ? SLI_ROLE_REPORT : SLI_ROLE_STEP;
  else t->role = tick_role(l, t);
  if (tensor->leaves && (t->role == SLI_ROLE_ACT_B || t->role == SLI_ROLE_ACT_W))
    t->role = SLI_ROLE_ACT_PART;
}

static traits tensor_traits(sli_lowering *l, const sli_uses *u, const sl_tensor *tensor) {
  int id = tensor->id;
  traits t = {.producer = u->producer[id],
              .nconsumers = u->count[id],
              .consumers = u->tasks[id],
              .aliases = SL_NONE};
  if (tensor->param) return param_traits(l, t, tensor);
  const sli_task *from = &l->tasks[t.producer];
  t.device = from->device;
  t.rate = from->rate == SLI_PER_STEP || u->summed[id] ? SLI_PER_STEP : SLI_PER_TICK;
  bool turns = sli_reads_homes(from) && from->turns > 1;
  if (turns) t.rate = SLI_PER_TURN;
  t.pace = tensor->producer->pace;
  t.alone = tensor->valid_length || sli_delay_after(tensor) ? tensor : NULL;
  set_role(l, &t, tensor, u->state[id], u->summed[id]);
  if (u->swept[id]) t.role = SLI_ROLE_KV;
  if (turns) t.role = u->state[id] ? SLI_ROLE_EXPERTS : SLI_ROLE_LENT;
  t.near = is_near(l, tensor);
  const sli_delay *delay = sli_delay_after(tensor);
  if (delay) t.role = SLI_ROLE_DELAY, t.initial = delay->ticks;
  t.transient |= tensor->transient && t.rate == SLI_PER_TICK;
  t.aliases = summand_buffer(l, tensor, t.device);
  widen_to_stage(l, &t);
  return t;
}

/* ---- buffers ------------------------------------------------------------------------ */

/* Returns the space of a buffer that is written on its device. */
static sl_space space_of(const sli_lowering *l, const traits *t) {
  bool here = t->near || t->producer == SL_NONE;
  return here ? SL_SPACE_DEVICE : sli_lower_space(l, &l->tasks[t->producer]);
}

static bool same_traits(const sli_lowering *l, const sli_buffer *b, const traits *t) {
  return !b->valid_length && b->producer == t->producer && b->nconsumers == t->nconsumers &&
         b->rate == t->rate && b->pace == t->pace && b->role == t->role && b->held == t->held &&
         b->transient == t->transient && b->device == t->device && b->aliases == t->aliases &&
         b->frozen == t->frozen && b->home == space_of(l, t) &&
         (!t->nconsumers ||
          !memcmp(b->consumers, t->consumers, (size_t)t->nconsumers * sizeof *t->consumers));
}

/* Names a buffer; numbered if its device has others of the same role. */
static const char *buffer_name(sli_lowering *l, const traits *t) {
  static const sli_task none = {.stage = SL_NONE};
  const sli_task *from = t->producer == SL_NONE ? &none : &l->tasks[t->producer];
  int device = (from->stage + 1) * l->in->ranks + from->rank;
  int twins = l->alike[device * SLI_ROLES + (int)t->role]++;
  char at[32] = "";
  if (from->rank) snprintf(at, sizeof at, "@%d#%d", from->stage, from->rank);
  else if (from->stage != SL_NONE) snprintf(at, sizeof at, "@%d", from->stage);
  const char *name = sli_roles[t->role].name;
  return twins ? sli_arena_format(&l->arena, "%s.%d%s", name, twins + 1, at)
               : sli_arena_format(&l->arena, "%s%s", name, at);
}

static int add_buffer(sli_lowering *l, const traits *t) {
  const char *name = buffer_name(l, t);
  return sli_add_buffer(l, (sli_buffer){.name = name,
                                        .role = t->role,
                                        .producer = t->producer,
                                        .nconsumers = t->nconsumers,
                                        .consumers = t->consumers,
                                        .rate = t->rate,
                                        .pace = t->pace,
                                        .memory = sli_roles[t->role].memory,
                                        .device = t->device,
                                        .held = t->held,
                                        .transient = t->transient,
                                        .aliases = t->aliases,
                                        .frozen = t->frozen,
                                        .initial = t->initial});
}

static int find_buffer(const sli_lowering *l, const traits *t) {
  if (t->alone) return SL_NONE;
  const sli_task *from = t->producer == SL_NONE ? NULL : &l->tasks[t->producer];
  int n = from ? from->noutputs : l->nbuffers;
  for (int i = 0; i < n; i++) {
    int at = from ? from->outputs[i] : i;
    if (same_traits(l, &l->buffers[at], t)) return at;
  }
  return SL_NONE;
}

static void buffer_tensor(sli_lowering *l, const sli_uses *u, const sl_tensor *tensor) {
  traits t = tensor_traits(l, u, tensor);
  int at = find_buffer(l, &t);
  if (at == SL_NONE) at = add_buffer(l, &t);
  sli_buffer *b = &l->buffers[at];
  b->home = space_of(l, &t);
  l->spots[tensor->id] = (sli_spot){at, t.producer, b->bytes};
  b->bytes += sli_lower_aligned(sl_type_bytes(&tensor->type));
  b->payload_bytes += sl_type_bytes(&tensor->type);
  b->valid_length = sli_valid_length(l->in->g->tensors[tensor->id]);
  const sli_delay *delay = sli_delay_after(tensor);
  if (delay) b->name = sli_arena_format(&l->arena, "delay:%s", delay->name);
}

/* Puts earlier values where their readers find them: in the slots of the delay. */
static void place_delayed(sli_lowering *l) {
  for (int i = 0; i < l->in->g->ntensors; i++) {
    const sl_tensor *t = l->in->g->tensors[i];
    const sli_delay *delay = sli_delay_before(t);
    int at = delay ? l->spots[delay->next->id].buffer : SL_NONE;
    if (at == SL_NONE) continue;
    l->spots[i] = (sli_spot){at, SL_NONE, 0};
    l->buffers[at].delayed = t;
  }
}

/* Adds the register that carries a schedule's credits. It exists even if nothing is kept for the
 * backward pass; it then has no bytes. One register represents a stage's activations: the register
 * from the first task of the forward pass to the last task of the backward pass. */
static void add_credit(sli_lowering *l, int forward, int backward, sli_role role) {
  traits t = {.producer = forward,
              .nconsumers = 1,
              .consumers = sli_arena_alloc(&l->arena, sizeof(int)),
              .role = role,
              .device = l->tasks[forward].device,
              .aliases = SL_NONE};
  t.consumers[0] = backward;
  widen_to_stage(l, &t);
  int at = find_buffer(l, &t);
  if (at == SL_NONE) at = add_buffer(l, &t);
  l->buffers[at].credit = true;
}

/* Returns the first or the last task of a class on a device of a stage. */
static int stage_task(const sli_lowering *l, sl_class cls, int stage, int rank, bool last) {
  int at = SL_NONE;
  for (int i = *sli_newest_on(l, stage, rank); i != SL_NONE; i = l->tasks[i].before) {
    const sli_task *g = &l->tasks[i];
    if (g->cls == cls && !g->phase && (!last || at == SL_NONE) && !sli_is_sharded_task(l, g))
      at = i;
  }
  return at;
}

static void add_credits(sli_lowering *l) {
  for (int s = 0; s < l->stages; s++)
    for (int r = 0; r < l->in->ranks; r++) {
      int f = stage_task(l, SL_CLASS_F, s, r, false), b = stage_task(l, SL_CLASS_B, s, r, true);
      int w = stage_task(l, SL_CLASS_W, s, r, true);
      if (f != SL_NONE && b != SL_NONE) add_credit(l, f, b, SLI_ROLE_ACT_B);
      if (f != SL_NONE && w != SL_NONE) add_credit(l, f, w, SLI_ROLE_ACT_W);
    }
}

/* ---- workspace ------------------------------------------------------------------------ */

/* Sets the places of tensors that use another tensor's place. */
static void follow(sli_lowering *l, const sli_task *task, const sli_uses *u) {
  for (int i = 0; i < task->nnodes; i++)
    for (int o = 0; o < task->nodes[i]->nout; o++) {
      const sl_tensor *t = task->nodes[i]->out[o];
      if (t && u->in_place_of[t->id] != t->id) l->spots[t->id] = l->spots[u->in_place_of[t->id]];
    }
}

static void lay_out_workspace(sli_lowering *l, int task, const sli_uses *u) {
  sli_task *g = &l->tasks[task];
  sli_lifetime *all = sli_calloc((size_t)sli_task_results(g), sizeof *all);
  int count = 0;
  for (int i = 0; i < g->nnodes; i++)
    for (int o = 0; o < g->nodes[i]->nout; o++) {
      const sl_tensor *t = g->nodes[i]->out[o];
      if (t && l->spots[t->id].buffer == SL_NONE && u->in_place_of[t->id] == t->id &&
          !sli_delay_before(t))
        all[count++] = (sli_lifetime){t->id, u->first[t->id], u->last[t->id],
                                      sli_lower_aligned(sl_type_bytes(&t->type)), 0};
    }
  g->workspace_bytes = sli_lower_fit(all, count);
  for (int i = 0; i < count; i++) l->spots[all[i].id] = (sli_spot){SL_NONE, task, all[i].offset};
  follow(l, g, u);
  free(all);
}

/* Moves the workspace of a source that waits after the workspace of its device's other tasks: the
 * source has a separate queue and runs concurrently with them. */
static void move_apart(sli_lowering *l, int load) {
  sli_task *g = &l->tasks[load];
  size_t behind = 0;
  for (int i = 0; i < l->ntasks; i++) {
    const sli_task *other = &l->tasks[i];
    bool before = i < load || !sli_waits(l, other);
    if (i != load && before && other->device == g->device)
      behind = SLI_MAX(behind, other->workspace_bytes);
  }
  for (int i = 0; i < g->nnodes; i++)
    for (int o = 0; o < g->nodes[i]->nout; o++) {
      const sl_tensor *t = g->nodes[i]->out[o];
      if (t && l->spots[t->id].buffer == SL_NONE) l->spots[t->id].offset += behind;
    }
  g->workspace_bytes += behind;
}

/* Adds a register without bytes by which one task signals to another that it has fired. */
static sli_buffer *add_signal(sli_lowering *l, const char *word, sli_role role, int from, int to,
                              sli_rate rate) {
  int *reader = sli_arena_alloc(&l->arena, sizeof *reader);
  *reader = to;
  int at = sli_add_buffer(
      l, (sli_buffer){.name = sli_arena_format(&l->arena, "%s:%s", word, l->tasks[to].name),
                      .role = role,
                      .producer = from,
                      .nconsumers = 1,
                      .consumers = reader,
                      .rate = rate,
                      .memory = sli_roles[role].memory,
                      .device = l->tasks[from].device,
                      .aliases = SL_NONE});
  return &l->buffers[at];
}

/* Returns an update on the device of a source or, failing that, on any device; SL_NONE if nothing
 * is updated. */
static int update_before(const sli_lowering *l, int load) {
  int by = SL_NONE;
  for (int i = 0; i < l->ntasks; i++) {
    const sli_task *g = &l->tasks[i];
    if (g->phase == SLI_PHASE_UPDATE && (by == SL_NONE || g->device == l->tasks[load].device))
      by = i;
  }
  return by;
}

/* Makes a task of an evaluation wait for the update before it. */
static void begin_evaluation(sli_lowering *l, int task) {
  add_signal(l, "begin", SLI_ROLE_EVAL, update_before(l, task), task, SLI_PER_STEP)->pace =
      SLI_PACE_EVAL;
}

static void begin_evaluations(sli_lowering *l) {
  for (int i = 0; i < l->ntasks; i++) {
    const sli_task *task = &l->tasks[i];
    bool begins = sli_op_is(task->nodes[0]->op, SL_OP_SOURCE) || !task->ninputs; /* of constants */
    if (task->pace == SLI_PACE_EVAL && begins) begin_evaluation(l, i);
  }
}

/* ---- sources that wait ------------------------------------------------------------------ */

/* Makes a source wait until the data that it supplied `behind` ticks earlier has been delivered;
 * `behind` deliveries are ready at the start. */
static void wait_for_delivery(sli_lowering *l, int load, int report) {
  const sl_source *source = l->tasks[load].nodes[0]->attrs.user;
  add_signal(l, "back", SLI_ROLE_BACK, report, load, SLI_PER_TICK)->initial = source->behind;
}

static bool runs_behind(const sli_task *task) {
  return !task->pace && sli_source_of(task) && sli_source_of(task)->behind > 0;
}

static void wait_for_deliveries(sli_lowering *l) {
  int ntasks = l->ntasks;
  for (int load = 0; load < ntasks; load++)
    for (int report = 0; runs_behind(&l->tasks[load]) && report < ntasks; report++)
      if (l->tasks[report].nodes[0]->op == &sl_op_report) wait_for_delivery(l, load, report);
}

/* Makes the sources of training wait, at the beginning of a step, until the last tick of its
 * rollouts has been delivered. */
static void wait_for_rollouts(sli_lowering *l, int report) {
  for (int i = 0, ntasks = l->ntasks; i < ntasks; i++)
    if (!l->tasks[i].pace && sli_op_is(l->tasks[i].nodes[0]->op, SL_OP_SOURCE))
      add_signal(l, "rolled", SLI_ROLE_ROLLED, report, i, SLI_PER_STEP);
}

/* Makes a step's rollouts wait until their parameters have been updated. */
static void wait_for_version(sli_lowering *l, int load) {
  int by = update_before(l, load);
  if (by != SL_NONE)
    add_signal(l, "version", SLI_ROLE_VERSION, by, load, SLI_PER_STEP)->initial =
        1 + sli_lower_ahead(l);
}

static void connect_rollouts(sli_lowering *l) {
  const struct sli_rollouts *r = &l->in->g->rollouts;
  for (int i = 0; i < r->count; i++) {
    int report = l->task_of[r->items[i].report->id];
    wait_for_delivery(l, l->task_of[r->items[i].source->id], report);
    wait_for_version(l, l->task_of[r->items[i].source->id]);
    wait_for_rollouts(l, report);
  }
}

/* ---- the pass --------------------------------------------------------------------------- */

void sli_lower_buffer(sli_lowering *l) {
  sl_graph *g = l->in->g;
  sli_uses u = find_uses(l);
  l->spots = sli_arena_alloc(&l->arena, (size_t)g->ntensors * sizeof *l->spots);
  l->alike = sli_arena_alloc(
      &l->arena, (size_t)((l->stages + 1) * l->in->ranks * SLI_ROLES) * sizeof *l->alike);
  for (int i = 0; i < g->ntensors; i++) {
    const sl_tensor *t = g->tensors[i];
    l->spots[i] = (sli_spot){SL_NONE, SL_NONE, 0};
    bool used = t->param ? u.count[i] > 0 || u.producer[i] != SL_NONE
                         : u.producer[i] != SL_NONE && (u.count[i] || u.state[i] || u.summed[i]);
    if (used) buffer_tensor(l, &u, t);
  }
  place_delayed(l);
  add_credits(l);
  begin_evaluations(l);
  wait_for_deliveries(l);
  connect_rollouts(l);
  for (int i = 0; i < l->ntasks; i++) {
    lay_out_workspace(l, i, &u); /* one workspace per device, used by its passes */
    SLI_CHECK(l->tasks[i].cls != SL_CLASS_C || !l->tasks[i].workspace_bytes,
              "exchange %s keeps something to itself", l->tasks[i].name);
  }
  for (int i = 0; i < l->ntasks; i++)
    if (sli_waits(l, &l->tasks[i]) && l->tasks[i].workspace_bytes) move_apart(l, i);
#ifndef NDEBUG
  sli_lower_check_places(l, &u);
#endif
}
