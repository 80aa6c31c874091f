/* SPDX-License-Identifier: Apache-2.0 */
/* A graph sharded over devices and cut in pieces computes the same as on one device. Random graphs
 * of all ops, with random grids, signatures and cuts, give the same losses and gradients within
 * rounding.
 * labels: random unthreaded */
#include <stdio.h>

#include "graph/sharding/sharding.h"
#include "tests/support/graph_interp.h"
#include "tests/support/random_graphs.h"
#include "tests/support/seeds.h"

#ifdef __SANITIZE_ADDRESS__
enum { DRAWS = 30 };
#else
enum { DRAWS = 120 };
#endif

/* ---- random choices ------------------------------------------------------------------ */

/* Returns whether the signature splits rows of activations. */
static bool splits_rows(const sli_node *n, const sl_signature *s) {
  sl_sbp rows = {SL_SPLIT, 0};
  bool any = sli_sbp_equal(s->out[0], rows);
  for (int a = 0; a < n->nin && a < SL_SIGNATURE_ARGS; a++)
    any |= n->in[a] && !n->in[a]->param && sli_sbp_equal(s->in[a], rows);
  return any;
}

static void choose_any(const sl_graph *g, const sli_dim *dims, int size, bool rows,
                       sli_choice *out) {
  out->signatures = sli_calloc((size_t)g->nnodes, sizeof *out->signatures);
  out->params = sli_calloc((size_t)g->nparams, sizeof *out->params);
  for (int i = 0; i < g->nnodes; i++) {
    const sli_node *n = g->nodes[i];
    if (!sli_is_forward(n) && n->op != &sl_op_source) continue;
    sl_signature all[SL_SIGNATURES];
    int count = sli_signatures(dims, n, SLI_AXIS_TENSOR, size, all);
    do out->signatures[i] = all[chance(count)];
    while (!rows && splits_rows(n, &out->signatures[i]));
    for (int a = 0; a < n->nin && a < SL_SIGNATURE_ARGS; a++)
      if (n->in[a] && n->in[a]->param && chance(2))
        out->params[n->in[a]->param_index] = out->signatures[i].in[a];
  }
  for (int p = 0; p < g->nparams; p++) /* no parameter is kept as a partial sum */
    if (out->params[p].kind == SL_PARTIAL) out->params[p] = (sl_sbp){SL_BROADCAST, 0};
}

static void share_out(sl_graph *g, const sli_grid *grid, sli_sharding sharding, uint64_t seed) {
  sli_dim *dims;
  sli_choice data = {0}, tensor = {0};
  CHECK(!sli_dims_find(g, &dims), "%s", sl_detail());
  int D = grid->size[SLI_AXIS_DATA], T = grid->size[SLI_AXIS_TENSOR];
  if (D > 1)
    CHECK(!sli_choose_rows(g, dims, grid, SLI_AXIS_DATA, &data), "seed %llu: %s",
          (unsigned long long)seed, sl_detail());
  if (T > 1) choose_any(g, dims, T, D == 1, &tensor);
  CHECK(!sli_pass_expand(g, dims, grid, (sli_choice[SLI_AXES]){data, tensor}, sharding),
        "seed %llu: %s", (unsigned long long)seed, sl_detail());
  sli_choice_free(&data);
  sli_choice_free(&tensor);
  free(dims);
}

/* ---- comparing ------------------------------------------------------------------------- */

static sl_shard whole_of(const sl_tensor *t) {
  if (t->shard) return *t->shard;
  return (sl_shard){t->type, SL_ALL_PARTS};
}

static const sl_tensor *logical_of(const sl_graph *g, const char *name) {
  for (int p = 0; p < g->nparams; p++)
    if (!strcmp(g->params[p]->name, name)) return g->params[p];
  CHECK(false, "no parameter %s", name);
  return NULL;
}

/* Copies parameters so that the devices start from the same values. */
static void copy_params(const interp *from, interp *to) {
  for (int p = 0; p < to->g->nparams; p++) {
    const sl_tensor *t = to->g->params[p];
    sl_shard shard = whole_of(t);
    sl_shard_take(&shard, interp_data(from, logical_of(from->g, t->name)), interp_data(to, t));
  }
}

static double largest(const float *x, int64_t n) {
  double most = 0;
  for (int64_t i = 0; i < n; i++) most = fmax(most, fabs((double)x[i]));
  return most;
}

/* Changes each parameter by one unit in the last place, up or down. */
static void touch_params(interp *x) {
  for (int p = 0; p < x->g->nparams; p++) {
    float *values = interp_data(x, x->g->params[p]);
    for (int64_t i = 0; i < sl_type_elements(&x->g->params[p]->type); i++)
      values[i] = nextafterf(values[i], chance(2) ? INFINITY : -INFINITY);
  }
}

/* Returns how far the gradient of `logical` moves from `one` to `touched`. That is more than
 * rounding if the gradient is a small difference of large terms, as behind a softmax close to 0 and
 * 1. */
static double moved(const interp *one, const interp *touched, const sl_tensor *grad) {
  if (!touched) return 0;
  const float *a = interp_data(one, grad), *b = interp_data(touched, grad);
  double most = 0;
  for (int64_t i = 0; i < sl_type_elements(&grad->type); i++)
    most = fmax(most, fabs((double)a[i] - (double)b[i]));
  return most;
}

/* Returns whether the gradient of each device's part equals that part of the full gradient. If not,
 * `differs` names the first difference. */
static bool compare_gradients(const interp *one, const interp *all, const interp *touched,
                              char differs[200]) {
  bool same = true;
  for (int p = 0; p < all->g->nparams && same; p++) {
    const sl_tensor *t = all->g->params[p], *logical = logical_of(one->g, t->name);
    sl_shard shard = whole_of(t);
    int64_t n = sl_type_elements(&t->type);
    float *want = interp_memory((size_t)n * sizeof *want);
    for (int u = 0; u < t->ngrads && same; u++) {
      const float *whole = interp_data(one, logical->grads[u]),
                  *got = interp_data(all, t->grads[u]);
      double scale = largest(whole, sl_type_elements(&logical->type));
      double allowed = 2e-5 * scale + 1e-7 + 2 * moved(one, touched, logical->grads[u]);
      sl_shard_take(&shard, whole, want);
      int64_t i = 0;
      while (i < n && fabs((double)got[i] - (double)want[i]) <= allowed) i++;
      same = i == n;
      if (!same)
        snprintf(differs, 200, "parameter %s, use %d, device %d, element %lld: %g, not %g", t->name,
                 u, t->rank, (long long)i, (double)got[i], (double)want[i]);
    }
    free(want);
  }
  return same;
}

/* Gradients may differ by more than rounding only as far as `one`'s own gradients move when its
 * parameters change in their last bits. */
static void check_gradients(const interp *one, const interp *all, uint64_t seed) {
  char differs[200];
  if (compare_gradients(one, all, NULL, differs)) return;
  interp touched = interp_create(one->g, 5);
  touch_params(&touched);
  interp_backward(&touched, 0);
  CHECK(compare_gradients(one, all, &touched, differs), "seed %llu: %s", (unsigned long long)seed,
        differs);
  interp_destroy(&touched);
}

/* How a graph is sharded and cut. */
typedef struct how {
  int size[2], pieces;
} how;

static how random_how(void) {
  static const int sizes[][2] = {{1, 2}, {1, 3}, {1, 4}, {2, 1}, {4, 1},
                                 {2, 2}, {2, 3}, {3, 2}, {2, 4}, {1, 1}};
  const int *size = sizes[chance((int)SLI_COUNT(sizes))];
  bool cut = chance(2) || (size[0] == 1 && size[1] == 1);
  return (how){{size[0], size[1]}, cut ? 2 + chance(3) : 1};
}

static int forbidden_by(const how *h) {
  return (h->pieces > 1 ? MIXES_POSITIONS : 0) | (h->size[0] > 1 ? MIXES_ROWS : 0);
}

static void derive(sl_graph *g, bool parts, uint64_t seed) {
  CHECK(!parts || !sli_pass_losses(g), "seed %llu: %s", (unsigned long long)seed, sl_detail());
  CHECK(!sli_pass_cut(g, NULL) && !sli_pass_gradients(g) && !sli_pass_pieces(g), "seed %llu: %s",
        (unsigned long long)seed, sl_detail());
}

static void check_one(uint64_t seed) {
  making a, b;
  seed_random(seed + 1000003);
  how h = random_how();
  sl_graph *one = random_graph(seed, forbidden_by(&h), 1, &a);
  sl_graph *all = random_graph(seed, forbidden_by(&h), h.pieces, &b);
  bool shared = h.size[0] * h.size[1] > 1;
  derive(one, false, seed);
  derive(all, shared || h.pieces > 1, seed);
  sli_grid grid = {.size = {h.size[0], h.size[1], 1}, .apart = {chance(2), chance(2)}};
  sli_sharding sharding = h.size[0] > 1 ? (sli_sharding)chance(4) : SLI_SHARD_NOTHING;
  if (shared) share_out(all, &grid, sharding, seed);
  interp x = interp_create(one, 5), y = interp_create(all, 5);
  copy_params(&x, &y);
  double want = interp_backward(&x, 0), got = interp_backward(&y, 0);
  CHECK(fabs(want - got) <= 1e-5 * fabs(want) + 1e-7,
        "seed %llu, %d pieces on %d x %d: loss %.9g, not %.9g", (unsigned long long)seed, h.pieces,
        h.size[0], h.size[1], got, want);
  check_gradients(&x, &y, seed);
  interp_destroy(&x);
  interp_destroy(&y);
  sl_graph_destroy(one);
  sl_graph_destroy(all);
}

/* Seeds with parameters that a device gets from another one but never reads, in turn with others
 * that it reads; and with calls whose first output nothing reads but which need its region. */
enum { UNREAD_IN_TURN = 108, UNREAD_REGION = 2312 };

int main(int argc, char **argv) {
  seeds s = seeds_of(argc, argv, 1, DRAWS);
  RUN(check_every_row_has_a_case);
  if (argc == 1) RUN(check_one, UNREAD_IN_TURN);
  if (argc == 1) RUN(check_one, UNREAD_REGION);
  for (uint64_t seed = s.first; seed < s.end; seed++) RUN(check_one, seed);
  return 0;
}
