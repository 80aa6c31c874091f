/* SPDX-License-Identifier: Apache-2.0 */
/* Checkpoints as actors. To resume after a step, a stage needs the registers that its update
 * writes: parameters, and the optimizer's private state. Every N steps the update copies them
 * unchanged into an additional register, `store`, whose key map skips the other steps. A store
 * actor reads it, passes it to the callback that writes files, and writes a manifest entry. The
 * store actor has a separate queue and thread, so it may wait for a disk as long as necessary. Only
 * the quota of `store` ties it to training: with one slot, the update of a step to be stored waits
 * until the last copy has been written. The commit actor reads the manifest entries of all stages:
 * when it fires, the checkpoint is complete. update0 -> store@0 -> store0 -> written@0 \ update1 ->
 * store@1 -> store1 -> written@1 -> commit If parameters have two slots, both versions are stored:
 * the next step reads the older one. If a stage has several devices, each device that has state
 * which no lower rank has does all of this. */
#include "actors/plan/plan.h"
#include "graph/lower/ir.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* ---- tasks and buffers ---------------------------------------------------------- */

static int versions(const sli_buffer *b) {
  return b->held || b->target != SL_SPACE_DEVICE ? 1 : b->initial;
}

/* Returns the stage of a parameter or of optimizer state, or SL_NONE for other tensors. */
static int state_stage(const sli_lowering *l, const sl_tensor *t) {
  int buffer = l->spots[t->id].buffer;
  if (buffer == SL_NONE) return SL_NONE;
  if (t->param) return l->stage_of[t->home];
  const sli_buffer *b = &l->buffers[buffer];
  bool state = b->producer != SL_NONE && b->memory == SL_MEMORY_OPTIMIZER;
  return state ? l->tasks[b->producer].stage : SL_NONE;
}

/* Marks the buffers that checkpoints store: all updated state, except replicas and weights that
 * keep their file's storage format. */
static void mark_stored(sli_lowering *l) {
  for (int i = 0; i < l->in->g->ntensors; i++) {
    const sl_tensor *t = l->in->g->tensors[i];
    if (t->replica || t->storage || state_stage(l, t) == SL_NONE) continue;
    sli_buffer *b = &l->buffers[l->spots[i].buffer];
    b->image.stored = b->producer != SL_NONE;
  }
}

/* Returns the buffer for copies of a task's updated state, or SL_NONE. */
static int copies_of(const sli_lowering *l, const sli_task *task) {
  for (int i = 0; i < task->noutputs; i++)
    if (l->buffers[task->outputs[i]].rate == SLI_PER_STORE) return task->outputs[i];
  return SL_NONE;
}

static bool updates_stored(const sli_lowering *l, int task) {
  const sli_task *g = &l->tasks[task];
  for (int i = 0; i < g->noutputs; i++)
    if (l->buffers[g->outputs[i]].image.stored) return true;
  return false;
}

static int add_task(sli_lowering *l, const char *name, int stage, int rank) {
  return sli_add_task(l, (sli_task){.name = name,
                                    .cls = SL_CLASS_L,
                                    .stage = stage,
                                    .rank = rank,
                                    .device = stage == SL_NONE ? sli_speaker(l->in)
                                                               : sli_lower_device(l, stage, rank),
                                    .chunk = stage == SL_NONE ? SL_NONE : l->chunk_of[stage],
                                    .rate = SLI_PER_STORE,
                                    .host = true});
}

/* Appends the position to a name: "0", or "0#1" on the stage's second device. */
static const char *name_at(sli_lowering *l, const char *name, int stage, int rank) {
  return rank ? sli_arena_format(&l->arena, "%s%d#%d", name, stage, rank)
              : sli_arena_format(&l->arena, "%s%d", name, stage);
}

/* Adds a register; the number, 1, 2, ..., distinguishes registers with the same name. */
static void add_link(sli_lowering *l, sli_role role, int number, int from, int to, size_t bytes) {
  const sli_task *a = &l->tasks[from];
  int *consumers = sli_arena_alloc(&l->arena, sizeof *consumers);
  const char *name = sli_roles[role].name;
  const char *full = number == 1 ? sli_arena_format(&l->arena, "%s@", name)
                                 : sli_arena_format(&l->arena, "%s.%d@", name, number);
  consumers[0] = to;
  sli_add_buffer(l, (sli_buffer){.name = name_at(l, full, a->stage, a->rank),
                                 .role = role,
                                 .producer = from,
                                 .nconsumers = 1,
                                 .consumers = consumers,
                                 .rate = SLI_PER_STORE,
                                 .memory = sli_roles[role].memory,
                                 .device = a->device,
                                 .bytes = bytes,
                                 .aliases = SL_NONE});
}

/* Lays out the copies of a task's updated state, one after another; returns their bytes. */
static size_t lay_out_copies(sli_lowering *l, int task) {
  const sli_task *g = &l->tasks[task];
  size_t bytes = 0;
  for (int i = 0; i < g->noutputs; i++) {
    sli_buffer *b = &l->buffers[g->outputs[i]];
    if (!b->image.stored) continue;
    b->image = (sli_image){true, bytes, b->bytes};
    bytes += (size_t)versions(b) * b->bytes;
  }
  return bytes;
}

/* Slot of `written`: manifest entry of a stage's state. */
typedef struct manifest_entry {
  char text[SL_MANIFEST_ENTRY_BYTES];
  uint64_t stored; /* 1: the state is stored; 0: storing failed, so nothing is committed */
} manifest_entry;

/* Adds the store of a stage on one of its devices; updates may be several tasks, one for each
 * block. */
static void add_store(sli_lowering *l, int stage, int rank, int commit) {
  int store = SL_NONE, updates = l->ntasks;
  for (int i = 0; i < updates; i++) {
    const sli_task *g = &l->tasks[i];
    if (g->phase != SLI_PHASE_UPDATE || g->stage != stage || g->rank != rank) continue;
    if (!updates_stored(l, i)) continue;
    if (store == SL_NONE) store = add_task(l, name_at(l, "store", stage, rank), stage, rank);
    add_link(l, SLI_ROLE_STORE, l->tasks[store].ninputs + 1, i, store, lay_out_copies(l, i));
  }
  if (store != SL_NONE) add_link(l, SLI_ROLE_WRITTEN, 1, store, commit, sizeof(manifest_entry));
}

void sli_lower_store(sli_lowering *l) {
  if (!l->in->stores || !l->in->options->store.every || l->in->g->options.infer) return;
  l->store = true;
  mark_stored(l);
  int commit = add_task(l, "commit", SL_NONE, 0);
  for (int s = 0; s < l->stages; s++)
    for (int r = 0; r < l->in->ranks; r++) add_store(l, s, r, commit);
}

/* ---- stored tensors, by name ------------------------------------------------------------ */

/* Tensor that a device needs to resume: its place, and the place of its copy. */
typedef struct item {
  const char *name;
  sl_type type;
  const sl_shard *shard;
  bool replica;
  int32_t reg;
  int version;   /* among the register's initial versions; the last is the newest */
  size_t offset; /* within the register's slot */
  int input;     /* input of the store actor that has its copy */
  size_t image;  /* offset within that input's slot */
  float start;   /* initial value of optimizer state */
} item;

typedef struct device_store {
  int stage, rank, count;
  size_t capacity;
  item *items;
  sl_state_tensor *tensors; /* [count] scratch array of the store actor */
} device_store;

struct sli_stores {
  sl_lower_options options;
  sl_runtime *rt;     /* receives failures */
  atomic_bool failed; /* storing a state failed: set by the thread that stores, and nothing is
                         committed after it; relaxed, since the entries order everything else */
  int stages, ranks;
  device_store *all; /* [stages][ranks] */
};

sli_stores *sli_stores_create(const sl_lower_options *options) {
  sli_stores *s = sli_calloc(1, sizeof *s);
  s->options = *options;
  return s;
}

void sli_stores_destroy(sli_stores *s) {
  if (!s) return;
  for (int i = 0; i < s->stages * s->ranks; i++) {
    free(s->all[i].items);
    free(s->all[i].tensors);
  }
  free(s->all);
  free(s);
}

void sli_stores_attach(sli_stores *s, sl_runtime *rt) { s->rt = rt; }

static device_store *store_of(const sli_stores *s, int stage, int rank) {
  return &s->all[stage * s->ranks + rank];
}

/* Returns the input of the store task that has the copies of a task's updated state. */
static int store_input(const sli_lowering *l, int update) {
  int copies = copies_of(l, &l->tasks[update]);
  if (copies == SL_NONE) return SL_NONE;
  return sli_task_port(l, &l->tasks[l->buffers[copies].consumers[0]], copies, false);
}

static void keep_tensor(device_store *s, const sli_lowering *l, const sl_tensor *t) {
  const sli_spot *spot = &l->spots[t->id];
  const sli_buffer *b = &l->buffers[spot->buffer];
  sli_arena *arena = &l->in->g->arena;
  bool copied = l->store && b->producer != SL_NONE;
  int n = versions(b), input = copied ? store_input(l, b->producer) : SL_NONE;
  for (int v = 0; v < n; v++) {
    SLI_GROW(s->items, (size_t)s->count, s->capacity);
    const char *name = sli_arena_strdup(arena, t->name);
    for (int older = v; older + 1 < n; older++) name = sli_arena_format(arena, "%s:previous", name);
    s->items[s->count++] = (item){name,
                                  t->type,
                                  t->shard,
                                  t->replica,
                                  l->buffers[sli_buffer_home(l, spot->buffer)].reg,
                                  v,
                                  spot->offset,
                                  input,
                                  b->image.offset + (size_t)v * b->image.bytes + spot->offset,
                                  t->param ? 0 : t->init.scale};
  }
}

/* Lists the tensors. Parameters in inference are not stored, but can be read. Weights that keep
 * their file's storage format are loaded from the file. */
void sli_stores_keep(sli_stores *s, const sli_lowering *l) {
  int n = l->stages * l->in->ranks;
  s->stages = l->stages;
  s->ranks = l->in->ranks;
  s->all = sli_calloc((size_t)n, sizeof *s->all);
  for (int i = 0; i < n; i++)
    s->all[i] = (device_store){.stage = i / l->in->ranks, .rank = i % l->in->ranks};
  for (int i = 0; i < l->in->g->ntensors; i++) {
    const sl_tensor *t = l->in->g->tensors[i];
    int stage = state_stage(l, t);
    if (stage != SL_NONE && !t->storage) keep_tensor(store_of(s, stage, t->rank), l, t);
  }
  for (int i = 0; i < n; i++)
    s->all[i].tensors = sli_calloc((size_t)s->all[i].count, sizeof(sl_state_tensor));
}

/* ---- programs --------------------------------------------------------------------- */

static const sl_op store_op, commit_op;

/* Writes the copies of a task's updated state, for the steps that are stored. */
int sli_lower_store_copies(sli_lowering *l, int task, sl_program_call *calls) {
  const sli_task *g = &l->tasks[task];
  int to = copies_of(l, g), n = 0;
  if (to == SL_NONE || g->rate == SLI_PER_STORE) return 0;
  int target = sli_task_port(l, g, to, true);
  for (int i = 0; i < g->noutputs; i++) {
    const sli_buffer *b = &l->buffers[g->outputs[i]];
    if (!b->image.stored || !b->bytes) continue;
    for (int v = 0; v < versions(b); v++) {
      bool newest = v + 1 == versions(b);
      sl_place *places = sl_plan_alloc(l->plan, 2 * sizeof *places);
      sl_type *type = sl_plan_alloc(l->plan, sizeof *type);
      places[0] = (sl_place){sli_task_port(l, g, g->outputs[i], newest), 0};
      places[1] = (sl_place){target, b->image.offset + (size_t)v * b->image.bytes};
      *type = SL_TYPE(SL_F32, (int64_t)(b->image.bytes / sizeof(float)));
      calls[n++] = (sl_program_call){.op = &sl_op_copy,
                                     .name = sl_plan_format(l->plan, "store:%s", b->name),
                                     .nin = 1,
                                     .nout = 1,
                                     .in_type = type,
                                     .out_type = type,
                                     .in = &places[0],
                                     .out = &places[1]};
    }
  }
  return n;
}

int sli_lower_store_calls(const sli_lowering *l, int task) {
  const sli_task *g = &l->tasks[task];
  int n = 0;
  for (int i = 0; i < g->noutputs && l->store; i++)
    if (l->buffers[g->outputs[i]].image.stored) n += versions(&l->buffers[g->outputs[i]]);
  return n;
}

/* Writes the single call of a store or commit actor: all its inputs, and its manifest entry. */
sl_program *sli_lower_store_program(sli_lowering *l, int task) {
  const sli_task *g = &l->tasks[task];
  sl_plan *plan = l->plan;
  sl_program *program = sl_plan_alloc(plan, sizeof *program);
  int ports = g->ninputs + g->noutputs;
  sl_place *places = sl_plan_alloc(plan, (size_t)ports * sizeof *places);
  sl_type *types = sl_plan_alloc(plan, (size_t)ports * sizeof *types);
  for (int i = 0; i < ports; i++) {
    int buffer = i < g->ninputs ? g->inputs[i] : g->outputs[i - g->ninputs];
    places[i] = (sl_place){i, 0};
    types[i] = SL_TYPE(SL_F32, (int64_t)(l->buffers[buffer].bytes / sizeof(float)));
  }
  bool commit = g->stage == SL_NONE;
  struct sli_store_user *user = sl_plan_alloc(plan, sizeof *user);
  *user = (struct sli_store_user){l->in->stores, g->stage, g->rank};
  *program = (sl_program){.ncalls = 1,
                          .calls = sl_plan_alloc(plan, sizeof(sl_program_call)),
                          .nbases = ports + 1,
                          .nvariants = 1};
  program->calls[0] = (sl_program_call){.op = commit ? &commit_op : &store_op,
                                        .name = sl_plan_format(plan, "%s", g->name),
                                        .attrs = {.user = user},
                                        .nin = g->ninputs,
                                        .nout = g->noutputs,
                                        .in_type = types,
                                        .out_type = types + g->ninputs,
                                        .in = places,
                                        .out = places + g->ninputs};
  return program;
}

static void fail(sli_stores *s, sl_status status) {
  atomic_store_explicit(&s->failed, true, memory_order_relaxed);
  if (s->rt) sl_runtime_fail(s->rt, status, sl_detail());
}

static bool has_failed(sli_stores *s) {
  return atomic_load_explicit(&s->failed, memory_order_relaxed);
}

static void run_store(const sl_call *call) {
  const struct sli_store_user *user = call->attrs->user;
  sli_stores *all = user->stores;
  device_store *s = store_of(all, user->stage, user->rank);
  manifest_entry *to = call->out[0];
  *to = (manifest_entry){0};
  if (has_failed(all) || !all->options.store.on_store) return;
  sl_stage_state state = {call->tick.step + 1, s->stage, s->rank, 0, s->tensors};
  for (int i = 0; i < s->count; i++) {
    const item *it = &s->items[i];
    if (it->replica) continue;
    s->tensors[state.ntensors++] =
        (sl_state_tensor){.name = it->name,
                          .type = it->type,
                          .shard = it->shard,
                          .data = (const char *)call->in[it->input] + it->image};
  }
  sl_status status = all->options.store.on_store(all->options.store.ctx, &state, to->text);
  if (status) fail(all, status);
  else to->stored = 1;
}

static void run_commit(const sl_call *call) {
  const struct sli_store_user *user = call->attrs->user;
  sli_stores *all = user->stores;
  if (has_failed(all) || !all->options.store.on_stored) return;
  for (int i = 0; i < call->nin; i++) /* other processes may store other inputs */
    if (!((const manifest_entry *)call->in[i])->stored) return;
  sl_status status = all->options.store.on_stored(all->options.store.ctx, call->tick.step + 1,
                                                  call->nin, call->in);
  if (status) fail(all, status);
}

/* Both ops may block: their queue has a separate thread. */
static const sl_op store_op = {
    .name = "store", .min_in = 1, .max_in = -1, .nout = 1, .kernels = SL_CPU_KERNEL(run_store)};
static const sl_op commit_op = {
    .name = "commit", .min_in = 1, .max_in = -1, .kernels = SL_CPU_KERNEL(run_commit)};

/* ---- between runs -------------------------------------------------------------------- */

/* Returns the slot of a version: the slots of a register that is always full take turns. */
static int32_t version_slot(const sl_runtime *rt, const sl_register *r, const item *it) {
  if (r->held || r->producer == SL_NONE) return 0;
  return (sl_runtime_newest_slot(rt, it->reg) + 1 + it->version) % r->initial;
}

int sli_stores_state(const sli_stores *s, const sl_plan *plan, sl_runtime *rt, int stage, int rank,
                     const sl_state_tensor **out) {
  const device_store *from = store_of(s, stage, rank);
  if (!from->count || !sl_runtime_slot(rt, from->items[0].reg, 0)) return 0;
  for (int i = 0; i < from->count; i++) {
    const item *it = &from->items[i];
    int32_t slot = version_slot(rt, &plan->regs[it->reg], it);
    const char *data = sl_runtime_slot(rt, it->reg, slot);
    from->tensors[i] = (sl_state_tensor){
        .name = it->name,
        .type = it->type,
        .shard = it->shard,
        .replica = it->replica,
        .data = sli_register_far(plan, &plan->regs[it->reg]) ? NULL : data + it->offset,
        .reg = it->reg,
        .slot = slot,
        .offset = it->offset,
        .start = it->start};
  }
  *out = from->tensors;
  return from->count;
}
