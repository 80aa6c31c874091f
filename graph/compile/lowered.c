/* SPDX-License-Identifier: Apache-2.0 */
/* Queries about a compiled graph, for programs and tools. */
#include "graph/compile/compile.h"
#include "graph/compile/compile_inner.h"
#include "graph/cost/cost.h"
#include "graph/search/search.h"

#include <stdlib.h>
#include <string.h>

void sl_lowered_destroy(sl_lowered *l) {
  if (!l) return;
  sl_plan_destroy(l->plan);
  sli_stores_destroy(l->stores);
  sli_sent_destroy(l->sent);
  free(l->schedule);
  free(l->chosen);
  free(l->paths);
  sli_arena_fini(&l->arena);
  free(l);
}

const sl_plan *sl_lowered_plan(const sl_lowered *l) { return l->plan; }
const sli_fingerprints *sli_lowered_fingerprints(const sl_lowered *l) { return &l->fingerprints; }
const char *sl_lowered_schedule(const sl_lowered *l) { return l->schedule; }
const char *sl_lowered_chosen(const sl_lowered *l) { return l->chosen; }
int sl_lowered_chunks(const sl_lowered *l) { return l->chunks; }
const char *sl_lowered_paths(const sl_lowered *l) { return l->paths; }
const sli_prices *sli_lowered_prices(const sl_lowered *l) {
  return l->prices.blocks ? &l->prices : NULL;
}
const char *sli_lowered_cut(const sl_lowered *l) { return l->cut; }
bool sli_lowered_own_code(const sl_lowered *l) {
  return l->fingerprints.own_ops || l->g->training.optimizer.rate;
}

const char *sli_lowered_library(const sl_lowered *l) {
  const sli_kind *kind = l->inputs.kind;
  return kind->computes && !strcmp(kind->name, "cpu") ? sl_cpu_products(l->inputs.bf16 != NULL)
                                                      : NULL;
}

int sli_lowered_results(const sl_lowered *l, const sl_fingerprint_item **out) {
  sl_lowered *to = (sl_lowered *)l; /* created on first use: this loads the library */
  const sli_fingerprint_of of = {l->versions, l->cut,   l->inputs.paths, sli_lowered_library(l),
                                 l->nparams,  l->params};
  if (!l->fingerprint)
    to->nfingerprint = sli_fingerprint_make(&of, &to->arena, &to->fingerprint, &to->nresults);
  *out = l->fingerprint;
  return l->nresults;
}

int sl_lowered_fingerprint(const sl_lowered *l, const sl_fingerprint_item **out) {
  sli_lowered_results(l, out);
  return l->nfingerprint;
}

const char *sl_lowered_products(const sl_lowered *l) { return l->products; }
const char *sl_lowered_tensors(const sl_lowered *l) { return l->tensors; }

void sl_lowered_attach(sl_lowered *l, sl_runtime *rt) {
  l->rt = rt;
  sli_stores_attach(l->stores, rt);
}

int sl_lowered_stages(const sl_lowered *l) { return l->stages; }
int sl_lowered_ranks(const sl_lowered *l) { return l->ranks; }
int sl_lowered_alike(const sl_lowered *l) { return l->alike; }
double sl_lowered_flops(const sl_lowered *l) { return l->flops; }

/* Adds the bytes of a parameter that a node of rollouts reads, once for all nodes. */
static void add_read(const sl_tensor *t, bool *seen, sli_rollout_weights *to) {
  bool copy = t->producer && t->producer->per_step;
  if (seen[t->id] || !(t->param || copy)) return;
  seen[t->id] = true;
  *(copy ? &to->copied : &to->in_place) += (double)sl_type_bytes(&t->type);
}

sli_rollout_weights sli_lowered_rollout_weights(const sl_lowered *l) {
  sli_rollout_weights to = {0};
  bool *seen = sli_calloc((size_t)l->g->ntensors, sizeof *seen);
  for (int i = 0; i < l->g->nnodes; i++) {
    const sli_node *n = l->g->nodes[i];
    for (int a = 0; n->pace == SLI_PACE_ROLLOUT && !n->per_step && a < n->nin; a++)
      if (n->in[a]) add_read(n->in[a], seen, &to);
  }
  free(seen);
  return to;
}

double sli_lowered_call_seconds(const sl_lowered *l, const sl_program *program, int call) {
  const sl_hardware *h = l->options.simulation.hardware;
  return h ? sli_call_of_program_seconds(h, program, l->g->options.pieces, call) : 0;
}

char *sli_lowered_assign(const sl_lowered *l, const sl_hardware *h, uint64_t seed) {
  return sli_place_anneal(&l->inputs, l->sent, h, seed);
}

void sl_lowered_moved(const sl_lowered *l, uint64_t (*to)[SL_TRAFFIC_COUNT]) {
  sl_plan_moved(l->plan, to);
  for (int32_t d = 0; d < l->plan->ndevices && l->alike > 1; d++) {
    for (int a = 0; a < SLI_AXES; a++)
      if (a != SLI_AXIS_STAGES && sli_axes[a].parent == a)
        to[d][sli_axes[a].traffic] = l->exchanged[d][a];
  }
}

void sl_lowered_crossed(const sl_lowered *l, int devices_per_host, double to[SL_TRAFFIC_COUNT]) {
  sli_place_crossed(&l->inputs, l->plan, l->exchanged, devices_per_host, to);
}

int sl_lowered_state(const sl_lowered *l, sl_runtime *rt, int stage, int rank,
                     const sl_state_tensor **out) {
  return sli_stores_state(l->stores, l->plan, rt, stage, rank, out);
}

/* Returns the slots that a quota has now, after changes during the run. */
static int slots_now(const sl_lowered *l, const sl_quota *q) {
  for (int32_t i = 0; l->rt && i < l->plan->nregs; i++) {
    const sl_register *r = &l->plan->regs[i];
    bool is_its = r->producer != SL_NONE && !r->held && r->quota == q->slots &&
                  !strcmp(r->quota_name, q->name) && l->plan->actors[r->producer].stage == q->stage;
    if (is_its) return sl_runtime_quota(l->rt, i);
  }
  return q->slots;
}

void sl_lowered_quotas(const sl_lowered *l,
                       void (*fn)(void *ctx, const char *name, int stage, int slots), void *ctx) {
  for (int i = 0; i < l->nquotas; i++) {
    const sl_quota *q = &l->quotas[i].quota;
    fn(ctx, q->name, q->stage, slots_now(l, q));
  }
}

int sli_lowered_quota(const sl_lowered *l, int i, sl_quota *out, const char **part) {
  if (i < l->nquotas) {
    *out = l->quotas[i].quota;
    out->slots = slots_now(l, &l->quotas[i].quota);
    *part = l->quotas[i].part;
  }
  return l->nquotas;
}

int sl_lowered_params(const sl_lowered *l, const sl_param_info **out) {
  *out = l->params;
  return l->nparams;
}
