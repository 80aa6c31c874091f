/* What ticks took, as text, a line each, and the same again.
 *
 *   -7 3:41+1 5:0+20    request 7 gives up its pages; of 3 the row of position 41, of 5 the first 20
 *
 * Requests count in the order in which they were submitted. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "serve/serve.h"

sl_status sli_log_open(sl_session *s) {
  const sl_session_options *o = &s->options;
  sli_session_log *l = &s->log;
  if (o->log && !(l->to = fopen(o->log, "we")))
    return sl_fail(SL_E_IO, "cannot write %s: %s", o->log, strerror(errno));
  if (o->replay && !(l->from = fopen(o->replay, "re")))
    return sl_fail(SL_E_INPUT, "cannot read %s: %s", o->replay, strerror(errno));
  return SL_OK;
}

void sli_log_close(sl_session *s) {
  if (s->log.to) fclose(s->log.to);
  if (s->log.from) fclose(s->log.from);
  free(s->log.line);
}

void sli_log_yield(sl_session *s, const request *r) {
  if (s->log.to) fprintf(s->log.to, "-%llu ", (unsigned long long)r->id);
}

void sli_log_tick(sl_session *s, const tick *t) {
  FILE *to = s->log.to;
  if (!to || !t->count) return;
  for (int i = 0; i < t->count; i++)
    fprintf(to, "%s%llu:%lld+%lld", i ? " " : "", (unsigned long long)t->parts[i].of->id,
            (long long)t->parts[i].from, (long long)t->parts[i].rows);
  putc('\n', to);
  fflush(to);
}

bool sli_log_next(sl_session *s) {
  sli_session_log *l = &s->log;
  if (!l->from) return false;
  if (!l->pending) {
    l->pending = getline(&l->line, &l->capacity, l->from) > 0;
    l->number++;
  }
  if (l->pending) return true;
  fclose(l->from); /* from here on as requests come */
  l->from = NULL;
  return false;
}

const char *sli_log_word(const char *at, sli_log_entry *out) {
  *out = (sli_log_entry){0};
  at += strspn(at, " \n");
  if (!*at) return NULL;
  char *end;
  long long id = strtoll(at, &end, 10);
  *out = (sli_log_entry){.id = (uint64_t)llabs(id), .yields = id < 0};
  if (*end == ':') out->from = strtoll(end + 1, &end, 10);
  if (*end == '+') out->rows = strtoll(end + 1, &end, 10);
  return end + strcspn(end, " \n");
}
