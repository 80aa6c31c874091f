/* SPDX-License-Identifier: Apache-2.0 */
/* Notes on parameters with two slots, the only quota that changes training results. */
#include <string.h>

#include "tools/actorrun/actorrun.h"

typedef struct delay_search {
  void (*fn)(void *ctx, int stage);
  void *ctx;
  int stages;
} delay_search;

/* Records a delay. A quota without a stage holds for all stages. */
static void find_delay(void *ctx, const char *name, int stage, int slots) {
  const delay_search *d = ctx;
  if (strcmp(name, "param") || slots < 2) return;
  for (int s = 0; s < d->stages; s++)
    if (stage == SL_NONE || stage == s) d->fn(d->ctx, s);
}

void job_delayed(const job *j, void (*fn)(void *ctx, int stage), void *ctx) {
  delay_search d = {fn, ctx, sl_lowered_stages(j->lowered)};
  sl_lowered_quotas(j->lowered, find_delay, &d);
}

typedef struct delayed {
  char text[1024];
  int count;
} delayed;

static void add_delayed(void *ctx, int stage) {
  delayed *d = ctx;
  size_t at = strlen(d->text);
  snprintf(d->text + at, sizeof d->text - at, "%s%d", d->count++ ? ", " : "", stage);
}

void job_note_delays(const job *j) {
  delayed d = {0};
  if (j->settings->process || j->settings->lower.rollouts.ahead)
    return; /* only rollouts use old weights */
  job_delayed(j, add_delayed, &d);
  if (d.count)
    sli_log(
        "note: parameters of stage%s %s have two slots (--quota param=2): steps there use weights that are one update old, so results differ from a run without it",
        d.count == 1 ? "" : "s", d.text);
}
