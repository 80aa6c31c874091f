/* SPDX-License-Identifier: Apache-2.0 */
/* A session over several processes, each with stages and tensor-parallel devices; requests arrive
 * in the first process. Any batch has the same bits as each request alone in one process, also if
 * several stages read the same table (gpt's) or weights are quantized.
 * labels: random
 * needs: zeromq */
#include <unistd.h>

#include "comm/control/control.h"
#include "tests/support/batches.h"
#include "tests/support/processes.h"
#include "tests/support/seeds.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { SEEDS = 1 };
#else
enum { SEEDS = 2 };
#endif

static const struct grid {
  int processes, stages, tensor, sequence;
} grids[] = {{2, 2, 1, 1}, {2, 1, 2, 1}, {2, 4, 1, 1}, {2, 2, 2, 1}, {2, 1, 3, 1},
             {4, 4, 1, 1}, {4, 2, 2, 1}, {3, 1, 3, 1}, {2, 1, 1, 2}, {4, 2, 1, 2}};

static char endpoint[PROCESS_ENDPOINT_CHARS], key[SLI_CONTROL_KEY_CHARS + 1];

/* The state that all processes share. */
static struct {
  served s;
  setting x;
  random_request q[REQUESTS];
  token_stream alone[REQUESTS];
  rng d;
} now;

static sl_job *open_job(const process *p) {
  char self[16], n[16];
  snprintf(self, sizeof self, "%d", p->self);
  snprintf(n, sizeof n, "%d", p->n);
  setenv("SLUICE_PROCESS", self, 1);
  setenv("SLUICE_PROCESSES", n, 1);
  setenv("SLUICE_ENDPOINT", endpoint, 1);
  setenv("SLUICE_JOB", "test-serve", 1);
  setenv("SLUICE_KEY", key, 1);
  sl_job *job = NULL;
  CHECK(!sl_job_open(NULL, &job), "%s", sl_detail());
  return job;
}

static void follow(const sl_session_options *options) {
  sl_session *session;
  CHECK(!sl_session_create(options, &session), "%s", sl_detail());
  CHECK(!sl_session_wait(session), "%s", sl_detail());
  sl_session_destroy(session);
}

static void serve(process *p) {
  sl_job *job = now.x.options.job = open_job(p);
  if (p->self) follow(&now.x.options);
  else batches_ask(&now.s, &now.x, now.q, now.alone, &now.d);
  sl_job_close(job);
  sl_args_destroy(now.s.args);
}

static void draw(void) {
  const struct grid *grid = &grids[rng_below(&now.d, SLI_COUNT(grids))];
  now.x = batches_draw(&now.s, &now.d);
  if (!rng_below(&now.d, 3)) batches_short_of_pages(&now.x.options);
  now.x.options.lower.parallel.processes = grid->processes;
  now.x.options.lower.parallel.stages = grid->stages;
  now.x.options.lower.parallel.tensor = grid->tensor;
  now.x.options.lower.parallel.sequence = grid->sequence;
  now.x.options.rows += now.x.options.rows % grid->sequence;
}

static void each_batch_gives_the_same_bits(const char *model, char *const *words, uint64_t seed) {
  now.d = (rng){.key = seed};
  now.s.dtype = seed % 3 ? SL_F32 : SL_BF16;
  memset(now.alone, 0, sizeof now.alone);
  served_model(&now.s, model, words);
  for (int i = 0; i < batches_count(); i++) batches_think(&now.q[i], &now.d);
  batches_ask_alone(&now.s, now.q, now.alone);
  draw();
  batches_say(&now.s, &now.x, seed);
  int port = process_port(endpoint);
  sli_control_make_key(key);
  CHECK(processes_run(now.x.options.lower.parallel.processes, serve), "all end");
  close(port);
  sl_args_destroy(now.s.args);
}

int main(int argc, char **argv) {
  seeds s = seeds_of(argc, argv, 2, SEEDS);
  for (uint64_t seed = s.first; seed < s.end; seed++)
    RUN(each_batch_gives_the_same_bits, seed % 2 ? "gpt" : "llama",
        seed % 2 ? batches_gpt : batches_llama, seed);
  return 0;
}
