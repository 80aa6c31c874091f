/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/grids.h"

#include <pthread.h>
#include <string.h>

#include "base/base.h"
#include "tests/support/loopback.h"
#include "tests/support/test.h"

const char *grid_format(char out[GRID_TEXT], const grid_model *m, const grid *g) {
  char more[GRID_TEXT / 3] = "";
  if (g->grain) snprintf(more, sizeof more, ", grain %s", g->grain);
  if (g->recompute) snprintf(more, sizeof more, ", recompute %s", g->recompute);
  if (g->given) strcat(more, ", tensors as given");
  if (g->boundary)
    snprintf(more + strlen(more), sizeof more - strlen(more), ", boundary %s", g->boundary);
  if (g->piece_order)
    snprintf(more + strlen(more), sizeof more - strlen(more), ", %s first", g->piece_order);
  if (g->homes.count)
    snprintf(more + strlen(more), sizeof more - strlen(more), ", %s in %s", g->homes.homes[0].name,
             sl_space_name(g->homes.homes[0].space));
  if (g->homes.offload)
    snprintf(more + strlen(more), sizeof more - strlen(more), ", offload %s", g->homes.offload);
  if (g->processes > 1)
    snprintf(more + strlen(more), sizeof more - strlen(more), ", %d processes", g->processes);
  if (g->experts > 1)
    snprintf(more + strlen(more), sizeof more - strlen(more), ", experts %d x %d", g->experts,
             g->expert_tensor);
  if (g->barriers)
    snprintf(more + strlen(more), sizeof more - strlen(more), ", %d barriers", g->barriers);
  if (g->sequence > 1)
    snprintf(more + strlen(more), sizeof more - strlen(more), ", sequence %d %s %s %s", g->sequence,
             g->attention ? g->attention : "", g->positions ? g->positions : "",
             g->states ? g->states : "");
  snprintf(out, GRID_TEXT, "%s, %d x %d, shard %s, %s, %d stages, %d workers, jitter %llu%s",
           m->name, SLI_MAX(g->data, 1), SLI_MAX(g->tensor, 1), g->shard ? g->shard : "nothing",
           g->schedule ? g->schedule : "1f1b", SLI_MAX(g->stages, 1), g->workers,
           (unsigned long long)g->jitter_seed, more);
  return out;
}

static void take_step(void *ctx, const sl_step_report *report) {
  grid_losses *l = ctx;
  CHECK(report->step == l->count && l->count < l->most, "steps are reported in order");
  l->loss[l->count] = report->loss;
  l->norm[l->count++] = report->grad_norm;
}

/* Returns whether any device has only a shard of a parameter. */
static bool shares_parameters(const sl_lowered *lowered) {
  const sl_param_info *params;
  int n = sl_lowered_params(lowered, &params);
  for (int p = 0; p < n; p++)
    for (int i = 0; i < params[p].nplaces; i++)
      if (params[p].places[i].shard) return true;
  return false;
}

static sl_status lower(lowered_model *x, const grid_model *m, const grid *g, grid_losses *losses) {
  char *words[64] = {"--data"};
  const char *source = getenv("SLUICE_SOURCE");
  char *text = words[1] = sli_format("%s/tests/reference/text.txt", source ? source : ".");
  for (int i = 0; m->words[i]; i++) {
    CHECK(i < 60, "so many words");
    words[i + 2] = m->words[i];
  }
  sl_lower_options options = {.parallel.stages = g->stages,
                              .schedule.name = g->schedule,
                              .schedule.grain = g->grain,
                              .memory.recompute = g->recompute,
                              .schedule.piece_order = g->piece_order,
                              .memory.homes = g->homes,
                              .memory.nquotas = g->nquotas,
                              .memory.quotas = g->quotas,
                              .parallel.data = g->data,
                              .parallel.sequence = g->sequence,
                              .parallel.sequence_attention = g->attention,
                              .parallel.sequence_layout = g->positions,
                              .parallel.sequence_states = g->states,
                              .parallel.tensor = g->tensor,
                              .parallel.boundary = g->boundary,
                              .experts.parallel = g->experts,
                              .experts.tensor = g->expert_tensor,
                              .memory.shard = g->shard,
                              .vocabulary.parallel = g->barriers > 0,
                              .vocabulary.barriers = g->barriers,
                              .parallel.ngiven = g->ngiven,
                              .parallel.given = g->given,
                              .parallel.processes = g->processes,
                              .devices = {.kind = "cpu", .threads = 1},
                              .report.on_step = losses ? take_step : NULL,
                              .report.ctx = losses};
  sl_status status =
      lowered_model_init(x, m->name, words, m->microbatches, SLI_MAX(m->pieces, 1), &options);
  free(text);
  return status;
}

void grid_lower(lowered_model *x, const grid_model *m, const grid *g, grid_losses *losses) {
  char name[GRID_TEXT];
  CHECK(!lower(x, m, g, losses), "%s: %s", grid_format(name, m, g), sl_detail());
  if (g->tensor > 1 || g->shard)
    CHECK(shares_parameters(x->lowered), "%s: some parameter is shared out",
          grid_format(name, m, g));
}

bool grid_saves(const grid_model *m, const grid *g) {
  lowered_model x;
  sl_status status = lower(&x, m, g, NULL);
  bool saves = !status || (!strstr(sl_detail(), "saves nothing here") &&
                           !strstr(sl_detail(), "nothing to move"));
  lowered_model_fini(&x);
  return saves;
}

/* ---- a GPT ----------------------------------------------------------------------------- */

grid_model gpt_model(const gpt_shape *s, int microbatches, gpt_words *words) {
  static char *const names[] = {"--width", "--heads", "--context", "--vocab", "--batch"};
  const int64_t values[] = {s->width, s->heads, s->context, s->vocab, s->batch};
  *words = (gpt_words){.of = {"--layers", "2"}};
  _Static_assert(GPT_LAYERS == 2, "as said here");
  for (int i = 0; i < 5; i++) {
    snprintf(words->number[i], sizeof words->number[i], "%lld", (long long)values[i]);
    words->of[2 + 2 * i] = names[i];
    words->of[3 + 2 * i] = words->number[i];
  }
  return (grid_model){"gpt", words->of, microbatches, 1};
}

static void lie(gpt_lying *l, const char *block, const char *name, sl_sbp sbp) {
  snprintf(l->names[l->n], sizeof l->names[0], "%s%s", block, name);
  l->all[l->n] = (sl_given_sbp){l->names[l->n], 1, sbp};
  l->n++;
}

void gpt_lie_in_pairs(gpt_lying *l, sl_sbp between) {
  const sl_sbp columns = {SL_SPLIT, 2}, sum = {SL_PARTIAL, 0};
  l->n = 0;
  lie(l, "transformer.wte", ".weight", (sl_sbp){SL_SPLIT, 0});
  lie(l, "embedding", "/embedding.1", sum);
  lie(l, "embedding", "/position.1", between);
  for (int i = 0; i < GPT_LAYERS; i++) {
    char block[16];
    snprintf(block, sizeof block, "h.%d", i);
    lie(l, block, "/layernorm.1", between);
    lie(l, block, "/linear.1", columns);
    lie(l, block, "/attention_packed.1", columns);
    lie(l, block, "/linear.2", sum);
    lie(l, block, "/add.1", between);
    lie(l, block, "/layernorm.2", between);
    lie(l, block, "/linear.3", columns);
    lie(l, block, "/gelu.1", columns);
    lie(l, block, "/linear.4", sum);
    lie(l, block, "/add.2", between);
  }
  lie(l, "head", "/layernorm.1", between);
  lie(l, "head", "/linear.1", columns);
  lie(l, "head", "/cross_entropy.1", (sl_sbp){SL_BROADCAST, 0});
}

/* ---- training ------------------------------------------------------------------------ */

/* One process: its copy of the plan, and its runtime. */
typedef struct member {
  pthread_t thread;
  lowered_model model;
  grid_losses losses;
  sl_runtime *rt;
  sl_status status;
} member;

static void start(const grid_model *m, const grid *g, loopback *processes, int self, member *p) {
  char name[GRID_TEXT];
  p->losses.most = g->steps ? g->steps : GRID_STEPS;
  grid_lower(&p->model, m, g, &p->losses);
  CHECK(self || !sl_plan_prove(p->model.plan), "%s: %s", grid_format(name, m, g), sl_detail());
  sl_runtime_options options = {.process = self,
                                .workers = g->workers,
                                .watchdog_seconds = 20,
                                .jitter_seed = g->jitter_seed,
                                .jitter_ns = 5000,
                                .check = true,
                                .peers = processes ? loopback_peers(processes, self) : NULL};
  CHECK(!sl_runtime_create(p->model.plan, &options, &p->rt), "%s: %s", grid_format(name, m, g),
        sl_detail());
  if (processes) loopback_attach(processes, self, p->rt);
  sl_lowered_attach(p->model.lowered, p->rt);
  CHECK(!sl_params_init(p->model.lowered, p->rt, 1), "%s", sl_detail());
}

static void *run(void *arg) {
  member *p = arg;
  p->status = sl_runtime_run(p->rt, p->losses.most);
  if (p->status) fprintf(stderr, "%s\n", sl_detail());
  return NULL;
}

static void finish(const grid_model *m, const grid *g, member *p) {
  char name[GRID_TEXT];
  CHECK(!p->status, "%s: %s", grid_format(name, m, g), sl_status_text(p->status));
  for (int32_t r = 0; r < p->model.plan->nregs; r++)
    CHECK(sl_runtime_peak_slots(p->rt, r) <= p->model.plan->regs[r].quota, "%s: %s is too full",
          grid_format(name, m, g), p->model.plan->regs[r].name);
}

/* Copies another process's results to process 0. */
static void import(member *to, const member *from) {
  void *bytes;
  size_t size = sl_runtime_export(from->rt, &bytes);
  CHECK(!sl_runtime_import(to->rt, bytes, size, 0), "%s", sl_detail());
  free(bytes);
}

grid_losses grid_train(const grid_model *m, const grid *g) {
  member all[MOST_PROCESSES] = {0};
  int n = SLI_MAX(g->processes, 1);
  loopback *processes = n > 1 ? loopback_create(n) : NULL;
  for (int i = 0; i < n; i++) start(m, g, processes, i, &all[i]);
  for (int i = 1; i < n; i++)
    CHECK(!pthread_create(&all[i].thread, NULL, run, &all[i]), "no thread");
  run(&all[0]);
  for (int i = 1; i < n; i++) pthread_join(all[i].thread, NULL);
  for (int i = 0; i < n; i++) finish(m, g, &all[i]);
  for (int i = 1; i < n; i++) import(&all[0], &all[i]);
  all[0].losses.counts = sl_runtime_count(all[0].rt);
  for (int i = 0; i < n * n && processes; i++)
    all[0].losses.carried_bytes += loopback_bytes(processes, i / n, i % n);
  for (int i = 0; i < n; i++) sl_runtime_destroy(all[i].rt);
  for (int i = 0; i < n; i++) lowered_model_fini(&all[i].model);
  if (processes) loopback_destroy(processes);
  CHECK(all[0].losses.count == all[0].losses.most, "all steps are reported");
  return all[0].losses;
}

void grid_same_bits(const grid_model *m, const grid *g, const grid_losses *want,
                    const grid_losses *got) {
  char name[GRID_TEXT];
  size_t bytes = (size_t)want->count * sizeof *want->loss;
  CHECK(got->count == want->count, "%s: %d losses", grid_format(name, m, g), got->count);
  CHECK(!memcmp(got->loss, want->loss, bytes) && !memcmp(got->norm, want->norm, bytes),
        "%s: other bits", grid_format(name, m, g));
}
