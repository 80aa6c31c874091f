/* SPDX-License-Identifier: Apache-2.0 */
/* Status provider of a server, for `actorrun status` and `actorrun ctl`. Process 0 handles the
 * requests and so has the statistics; all processes report their devices. */
#include <cjson/cJSON.h>
#include <stdlib.h>
#include <string.h>

#include "base/number.h"
#include "tools/actorserve/actorserve.h"
#include "tools/actorserve/counts.h"

enum { PATIENCE_MS = 5000 };

/* The data that each process reports. */
typedef struct own_status {
  sl_session_stats stats;
  struct rates_sample rates;
} own_status;

static void tell(void *ctx, void *own) {
  served *m = ctx;
  own_status t = {.stats = sl_session_stat(m->session)};
  t.rates = rates_now(&m->rates, &t.stats);
  memcpy(own, &t, sizeof t);
}

static void add_number(cJSON *to, const char *name, double value) {
  cJSON_AddNumberToObject(to, name, value);
}

static void add_rates(cJSON *to, const struct rates_sample *r) {
  add_number(to, "ticks_per_second", r->ticks);
  add_number(to, "rows_per_second", r->rows);
  add_number(to, "tokens_per_second", r->tokens);
}

static void describe(void *ctx, const sl_run_status *rs, const void *const *own, cJSON *to) {
  const served *m = ctx;
  own_status t;
  (void)rs;
  if (!own[0]) return;
  memcpy(&t, own[0], sizeof t);
  cJSON *serving = cJSON_AddObjectToObject(to, "serving");
  add_number(serving, "stages", sl_lowered_stages(sl_session_about(m->session).lowered));
  counts_add(serving, &t.stats);
  add_rates(serving, &t.rates);
}

/* ---- changing limits ------------------------------------------------------------------------- */

/* Reads the number after "kv=" and similar prefixes. Returns 0 if there is none. */
static int read_number(const char *text, const char *name) {
  enum { MOST = 1 << 30 };
  size_t n = strlen(name);
  int value = 0;
  const char *at = text + n + 1;
  if (strncmp(text, name, n) || text[n] != '=') return 0;
  return sli_number_read(&at, 1, MOST, &value) && !*at ? value : 0;
}

static sl_status read_change(const char *text, int64_t n[LIMITS]) {
  for (int i = 0; i < LIMITS; i++)
    if ((n[i] = read_number(text, limits[i].name))) return SL_OK;
  return sl_fail(SL_E_USAGE,
                 "quota %s: kv=N, rows=N, sequences=N, groups=N and queue=N can be changed", text);
}

static sl_status change(const served *served, const char *text) {
  int64_t n[LIMITS] = {0};
  sl_status status = read_change(text, n);
  if (status) return status;
  const sl_session_limits wanted = limits_of(n);
  status = sl_session_limit(served->session, &wanted);
  return status ? sl_fail(status, "quota %s: %s", text, sl_detail()) : SL_OK;
}

static void show(const served *served, FILE *out) {
  sl_session_info a = sl_session_about(served->session);
  sl_session_limits now = sl_session_stat(served->session).limits;
  int64_t n[LIMITS];
  const int64_t most[LIMITS] = {a.pages, a.rows, a.sequences, a.groups, 0};
  limits_list(&now, n);
  for (int i = 0; i < LIMITS; i++) {
    fprintf(out, "%-10s %lld", limits[i].name, (long long)n[i]);
    if (most[i]) fprintf(out, " of at most %lld", (long long)most[i]);
    fprintf(out, " %s\n", limits[i].what);
  }
}

/* Changes limits in process 0, which alone decides the size of ticks. The answer begins with the
 * exit status of a refusal, or 0. */
static void answer_quota(control *c, const subject *s, const void *data, size_t bytes, FILE *out) {
  (void)c;
  const served *m = s->ctx;
  char *text = sli_format("%.*s", (int)bytes, bytes ? (const char *)data : "");
  sl_status status = *text && !sl_job_process(s->processes) ? change(m, text) : SL_OK;
  fputc('0' + sl_status_exit(status), out);
  if (status) fputs(sl_detail(), out);
  else if (!*text) show(m, out);
  else fprintf(out, "%s\n", text);
  free(text);
}

static const question question_limits = {"limits", answer_quota};

static sl_status request_limits(control *c, const subject *s, const char *text, FILE *out) {
  int n = sl_job_processes(s->processes);
  sl_blob *answers = control_ask(c, &question_limits, text, strlen(text), PATIENCE_MS);
  const char *first = answers[0].data;
  sl_status status = SL_OK;
  if (!first)
    status = sl_fail(SL_E_PEER, "process 0 has not answered within %d s", PATIENCE_MS / 1000);
  else if (*first != '0') status = sl_fail(SL_E_USAGE, "%s", first + 1);
  else fputs(first + 1, out);
  for (int i = 0; i < n; i++) free(answers[i].data);
  free(answers);
  return status;
}

static const topic topics[] = {{&question_limits, "quota", request_limits},
                               {&question_status, "status", request_status},
                               {&question_trace, "trace", request_trace},
                               {NULL, NULL, NULL}};

/* ---- opening and closing --------------------------------------------------------------------- */

sl_status status_provider_open(served *served, const char *model) {
  sl_session_info a = sl_session_about(served->session);
  pthread_mutex_init(&served->rates.lock, NULL);
  served->subject = (subject){.processes = served->job,
                              .plan = a.plan,
                              .lowered = a.lowered,
                              .rt = a.rt,
                              .model = model,
                              .ctx = served,
                              .own_bytes = sizeof(own_status),
                              .tell = tell,
                              .describe = describe};
  sl_status status = control_open(&served->subject, topics, &served->control);
  /* Failure to open the control is not fatal: the server continues without it. */
  if (!status && control_listen(served->control)) sli_log("no control socket: %s", sl_detail());
  return status;
}

void status_provider_close(served *served) {
  if (!served->control) return;
  control_close(served->control);
  served->control = NULL;
  pthread_mutex_destroy(&served->rates.lock);
}
