/* SPDX-License-Identifier: Apache-2.0 */
/* Making a runnable plan from the command line. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "actors/prove/prove.h"
#include "io/atomic.h"
#include "tools/actorrun/actorrun.h"
#include "tools/actorrun/advice.h"

size_t job_memory_bytes(const sl_plan *plan) {
  size_t bytes = 0;
  for (int32_t d = 0; d < plan->ndevices; d++) bytes += sl_device_bytes(&plan->devices[d]);
  return bytes;
}

/* Returns the number of steps left. --steps counts from the first run's first step. */
int64_t job_steps_left(const job *j) {
  return SLI_MAX(sl_arg_int(j->settings->run, "steps") - sl_checkpoints_start(j->checkpoints), 0);
}

sl_lower_options job_options(const settings *s) {
  return (sl_lower_options){
      .report.on_step = job_step,
      .report.on_metric = job_metric,
      .report.on_logprobs = settings_text(s, "logprobs") ? job_logprobs : NULL,
      .report.on_eval = settings_evaluate(s) ? job_eval : NULL,
      .numbers.check_finite = sl_arg_flag(s->run, "check-finite"),
      .store.every = settings_text(s, "checkpoint") ? sl_arg_int(s->run, "every") : 0};
}

/* Makes the plan. Uses the paths and placement chosen here or in another process before, or
 * searches for them. */
static sl_status lower_model(job *j) {
  settings *s = j->settings;
  sl_lower_options run = job_options(s);
  run.report.ctx = j, run.schedule.chosen = j->chosen;
  run.print.sharing = sl_arg_flag(s->run, "show-sbp") ? stdout : NULL;
  run.print.after = settings_text(s, "print-after"), run.print.graph = stdout;
  sl_checkpoints_lower(j->checkpoints, &run);
  sl_status status = s->choose_homes && !j->homes.said ? solve_homes(s, &run, &j->homes) : SL_OK;
  if (status) return status;
  if (s->choose_homes) run.schedule.chosen = j->homes.chosen;
  status = plan_make(s, &run, &j->made);
  if (status == SL_E_BUDGET) advice_give(s, &run);
  if (status) return status;
  j->chosen = sli_arena_strdup(&s->arena, sl_lowered_chosen(j->made.lowered));
  return advice_check_host(s, &run, j->made.plan, j->nlocal);
}

/* Makes the plan in all processes. The first process searches on behalf of all. */
static sl_status search_together(job *j) {
  bool first = !j->settings->process;
  char *chosen = NULL;
  sl_status status = sli_job_assemble(j->processes);
  if (!status && !first) status = sli_job_await_announcement(j->processes, &chosen);
  if (chosen && *chosen) j->chosen = sli_arena_strdup(&j->settings->arena, chosen);
  if (!status) status = lower_model(j);
  if (!status && first) sli_job_announce(j->processes, j->chosen);
  free(chosen);
  return status;
}

static sl_status make_plan(job *j) {
  const settings *s = j->settings;
  bool searches = (!strcmp(s->lower.schedule.name, "auto") || sl_arg_float(s->run, "skip") > 0) &&
                  !sl_arg_flag(s->run, "dry-run");
  sl_status status = searches && !j->chosen ? search_together(j) : lower_model(j);
  if (status) return status;
  j->lowered = j->made.lowered;
  j->plan = j->made.plan;
  j->progress.items = j->made.items;
  j->progress.word = j->made.word;
  j->progress.memory_bytes = job_memory_bytes(j->plan);
  j->progress.devices = j->plan->ndevices;
  return sl_checkpoints_describe(j->checkpoints, j->made.graph, j->lowered);
}

static sl_status prove_plan(const job *j, sli_advice *advice) {
  const settings *s = j->settings; /* a run on the virtual clock needs no proof */
  bool runs = s->clock == SL_CLOCK_VIRTUAL && !sl_arg_flag(s->run, "dry-run");
  *advice = (sli_advice){.slots = 0};
  return runs ? SL_OK : sli_plan_prove_or_advise(j->plan, advice);
}

/* Returns whether the plan is the same without the user's quota number i: a default that the user
 * repeats is still the default. */
static bool is_default(const job *j, int i) {
  settings t = *j->settings;
  int n = t.lower.memory.nquotas;
  sl_quota rest[n + 1];
  memcpy(rest, t.lower.memory.quotas, (size_t)i * sizeof *rest);
  memcpy(rest + i, t.lower.memory.quotas + i + 1, (size_t)(n - i - 1) * sizeof *rest);
  t.lower.memory.quotas = rest, t.lower.memory.nquotas = n - 1;
  sl_lower_options run = job_options(&t);
  run.schedule.chosen = t.choose_homes ? j->homes.chosen : j->chosen;
  sl_checkpoints_lower(j->checkpoints, &run);
  planned p;
  if (plan_make(&t, &run, &p)) return false;
  bool same = p.plan->hash == j->plan->hash;
  plan_free(&p);
  return same;
}

/* Returns whether advice may be followed: it concerns registers that the user did not set, and does
 * not change training results. */
static bool may_take(const job *j, int given, const sli_advice *a) {
  const settings *s = j->settings;
  const char *order = settings_text(s, "order");
  if (!a->slots || *sli_quota_warning(a->name)) return false;
  for (int i = 0; i < given; i++)
    if (!strncmp(a->name, s->lower.memory.quotas[i].name, strlen(s->lower.memory.quotas[i].name)) &&
        !is_default(j, i))
      return false;
  return !order || !strcmp(order, "derive");
}

static void take_advice(job *j, const sli_advice *a) {
  settings *s = j->settings;
  sl_quota *quotas =
      sli_arena_alloc(&s->arena, ((size_t)s->lower.memory.nquotas + 1) * sizeof *quotas);
  for (int i = 0; i < s->lower.memory.nquotas; i++) quotas[i] = s->lower.memory.quotas[i];
  quotas[s->lower.memory.nquotas++] = (sl_quota){
      .name = sli_arena_strdup(&s->arena, a->name), .stage = a->stage, .slots = a->slots};
  s->lower.memory.quotas = quotas;
  char at[16] = "";
  if (a->stage != SL_NONE) snprintf(at, sizeof at, "@%d", a->stage);
  if (!s->process)
    sli_log("note: --quota %s%s=%d, without which the plan could not finish", a->name, at,
            a->slots);
}

/* Makes the plan and proves it. The quotas that lowering derives may be too small for a combination
 * of many options. The advice of the proof is then followed. */
static sl_status make_and_prove(job *j) {
  enum { MOST = 16 };
  sli_advice advice = {.slots = 0}; /* no plan was made, so none was proved */
  int given = j->settings->lower.memory.nquotas;
  sl_status status = make_plan(j);
  if (!status) status = prove_plan(j, &advice);
  for (int n = 0; status == SL_E_STUCK && n < MOST && may_take(j, given, &advice); n++) {
    take_advice(j, &advice);
    advice = (sli_advice){.slots = 0};
    plan_free(&j->made);
    j->made = (planned){0}, j->plan = NULL, j->lowered = NULL;
    status = make_plan(j);
    if (!status) status = prove_plan(j, &advice);
  }
  return status;
}

static void note_products(const job *j) {
  bool asked = j->settings->lower.numbers.dtype == SL_BF16;
  if (asked && !j->settings->process && !strcmp(sl_lowered_products(j->lowered), "f32"))
    sli_log("note: --dtype bf16: these devices have no bf16 products; fp32 is used");
}

static sl_status write_plan(const job *j) {
  const char *path = settings_text(j->settings, "plan");
  if (!path) return SL_OK;
  sli_atomic_file file;
  sl_status status = sli_atomic_open(path, &file);
  if (status) return status;
  sl_plan_print(j->plan, file.stream);
  return sli_atomic_commit(&file);
}

/* Writes the paths that --skip found. */
static sl_status write_paths(const job *j) {
  const char *path = settings_text(j->settings, "save-paths");
  if (!path || j->settings->process) return SL_OK;
  sli_atomic_file file;
  sl_status status = sli_atomic_open(path, &file);
  if (status) return status;
  fputs(sl_lowered_paths(j->lowered), file.stream);
  return sli_atomic_commit(&file);
}

sl_status job_plan(job *j) {
  uint64_t start = sli_now_ns();
  sl_status status = make_and_prove(j);
  if (j->plan && (!status || status == SL_E_STUCK)) { /* even if the plan cannot finish */
    char *said = sli_strdup(sl_detail());
    sl_status written = write_plan(j);
    if (!written) written = write_paths(j);
    if (written) status = written;
    else if (status) sl_fail(status, "%s", said);
    free(said);
  }
  if (!status) note_products(j);
  j->plan_ns = sli_now_ns() - start;
  return status;
}
