/* SPDX-License-Identifier: Apache-2.0 */
/* The space of server configurations. */
#include <stdlib.h>
#include <string.h>

#include "tools/actortune/slo/slo_inner.h"

const char *const slo_dims[SLO_DIMS] = {"stages", "groups", "rows", "sequences", "pages", "admit"};
const char *const slo_admits[] = {
    [SL_ADMIT_RESERVE] = "reserve", [SL_ADMIT_RECOMPUTE] = "recompute", NULL};

static int64_t pages_of(int64_t positions) {
  return (positions + SL_SESSION_PAGE - 1) / SL_SESSION_PAGE;
}

static int64_t longest(const hunt *h, bool answer) {
  int64_t most = 1;
  for (int64_t i = 0; i < h->came.count; i++)
    most = SLI_MAX(most, h->came.items[i].prompt + (answer ? h->came.items[i].answer : 0));
  return most;
}

/* Adds numbers of stages: every number up to a few, then doubling, up to the number of devices. */
static void usual_stages(const hunt *h, numbers *to) {
  enum { FEW = 8 };
  int most = h->settings->lower.devices.count;
  if (sl_arg_given(h->settings->run, "stages", 0)) {
    numbers_add(to, h->settings->lower.parallel.stages);
    return;
  }
  for (int n = 1; n < most; n = n < FEW ? n + 1 : 2 * n) numbers_add(to, n);
  numbers_add(to, most);
}

/* Adds numbers of rows, up to the most that a tick can have. */
static void usual_rows(const hunt *h, numbers *to) {
  enum { LEAST = 8, MOST = 4096, SEQUENCES = 64 };
  int64_t all = longest(h, false) + SEQUENCES;
  for (int rows = LEAST; rows <= MOST; rows *= 2) {
    numbers_add(to, rows);
    if (rows >= all) break;
  }
}

static sl_status read_admits(const hunt *h, numbers *to) {
  char *copy = sli_strdup(sl_arg_text(h->settings->run, "admit")), *state = NULL;
  sl_status status = SL_OK;
  for (char *word = strtok_r(copy, ",", &state); word && !status;
       word = strtok_r(NULL, ",", &state)) {
    status = options_check_word("admit", word, slo_admits);
    if (!status)
      numbers_add(
          to, strcmp(word, slo_admits[SL_ADMIT_RESERVE]) ? SL_ADMIT_RECOMPUTE : SL_ADMIT_RESERVE);
  }
  free(copy);
  if (!status && !to->count) numbers_add(to, SL_ADMIT_RECOMPUTE), numbers_add(to, SL_ADMIT_RESERVE);
  return status;
}

static sl_status read_pages(const hunt *h, numbers *to) {
  const settings *s = h->settings;
  for (int i = 0; i < s->lower.memory.nquotas; i++) {
    if (strcmp(s->lower.memory.quotas[i].name, "kv") || s->lower.memory.quotas[i].stage != SL_NONE)
      return sl_fail(SL_E_USAGE, "--quota %s: must be kv=N, the pages on each stage",
                     sl_arg_given(s->run, "quota", i));
    numbers_add(to, s->lower.memory.quotas[i].slots);
  }
  return to->count <= SPACE_MOST ? SL_OK
                                 : sl_fail(SL_E_USAGE, "--quota: at most %d are tried", SPACE_MOST);
}

static sl_status check_most(const char *option, const numbers *n) {
  return n->count <= SPACE_MOST
             ? SL_OK
             : sl_fail(SL_E_USAGE, "--%s: at most %d are tried", option, SPACE_MOST);
}

static sl_status check_groups(const numbers *groups) {
  enum { MOST = 64 };
  for (int i = 0; i < groups->count; i++)
    if (groups->values[i] > MOST)
      return sl_fail(SL_E_USAGE, "--groups %d: must be 1 to %d ticks in flight", groups->values[i],
                     MOST);
  return check_most("groups", groups);
}

sl_status space_read(hunt *h) {
  space *s = &h->space;
  sl_status status = numbers_read(h->settings, "rows", &s->rows);
  if (!status) status = numbers_read(h->settings, "groups", &s->groups);
  if (!status) status = check_groups(&s->groups);
  if (!status) status = numbers_read(h->settings, "sequences", &s->sequences);
  if (!status) status = check_most("sequences", &s->sequences);
  if (!status) status = read_pages(h, &s->pages);
  if (!status) status = read_admits(h, &s->admits);
  if (!s->rows.count) usual_rows(h, &s->rows);
  usual_stages(h, &s->stages);
  return status;
}

void space_fini(space *s) {
  free(s->stages.values);
  free(s->groups.values);
  free(s->rows.values);
  free(s->sequences.values);
  free(s->admits.values);
  free(s->pages.values);
}

/* ---- dimensions that depend on others ------------------------------------------------------- */

static int all_of(const numbers *n, int64_t *out) {
  for (int i = 0; i < n->count; i++) out[i] = n->values[i];
  return n->count;
}

int space_groups(const hunt *h, int64_t stages, int64_t *out) {
  enum { MOST = 64 };
  int count = 0;
  if (h->space.groups.count) return all_of(&h->space.groups, out);
  out[count++] = 1;
  for (int64_t g = SLI_MAX(stages, 2); g <= SLI_MIN(stages + 2, MOST); g++) out[count++] = g;
  return count;
}

int space_sequences(const hunt *h, int64_t rows, int64_t *out) {
  enum { MOST = 64, TRIED = 3 };
  int count = 0;
  if (h->space.sequences.count) return all_of(&h->space.sequences, out);
  for (int64_t n = SLI_MIN(SLI_MIN(rows, MOST), h->came.count); n && count < TRIED; n /= 4)
    out[count++] = n;
  return count;
}

int space_pages(const hunt *h, const sl_session_info *about, int64_t *out) {
  int64_t least = pages_of(about->context), enough = pages_of(longest(h, true)) * about->sequences;
  int count = 0;
  if (h->space.pages.count) return all_of(&h->space.pages, out);
  for (int64_t n = least; n < enough && count < SPACE_MOST - 1; n *= 2) out[count++] = n;
  out[count++] = SLI_MAX(enough, least);
  return count;
}
