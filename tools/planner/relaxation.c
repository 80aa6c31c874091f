/* SPDX-License-Identifier: Apache-2.0 */
/* Relaxations: what a plan gives up of its choice to fit. It has fewer slots of activations, stage
 * by stage, or makes blocks recompute.
 *
 * Both are derived from a plan that is too large. A device over its budget gives up slots, the
 * stage with most slots first, until the excess is saved. Or its blocks recompute what they would
 * keep. The next plan shows what this really saves. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "graph/graph.h"
#include "tools/planner/search_inner.h"

static const char *const knobs[] = {"act.b", "act.w"};
enum { KNOBS = SLI_COUNT(knobs) };

/* One stage of the plan over budget. */
typedef struct stage {
  int device; /* the device of the stage with most bytes; SL_NONE if nothing is kept there */
  int slots[KNOBS];
  double bytes[KNOBS]; /* bytes of one slot on that device */
  int kept;            /* blocks that keep their activations */
} stage;

typedef struct over_budget {
  const sl_plan *plan;
  plan_relaxation *relaxation;
  stage *stages; /* [less->stages] */
  int *stage_of; /* [less->nblocks] */
  double budget;
  int fewest; /* slots that a stage needs at least */
} over_budget;

/* ---- the plan over budget -------------------------------------------------------------------- */

static int knob_of(const sl_register *r) {
  for (int k = 0; k < KNOBS && r->quota_name; k++)
    if (!strcmp(r->quota_name, knobs[k])) return k;
  return SL_NONE;
}

static void see_register(over_budget *x, const sl_register *r) {
  int k = knob_of(r), at = r->producer < 0 ? SL_NONE : x->plan->actors[r->producer].stage;
  if (k < 0 || at < 0 || at >= x->relaxation->stages || r->shares || r->space != SL_SPACE_DEVICE)
    return;
  stage *s = &x->stages[at];
  const sl_device *devices = x->plan->devices;
  if (s->device >= 0 && sl_device_bytes(&devices[r->device]) < sl_device_bytes(&devices[s->device]))
    return;
  if (s->device != r->device) *s = (stage){.device = r->device};
  s->slots[k] = SLI_MAX(s->slots[k], r->quota);
  s->bytes[k] += (double)SLI_MAX(r->slot_stride, r->slot_bytes);
}

/* Assigns blocks to stages. A block is on the stage of its parameters; one without parameters is on
 * the stage of the block before it. */
static void see_blocks(over_budget *x, const planned *made) {
  const sl_param_info *params;
  int n = sl_lowered_params(made->lowered, &params);
  for (int b = 0; b < x->relaxation->nblocks; b++) x->stage_of[b] = SL_NONE;
  for (int t = 0; t < made->graph->ntensors; t++) {
    const sl_tensor *p = made->graph->tensors[t];
    if (p->param && p->home >= 0 && p->home < x->relaxation->nblocks && p->param_index < n)
      x->stage_of[p->home] = params[p->param_index].stage;
  }
  for (int b = 0; b < x->relaxation->nblocks; b++) {
    if (x->stage_of[b] < 0) x->stage_of[b] = b ? x->stage_of[b - 1] : 0;
    x->stages[x->stage_of[b]].kept += !x->relaxation->recomputed[b];
  }
}

static void see(over_budget *x, const planned *made, plan_relaxation *relaxation, size_t budget) {
  *x = (over_budget){.plan = made->plan,
                     .relaxation = relaxation,
                     .budget = (double)budget,
                     .fewest = made->plan->pieces,
                     .stages = sli_calloc((size_t)relaxation->stages, sizeof *x->stages),
                     .stage_of = sli_calloc((size_t)relaxation->nblocks + 1, sizeof *x->stage_of)};
  for (int s = 0; s < relaxation->stages; s++) x->stages[s].device = SL_NONE;
  for (int32_t r = 0; r < x->plan->nregs; r++) see_register(x, &x->plan->regs[r]);
  see_blocks(x, made);
}

static void look_away(over_budget *x) {
  free(x->stages);
  free(x->stage_of);
}

/* ---- fewer slots ----------------------------------------------------------------------------- */

static int most_slots(const stage *s) {
  int most = 0;
  for (int k = 0; k < KNOBS; k++) most = SLI_MAX(most, s->slots[k]);
  return most;
}

static int fullest_on(const over_budget *x, int device) {
  int at = SL_NONE;
  for (int s = 0; s < x->relaxation->stages; s++) {
    bool here = x->stages[s].device == device && most_slots(&x->stages[s]) > x->fewest;
    if (here && (at < 0 || most_slots(&x->stages[s]) > most_slots(&x->stages[at]))) at = s;
  }
  return at;
}

/* Takes one microbatch's slot from a stage; returns the bytes saved. */
static double give_up_slot(over_budget *x, int at) {
  stage *s = &x->stages[at];
  int most = most_slots(s);
  double saved = 0;
  for (int k = 0; k < KNOBS; k++) {
    if (s->slots[k] < most) continue;
    x->relaxation->slots[k][at] = --s->slots[k];
    saved += s->bytes[k];
  }
  return saved;
}

static double give_up_slot_on(over_budget *x, int device) {
  int at = fullest_on(x, device);
  return at < 0 ? -1 : give_up_slot(x, at);
}

/* ---- blocks that recompute ------------------------------------------------------------------- */

/* Returns the next block to recompute. The first and last blocks of the model come last: they are
 * expensive to recompute and save little. */
static int next_block(const over_budget *x, int at) {
  int last = SL_NONE;
  for (int b = 0; b < x->relaxation->nblocks; b++) {
    if (x->stage_of[b] != at || x->relaxation->recomputed[b]) continue;
    if (b && b + 1 < x->relaxation->nblocks) return b;
    last = b;
  }
  return last;
}

static double kept_bytes(const stage *s) {
  double sum = 0;
  for (int k = 0; k < KNOBS; k++) sum += s->slots[k] * s->bytes[k];
  return s->kept ? sum / s->kept : 0;
}

/* Returns the stage on a device that saves most by recomputing a block. */
static int heaviest_on(const over_budget *x, int device) {
  int at = SL_NONE;
  for (int s = 0; s < x->relaxation->stages; s++) {
    bool here = x->stages[s].device == device && next_block(x, s) >= 0;
    if (here && (at < 0 || kept_bytes(&x->stages[s]) > kept_bytes(&x->stages[at]))) at = s;
  }
  return at;
}

static double compute_again_on(over_budget *x, int device) {
  int at = heaviest_on(x, device);
  if (at < 0) return -1;
  x->relaxation->recomputed[next_block(x, at)] = true;
  return kept_bytes(&x->stages[at]);
}

const char *planner_recompute_all(const plan_choice *choice) {
  return choice->at[PLAN_TENSOR] > 1 ? "whole" : "full";
}

/* ---- interface ------------------------------------------------------------------------------- */

plan_relaxation *planner_relaxation_create(const planned *made, const plan_choice *choice) {
  plan_relaxation *relaxation = sli_calloc(1, sizeof *relaxation);
  relaxation->stages = choice->at[PLAN_STAGES] * choice->at[PLAN_CHUNKS];
  relaxation->nblocks = sli_blocks_in_line(made->graph);
  relaxation->how = planner_recompute_all(choice);
  size_t blocks = (size_t)relaxation->nblocks, stages = (size_t)relaxation->stages;
  for (int k = 0; k < KNOBS; k++)
    relaxation->slots[k] =
        memset(sli_arena_alloc(&relaxation->arena, stages * sizeof(int)), 0, stages * sizeof(int));
  relaxation->recomputed = memset(sli_arena_alloc(&relaxation->arena, blocks), 0, blocks);
  relaxation->names = sli_arena_alloc(&relaxation->arena, blocks * sizeof *relaxation->names);
  for (size_t b = 0; b < blocks; b++)
    relaxation->names[b] = sli_arena_strdup(&relaxation->arena, made->graph->blocks[b].name);
  return relaxation;
}

void planner_relaxation_destroy(plan_relaxation *relaxation) {
  if (relaxation) sli_arena_fini(&relaxation->arena);
  free(relaxation);
}

static bool has_stage(const over_budget *x, int device) {
  int s = 0;
  while (s < x->relaxation->stages && x->stages[s].device != device) s++;
  return s < x->relaxation->stages;
}

/* Makes devices that are over budget give up one thing after another, until the estimate fits.
 * Devices that share a stage with a larger one follow it. */
static bool lessen(over_budget *x, double (*on)(over_budget *x, int device)) {
  bool any = false;
  for (int32_t d = 0; d < x->plan->ndevices; d++)
    for (double left = (double)sl_device_bytes(&x->plan->devices[d]) - x->budget;
         left > 0 && has_stage(x, d);) {
      double saved = on(x, d);
      if (saved < 0) break; /* other registers depend on it, so this may still suffice */
      left -= SLI_MAX(saved, 1);
      any = true;
    }
  return any;
}

bool planner_relax(plan_relaxation *relaxation, const planned *made, size_t budget, bool slots) {
  over_budget x;
  see(&x, made, relaxation, budget);
  bool enough = lessen(&x, slots ? give_up_slot_on : compute_again_on);
  look_away(&x);
  return enough;
}

/* ---- how it is expressed --------------------------------------------------------------------- */

int planner_relaxation_quotas(const plan_relaxation *relaxation, sl_quota *to) {
  int n = 0;
  for (int k = 0; k < KNOBS; k++)
    for (int s = 0; s < relaxation->stages; s++)
      if (relaxation->slots[k][s]) to[n++] = (sl_quota){knobs[k], s, relaxation->slots[k][s]};
  return n;
}

static void quota_words(const plan_relaxation *relaxation, int k, words *to) {
  char *said = NULL;
  for (int s = 0, skipped = 0; s < relaxation->stages; s++) {
    if (!relaxation->slots[k][s]) {
      skipped++;
      continue;
    }
    char *more = said ? sli_strdup(said) : sli_format("%s@%d=", knobs[k], s);
    for (; said && skipped; skipped--) {
      char *longer = sli_format("%s,-", more);
      free(more);
      more = longer;
    }
    free(said);
    said = sli_format("%s%s%d", more, more[strlen(more) - 1] == '=' ? "" : ",",
                      relaxation->slots[k][s]);
    skipped = 0;
    free(more);
  }
  if (said) words_add(to, "--quota"), words_add(to, "%s", said);
  free(said);
}

/* Returns the start of a name's trailing digits, which number a block in a series, such as h.17. */
static size_t stem(const char *name) {
  size_t chars = strlen(name);
  return chars && isdigit((unsigned char)name[chars - 1]) ? chars - 1 : chars;
}

/* Returns how many blocks from b on a single pattern can name: h.[3-7]. */
static int run_from(const plan_relaxation *relaxation, int b) {
  const char *first = relaxation->names[b];
  size_t chars = stem(first);
  int end = b + 1;
  for (; end < relaxation->nblocks && relaxation->recomputed[end] && first[chars]; end++) {
    const char *name = relaxation->names[end];
    if (stem(name) != chars || strncmp(name, first, chars) || name[chars] != first[chars] + end - b)
      break;
  }
  return end;
}

void planner_relaxation_recompute(const plan_relaxation *relaxation,
                                  void (*say)(void *ctx, const char *text), void *ctx) {
  for (int b = 0, end; b < relaxation->nblocks; b = end) {
    end = b + 1;
    if (!relaxation->recomputed[b]) continue;
    end = run_from(relaxation, b);
    const char *name = relaxation->names[b];
    size_t chars = stem(name);
    char *text = end - b == 1 ? sli_format("%s@%s", relaxation->how, name)
                              : sli_format("%s@%.*s[%c-%c]", relaxation->how, (int)chars, name,
                                           name[chars], relaxation->names[end - 1][chars]);
    say(ctx, text);
    free(text);
  }
}

static void add_recompute(void *ctx, const char *text) {
  words_add(ctx, "--recompute"), words_add(ctx, "%s", text);
}

void planner_relaxation_words(const plan_relaxation *relaxation, words *to) {
  for (int k = 0; k < KNOBS; k++) quota_words(relaxation, k, to);
  planner_relaxation_recompute(relaxation, add_recompute, to);
}
