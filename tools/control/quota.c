/* SPDX-License-Identifier: Apache-2.0 */
/* Showing and changing quotas during a run.
 *
 * Every process of a job keeps the quotas of the whole plan and makes all changes in the same
 * order. All processes therefore prove the same plan, and accept or refuse a change alike. Each
 * applies a change to its own registers at once. */
#include <stdlib.h>
#include <string.h>

#include "graph/compile/compile.h"
#include "graph/lower/lower.h"
#include "tools/control/control.h"

enum { PATIENCE_MS = 5000 };

/* ---- this process --------------------------------------------------------------------------- */

static bool is_ours(const subject *s, const sl_register *r) {
  if (r->producer == SL_NONE || !r->quota_most) return false;
  int32_t queue = s->plan->actors[r->producer].queue;
  return s->plan->devices[s->plan->queues[queue].device].process == sl_job_process(s->processes);
}

static void show_quotas(const subject *s, FILE *out) {
  for (int32_t i = 0; i < s->plan->nregs; i++) {
    const sl_register *r = &s->plan->regs[i];
    if (!is_ours(s, r)) continue;
    int32_t quota = sl_runtime_quota(s->rt, i), slots = sl_runtime_slots(s->rt, i);
    fprintf(out, "%-12s %d of at most %d slots", r->name, quota, r->quota_most);
    if (slots > quota) fprintf(out, ", %d more until they are returned", slots - quota);
    fputc('\n', out);
  }
}

/* Describes the effect of a change on registers of this process: "act.b@1 3, fwd@0 5". */
static void tell_changes(const subject *s, const int32_t *before, FILE *out) {
  const char *comma = "";
  for (int32_t i = 0; i < s->plan->nregs; i++) {
    if (!is_ours(s, &s->plan->regs[i]) || before[i] == sl_runtime_quota(s->rt, i)) continue;
    fprintf(out, "%s%s %d", comma, s->plan->regs[i].name, sl_runtime_quota(s->rt, i));
    comma = ", ";
  }
}

static sl_status change(const subject *s, const char *text) {
  int n;
  sl_quota *quotas;
  sl_status status = sli_quota_read(text, &n, &quotas);
  if (status) return status;
  status = n == 1 ? sl_lowered_set_quota(s->lowered, s->rt, quotas)
                  : sl_fail(SL_E_USAGE, "quota %s: change one quota at a time", text);
  free(quotas);
  return status;
}

/* Answers a quota question. The answer begins with the exit status of a refusal, or 0. */
static void answer_quota(control *c, const subject *s, const void *data, size_t bytes, FILE *out) {
  (void)c;
  char *text = sli_calloc(1, bytes + 1);
  if (bytes) memcpy(text, data, bytes);
  int32_t *before = sli_calloc((size_t)s->plan->nregs, sizeof *before);
  for (int32_t i = 0; i < s->plan->nregs; i++) before[i] = sl_runtime_quota(s->rt, i);
  sl_status status = *text ? change(s, text) : SL_OK;
  fputc('0' + sl_status_exit(status), out);
  if (status) fputs(sl_detail(), out);
  else if (*text) tell_changes(s, before, out);
  else show_quotas(s, out);
  free(before);
  free(text);
}

const question question_quota = {"quota", answer_quota};

/* ---- all processes ------------------------------------------------------------------------ */

/* Returns the first refusal. All processes refuse alike, so one text is enough. */
static sl_status check_answers(const sl_blob *answers, int n, const char *text) {
  for (int i = 0; i < n; i++) {
    const char *a = answers[i].data;
    if (!a || *a == '0') continue;
    return sl_fail(*a == '3' ? SL_E_STUCK : *a == '2' ? SL_E_USAGE : SL_E_IO, "%s", a + 1);
  }
  for (int i = 0; i < n; i++)
    if (!answers[i].data)
      return sl_fail(SL_E_PEER, "quota %s: process %d has not answered within %d s", text, i,
                     PATIENCE_MS / 1000);
  return SL_OK;
}

sl_status request_quota(control *c, const subject *s, const char *text, FILE *out) {
  int n = sl_job_processes(s->processes);
  sl_blob *answers = control_ask(c, &question_quota, text, strlen(text), PATIENCE_MS);
  sl_status status = check_answers(answers, n, text);
  if (!status && *text) fprintf(out, "%s\n", text);
  for (int i = 0; i < n && !status; i++) {
    const char *a = (const char *)answers[i].data + 1;
    if (!*text) fputs(a, out);
    else if (n > 1) fprintf(out, "process %d: %s\n", i, *a ? a : "nothing of its own");
  }
  for (int i = 0; i < n; i++) free(answers[i].data);
  free(answers);
  return status;
}
