/* SPDX-License-Identifier: Apache-2.0 */
/* Slots with fewer valid rows than room: in random graphs over several devices and processes, with
 * any quotas and timing, every consumer sees exactly the rows that the producer filled. Only valid
 * rows travel, and the rest stays poisoned.
 *
 *   test_actors_lengths [SEED [COUNT]]
 * labels: random */
#include <inttypes.h>
#include <pthread.h>
#include <string.h>

#include <sluice/ops.h>
#include <sluice/runtime.h>

#include "actors/run/run.h"
#include "base/base.h"
#include "tests/support/actors_plans.h"
#include "tests/support/rng.h"
#include "tests/support/loopback.h"
#include "tests/support/seeds.h"
#include "tests/support/test.h"

enum { MOST_ACTORS = 9, MOST_IN = 3, MOST_OUT = 2, BUCKETS = 3, STEPS = 3, FULL_ROWS = 3 };

/* An actor's output: its register and, for each process, the register to which links copy it. */
typedef struct product {
  int32_t rows; /* 0 if its slots are always full */
  int width;
  bool blank; /* invalid rows are poisoned: its device completes each firing before the next */
  int32_t reg, at[MOST_PROCESSES];
} product;

typedef struct node {
  const struct net *net;
  int id, device, nin, nout;
  bool staged, buckets; /* fills its workspace, which is copied; variants go by extent */
  const product *in[MOST_IN];
  product out[MOST_OUT];
} node;

typedef struct net {
  uint64_t seed;
  int nprocesses, ndevices, microbatches, nnodes;
  node of[MOST_ACTORS];
  sl_plan *plan;
} net;

static int32_t room(const product *p) { return p->rows ? p->rows : FULL_ROWS; }

/* Returns the valid rows of a key: often none, sometimes all. */
static int32_t extent_of(const net *n, const product *p, int64_t key) {
  rng d = {n->seed * 1000 + (uint64_t)p->reg, (uint64_t)key * 2};
  if (!p->rows) return FULL_ROWS;
  return rng_below(&d, 3) ? (int32_t)rng_below(&d, (uint32_t)p->rows + 1) : 0;
}

static float value_of(const product *p, int64_t key, int64_t i) {
  return (float)((p->reg * 31 + key) * 997 + i);
}

/* ---- the ops ------------------------------------------------------------------------------- */

static bool is_blank(const float *values, int64_t count) {
  const unsigned char *bytes = (const unsigned char *)values;
  for (size_t b = 0; b < (size_t)count * sizeof *values; b++)
    if (bytes[b] != (b % 2 ? 0x7f : 0xa1)) return false;
  return true;
}

static void check_input(const sl_call *call, const node *me, int i) {
  const product *p = me->in[i];
  int64_t key = call->tick.number, rows = sl_call_rows(call, i, FULL_ROWS);
  const float *values = call->in[i];
  CHECK(rows == extent_of(me->net, p, key),
        "seed %" PRIu64 ": actor %d sees %" PRId64 " rows of register %d, key %" PRId64 ", not %d",
        me->net->seed, me->id, rows, p->reg, key, extent_of(me->net, p, key));
  for (int64_t e = 0; e < rows * p->width; e++)
    CHECK(values[e] == value_of(p, key, e),
          "seed %" PRIu64 ": actor %d, register %d, key %" PRId64 ": number %" PRId64 " is %g",
          me->net->seed, me->id, p->reg, key, e, (double)values[e]);
  CHECK(!p->blank || is_blank(values + rows * p->width, (p->rows - rows) * p->width),
        "seed %" PRIu64 ": something is in the room behind register %d, key %" PRId64,
        me->net->seed, p->reg, key);
}

/* Checks that the variant is the smallest with room for the first input's rows. */
static void check_bucket(const sl_call *call, const node *me) {
  int32_t valid_rows = extent_of(me->net, me->in[0], call->tick.number), rows = me->in[0]->rows;
  int32_t v = (int32_t)call->attrs->fill.value, below = v ? rows * v / BUCKETS : -1;
  CHECK(valid_rows <= rows * (v + 1) / BUCKETS && valid_rows > below,
        "seed %" PRIu64
        ": %d rows of %d, and "
        "variant %d",
        me->net->seed, valid_rows, rows, v);
}

static void work_cpu(const sl_call *call) {
  const node *me = call->attrs->user;
  for (int i = 0; i < me->nin; i++) check_input(call, me, i);
  if (me->buckets) check_bucket(call, me);
  for (int o = 0; o < me->nout; o++) {
    const product *p = &me->out[o];
    float *values = call->out[o];
    int32_t rows = extent_of(me->net, p, call->tick.number);
    for (int64_t e = 0; e < rows * p->width; e++) values[e] = value_of(p, call->tick.number, e);
    if (p->rows) sl_call_fill(call, o, rows);
  }
}

static const sl_op work_row = {
    .name = "work",
    .max_in = MOST_IN,
    .nout = MOST_OUT,
    .kernels = SL_CPU_KERNEL(work_cpu),
    .rows = &(const sl_op_rows){.fills = UINT32_MAX, .looks = UINT32_MAX}};

/* ---- programs ------------------------------------------------------------------------------- */

static sl_type type_of(const product *p) { return SL_TYPE(SL_F32, room(p), p->width); }

/* Numbers the extents in the order of ports that have rows. */
static void number_lengths(sl_plan *plan, const node *me, sl_program *program) {
  int16_t *base = sl_plan_alloc(plan, (size_t)program->nbases * sizeof *base);
  int32_t *rows = sl_plan_alloc(plan, (size_t)program->nbases * sizeof *rows);
  for (int b = 0; b < program->nbases; b++) {
    const product *p = b < me->nin ? me->in[b] : &me->out[SLI_MIN(b - me->nin, me->nout - 1)];
    bool sized = b < program->nbases - 1 && p->rows;
    base[b] = (int16_t)(sized ? program->nlengths : SL_NONE);
    if (sized) rows[program->nlengths++] = p->rows;
  }
  program->nread = me->nin;
  program->base_length = base;
  program->length_rows = rows;
}

static void arguments(sl_plan *plan, int n, const product *const *of, int base, bool staged,
                      const int16_t *lengths, sl_type **types, sl_place **places,
                      const int16_t **which) {
  *types = sl_plan_alloc(plan, (size_t)n * sizeof **types);
  *places = sl_plan_alloc(plan, (size_t)n * sizeof **places);
  *which = lengths + base;
  for (int i = 0; i < n; i++) {
    (*types)[i] = type_of(of[i]);
    (*places)[i] = staged ? (sl_place){base + n, (size_t)i * 256} : (sl_place){base + i, 0};
  }
}

static void write_variant(sl_plan *plan, const node *me, const sl_program *program, int v,
                          sl_program_call *calls) {
  const product *outs[] = {&me->out[0], &me->out[1]};
  sl_type *in_type, *out_type;
  sl_place *in, *out, *slots;
  const int16_t *in_length, *out_length;
  arguments(plan, me->nin, me->in, 0, false, program->base_length, &in_type, &in, &in_length);
  arguments(plan, me->nout, outs, me->nin, me->staged, program->base_length, &out_type, &out,
            &out_length);
  if (me->buckets) in_type[0].dim[0] = program->buckets[v];
  calls[0] = (sl_program_call){.op = &work_row,
                               .name = "work",
                               .nin = me->nin,
                               .nout = me->nout,
                               .in_type = in_type,
                               .out_type = out_type,
                               .in = in,
                               .out = out,
                               .in_length = in_length,
                               .out_length = out_length,
                               .attrs = {.user = me, .fill.value = (float)v}};
  arguments(plan, me->nout, outs, me->nin, false, program->base_length, &out_type, &slots,
            &out_length);
  for (int o = 0; me->staged && o < me->nout; o++)
    calls[1 + o] = (sl_program_call){.op = &sl_op_copy,
                                     .name = "copy",
                                     .nin = 1,
                                     .nout = 1,
                                     .in_type = &out_type[o],
                                     .out_type = &out_type[o],
                                     .in = &out[o],
                                     .out = &slots[o],
                                     .in_length = &out_length[o],
                                     .out_length = &out_length[o]};
}

static sl_program *write_program(sl_plan *plan, const node *me) {
  sl_program *program = sl_plan_alloc(plan, sizeof *program);
  *program = (sl_program){.ncalls = me->staged ? 1 + me->nout : 1,
                          .nvariants = me->buckets ? BUCKETS : 1,
                          .nbases = me->nin + me->nout + 1};
  number_lengths(plan, me, program);
  program->calls =
      sl_plan_alloc(plan, (size_t)(program->ncalls * program->nvariants) * sizeof *program->calls);
  int32_t *buckets = sl_plan_alloc(plan, BUCKETS * sizeof *buckets);
  for (int v = 0; me->buckets && v < BUCKETS; v++) buckets[v] = me->in[0]->rows * (v + 1) / BUCKETS;
  program->buckets = me->buckets ? buckets : NULL;
  for (int v = 0; v < program->nvariants; v++)
    write_variant(plan, me, program, v, &program->calls[v * program->ncalls]);
  return program;
}

/* ---- plans ---------------------------------------------------------------------------------- */

static int process_of(const net *n, int device) { return device * n->nprocesses / n->ndevices; }

static int32_t add_register(net *n, rng *d, const product *p, int device) {
  sl_register r = {.name = "r",
                   .quota_name = "r",
                   .quota = 1 + (int)rng_below(d, 3),
                   .pool = SL_NONE,
                   .device = device,
                   .memory = SL_MEMORY_ACTIVATIONS,
                   .rows = p->rows,
                   .slot_bytes = 512,
                   .payload_bytes = (size_t)(room(p) * p->width) * sizeof(float)};
  return sl_plan_add_register(n->plan, r);
}

/* Returns the queue that leads from a device to a process. */
static int32_t link_queue(const net *n, int from, int to) {
  return n->ndevices + from * n->nprocesses + to;
}

static void add_link(net *n, rng *d, product *p, int from, int to) {
  int32_t each = sl_plan_map_each(n->plan);
  p->at[process_of(n, to)] = add_register(n, d, p, to);
  sl_plan_add_actor(n->plan, (sl_actor){.name = "link",
                                        .cls = SL_CLASS_C,
                                        .queue = link_queue(n, from, process_of(n, to)),
                                        .stage = SL_NONE,
                                        .chunk = SL_NONE,
                                        .ticks = each,
                                        .firings_per_step = n->microbatches,
                                        .nin = 1,
                                        .nout = 1,
                                        .in = &(sl_port){p->reg, each},
                                        .out = &(sl_port){p->at[process_of(n, to)], each}});
}

static int device_of(const net *n, const product *p) { return n->plan->regs[p->reg].device; }

/* Returns the register in which a node reads the product. */
static int32_t reach(net *n, rng *d, product *p, int device) {
  int to = process_of(n, device), from = device_of(n, p);
  if (process_of(n, from) == to) return p->reg;
  if (p->at[to] == SL_NONE) add_link(n, d, p, from, device);
  return p->at[to];
}

static void add_node(net *n, rng *d, int i) {
  node *me = &n->of[i];
  int32_t each = sl_plan_map_each(n->plan);
  sl_port in[MOST_IN], out[MOST_OUT];
  *me = (node){.net = n,
               .id = i,
               .device = (int)rng_below(d, (uint32_t)n->ndevices),
               .nout = 1 + (int)rng_below(d, MOST_OUT),
               .staged = rng_below(d, 2)};
  me->nin = i ? (int)rng_below(d, MOST_IN + 1) : 0;
  for (int k = 0; k < me->nin; k++) {
    node *from = &n->of[rng_below(d, (uint32_t)i)];
    product *p = &from->out[rng_below(d, (uint32_t)from->nout)];
    me->in[k] = p;
    in[k] = (sl_port){reach(n, d, p, me->device), each};
  }
  for (int o = 0; o < me->nout; o++) {
    product *p = &me->out[o];
    *p = (product){.rows = rng_below(d, 4) ? 1 + (int)rng_below(d, 12) : 0,
                   .width = 1 + (int)rng_below(d, 5)};
    for (int q = 0; q < MOST_PROCESSES; q++) p->at[q] = SL_NONE;
    p->reg = add_register(n, d, p, me->device);
    p->blank = p->rows && n->plan->queues[me->device].run_ahead == 1;
    out[o] = (sl_port){p->reg, each};
  }
  me->buckets = me->nin && me->in[0]->rows >= BUCKETS && rng_below(d, 2);
  sl_plan_add_actor(n->plan, (sl_actor){.name = sl_plan_format(n->plan, "work%d", i),
                                        .queue = me->device,
                                        .stage = SL_NONE,
                                        .chunk = SL_NONE,
                                        .ticks = each,
                                        .firings_per_step = n->microbatches,
                                        .nin = me->nin,
                                        .nout = me->nout,
                                        .in = in,
                                        .out = out,
                                        .program = write_program(n->plan, me)});
}

static void add_devices(net *n, rng *d) {
  for (int i = 0; i < n->ndevices; i++) {
    sl_device device = {.name = sl_plan_format(n->plan, "cpu:%d", i),
                        .kind = "cpu",
                        .threads = 1,
                        .process = process_of(n, i),
                        .at = {[SL_AT_STAGE] = i}};
    device.room[SL_SPACE_DEVICE].workspace_bytes = 1024;
    sl_plan_add_device(n->plan, device);
    bool later =
        n->nprocesses == 1 && rng_below(d, 2); /* a carrier polls only links for completion */
    sl_plan_add_queue(n->plan, (sl_queue){.name = "q",
                                          .device = i,
                                          .run_ahead = later ? 3 : 1,
                                          .ops = later ? &later_queue : &sl_queue_cpu});
  }
  for (int i = 0; i < n->ndevices; i++)
    for (int p = 0; p < n->nprocesses; p++)
      sl_plan_add_queue(
          n->plan, (sl_queue){.name = "link", .device = i, .run_ahead = 4, .ops = &sl_queue_link});
}

static void make_net(net *n, uint64_t seed, int nprocesses) {
  rng d = {seed, 0};
  *n = (net){.seed = seed, .nprocesses = nprocesses};
  n->ndevices = nprocesses + (int)rng_below(&d, 3);
  n->microbatches = 1 + (int)rng_below(&d, 5);
  n->nnodes = 2 + (int)rng_below(&d, MOST_ACTORS - 1);
  n->plan = sl_plan_create(n->microbatches, 1);
  add_devices(n, &d);
  for (int i = 0; i < n->nnodes; i++) add_node(n, &d, i);
  CHECK(!sl_plan_finish(n->plan), "seed %" PRIu64 ": %s", seed, sl_detail());
}

/* ---- runs ----------------------------------------------------------------------------------- */

typedef struct member {
  pthread_t thread;
  net net;
  sl_runtime *rt;
} member;

static void *run(void *arg) {
  member *m = arg;
  CHECK(!sl_runtime_run(m->rt, STEPS), "seed %" PRIu64 ": %s", m->net.seed, sl_detail());
  return NULL;
}

/* Returns the bytes of a register's rows in the whole run. */
static uint64_t filled_bytes(const net *n, const product *p) {
  uint64_t rows = 0;
  for (int64_t key = 0; key < STEPS * n->microbatches; key++)
    rows += (uint64_t)extent_of(n, p, key);
  return rows * (uint64_t)p->width * sizeof(float);
}

/* True if an earlier input on the same device reads the register that input k of a node reads. */
static bool is_read_before(const net *n, const node *me, int k) {
  for (int i = 0; i <= me->id; i++)
    for (int j = 0; j < (i < me->id ? n->of[i].nin : k); j++)
      if (n->of[i].device == me->device && n->of[i].in[j] == me->in[k]) return true;
  return false;
}

/* Computes the bytes that links carry, and the bytes that calls read from other devices of their
 * process, which count once per device. */
static void expected_bytes(const net *n, uint64_t *carried, uint64_t *read) {
  *carried = *read = 0;
  for (int i = 0; i < n->nnodes; i++) {
    const node *me = &n->of[i];
    for (int o = 0; o < me->nout; o++)
      for (int p = 0; p < n->nprocesses; p++)
        if (me->out[o].at[p] != SL_NONE)
          *carried += me->out[o].rows ? filled_bytes(n, &me->out[o])
                                      : (uint64_t)(STEPS * n->microbatches) * 512;
    const sl_actor *a = n->plan->actors;
    while (strcmp(a->name, sl_plan_format(n->plan, "work%d", i))) a++;
    for (int k = 0; k < me->nin; k++)
      if (n->plan->regs[a->in[k].reg].device != me->device && !is_read_before(n, me, k))
        *read += filled_bytes(n, me->in[k]);
  }
}

static void check_traffic(const net *n, const member *members, loopback *peers) {
  uint64_t carried, read, sent = 0, moved = 0, all_carried = 0;
  expected_bytes(n, &carried, &read);
  for (int p = 0; p < n->nprocesses; p++) {
    for (int q = 0; q < n->nprocesses; q++) sent += loopback_bytes(peers, p, q);
    sl_runtime_counts c = sl_runtime_count(members[p].rt);
    moved += c.moved_bytes[SL_TRAFFIC_PIPELINE];
  }
  CHECK(sent == carried, "seed %" PRIu64 ": %" PRIu64 " bytes were sent, %" PRIu64 " are valid",
        n->seed, sent, carried);
  for (int i = 0; i < n->nnodes; i++)
    for (int o = 0; o < n->of[i].nout; o++)
      for (int p = 0; p < n->nprocesses; p++)
        if (n->of[i].out[o].at[p] != SL_NONE) all_carried += filled_bytes(n, &n->of[i].out[o]);
  CHECK(moved == all_carried + read,
        "seed %" PRIu64 ": %" PRIu64
        " bytes are said to have moved, "
        "not %" PRIu64,
        n->seed, moved, all_carried + read);
}

/* Process 0 knows how many rows each firing filled. */
static void check_notes(const net *n, member *members) {
  for (int p = 1; p < n->nprocesses; p++) {
    void *bytes;
    size_t size = sl_runtime_export(members[p].rt, &bytes);
    CHECK(sl_runtime_import(members[0].rt, bytes, size - 1, 0) == SL_E_INPUT, "cut off");
    CHECK(!sl_runtime_import(members[0].rt, bytes, size, 0), "%s", sl_detail());
    free(bytes);
  }
  for (int32_t i = 0, at = 0; i < n->plan->nactors; i++) {
    if (strncmp(n->plan->actors[i].name, "work", 4)) continue;
    const node *me = &n->of[at++];
    const product *last = NULL;
    for (int o = 0; o < me->nout; o++)
      if (me->out[o].rows) last = &me->out[o];
    for (int64_t key = 0; last && key < STEPS * n->microbatches; key++)
      CHECK(sli_runtime_rows(members[0].rt, i, key) == extent_of(n, last, key),
            "seed %" PRIu64 ": actor %d, firing %" PRId64 ": %d rows are noted", n->seed, i, key,
            sli_runtime_rows(members[0].rt, i, key));
  }
}

static bool check_seed(uint64_t seed) {
  int nprocesses = 1 + (int)(seed % 3);
  static member members[3];
  loopback *peers = loopback_create(nprocesses);
  for (int p = 0; p < nprocesses; p++) make_net(&members[p].net, seed, nprocesses);
  bool stuck = sl_plan_prove(members[0].net.plan);
  for (int p = 0; p < nprocesses && !stuck; p++) {
    sl_runtime_options options = {.process = p,
                                  .peers = loopback_peers(peers, p),
                                  .check = true,
                                  .workers = 1 + (int)(seed / 3 % 3),
                                  .watchdog_seconds = 20,
                                  .jitter_seed = seed % 4,
                                  .jitter_ns = 20000};
    if (nprocesses == 1) options.peers = NULL;
    CHECK(!sl_runtime_create(members[p].net.plan, &options, &members[p].rt), "%s", sl_detail());
    loopback_attach(peers, p, members[p].rt);
  }
  for (int p = 0; p < nprocesses && !stuck; p++)
    CHECK(!pthread_create(&members[p].thread, NULL, run, &members[p]), "no thread");
  for (int p = 0; p < nprocesses && !stuck; p++) pthread_join(members[p].thread, NULL);
  if (!stuck) check_traffic(&members[0].net, members, peers);
  if (!stuck) check_notes(&members[0].net, members);
  for (int p = 0; p < nprocesses; p++) {
    if (!stuck) sl_runtime_destroy(members[p].rt);
    sl_plan_destroy(members[p].net.plan);
  }
  loopback_destroy(peers);
  return !stuck;
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { COUNT = 60 };
#else
enum { COUNT = 200 };
#endif

int main(int argc, char **argv) {
  seeds s = seeds_of(argc, argv, 1, COUNT);
  int ran = 0;
  for (uint64_t seed = s.first; seed < s.end; seed++) RUN_AS("check_seed", ran += check_seed(seed));
  printf("%d plans ran\n", ran);
  CHECK(seeds_count(s) < 50 || ran > (int)seeds_count(s) / 4, "most plans get stuck");
  return 0;
}
