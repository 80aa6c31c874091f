/* A graph shared out over devices computes what it does on one: for random graphs, grids
 * and signatures, the losses and all gradients are the same within rounding.
 * labels: random unthreaded */
#include <stdio.h>

#include "graph/passes/passes.h"
#include "graph/share/share.h"
#include "tests/support/graph_interp.h"
#include "tests/support/kernel_call.h"
#include "tests/support/seeds.h"

enum { MICROBATCHES = 2, MOST_OPS = 12, MOST_TENSORS = 64 };
#ifdef __SANITIZE_ADDRESS__
enum { DRAWS = 25 };
#else
enum { DRAWS = 100 };
#endif

/* ---- random graphs --------------------------------------------------------------- */

typedef struct making {
  sl_graph *g;
  int64_t rows, positions;
  int nparams;
  int count;
  sl_tensor *tensors[MOST_TENSORS]; /* f32 [rows, positions, C], C of any width */
} making;

static int chance(int n) { return (int)(random_bits() % (uint64_t)n); }

static sl_tensor *param2(making *m, int64_t a, int64_t b) {
  return sl_param(m->g, SL_TYPE(SL_F32, a, b), SL_NORMAL(0.3f), "w%d", m->nparams++);
}
static sl_tensor *param1(making *m, int64_t n, float at) {
  return sl_param(m->g, SL_TYPE(SL_F32, n), SL_CONSTANT(at), "w%d", m->nparams++);
}

static sl_tensor *dense(making *m, sl_tensor *x, int64_t out) {
  int64_t in = sl_dim(x, -1);
  sl_tensor *bias = chance(2) ? param1(m, out, 0.1f) : NULL;
  return chance(2) ? sl_linear(m->g, x, param2(m, out, in), bias)
                   : sl_linear_transposed(m->g, x, param2(m, in, out), bias);
}

static sl_tensor *norm(making *m, sl_tensor *x) {
  int64_t n = sl_dim(x, -1);
  return chance(2) ? sl_layernorm(m->g, x, param1(m, n, 1), param1(m, n, 0), 1e-5f)
                   : sl_rmsnorm(m->g, x, param1(m, n, 1), 1e-5f);
}

static sl_tensor *attend(making *m, sl_tensor *x) {
  int kv = 2 + chance(3), heads = kv * (1 + chance(2));
  int64_t D = 2 * (1 + chance(3));
  if (chance(2)) return sl_attention_packed(m->g, dense(m, x, (heads + 2 * kv) * D), heads, kv);
  sl_tensor *q = sl_rotary(m->g, dense(m, x, heads * D), heads, 10000);
  sl_tensor *k = sl_rotary(m->g, dense(m, x, kv * D), kv, 10000);
  return sl_attention(m->g, q, k, dense(m, x, kv * D), heads, kv);
}

static sl_tensor *any(making *m) { return m->tensors[chance(m->count)]; }

/* One more op on what there is. */
static sl_tensor *grow(making *m) {
  sl_tensor *x = any(m), *y = any(m);
  switch (chance(8)) {
    case 0: return dense(m, x, 3 + chance(14));
    case 1: return norm(m, x);
    case 2: return attend(m, x);
    case 3: return chance(2) ? sl_gelu(m->g, x) : sl_tanh(m->g, x);
    case 4: return sl_add(m->g, x, sl_dim(x, -1) == sl_dim(y, -1) ? y : sl_gelu(m->g, x));
    case 5: return sl_mul(m->g, x, sl_dim(x, -1) == sl_dim(y, -1) ? y : dense(m, x, sl_dim(x, -1)));
    case 6: return sl_swiglu(m->g, x, dense(m, x, sl_dim(x, -1)));
    default: return sl_position(m->g, x, param2(m, m->positions + chance(3), sl_dim(x, -1)));
  }
}

static void fill_numbers(void *ctx, const sl_tick *tick, void *const *out) {
  const making *m = ctx;
  uint64_t keep = random_state;
  seed_random((uint64_t)tick->number + 77);
  int32_t *tokens = out[0], *targets = out[1];
  for (int64_t i = 0; i < m->rows * m->positions; i++) {
    int32_t a = (int32_t)(random_bits() % 11), b = (int32_t)(random_bits() % 11);
    if (tokens) tokens[i] = a;
    if (targets) targets[i] = b;
  }
  random_state = keep;
}

/* The same graph for the same seed. Outputs nobody reads are added up in front of the
 * loss, so that every parameter is trained. */
static sl_graph *build(uint64_t seed, making *m) {
  seed_random(seed);
  *m = (making){.g = sl_graph_create(&(sl_graph_options){.microbatches = MICROBATCHES})};
  m->rows = 4 + chance(5);
  m->positions = 4 + chance(5);
  sl_type *types = sl_graph_alloc(m->g, 2 * sizeof *types);
  types[0] = types[1] = SL_TYPE(SL_I32, m->rows, m->positions);
  sl_source *source = sl_graph_alloc(m->g, sizeof *source);
  *source = (sl_source){.nout = 2, .types = types, .fill = fill_numbers, .ctx = m};
  sl_tensor *data[2];
  sl_data(m->g, source, data);
  sl_tensor *table = param2(m, 11, 4 + chance(9));
  m->tensors[m->count++] = sl_embedding(m->g, data[0], table);
  for (int i = 3 + chance(MOST_OPS - 3); i > 0; i--) {
    sl_tensor *t = grow(m);
    m->tensors[m->count++] = t;
  }
  sl_block(m->g, "head");
  sl_tensor *sum = NULL;
  for (int i = 0; i < m->count; i++) {
    sl_tensor *x = sl_linear(m->g, m->tensors[i], param2(m, sl_dim(table, -1), sl_dim(m->tensors[i], -1)), NULL);
    sum = sum ? sl_add(m->g, sum, x) : x;
  }
  bool tied = chance(2);
  sl_tensor *logits = sl_linear(m->g, sum, tied ? table : param2(m, 11, sl_dim(table, -1)), NULL);
  sl_train(m->g, sl_cross_entropy(m->g, logits, data[1]), NULL);
  CHECK(!sl_graph_status(m->g), "%s", sl_detail());
  CHECK(!sli_pass_gradients(m->g), "%s", sl_detail());
  return m->g;
}

/* ---- random choices ------------------------------------------------------------------ */

/* Does it split rows of data? */
static bool splits_rows(const sli_node *n, const sl_signature *s) {
  sl_sbp rows = {SL_SPLIT, 0};
  bool any = sli_sbp_equal(s->out[0], rows);
  for (int a = 0; a < n->nin && a < SL_SIGNATURE_ARGS; a++)
    any |= n->in[a] && !n->in[a]->param && sli_sbp_equal(s->in[a], rows);
  return any;
}

static void choose_any(const sl_graph *g, const sli_dim *dims, int size, bool rows,
                       sli_choice *out) {
  out->of = sli_calloc((size_t)g->nnodes, sizeof *out->of);
  out->params = sli_calloc((size_t)g->nparams, sizeof *out->params);
  for (int i = 0; i < g->nnodes; i++) {
    const sli_node *n = g->nodes[i];
    if (!sli_is_forward(n) && n->op != &sl_op_source) continue;
    sl_signature all[SL_SIGNATURES];
    int count = sli_signatures(g, dims, n, size, all);
    do out->of[i] = all[chance(count)]; while (!rows && splits_rows(n, &out->of[i]));
    for (int a = 0; a < n->nin && a < SL_SIGNATURE_ARGS; a++)
      if (n->in[a] && n->in[a]->param && chance(2))
        out->params[n->in[a]->param_index] = out->of[i].in[a];
  }
  for (int p = 0; p < g->nparams; p++) /* nobody keeps a parameter as a sum */
    if (out->params[p].kind == SL_PARTIAL) out->params[p] = (sl_sbp){SL_BROADCAST, 0};
}

static void share_out(sl_graph *g, const sli_grid *grid, sli_sharding sharding) {
  sli_dim *dims;
  sli_choice data = {0}, tensor = {0};
  CHECK(!sli_dims_find(g, &dims), "%s", sl_detail());
  int D = grid->size[SLI_AXIS_DATA], T = grid->size[SLI_AXIS_TENSOR];
  if (D > 1) CHECK(!sli_choose_data(g, dims, grid, &data), "%s", sl_detail());
  if (T > 1) choose_any(g, dims, T, D == 1, &tensor);
  CHECK(!sli_pass_expand(g, dims, grid, &data, &tensor, sharding), "%s", sl_detail());
  sli_choice_free(&data);
  sli_choice_free(&tensor);
  free(dims);
}

/* ---- comparing ------------------------------------------------------------------------- */

static sl_shard whole_of(const sl_tensor *t) {
  if (t->shard) return *t->shard;
  return (sl_shard){t->type, {{.axis = SL_PART_ALL}, {.axis = SL_PART_ALL}}};
}

static const sl_tensor *logical_of(const sl_graph *g, const char *name) {
  for (int p = 0; p < g->nparams; p++)
    if (!strcmp(g->params[p]->name, name)) return g->params[p];
  CHECK(false, "no parameter %s", name);
  return NULL;
}

/* Devices begin with the same values. */
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

/* The gradient of each device's part against that part of the whole's. */
static void compare_gradients(const interp *one, const interp *all, uint64_t seed) {
  for (int p = 0; p < all->g->nparams; p++) {
    const sl_tensor *t = all->g->params[p], *logical = logical_of(one->g, t->name);
    sl_shard shard = whole_of(t);
    int64_t n = sl_type_elements(&t->type);
    float *want = interp_memory((size_t)n * sizeof *want);
    for (int u = 0; u < t->ngrads; u++) {
      const float *whole = interp_data(one, logical->grads[u]), *got = interp_data(all, t->grads[u]);
      double scale = largest(whole, sl_type_elements(&logical->type));
      sl_shard_take(&shard, whole, want);
      for (int64_t i = 0; i < n; i++)
        CHECK(fabs((double)got[i] - (double)want[i]) <= 2e-5 * scale + 1e-7,
              "seed %llu: parameter %s, use %d, device %d, element %lld: %g, not %g",
              (unsigned long long)seed, t->name, u, t->rank, (long long)i, (double)got[i],
              (double)want[i]);
    }
    free(want);
  }
}

static void check_one(uint64_t seed) {
  static const int sizes[][2] = {{1, 2}, {1, 3}, {1, 4}, {2, 1}, {4, 1}, {2, 2}, {2, 3}, {3, 2}, {2, 4}};
  making a, b;
  sl_graph *one = build(seed, &a), *all = build(seed, &b);
  const int *size = sizes[chance((int)SLI_COUNT(sizes))];
  sli_grid grid = {.size = {size[0], size[1]}, .apart = {chance(2), chance(2)}};
  sli_sharding sharding = size[0] > 1 ? (sli_sharding)chance(4) : SLI_SHARD_NOTHING;
  share_out(all, &grid, sharding);
  interp x = interp_create(one, 5), y = interp_create(all, 5);
  copy_params(&x, &y);
  double want = interp_backward(&x, 0), got = interp_backward(&y, 0);
  CHECK(fabs(want - got) <= 1e-5 * fabs(want), "seed %llu on %d x %d: loss %.9g, not %.9g",
        (unsigned long long)seed, size[0], size[1], got, want);
  compare_gradients(&x, &y, seed);
  interp_destroy(&x);
  interp_destroy(&y);
  sl_graph_destroy(one);
  sl_graph_destroy(all);
}

int main(int argc, char **argv) {
  seeds s = seeds_of(argc, argv, 1, DRAWS);
  for (uint64_t seed = s.first; seed < s.end; seed++) check_one(seed);
  return 0;
}
