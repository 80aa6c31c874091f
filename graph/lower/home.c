/* SPDX-License-Identifier: Apache-2.0 */
/* Placement of registers (offload).
 *
 * Activations that the forward pass writes for the backward pass are idle until then. They can be
 * offloaded meanwhile: to disk, or from a GPU to host memory. The buffer that the block writes is
 * then only a staging copy, one of few that take turns in the same slots. A transfer `spill` copies
 * it to its home, which has as many slots as the schedule needs. For each task of the backward pass
 * that reads it, a transfer `fill` brings it back in the order of that pass; the slots of `fill`
 * limit how far it runs ahead of its readers. Readers in the forward pass (the next block) read the
 * staging copy.
 *
 * Optimizer state is offloaded between steps: the update reads the filled copy and writes a copy to
 * be spilled, and the first step's state starts at its home. The same holds for parameters and for
 * values computed from them once a step: in each tick, every task that reads them (including the
 * update) has them filled, and the device holds those of a few blocks. Frozen parameters are never
 * written back. Parameters that several devices read stay on the device, and so do tables in which
 * a served graph looks up rows.
 *
 * Activations that are read as soon as they are written stay on the device: activations of the
 * tasks where the backward pass begins, if no other microbatch comes in between. */
#include "graph/build/build.h"
#include "graph/lower/ir.h"
#include "kernels/disk/disk.h"
#include "ops/ops.h"

#include <stdio.h>
#include <string.h>

/* ---- options ------------------------------------------------------------------------------ */

static const char *const movable[] = {"act", "act.b", "act.w", "kv", "state", "weights", NULL};

/* Experts and tables have homes of their own in served graphs, which read them as they are wanted.
 */
static bool names_served(const sli_inputs *in, const sl_home *h) {
  return in->g->options.serve && sli_home_is_loaded(h);
}

static bool names_movable(const sl_home *h) {
  for (int r = 0; r < SLI_ROLES; r++)
    if (sli_home_names(h, (sli_role)r)) return true;
  return false;
}

/* True if the user gives parameters several slots on any stage. */
static bool has_versions(const sl_lower_options *o) {
  bool two = o->rollouts.make && o->rollouts.ahead;
  for (int i = 0; i < o->memory.nquotas; i++)
    two |= o->memory.quotas[i].slots > 1 &&
           sli_quota_names(&o->memory.quotas[i], sli_roles[SLI_ROLE_PARAM].name,
                           o->memory.quotas[i].stage);
  return two;
}

static bool names_keys(const sl_home *h) { return !strcmp(h->name, sli_roles[SLI_ROLE_KV].name); }

static bool finds_block(const sl_graph *g, const sl_home *h) {
  for (int b = 0; b < g->nblocks; b++)
    if (sli_pattern_finds(h->block, g->blocks[b].name)) return true;
  return false;
}

/* Writes the space of a home as the user gives it: "host" or "peer:1". */
static void name_space(const sl_home *h, char text[32]) {
  const char *name = sl_space_name(h->space);
  if (h->space == SL_SPACE_PEER) snprintf(text, 32, "%s:%d", name, h->peer);
  else snprintf(text, 32, "%s", name);
}

static int process_of(const sli_inputs *in, int device) {
  return sl_device_process(device, in->devices, in->options->parallel.processes);
}

/* Rejects a peer that is the device itself or no device, or that is in another process. Pieces and
 * experts are read as they are wanted, not copied whole. */
static sl_status check_peer(const sli_inputs *in, const sl_home *h, const char *space) {
  if (names_keys(h) || names_served(in, h))
    return sl_fail(SL_E_UNSUPPORTED,
                   "home %s=%s: only act, act.b, act.w, state and weights can live with a peer",
                   h->name, space);
  if (in->p < 2)
    return sl_fail(SL_E_USAGE,
                   "home %s=%s: one stage has no peer: the devices of a pipeline lend each other "
                   "memory (parallel.stages)",
                   h->name, space);
  if (h->peer < 1 || h->peer >= in->p)
    return sl_fail(SL_E_USAGE,
                   "home %s=%s: must be peer:1 to peer:%d, a number of devices further along %d "
                   "stages; peer:%d is the device itself",
                   h->name, space, in->p - 1, in->p, in->p);
  for (int d = 0; d < in->devices; d++) {
    int peer = sli_peer_of(in, d, h->peer);
    if (process_of(in, d) != process_of(in, peer))
      return sl_fail(SL_E_UNSUPPORTED,
                     "home %s=%s: device %d is a peer in process %d, but device %d is in process "
                     "%d; peers must share a process",
                     h->name, space, peer, process_of(in, peer), d, process_of(in, d));
  }
  return SL_OK;
}

/* Rejects a home with an unknown name, block or space; the error names the last block, such as
 * "h.31". */
static sl_status home_check(const sli_inputs *in, const sl_home *h) {
  const sl_graph *g = in->g;
  char space[32];
  name_space(h, space);
  if (!names_movable(h) && !names_served(in, h))
    return sl_fail(SL_E_USAGE,
                   "home %s=%s: only act, act.b, act.w, kv, state and weights can be moved%s",
                   h->name, space, sli_meant((char[SLI_MEANT_TEXT]){0}, movable, h->name));
  if (h->block && !finds_block(g, h))
    return sl_fail(SL_E_USAGE, "home %s@%s=%s: the model has no block of that name; its last is %s",
                   h->name, h->block, space, g->blocks[g->nblocks - 1].name);
  if (h->space != SL_SPACE_DEVICE && sli_home_names(h, SLI_ROLE_PARAM) && has_versions(in->options))
    return sl_fail(
        SL_E_USAGE,
        "home %s=%s: not with two-slot parameters (memory.quotas param=2), which stay on their "
        "device",
        h->name, space);
  if (h->space != SL_SPACE_DEVICE && !in->kind->move[h->space])
    return sl_fail(SL_E_USAGE, "home %s=%s: not supported on %s devices%s", h->name, space,
                   in->kind->name, h->space == SL_SPACE_HOST ? ", whose memory is the host's" : "");
  if (h->space != SL_SPACE_DEVICE && names_keys(h) && !in->layers)
    return sl_fail(
        SL_E_USAGE,
        "home %s=%s: keys and values move piece by piece, one block after another (--pieces K "
        "schedule.piece_order layers)",
        h->name, space);
  return h->space == SL_SPACE_PEER ? check_peer(in, h, space) : SL_OK;
}

/* Marks the blocks whose keys and values are offloaded. */
void sli_lower_sweeps(const sli_inputs *in) {
  for (int b = 0; b < in->g->nblocks; b++)
    for (int i = 0; i < in->options->memory.homes.count; i++) {
      const sl_home *h = &in->options->memory.homes.homes[i];
      sli_block *block = &in->g->blocks[b];
      if (names_keys(h) && (!h->block || sli_pattern_finds(h->block, block->name)))
        block->swept = h->space != SL_SPACE_DEVICE;
    }
}

sl_status sli_lower_check_homes(const sli_inputs *in) {
  sl_status status = SL_OK;
  for (int i = 0; i < in->options->memory.homes.count && !status; i++)
    status = home_check(in, &in->options->memory.homes.homes[i]);
  return status;
}

/* True if the user places anything off the device. */
bool sli_lower_moves(const sl_lower_options *o) {
  for (int i = 0; i < o->memory.homes.count; i++)
    if (o->memory.homes.homes[i].space != SL_SPACE_DEVICE) return true;
  return false;
}

/* Returns the producer of a buffer, or for frozen parameters its first reader. */
static const sli_task *maker(const sli_lowering *l, const sli_buffer *b) {
  return &l->tasks[b->producer == SL_NONE ? b->consumers[0] : b->producer];
}

static const char *block_of(const sli_lowering *l, const sli_task *task) {
  int block = task->nnodes ? task->nodes[0]->block : SL_NONE;
  return block < 0 ? "" : l->in->g->blocks[block].name;
}

static const sl_home *wanted(const sli_lowering *l, const sli_buffer *b) {
  const sli_task *first = maker(l, b);
  return sli_home_of(l->in->options, b->role, block_of(l, first),
                     first->nnodes ? first->nodes[0]->op : NULL);
}

/* ---- readers -------------------------------------------------------------------------------- */

static bool is_weights(const sli_buffer *b) { return b->memory == SL_MEMORY_PARAMETERS; }

static bool reads_late(const sli_lowering *l, const sli_buffer *b, const sli_task *task) {
  return task->backward && !l->tasks[b->producer].backward;
}

bool sli_is_filled(const sli_lowering *l, const sli_buffer *b, const sli_task *task) {
  return is_weights(b) || reads_late(l, b, task);
}

/* True if the backward pass begins with this task: none of its inputs comes from another task
 * of that pass. */
static bool begins_backward(const sli_lowering *l, const sli_task *task) {
  for (int i = 0; i < task->ninputs; i++) {
    const sli_buffer *b = &l->buffers[task->inputs[i]];
    if (b->producer != SL_NONE && l->tasks[b->producer].backward) return false;
  }
  return true;
}

/* True if the backward pass reads the buffer only some time after it was written. */
static bool is_idle(const sli_lowering *l, const sli_buffer *b) {
  int stage = l->tasks[b->producer].stage;
  bool several = SLI_MAX(l->act_b[stage], l->act_w[stage]) > 1, idle = false;
  for (int i = 0; i < b->nconsumers; i++) {
    const sli_task *g = &l->tasks[b->consumers[i]];
    if (!reads_late(l, b, g)) continue;
    if (!several && begins_backward(l, g)) return false;
    idle = true;
  }
  return idle;
}

/* True if only tasks of the buffer's own device read it. */
static bool is_private(const sli_lowering *l, const sli_buffer *b) {
  bool own = b->nconsumers > 0;
  for (int i = 0; i < b->nconsumers; i++) own &= l->tasks[b->consumers[i]].device == b->device;
  return own;
}

/* True for a table in which a served graph looks up rows. */
static bool is_table(const sl_graph *g, const sl_tensor *param) {
  for (int i = 0; i < g->nnodes; i++)
    if (g->nodes[i]->op == &sl_op_embedding_served && g->nodes[i]->in[1] == param) return true;
  return false;
}

/* True for a buffer that contains only lookup tables: a tick reads only a few rows. */
static bool is_looked_up(const sli_lowering *l, int buffer) {
  const sl_graph *g = l->in->g;
  bool any = false, all = true;
  for (int i = 0; i < g->nparams; i++) {
    if (l->spots[g->params[i]->id].buffer != buffer) continue;
    any = true;
    all &= is_table(g, g->params[i]);
  }
  return any && all;
}

/* True if the buffer may be offloaded. State that only an update uses is idle between steps. */
static bool can_move(const sli_lowering *l, int buffer) {
  const sli_buffer *b = &l->buffers[buffer];
  if (sli_is_swept(b)) return true;
  if (!sli_roles[b->role].home || !b->bytes || b->pace || b->aliases != SL_NONE) return false;
  if (is_weights(b)) return b->rate == SLI_PER_STEP && is_private(l, b) && !is_looked_up(l, buffer);
  return b->rate != SLI_PER_MICROBATCH && (b->held || is_idle(l, b));
}

/* ---- is it worth it? ------------------------------------------------------------------------ */

enum { MOST_LANES = 16 };

/* Memory of a stage's buffers on one of its devices: kept there, or in staging slots. */
typedef struct weight {
  size_t kept, staging;
} weight;

/* Largest staging slot pools, by index `nth` among the buffers that a task writes, or reads in the
 * backward pass. */
typedef struct widest {
  size_t made[MOST_LANES], read[MOST_LANES];
} widest;

static bool moves(const sli_buffer *b) { return b->target != SL_SPACE_DEVICE; }

sli_role sli_staging_role(const sli_lowering *l, const sli_buffer *b) {
  if (sli_is_swept(b)) return SLI_ROLE_KV_SPILL;
  bool between = l->in->layers && b->rate < SLI_PER_STEP && sli_leaves_block(l, b);
  return between ? SLI_ROLE_BETWEEN : SLI_ROLE_SPILL;
}

static int staging_slots(const sli_lowering *l, sli_role role, const sli_buffer *b) {
  int given = sli_lower_given(l, role, maker(l, b)->stage);
  return given ? given : sli_role_slots(l, role, b);
}

static void widen(const sli_lowering *l, size_t slot_pools[MOST_LANES], int nth,
                  const sli_buffer *b, sli_role role) {
  size_t *slot_pool = &slot_pools[SLI_MIN(nth, MOST_LANES - 1)];
  *slot_pool = SLI_MAX(*slot_pool, (size_t)staging_slots(l, role, b) * b->bytes);
}

static void count_task(const sli_lowering *l, const sli_task *task, widest *w) {
  int made = 0, read = 0;
  for (int i = 0; i < task->noutputs; i++) {
    const sli_buffer *b = &l->buffers[task->outputs[i]];
    if (!moves(b) || is_weights(b)) continue;
    widen(l, w->made, made++, b, sli_staging_role(l, b));
    if (b->held) widen(l, w->read, 0, b, SLI_ROLE_FILL); /* the updating task reads it too */
  }
  for (int i = 0; i < task->ninputs; i++) {
    const sli_buffer *b = &l->buffers[task->inputs[i]];
    if (!moves(b) || is_weights(b)) continue;
    if (sli_is_swept(b)) widen(l, w->read, MOST_LANES - 1, b, SLI_ROLE_KV_FILL);
    else if (sli_is_filled(l, b, task)) widen(l, w->read, read++, b, SLI_ROLE_FILL);
  }
}

/* Counts staging for parameters; a task that updates them also reads them. */
static void count_weights(const sli_lowering *l, const sli_task *task, widest *w) {
  int made = 0, read = 0;
  for (int i = 0; i < task->noutputs; i++) {
    const sli_buffer *b = &l->buffers[task->outputs[i]];
    if (!moves(b) || !is_weights(b)) continue;
    if (sli_is_spilled(b)) widen(l, w->made, made++, b, SLI_ROLE_SPILL);
    if (b->initial) widen(l, w->read, read++, b, SLI_ROLE_WEIGHTS);
  }
  for (int i = 0; i < task->ninputs && !sli_reads_homes(task); i++) {
    const sli_buffer *b = &l->buffers[task->inputs[i]];
    if (moves(b) && is_weights(b)) widen(l, w->read, read++, b, SLI_ROLE_WEIGHTS);
  }
}

/* True if the stage has one microbatch at a time: the backward pass then comes between two
 * forward passes. */
bool sli_is_one_at_a_time(const sli_lowering *l, int stage) {
  return l->act_b[stage] == 1 && l->in->k == 1;
}

/* Returns the class whose slot pools hold a task's parameters. */
static sl_class weights_class(const sli_lowering *l, const sli_task *task) {
  bool with_f = task->cls == SL_CLASS_B && sli_is_one_at_a_time(l, task->stage);
  return with_f ? SL_CLASS_F : task->cls;
}

/* Part of a device's memory to compare: a stage's parameters, or everything else. */
typedef struct load {
  int stage, rank;
  bool weights;
} load;

/* Returns the bytes of the slot pools of one class, in one section of the blocks. */
static size_t slot_pools_bytes(const sli_lowering *l, load of, sl_class cls, int section) {
  widest w = {0};
  size_t sum = 0;
  for (int i = 0; i < l->ntasks; i++) {
    const sli_task *g = &l->tasks[i];
    if (g->stage != of.stage || g->rank != of.rank) continue;
    if (sli_lower_section(l, i).first != section) continue;
    if (of.weights && weights_class(l, g) == cls) count_weights(l, g, &w);
    if (!of.weights && g->cls == cls) count_task(l, g, &w);
  }
  for (int n = 0; n < MOST_LANES; n++) sum += w.made[n] + w.read[n];
  return sum;
}

/* Sums staging slot pools. Tasks of a class take turns; B and W have separate slot pools. With one
 * microbatch at a time, F and B share slot pools for parameters. */
static size_t staging_bytes(const sli_lowering *l, load of) {
  int sections = 1;
  size_t sum = 0;
  for (int i = 0; i < l->sections.count; i++)
    sections = SLI_MAX(sections, 1 + l->sections.items[i].first);
  for (int c = 0; c < SL_CLASS_COUNT; c++)
    for (int s = 0; s < sections; s++) sum += slot_pools_bytes(l, of, (sl_class)c, s);
  return sum;
}

static bool is_of(const sli_lowering *l, const sli_buffer *b, load of) {
  return moves(b) && is_weights(b) == of.weights && maker(l, b)->stage == of.stage &&
         maker(l, b)->rank == of.rank;
}

/* Compares keeping with staging. If staging needs as much memory, all buffers stay on the device,
 * except swept buffers, which exist to be moved. */
static weight weigh(sli_lowering *l, load of) {
  weight w = {.staging = staging_bytes(l, of)};
  for (int i = 0; i < l->nbuffers; i++) {
    const sli_buffer *b = &l->buffers[i];
    bool once = b->held || b->rate == SLI_PER_STEP;
    int slots = once ? 1 : b->role == SLI_ROLE_ACT_W ? l->act_w[of.stage] : l->act_b[of.stage];
    if (is_of(l, b, of)) w.kept += (size_t)slots * b->bytes;
  }
  for (int i = 0; i < l->nbuffers && w.staging >= w.kept; i++)
    if (is_of(l, &l->buffers[i], of) && !sli_is_swept(&l->buffers[i]))
      l->buffers[i].target = SL_SPACE_DEVICE;
  return w;
}

/* ---- the pass ------------------------------------------------------------------------------ */

static void mark(sli_lowering *l) {
  for (int i = 0; i < l->nbuffers; i++) {
    sli_buffer *b = &l->buffers[i];
    if (!can_move(l, i)) continue;
    const sl_home *home = wanted(l, b);
    if (home->space == b->home && !is_weights(b)) continue;
    b->target = home->space;
    b->peer = home->peer;
  }
}

/* Removes a write of frozen parameters that are not stored or evaluated: the update would pass them
 * on unchanged, so it need not touch them. */
static void let_be(sli_lowering *l, int buffer) {
  sli_buffer *b = &l->buffers[buffer];
  sli_task *g = &l->tasks[b->producer];
  int outputs = 0, nodes = 0;
  for (int i = 0; i < g->noutputs; i++)
    if (g->outputs[i] != buffer) g->outputs[outputs++] = g->outputs[i];
  for (int i = 0; i < g->nnodes; i++)
    if (l->spots[g->nodes[i]->out[0]->id].buffer != buffer) g->nodes[nodes++] = g->nodes[i];
  g->noutputs = outputs;
  g->nnodes = nodes;
  b->producer = SL_NONE;
}

static void let_frozen_be(sli_lowering *l) {
  if (l->store || l->in->g->options.eval_every) return;
  for (int i = 0; i < l->nbuffers; i++)
    if (moves(&l->buffers[i]) && l->buffers[i].frozen && l->buffers[i].producer != SL_NONE)
      let_be(l, i);
}

/* Keeps a stage's credit when the buffer that carried it is offloaded. The passes take and return
 * the credit, so a register without bytes carries it instead. */
static void keep_credit(sli_lowering *l, int buffer) {
  const sli_buffer b = l->buffers[buffer];
  int *late = sli_arena_alloc(&l->arena, (size_t)b.nconsumers * sizeof *late), n = 0;
  for (int i = 0; i < b.nconsumers; i++)
    if (reads_late(l, &b, &l->tasks[b.consumers[i]])) late[n++] = b.consumers[i];
  l->buffers[buffer].credit = false;
  sli_add_buffer(l, (sli_buffer){.name = sli_arena_format(&l->arena, "%s:credit", b.name),
                                 .role = b.role,
                                 .producer = b.producer,
                                 .nconsumers = n,
                                 .consumers = late,
                                 .rate = b.rate,
                                 .memory = b.memory,
                                 .device = b.device,
                                 .aliases = SL_NONE,
                                 .credit = true});
}

static void keep_credits(sli_lowering *l) {
  for (int i = 0, n = l->nbuffers; i < n; i++)
    if (moves(&l->buffers[i]) && l->buffers[i].credit) keep_credit(l, i);
}

/* True for a buffer that a block passes to the next block in the same pass. If blocks take turns
 * with offloaded buffers, they take turns with these too. */
static bool is_between(const sli_lowering *l, const sli_buffer *b) {
  if (b->role != SLI_ROLE_INNER || b->rate != SLI_PER_TICK || b->pace || !b->nconsumers)
    return false;
  const sli_task *from = &l->tasks[b->producer];
  for (int i = 0; i < b->nconsumers; i++) {
    const sli_task *to = &l->tasks[b->consumers[i]];
    if (to->cls != from->cls || to->device != from->device || to->cls == SL_CLASS_C) return false;
    if (to->part != from->part + (from->backward ? -1 : 1)) return false;
  }
  return !sli_lower_given(l, SLI_ROLE_INNER, from->stage);
}

static void take_turns(sli_lowering *l) {
  for (int i = 0; i < l->nbuffers; i++) {
    sli_buffer *b = &l->buffers[i];
    if (b->producer == SL_NONE || !is_between(l, b)) continue;
    b->role = SLI_ROLE_BETWEEN;
    b->transient = true;
  }
}

/* Rounds buffers placed on disk up to whole pages. */
static void round_up(sli_lowering *l) {
  for (int i = 0; i < l->nbuffers; i++) {
    sli_buffer *b = &l->buffers[i];
    if (b->target != SL_SPACE_DISK) continue;
    b->bytes = (b->bytes + SLI_DISK_PAGE - 1) / SLI_DISK_PAGE * SLI_DISK_PAGE;
    if (!b->valid_length) b->payload_bytes = b->bytes;
  }
}

sl_status sli_lower_homes(sli_lowering *l) {
  if (l->in->layers) take_turns(l);
  if (!sli_lower_moves(l->in->options)) return SL_OK;
  weight most = {0};
  bool any = false;
  mark(l);
  let_frozen_be(l);
  for (int i = 0; i < 2 * l->stages * l->in->ranks; i++) {
    weight w = weigh(l, (load){i / 2 / l->in->ranks, i / 2 % l->in->ranks, i % 2});
    any |= w.staging < w.kept;
    if (w.kept > most.kept) most = w;
  }
  keep_credits(l);
  if (!l->in->layers) take_turns(l);
  round_up(l);
  if (any) return SL_OK;
  if (!most.kept)
    return sl_fail(
        SL_E_USAGE,
        "home %s: nothing to move: registers that are read at once or by other devices stay on "
        "the device",
        l->in->options->memory.homes.homes[0].name);
  char staging[32], kept[32];
  return sl_fail(
      SL_E_USAGE,
      "home %s: saves nothing here: keeping the registers takes %s of a device, moving them %s "
      "(memory.quotas spill=N, memory.quotas fill=N)",
      l->in->options->memory.homes.homes[0].name, sli_format_bytes(kept, (double)most.kept),
      sli_format_bytes(staging, (double)most.staging));
}
