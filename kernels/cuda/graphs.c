/* SPDX-License-Identifier: Apache-2.0 */
/* CUDA graphs: all launches of a firing, replayed as one.
 *
 * Launching a kernel costs the host a few microseconds, and a program has dozens. A graph of them
 * costs little more than one launch. However, a graph contains the arguments of its kernels, and
 * these change from firing to firing, because slots rotate. A program therefore keeps one graph per
 * combination that it meets. A combination is everything that its launches depend on: the addresses
 * of the bases in use, whether an accumulated slot is written for the first time, the piece of the
 * sequence, the valid rows that come with its inputs, and the scratch. Some programs are never
 * captured: those with an op whose launch depends on more (sli_cuda_op.varies), with a user-defined
 * op, or with a call that sets a number of rows. A program with a single step gains nothing and is
 * not captured either.
 *
 * The first firing of a combination is launched step by step, so that kernels are loaded and
 * libraries initialised. The second one is captured into a graph and launched by it, as is every
 * later one.
 *
 * The number of combinations may be very large: registers whose quotas have no common factor rotate
 * past each other. A program keeps SLI_CUDA_GRAPHS of them. A new one replaces the least recently
 * used one if that was used long ago; otherwise it is launched step by step. If more combinations
 * rotate than fit, plain LRU would always evict the one needed next. Updating the addresses of an
 * existing graph is not cheaper: for cuBLASLt products it takes a second capture, which makes all
 * the launches.
 *
 * Whether graphs pay off is not known in advance. The first firings are launched step by step and
 * timed, then the same number by graphs. The program continues in the mode whose fastest firing
 * took the host less time. If graphs lose, they are destroyed. Results have the same bits in both
 * modes: the same kernels get the same arguments in the same order. SLUICE_CUDA_GRAPHS=0 makes no
 * graphs, 1 uses them without timing.
 *
 * A capture can fail because the device or a library refuses. From then on the program is launched
 * step by step. An error that is not due to the capture shows up in that launch as well. */
#include "kernels/cuda/graphs.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "kernels/bind.h"
#include "kernels/cuda/ops.h"
#include "ops/ops.h"

enum { TRIES = 8, IDLE = 4 * SLI_CUDA_GRAPHS };

/* Host time of launches. */
typedef struct cost {
  int count;
  uint64_t least_ns;
} cost;

/* A combination that has occurred. */
typedef struct entry {
  uint64_t hash;
  uint64_t *words;
  uint64_t used;        /* last launch with this combination */
  cudaGraphExec_t exec; /* NULL: none yet */
} entry;

struct sli_cuda_graphs {
  const sl_program *program;
  bool off;     /* always launched step by step from now on */
  bool settled; /* timing is over: existing graphs are used */
  bool cut;     /* the sequence is cut into pieces */
  int nbases, nspans;
  int *bases; /* bases in use */
  int *spans; /* bases for which the first writer matters */
  size_t nwords;
  uint64_t *words; /* words of the current combination */
  uint64_t launches;
  cost by_step, by_graph;
  int count;
  entry entries[SLI_CUDA_GRAPHS];
};

/* ---- which programs ------------------------------------------------ */

static const char *wanted(void) {
  const char *text = getenv("SLUICE_CUDA_GRAPHS");
  return text ? text : "auto";
}

static bool can_capture(const sl_program *program) {
  for (int i = 0; i < sli_program_call_count(program); i++) {
    const sl_program_call *c = &program->calls[i];
    const sli_cuda_op *entry = sli_cuda_op_find(c->op);
    bool sets_rows = c->out_length && sli_op_rows(c->op)->fills;
    if (!entry || entry->varies || sets_rows) return false;
  }
  return true;
}

static void mark_used(const sl_place *places, int count, bool *used) {
  for (int i = 0; i < count; i++)
    if (places[i].base >= 0) used[places[i].base] = true;
}

static void mark_spans(const sl_program_call *c, bool *span) {
  for (int o = 0; o < c->nout; o++)
    if (sli_bit(c->accumulate_span, o) && c->out[o].base >= 0) span[c->out[o].base] = true;
}

/* Lists the marked bases; returns their number. */
static int list(const bool *marks, int nbases, int *of) {
  int count = 0;
  for (int i = 0; i < nbases; i++)
    if (marks[i]) of[count++] = i;
  return count;
}

static void find_bases(sli_cuda_graphs *g, const sl_program *program) {
  int n = program->nbases;
  bool used[n + 1], span[n + 1];
  memset(used, 0, sizeof used);
  memset(span, 0, sizeof span);
  for (int i = 0; i < sli_program_call_count(program); i++) {
    const sl_program_call *c = &program->calls[i];
    mark_used(c->in, c->nin, used);
    mark_used(c->out, c->nout, used);
    mark_spans(c, span);
  }
  g->bases = sli_calloc((size_t)n + 1, sizeof *g->bases);
  g->spans = sli_calloc((size_t)n + 1, sizeof *g->spans);
  g->nbases = list(used, n, g->bases);
  g->nspans = list(span, n, g->spans);
}

sli_cuda_graphs *sli_cuda_graphs_create(const sl_program *program, int steps) {
  if (steps < 2 || !strcmp(wanted(), "0") || !can_capture(program)) return NULL;
  sli_cuda_graphs *g = sli_calloc(1, sizeof *g);
  g->program = program;
  g->settled = !strcmp(wanted(), "1");
  g->cut = program->pieces != NULL;
  find_bases(g, program);
  g->nwords = 2 + (size_t)g->nbases + (size_t)g->nspans + (size_t)program->nlengths;
  g->words = sli_calloc(g->nwords, sizeof *g->words);
  return g;
}

static void drop(sli_cuda_graphs *g) {
  for (int i = 0; i < g->count; i++) {
    if (g->entries[i].exec) cudaGraphExecDestroy(g->entries[i].exec);
    free(g->entries[i].words);
  }
  g->count = 0;
}

void sli_cuda_graphs_destroy(sli_cuda_graphs *g) {
  if (!g) return;
  drop(g);
  free(g->bases);
  free(g->spans);
  free(g->words);
  free(g);
}

static void turn_off(sli_cuda_graphs *g) {
  drop(g);
  g->off = true;
}

/* ---- combinations ------------------------------------------------ */

/* Writes the combination to g->words; returns its hash. */
static uint64_t note(sli_cuda_graphs *g, const sl_firing *firing, const void *scratch) {
  uint64_t *w = g->words, hash = SLI_HASH_SEED;
  int32_t numbers[2 * g->program->nlengths + 1];
  sli_lengths rows = sli_lengths_load(g->program, firing, numbers);
  for (int e = 0; e < rows.count; e++) *w++ = (uint64_t)rows.valid[e];
  *w++ = (uintptr_t)scratch;
  *w++ = g->cut ? (uint64_t)firing->tick.piece : 0;
  for (int i = 0; i < g->nbases; i++) *w++ = (uintptr_t)firing->bases[g->bases[i]];
  for (int i = 0; i < g->nspans; i++) *w++ = firing->first[g->spans[i]];
  for (size_t i = 0; i < g->nwords; i++) {
    hash = (hash ^ g->words[i]) * UINT64_C(0x9e3779b97f4a7c15);
    hash ^= hash >> 32;
  }
  return hash;
}

static bool is_noted(const sli_cuda_graphs *g, const entry *e, uint64_t hash) {
  return e->hash == hash && !memcmp(e->words, g->words, g->nwords * sizeof *g->words);
}

/* Returns an entry for a new combination, or NULL. */
static entry *make_room(sli_cuda_graphs *g) {
  if (g->count < SLI_CUDA_GRAPHS) {
    entry *e = &g->entries[g->count++];
    e->words = sli_calloc(g->nwords, sizeof *e->words);
    return e;
  }
  entry *oldest = g->entries;
  for (int i = 1; i < g->count; i++)
    if (g->entries[i].used < oldest->used) oldest = &g->entries[i];
  if (g->launches - oldest->used < IDLE) return NULL;
  if (oldest->exec) cudaGraphExecDestroy(oldest->exec); /* takes effect after a running launch */
  oldest->exec = NULL;
  return oldest;
}

/* Returns the entry of this firing's combination and sets *again if it existed before; NULL if
 * there is no room. */
static entry *look_up(sli_cuda_graphs *g, const sl_firing *firing, const void *scratch,
                      bool *again) {
  uint64_t hash = note(g, firing, scratch);
  entry *e = NULL;
  g->launches++;
  for (int i = 0; i < g->count && !e; i++)
    if (is_noted(g, &g->entries[i], hash)) e = &g->entries[i];
  *again = e != NULL;
  if (!e) e = make_room(g);
  if (!e) return NULL;
  if (!*again) {
    e->hash = hash;
    memcpy(e->words, g->words, g->nwords * sizeof *g->words);
  }
  e->used = g->launches;
  return e;
}

/* ---- capturing ------------------------------------------------ */

static _Thread_local enum { IDLE_THREAD, CAPTURING, SPOILED } capturing;

bool sli_cuda_capture_spoil(void) {
  if (!capturing) return false;
  capturing = SPOILED;
  return true;
}

static void say_failed(const sl_firing *firing, cudaError_t error) {
  static atomic_flag said = ATOMIC_FLAG_INIT;
  if (atomic_flag_test_and_set(&said)) return;
  sli_log(
      "%s cannot be captured as a CUDA graph: %s. Its kernels are launched one by one; further "
      "cases are not logged",
      firing->name ? firing->name : "a program",
      error ? cudaGetErrorString(error) : "a launch failed during capture");
}

/* Captures into e->exec. Launches nothing. */
static cudaError_t capture(entry *e, const sli_cuda_launch *how, bool *spoiled) {
  cudaGraph_t graph = NULL;
  cudaError_t error = cudaStreamBeginCapture(how->stream, cudaStreamCaptureModeThreadLocal);
  if (!error) {
    capturing = CAPTURING;
    how->launch(how->arg);
    *spoiled = capturing == SPOILED;
    capturing = IDLE_THREAD;
    error = cudaStreamEndCapture(how->stream, &graph);
  }
  if (!error && !*spoiled) error = cudaGraphInstantiate(&e->exec, graph, 0);
  /* allocates device memory */
  if (!error && e->exec) error = cudaGraphUpload(e->exec, how->stream);
  if (graph) cudaGraphDestroy(graph);
  return error;
}

static bool make_graph(sli_cuda_graphs *g, entry *e, const sl_firing *firing,
                       const sli_cuda_launch *how) {
  bool spoiled = false;
  cudaError_t error = capture(e, how, &spoiled);
  if (!error && !spoiled) return true;
  cudaGetLastError(); /* reported here: clear it */
  say_failed(firing, error);
  turn_off(g);
  return false;
}

/* ---- launching ------------------------------------------------ */

static void count(cost *c, uint64_t since_ns) {
  uint64_t ns = sli_now_ns() - since_ns;
  c->least_ns = c->count++ ? SLI_MIN(c->least_ns, ns) : ns;
}

static void settle(sli_cuda_graphs *g) {
  if (g->by_step.count < TRIES || g->by_graph.count < TRIES) return;
  g->settled = true;
  if (g->by_graph.least_ns >= g->by_step.least_ns) turn_off(g);
}

/* Launches a firing. The firing that creates a graph is not timed, neither as a graph nor as
 * steps. */
cudaError_t sli_cuda_graphs_launch(sli_cuda_graphs *g, const sl_firing *firing,
                                   const sli_cuda_launch *how, bool *replayed) {
  *replayed = false;
  if (g->off) return how->launch(how->arg), cudaSuccess;
  bool times = !g->settled, again;
  uint64_t begin = times ? sli_now_ns() : 0;
  entry *e = look_up(g, firing, how->scratch, &again);
  bool makes = again && !e->exec && (g->settled || g->by_step.count >= TRIES);
  if (makes && !make_graph(g, e, firing, how)) return how->launch(how->arg), cudaSuccess;
  *replayed = e && e->exec;
  cudaError_t error = cudaSuccess;
  if (*replayed) error = cudaGraphLaunch(e->exec, how->stream);
  else how->launch(how->arg);
  if (times && !makes) count(*replayed ? &g->by_graph : &g->by_step, begin);
  if (times) settle(g);
  return error;
}
