/* SPDX-License-Identifier: Apache-2.0 */
/* Text log of the ticks, one line per tick, and its replay.
 *
 *   x4:60 3:41+1 -7 5:128+20 3~2
 *       x4:60     request 4 is cancelled with 60 tokens, prompt and answer
 *       3:41+1    one row of request 3, at position 41
 *       -7        request 7 gives up its pages
 *       5:128+20  request 5 is admitted: 20 rows; the 128 before them are in shared pages
 *       3~2       two drafted rows follow the row of request 3
 *
 * Words are in order of events. Requests are numbered in order of submission. A replay's ticks
 * complete at other times than the original's. The log therefore records a cancelled request's
 * token count, and the replay cancels it at exactly that count. */
#include <stdlib.h>
#include <string.h>

#include "io/file.h"
#include "io/journal.h"
#include "serve/serve.h"

/* Reads all cancellations of the file before the replay begins. */
static void read_ends(sli_session_log *l) {
  while (getline(&l->line, &l->capacity, l->from) > 0) {
    sli_log_entry e;
    for (const char *at = l->line; (at = sli_log_word(at, &e));) {
      if (e.kind != SLI_LOG_CANCELS) continue;
      SLI_GROW(l->ends, l->nends, l->ends_capacity);
      l->ends[l->nends++] = (struct sli_log_end){e.id, e.from};
    }
  }
  rewind(l->from);
}

int64_t sli_log_until(const sl_session *s, uint64_t id) {
  const sli_session_log *l = &s->log;
  for (size_t i = 0; i < l->nends; i++)
    if (l->ends[i].id == id) return l->ends[i].count;
  return INT64_MAX;
}

sl_status sli_log_open(sl_session *s) {
  const sl_session_options *o = &s->options;
  sli_session_log *l = &s->log;
  if (o->log) SLI_TRY(sli_journal_create(o->log, &l->to));
  if (o->replay) SLI_TRY(sli_file_stream(o->replay, &l->from));
  if (l->from) read_ends(l);
  return SL_OK;
}

sl_status sli_log_close(sl_session *s) {
  sl_status status = sli_journal_close(s->log.to);
  if (s->log.from) fclose(s->log.from);
  free(s->log.line);
  free(s->log.ends);
  return status;
}

static FILE *word(sl_session *s) {
  FILE *to = sli_journal_stream(s->log.to);
  if (s->log.within) putc(' ', to);
  s->log.within = true;
  return to;
}

void sli_log_yield(sl_session *s, const request *r) {
  if (s->log.to) fprintf(word(s), "-%llu", (unsigned long long)r->id);
}

void sli_log_cancel(sl_session *s, const request *r) {
  if (s->log.to)
    fprintf(word(s), "x%llu:%lld", (unsigned long long)r->id, (long long)r->text.count);
}

void sli_log_part(sl_session *s, const request *r, int64_t rows) {
  if (s->log.to)
    fprintf(word(s), "%llu:%lld+%lld", (unsigned long long)r->id, (long long)r->progress.fed,
            (long long)rows);
}

void sli_log_draft(sl_session *s, const request *r, int n) {
  if (s->log.to) fprintf(word(s), "%llu~%d", (unsigned long long)r->id, n);
}

void sli_log_tick(sl_session *s, const tick *t) {
  if (!s->log.to || !t->count) return;
  putc('\n', sli_journal_stream(s->log.to));
  s->log.within = false;
  sl_status status = sli_journal_end(s->log.to);
  /* A log with gaps is useless, so the session ends. */
  if (status) sl_runtime_abort(s->about.rt, status, sl_detail());
}

bool sli_log_next(sl_session *s) {
  sli_session_log *l = &s->log;
  if (!l->from || l->at) return l->at;
  if (getline(&l->line, &l->capacity, l->from) > 0) {
    l->at = l->line;
    l->number++;
    return true;
  }
  fclose(l->from); /* from here on, requests are scheduled as they arrive */
  l->from = NULL;
  return false;
}

const char *sli_log_word(const char *at, sli_log_entry *out) {
  *out = (sli_log_entry){.kind = SLI_LOG_ROWS};
  at += strspn(at, " \n");
  if (!*at) return NULL;
  if (*at == '-') out->kind = SLI_LOG_YIELDS;
  if (*at == 'x') out->kind = SLI_LOG_CANCELS;
  char *end;
  out->id = strtoull(at + (out->kind != SLI_LOG_ROWS), &end, 10);
  if (*end == '~') out->kind = SLI_LOG_DRAFTS, out->rows = strtoll(end + 1, &end, 10);
  if (*end == ':') out->from = strtoll(end + 1, &end, 10);
  if (*end == '+') out->rows = strtoll(end + 1, &end, 10);
  return end + strcspn(end, " \n");
}
