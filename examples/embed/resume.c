/* SPDX-License-Identifier: Apache-2.0 */
/* Interruptible training over several processes, using only the library.
 *
 *     resume DIR STEPS             in one process
 *     torchrun --nproc-per-node 2 --no-python build/resume DIR STEPS
 *     srun -n 2 build/resume DIR STEPS
 *
 * Every process builds the same network of two stages and runs some of them. Process 0 prints the
 * exact loss of every step in hexadecimal. The program saves a checkpoint in DIR every 5 steps, at
 * the end, and on Ctrl-C. When started again, it resumes from the newest checkpoint and continues
 * to STEPS in total. The losses equal those of an uninterrupted run, with any number of
 * processes. */
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sluice/sluice.h>

enum { BITS = 8, ROWS = 64, MICROBATCHES = 4, STAGES = 2, SEED = 1 };

/* ---- the network: is the number of ones among eight bits odd? -------------------------- */

/* Fills a microbatch with a quarter of the 256 patterns. */
static void fill(void *ctx, const sl_tick *tick, void *const *out) {
  (void)ctx;
  float *bits = out[0];  /* [ROWS, BITS] */
  int32_t *odd = out[1]; /* [ROWS] */
  for (int row = 0; row < ROWS; row++) {
    int pattern = tick->microbatch * ROWS + row;
    for (int b = 0; b < BITS && bits; b++) bits[row * BITS + b] = pattern >> b & 1 ? 1.0f : -1.0f;
    if (odd) odd[row] = __builtin_parity((unsigned)pattern);
  }
}

static const sl_type types[] = {{SL_F32, 2, {ROWS, BITS}}, {SL_I32, 1, {ROWS}}};
static const sl_source source = {.nout = 2, .types = types, .fill = fill};

static sl_tensor *dense(sl_graph *g, sl_tensor *x, int64_t in, int64_t out, const char *name) {
  sl_tensor *w = sl_param(g, SL_TYPE(SL_F32, out, in), SL_UNIFORM(0.5f), "%s.weight", name);
  sl_tensor *b = sl_param(g, SL_TYPE(SL_F32, out), SL_CONSTANT(0), "%s.bias", name);
  return sl_linear(g, x, w, b); /* [ROWS, out] */
}

static sl_graph *make_graph(void) {
  sl_graph *g = sl_graph_create(&(sl_graph_options){.microbatches = MICROBATCHES});
  sl_tensor *data[2]; /* bits, odd */
  sl_block(g, "hidden");
  sl_data(g, &source, data);
  sl_tensor *h = sl_tanh(g, dense(g, data[0], BITS, 64, "hidden")); /* [ROWS, 64] */
  sl_block(g, "output");
  sl_tensor *logits = dense(g, h, 64, 2, "output"); /* [ROWS, 2] */
  sl_train(g, sl_cross_entropy(g, logits, data[1]), &(sl_optimizer){.lr = 0.01f});
  return g;
}

/* ---- the run ------------------------------------------------------------------------------ */

typedef struct training {
  const char *dir, *steps; /* as given */
  sl_graph *graph;
  sl_lowered *lowered;
  sl_runtime *rt;
  sl_job *job;
  sl_checkpoints *kept;
} training;

static _Atomic(sl_runtime *) running;

static void on_signal(int number) {
  (void)number;
  sl_runtime *rt = running;
  if (rt) sl_runtime_stop(rt);
}

/* Prints a step's loss; called in process 0. */
static void on_step(void *ctx, const sl_step_report *report) {
  (void)ctx;
  printf("step %lld loss %a\n", (long long)report->step + 1, report->loss);
  fflush(stdout);
}

/* Fingerprint items: first those that affect results but are not in the plan, then those that all
 * processes must agree on. */
enum { FINGERPRINT_OF_RESULTS = 1, FINGERPRINT = 3 };

static sl_status prepare(training *t) {
  const sl_fingerprint_item fingerprint[FINGERPRINT] = {
      {"the seed", "1"}, {"STEPS", t->steps}, {"DIR", t->dir}};
  sl_checkpoint_options keep = {.dir = t->dir,
                                .every = 5,
                                .resume = true,
                                .nfingerprint = FINGERPRINT_OF_RESULTS,
                                .fingerprint = fingerprint};
  sl_status status = sl_checkpoints_open(&keep, t->job, &t->kept);
  if (status) return status;
  sl_lower_options options = {.parallel.stages = STAGES,
                              .devices = {.kind = "cpu"},
                              .parallel.processes = sl_job_processes(t->job),
                              .report.on_step = on_step};
  sl_checkpoints_lower(t->kept, &options);
  t->graph = make_graph();
  status = sl_lower(t->graph, &options, &t->lowered);
  if (!status) status = sl_checkpoints_describe(t->kept, t->graph, t->lowered);
  const sl_plan *plan = status ? NULL : sl_lowered_plan(t->lowered);
  if (!status) status = sl_plan_prove(plan);
  if (!status) status = sl_job_join(t->job, plan, FINGERPRINT, fingerprint);
  if (status) return status;
  sl_runtime_options run = {.peers = sl_job_peers(t->job),
                            .process = sl_job_process(t->job),
                            .first_step = sl_checkpoints_start(t->kept)};
  status = sl_runtime_create(plan, &run, &t->rt);
  if (status) return status;
  sl_lowered_attach(t->lowered, t->rt);
  if (run.first_step) return sl_checkpoints_load(t->kept, t->lowered, t->rt);
  return sl_params_init(t->lowered, t->rt, SEED);
}

static sl_status train(training *t) {
  int64_t first = sl_checkpoints_start(t->kept), steps = atoll(t->steps);
  sl_status status = sl_job_attach(t->job, t->rt, first);
  running = t->rt;
  if (!status && steps > first) status = sl_job_run(t->job, steps - first);
  running = NULL;
  if (status == SL_E_STOPPED) status = SL_OK; /* Ctrl-C: keep the steps so far */
  if (!status) status = sl_checkpoints_finish(t->kept, t->lowered, t->rt, t->job);
  if (!status) status = sl_job_gather(t->job, 0);
  if (status || sl_job_process(t->job)) return status;
  sl_statistics stats = sl_runtime_statistics(t->rt);
  fprintf(stderr, "%d processes: a step takes %.3g ms\n", sl_job_processes(t->job),
          1e3 * stats.step_seconds);
  free(stats.devices);
  return SL_OK;
}

int main(int argc, char **argv) {
  if (argc != 3) {
    fprintf(stderr, "Usage: resume DIR STEPS\n");
    return 2;
  }
  training t = {.dir = argv[1], .steps = argv[2]};
  signal(SIGINT, on_signal);
  sl_status status = sl_job_open(NULL, &t.job);
  if (!status) {
    status = prepare(&t);
    if (!status) status = train(&t);
    status = sl_job_end(t.job, status);
  }
  if (status) fprintf(stderr, "resume: %s\n", sl_detail());
  sl_job_close(t.job);
  sl_runtime_destroy(t.rt);
  sl_checkpoints_close(t.kept);
  sl_lowered_destroy(t.lowered);
  sl_graph_destroy(t.graph);
  return status ? sl_status_exit(status) : 0;
}
