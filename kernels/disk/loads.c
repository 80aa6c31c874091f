/* SPDX-License-Identifier: Apache-2.0 */
/* The queue of loads: of experts, and of rows of tables. Its worker, that of the device, plans each
 * firing and goes on.
 *
 * Parts of experts are large. A thread behind the queue reads them (reads.h), and has nothing to do
 * with firings whose experts are in memory. Rows of tables are small, and a block waits for them:
 * the worker begins all reads of a table itself, and looks now and then whether they have ended, so
 * no thread has to wake (sli_disk_flights). Without io_uring the thread reads them too. */
#include <sluice/ops.h>
#include <sluice/program.h>

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "kernels/bind.h"
#include "kernels/disk/disk.h"
#include "kernels/disk/loaders.h"
#include "kernels/disk/reads.h"
#include "kernels/disk/ring.h"
#include "ops/expert_loads.h"

enum {
  LANDINGS = 8, /* firings whose reads are under way at once */
  WAITING = 64, /* firings that have not ended, most of which have not begun to read */
  MOST_ARGUMENTS = 8
};

/* A call that makes its outputs of what it reads once all of it is there. Calls are numbered from 1
 * on, and begin and end in this order. */
typedef struct landing {
  uint64_t fence; /* of its reads */
  const char *name;
  sl_call call;
  const void *in[MOST_ARGUMENTS];
  void *out[MOST_ARGUMENTS];
  int32_t in_rows[MOST_ARGUMENTS];
} landing;

typedef struct loads_queue {
  sli_disk_reads *reads;
  sli_disk_flights *flights; /* NULL: the thread reads everything */
  char *room;                /* [LANDINGS][bytes] what the landings read */
  size_t bytes;
  landing landings[WAITING];    /* call n: at n % WAITING */
  uint64_t asked, begun, ended; /* the last call of each kind */
  size_t nways, capacity;
  sli_disk_way *ways; /* of the firing that is being planned */
  int flying;         /* firings that are not complete */
  char *failed;       /* NULL: no error */
} loads_queue;

/* A fence is a number and what it counts: reads of the thread, flights, or calls that land. */
enum { READ, FLIGHT, CALL, KINDS = 4 };

static uint64_t fence_of(uint64_t number, int kind) { return number * KINDS + (uint64_t)kind; }

static bool has_passed(const loads_queue *q, uint64_t fence) {
  return fence / KINDS <= (fence % KINDS == FLIGHT ? sli_disk_flights_passed(q->flights)
                                                   : sli_disk_reads_passed(q->reads));
}

static const char *failure_of(const loads_queue *q) {
  const char *failed = q->failed ? q->failed : sli_disk_reads_failure(q->reads);
  return !failed && q->flights ? sli_disk_flights_failure(q->flights) : failed;
}

static void fail(loads_queue *q, const sl_tick *tick) {
  q->failed = sli_format("step %lld, microbatch %d: %s", (long long)tick->step, tick->microbatch,
                         sl_detail());
}

static sl_status loads_open(const sl_queue_config *config, void **queue) {
  loads_queue *q = sli_calloc(1, sizeof *q);
  const char *why;
  bool far = config->memory && config->memory->far;
  q->reads = sli_disk_reads_open(far ? (sli_disk_far){config->memory, config->host, config->device}
                                     : (sli_disk_far){0});
  q->bytes = sli_disk_pages(config->scratch_bytes / LANDINGS);
  if (q->bytes) q->room = sli_aligned_alloc(SLI_DISK_PAGE, LANDINGS * q->bytes);
  if (q->bytes) q->flights = sli_disk_flights_open(&why);
  *queue = q;
  return SL_OK;
}

static void loads_close(void *queue) {
  loads_queue *q = queue;
  if (!q) return;
  sli_disk_flights_close(q->flights);
  sli_disk_reads_close(q->reads);
  free(q->room);
  free(q->ways);
  free(q->failed);
  free(q);
}

/* ---- rows of tables ------------------------------------------------------------------------- */

static sl_status list_way(void *queue, const char *name, void *to, const void *from, size_t bytes) {
  loads_queue *q = queue;
  sli_disk_way way = sli_disk_way_of(to, from, bytes);
  way.name = name;
  if (!way.file) return memcpy(to, from, bytes), SL_OK; /* weights that stay in memory */
  SLI_GROW(q->ways, q->nways, q->capacity);
  q->ways[q->nways++] = way;
  return SL_OK;
}

static bool are_straight(const loads_queue *q) {
  bool straight = q->flights;
  for (size_t i = 0; i < q->nways && straight; i++) straight = sli_disk_way_straight(&q->ways[i]);
  return straight;
}

/* Begins the reads of a call. */
static sl_status begin(loads_queue *q, uint64_t number) {
  landing *l = &q->landings[number % WAITING];
  l->call.scratch = q->room + number % LANDINGS * q->bytes;
  l->fence = q->nways = 0;
  SLI_TRY(sli_load_rows.begin(&l->call, l->name, list_way, q));
  if (!q->nways) return SL_OK;
  uint64_t flight = are_straight(q) ? sli_disk_flights_begin(q->flights, q->ways, q->nways) : 0;
  l->fence = flight ? fence_of(flight, FLIGHT)
                    : fence_of(sli_disk_reads_ask(q->reads, q->ways, q->nways), READ);
  return SL_OK;
}

/* Ends calls whose rows have come, and begins others in their place. */
static void advance(loads_queue *q) {
  for (bool more = true; more && !q->failed;) {
    more = false;
    while (q->ended < q->begun && has_passed(q, q->landings[(q->ended + 1) % WAITING].fence)) {
      sli_load_rows.end(&q->landings[++q->ended % WAITING].call);
      more = true;
    }
    while (q->begun < q->asked && q->begun - q->ended < LANDINGS && !q->failed) {
      const landing *l = &q->landings[(q->begun + 1) % WAITING];
      if (begin(q, ++q->begun)) fail(q, &l->call.tick);
      more = true;
    }
  }
}

/* Keeps a call until its rows are there. If too many wait, waits for the first. */
static uint64_t keep_call(loads_queue *q, const sl_call *call, const char *name) {
  while (q->asked - q->ended == WAITING && !failure_of(q)) advance(q);
  if (q->asked - q->ended == WAITING) return fence_of(q->asked + 1, CALL); /* never completes */
  landing *l = &q->landings[++q->asked % WAITING];
  l->name = name;
  l->call = *call;
  memcpy(l->in, call->in, (size_t)call->nin * sizeof *l->in);
  memcpy(l->out, call->out, (size_t)call->nout * sizeof *l->out);
  memcpy(l->in_rows, call->in_rows, (size_t)call->nin * sizeof *l->in_rows);
  l->call.in = l->in;
  l->call.out = l->out;
  l->call.in_rows = l->in_rows;
  return fence_of(q->asked, CALL);
}

/* ---- the queue ------------------------------------------------------------------------------ */

static sl_status load(loads_queue *q, const sl_program_call *c, const sl_firing *firing,
                      const sl_tick *tick, const sli_lengths *x, uint64_t *fence) {
  int32_t in_rows[c->nin + 1];
  const void *in[c->nin + 1];
  void *out[c->nout + 1];
  sl_call call;
  uint64_t number = 0;
  if (!sli_call_bind(c, firing, tick, in, out, &call)) return SL_OK;
  for (int i = 0; i < c->nin; i++) in_rows[i] = sli_argument_rows(x, c->in_length, i);
  call.in_rows = in_rows;
  if (c->op == sli_load_rows.op) {
    *fence = keep_call(q, &call, c->name);
    return SL_OK;
  }
  SLI_TRY(sli_load_experts(&call, c->name, q->reads, &number));
  *fence = fence_of(number, READ);
  return SL_OK;
}

/* Plans all calls of a firing. *fence: the last, which is complete after the others. */
static sl_status load_all(loads_queue *q, const sl_program *program, const sl_firing *firing,
                          uint64_t *fence) {
  sl_tick tick;
  const sl_program_call *calls = sli_program_calls(program, firing, &tick);
  int32_t numbers[2 * program->nlengths + 1];
  sli_lengths x = sli_lengths_load(program, firing, numbers);
  sl_status status = SL_OK;
  for (int i = 0; i < program->ncalls && !status; i++)
    status = load(q, &calls[i], firing, &tick, &x, fence);
  sli_lengths_keep(&x, program, firing);
  return status;
}

/* True if a firing is complete. Rows that have come are unpacked then. */
static bool is_complete(loads_queue *q, uint64_t fence) {
  advance(q);
  return fence % KINDS == CALL ? q->ended >= fence / KINDS : has_passed(q, fence);
}

/* Plans a firing. It is complete if all that it lends is in memory, and earlier ones are complete.
 * The fence of a failed launch never completes, so that waiters look for the error. */
static bool loads_launch(void *queue, const sl_program *program, const sl_firing *firing,
                         uint64_t now_ns, uint64_t duration_ns, uint64_t *fence) {
  (void)now_ns, (void)duration_ns;
  loads_queue *q = queue;
  *fence = 0;
  if (q->failed) return *fence = UINT64_MAX, false;
  if (program && load_all(q, program, firing, fence)) {
    fail(q, &firing->tick);
    return *fence = UINT64_MAX, false;
  }
  bool complete = is_complete(q, *fence);
  if (!q->flying && complete) return true;
  q->flying++;
  return false;
}

static bool loads_done(void *queue, uint64_t fence, uint64_t now_ns) {
  (void)now_ns;
  loads_queue *q = queue;
  bool done = fence < UINT64_MAX && is_complete(q, fence);
  q->flying -= done;
  return done;
}

static uint64_t loads_due(void *queue, uint64_t fence) {
  (void)queue, (void)fence;
  return UINT64_MAX;
}

static const char *loads_failure(void *queue) { return failure_of(queue); }

static sl_status loads_prepare(sl_program *program, int device) {
  (void)device;
  int experts = 0;
  bool fits = true;
  for (int i = 0; i < sli_program_call_count(program); i++) {
    const sl_program_call *c = &program->calls[i];
    experts += c->op == &sl_op_load_experts;
    fits &= c->op == &sl_op_load_experts || c->op == sli_load_rows.op;
    fits &= c->nin <= MOST_ARGUMENTS && c->nout <= MOST_ARGUMENTS;
  }
  return fits && (!experts || program->ncalls == 1)
             ? SL_OK
             : sl_fail(SL_E_UNSUPPORTED,
                       "the queue of loads runs one load_experts, or load_rows alone");
}

static void loads_release(sl_program *program) { (void)program; }

/* Bytes of what is read at once. */
static size_t loads_scratch(const sl_program *program, int threads) {
  size_t most = 0;
  (void)threads;
  for (int i = 0; i < sli_program_call_count(program); i++) {
    sl_call call = sli_call_shape(&program->calls[i]);
    if (call.op == sli_load_rows.op)
      most = SLI_MAX(most, LANDINGS * sli_disk_pages(sli_load_rows.scratch(&call)));
  }
  return most;
}

const sl_queue_ops sl_queue_loads = {
    .name = "loads",
    .open = loads_open,
    .close = loads_close,
    .launch = loads_launch, /* asks for reads */
    .done = loads_done,
    .due = loads_due,
    .failure = loads_failure,
    .prepare = loads_prepare,
    .release = loads_release,
    .scratch = loads_scratch,
};
