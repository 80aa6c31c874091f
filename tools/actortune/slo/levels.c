/* SPDX-License-Identifier: Apache-2.0 */
/* Service levels: --slo. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tools/actortune/slo/slo_inner.h"

static sl_status bad(const char *text, const char *word, const char *what) {
  return sl_fail(SL_E_USAGE, "--slo %s: %s: %s", text, word, what);
}

/* Parses "0.2", "0.2s" or "200ms". */
static bool read_seconds(const char *text, double *out) {
  char *end;
  *out = strtod(text, &end);
  if (end == text) return false;
  if (!strcmp(end, "ms")) *out *= 1e-3;
  else if (*end && strcmp(end, "s")) return false;
  return *out > 0 && *out < 1e9;
}

/* Parses "@99=" and moves past it. */
static bool read_share(const char **at, double *out) {
  char *end;
  *out = 0.99;
  if (**at == '=') return true;
  *out = strtod(*at + 1, &end) / 100;
  bool good = **at == '@' && end != *at + 1 && *end == '=' && *out > 0 && *out <= 1;
  *at = end;
  return good;
}

static sl_status add_level(const char *text, const char *word, level l, levels *to) {
  snprintf(l.name, sizeof l.name, "%s@%g", l.between_tokens ? "tpot" : "ttft", l.share * 100);
  for (int i = 0; i < to->count; i++)
    if (!strcmp(to->items[i].name, l.name)) return bad(text, word, "is given twice");
  if (to->count == LEVELS_MOST) return bad(text, word, "at most eight levels are possible");
  to->items[to->count++] = l;
  return SL_OK;
}

static sl_status read_level(const char *text, const char *word, levels *to) {
  if (!strcmp(word, "energy")) {
    to->energy = true;
    return SL_OK;
  }
  level l = {.between_tokens = !strncmp(word, "tpot", 4)};
  const char *at = word + 4;
  if (!strchr(word, '='))
    return bad(text, word, "not ttft=SECONDS or tpot=SECONDS, such as ttft=0.5 or tpot@90=50ms");
  if ((!l.between_tokens && strncmp(word, "ttft", 4)) || !strchr("@=", *at))
    return bad(
        text, word,
        "must be ttft, the time to first token, tpot, the time per further token, or energy");
  if (!read_share(&at, &l.share))
    return bad(text, word, "not a percentage of the requests, such as @99");
  if (!read_seconds(at + 1, &l.seconds))
    return bad(text, word, "not a time above 0, such as 0.5 or 500ms");
  return add_level(text, word, l, to);
}

sl_status levels_read(const char *text, levels *out) {
  char *copy = sli_strdup(text), *state = NULL;
  sl_status status = SL_OK;
  *out = (levels){0};
  for (char *word = strtok_r(copy, ",", &state); word && !status;
       word = strtok_r(NULL, ",", &state))
    status = read_level(text, word, out);
  if (!status && !out->count && !out->energy)
    status = sl_fail(SL_E_USAGE, "--slo: needs levels, such as ttft=0.5,tpot=50ms");
  free(copy);
  return status;
}

double levels_measure(const levels *l, const arrivals *came, const sl_answered *answered,
                      double *seconds) {
  double off = 0;
  for (int i = 0; i < l->count; i++) {
    seconds[i] = outcome_share(came, answered, l->items[i].between_tokens, l->items[i].share);
    off = fmax(off, seconds[i] / l->items[i].seconds);
  }
  return off;
}
