/* Transfers (hops) that serve a single reader, and their numbers among others of their kind. */
#include "graph/lower/ir.h"

static bool is_alone_there(const sli_lowering *l, const sli_bundle *b, const sli_group *g) {
  int n = 0;
  for (int i = 0; i < b->nconsumers; i++) n += l->groups[b->consumers[i]].device == g->device;
  return n == 1;
}

/* True if an exchange reads parameters that are stored elsewhere. They are fetched when it needs
 * them, no more at a time than the quota. Parameters that several groups read once a step come
 * once, and stay. */
bool sli_is_fetched(const sli_lowering *l, const sli_bundle *b, const sli_group *g) {
  return g->cls == SL_CLASS_C && !g->host && b->memory == SL_MEMORY_PARAMETERS &&
         b->rate == SLI_PER_STEP && b->initial &&
         (g->rate == SLI_PER_TICK || is_alone_there(l, b, g));
}

/* Returns how many bundles a group fetches from the same device before this one. */
int sli_fetched_before(const sli_lowering *l, int bundle, const sli_group *g) {
  int n = 0;
  for (int i = 0;; i++) {
    int origin = l->bundles[g->inputs[i]].origin;
    if (origin == bundle) return n;
    const sli_bundle *b = &l->bundles[origin];
    n += b->device == l->bundles[bundle].device && sli_is_fetched(l, b, g);
  }
}

/* Returns how many bundles of that role have been filled for the group at that rate, whatever
 * copies followed. */
int sli_filled_before(const sli_lowering *l, const sli_group *g, sli_role role, bool some) {
  int n = 0;
  for (int i = 0; i < g->ninputs; i++) {
    const sli_bundle *b = &l->bundles[g->inputs[i]];
    if (b->origin == g->inputs[i] || l->bundles[b->origin].stay == SL_SPACE_DEVICE) continue;
    const sli_bundle *home = &l->bundles[sli_bundle_home(l, b->origin)];
    if ((home->rate == SLI_PER_LEAVING) != some) continue;
    n += l->groups[b->producer].hop->reader != SL_NONE && sli_roles[home->role].filled == role;
  }
  return n;
}
