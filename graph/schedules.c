/* The schedule table. The runtime knows none of these names: a row only sets
 * quotas, placement and class order, and the order of passes emerges.
 *
 * gpipe: Huang et al., arXiv 1811.06965. 1f1b: Narayanan et al., PipeDream,
 * SOSP 2019, and arXiv 2104.04473. zb-h1, zb-h2: Qi et al., arXiv 2401.10241. */
#include "graph/schedules.h"

#include <string.h>

#include <sluice/lower.h>

#include "base/base.h"

static int all(const sli_at *at) { return at->m * at->k; }
static int to_the_end(const sli_at *at) { return at->p - at->d; }
static int there_and_back(const sli_at *at) { return 2 * (at->p - at->d) - 1; }
static int depth(const sli_at *at) { return at->p; }
static int twice_depth(const sli_at *at) { return 2 * at->p - 1; }

static const sli_schedule table[] = {
    {"gpipe", "all forwards, then all backwards; memory for every microbatch", "line", false, all,
     NULL},
    {"1f1b", "one forward, one backward; memory for the stages still ahead", "line", false,
     to_the_end, NULL},
    {"eager-1f1b", "1f1b with credits for the way back too: hides latency", "line", false,
     there_and_back, NULL},
    {"zb-h1", "weight gradients fill the bubble; 1f1b's peak memory", "line", true, to_the_end,
     depth},
    {"zb-h2", "weight gradients fill the bubble; twice 1f1b's memory, no bubble", "line", true,
     there_and_back, twice_depth},
};

const sli_schedule *sli_schedule_find(const char *name) {
  for (size_t i = 0; i < SLI_COUNT(table); i++)
    if (!strcmp(table[i].name, name)) return &table[i];
  return NULL;
}

const char *const *sl_schedule_names(void) {
  static const char *names[SLI_COUNT(table) + 1];
  for (size_t i = 0; i < SLI_COUNT(table); i++) names[i] = table[i].name;
  return names;
}

const char *sl_schedule_summary(const char *name) {
  const sli_schedule *row = sli_schedule_find(name);
  return row ? row->summary : NULL;
}
