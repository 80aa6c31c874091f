/* SPDX-License-Identifier: Apache-2.0 */
/* Weighted cross entropy and its gradient match PyTorch's (reference/losses.txt). Losses made of
 * several means and sums, and their gradients, are the same when rows are sharded over devices and
 * sequences are cut in pieces. Losses that cannot be split are refused.
 * labels: unthreaded */
#include <string.h>

#include <sluice/sluice.h>

#include "graph/sharding/sharding.h"
#include "tests/support/graph_interp.h"
#include "tests/support/reference_file.h"

/* ---- PyTorch's figures ------------------------------------------------------------------- */

enum { MOST = 256 };

typedef struct torch_case {
  char name[32];
  int rows, classes, ignore, nweights;
  float smoothing, weights[MOST], logits[MOST];
  int32_t targets[MOST];
  double loss, grad[MOST];
} torch_case;

static double next(char **at) { return strtod(*at, at); }

static torch_case read_case(char *line) {
  torch_case c = {0};
  int skip = 0;
  CHECK(sscanf(line, "%31s %n", c.name, &skip) == 1, "a line without a name");
  char *at = line + skip;
  c.rows = (int)next(&at), c.classes = (int)next(&at), c.ignore = (int)next(&at);
  c.smoothing = (float)next(&at), c.nweights = (int)next(&at);
  int n = c.rows * c.classes;
  for (int i = 0; i < c.nweights; i++) c.weights[i] = (float)next(&at);
  for (int i = 0; i < n; i++) c.logits[i] = (float)next(&at);
  for (int i = 0; i < c.rows; i++) c.targets[i] = (int32_t)next(&at);
  c.loss = next(&at);
  for (int i = 0; i < n; i++) c.grad[i] = next(&at);
  return c;
}

static void fill(void *ctx, const sl_tick *tick, void *const *out) {
  const torch_case *c = ctx;
  (void)tick;
  if (out[0]) memcpy(out[0], c->targets, (size_t)c->rows * sizeof *c->targets);
}

static void is_near(const torch_case *c, const char *what, double got, double want) {
  CHECK(fabs(got - want) <= 1e-6 * (1e-1 + fabs(want)), "%s: %s is %.9g, of PyTorch %.9g", c->name,
        what, got, want);
}

/* The logits are a parameter, so its gradient is a copy of the loss's gradient. */
static void check_case(char *line) {
  torch_case c = read_case(line);
  sl_type type = SL_TYPE(SL_I32, c.rows);
  const sl_source source = {.nout = 1, .types = &type, .fill = fill, .ctx = &c};
  sl_graph *g = sl_graph_create(NULL);
  sl_tensor *targets,
      *logits = sl_param(g, SL_TYPE(SL_F32, c.rows, c.classes), SL_CONSTANT(0), "logits");
  sl_data(g, &source, &targets);
  const sl_loss loss = {.ignore = SL_IGNORE(c.ignore),
                        .smoothing = c.smoothing,
                        .weights = c.nweights ? c.weights : NULL};
  sl_train(g, sl_cross_entropy_with(g, logits, targets, &loss), NULL);
  CHECK(!sli_pass_gradients(g), "%s: %s", c.name, sl_detail());
  interp in = interp_create(g, 3);
  memcpy(interp_data(&in, logits), c.logits, sl_type_bytes(sl_tensor_type(logits)));
  is_near(&c, "the loss", interp_backward(&in, 0), c.loss);
  const float *grad = interp_data(&in, logits->grads[0]);
  for (int i = 0; i < c.rows * c.classes; i++)
    is_near(&c, "a gradient", (double)grad[i], c.grad[i]);
  interp_destroy(&in);
  sl_graph_destroy(g);
}

static void it_is_what_pytorch_finds(void) {
  char path[512];
  const char *source = getenv("SLUICE_SOURCE");
  snprintf(path, sizeof path, "%s/tests/reference/losses.txt", source ? source : ".");
  CHECK(reference_lines(path, check_case) == 12, "a line a case");
}

/* ---- no rows that count -------------------------------------------------------------------- */

static void where_no_row_counts_all_is_zero(void) {
  char line[] = "none 2 3 -100 0.5 0  1 2 3 4 5 6  -100 -100  0  0 0 0 0 0 0";
  check_case(line);
  char weightless[] = "weightless 2 3 -100 0 3  0 1 1  1 2 3 4 5 6  0 0  0  0 0 0 0 0 0";
  check_case(weightless);
}

/* ---- refused losses ------------------------------------------------------------------------ */

static void refuse(sl_loss loss, const char *text) {
  sl_graph *g = sl_graph_create(NULL);
  static const sl_type type = {SL_I32, 1, {4}};
  static const sl_source source = {.nout = 1, .types = &type, .fill = fill};
  sl_tensor *targets, *logits = sl_param(g, SL_TYPE(SL_F32, 4, 3), SL_CONSTANT(0), "logits");
  sl_data(g, &source, &targets);
  CHECK(!sl_cross_entropy_with(g, logits, targets, &loss), "refused");
  CHECK(strstr(sl_detail(), text) && strstr(sl_detail(), "test_losses.c:"), "%s", sl_detail());
  sl_graph_destroy(g);
}

static void what_makes_no_sense_is_refused(void) {
  refuse((sl_loss){.smoothing = 1.5f}, "smoothing must be from 0 to 1, not 1.5");
  refuse((sl_loss){.smoothing = NAN}, "smoothing must be from 0 to 1, not nan");
  refuse((sl_loss){.weights = (const float[]){1, -2, 1}}, "class 1 has weight -2");
  refuse((sl_loss){.weights = (const float[]){1, 2, INFINITY}}, "class 2 has weight inf");
}

/* ---- sharded and in pieces ------------------------------------------------------------------ */

enum { ROWS = 8, POSITIONS = 6, CLASSES = 7, WIDTH = 12 };

/* No target of the first sequence counts; later sequences have more and more that do. */
static void fill_tokens(void *ctx, const sl_tick *tick, void *const *out) {
  (void)ctx;
  int64_t first = tick->rows ? tick->row : 0, count = tick->rows ? tick->rows : POSITIONS;
  for (int64_t r = 0; r < ROWS; r++)
    for (int64_t t = 0; t < count; t++) {
      int64_t at = r * POSITIONS + first + t + 100 * tick->microbatch;
      if (out[0]) ((int32_t *)out[0])[r * count + t] = (int32_t)(at * 5 % CLASSES);
      if (out[1])
        ((int32_t *)out[1])[r * count + t] = at * 3 % 11 < r ? (int32_t)(at % CLASSES) : -100;
    }
}

static const sl_type token_types[2] = {{SL_I32, 2, {ROWS, POSITIONS}},
                                       {SL_I32, 2, {ROWS, POSITIONS}}};
static const sl_source tokens = {.nout = 2, .types = token_types, .fill = fill_tokens, .cut = 2};
static const float weights[CLASSES] = {1, 2, 0.5f, 1, 0.25f, 3, 1};
static const sl_loss counting = {.smoothing = 0.125f, .weights = weights};

typedef struct given {
  sl_graph *g;
  sl_tensor *x, *logits, *ids, *targets; /* [B, T, WIDTH], [B, T, CLASSES], [B, T] */
} given;
typedef sl_tensor *loss_of(const given *m);

static sl_tensor *alone(const given *m) {
  return sl_cross_entropy_with(m->g, m->logits, m->targets, &counting);
}
static sl_tensor *two_means(const given *m) {
  return sl_add(m->g, sl_cross_entropy(m->g, m->logits, m->ids),
                sl_scale(m->g, sl_mean(m->g, sl_mul(m->g, m->x, m->x), 0, false), 0.1f));
}
static sl_tensor *several(const given *m) {
  sl_tensor *mean = sl_mean(m->g, sl_tanh(m->g, m->x), 0, false);
  sl_tensor *all[] = {
      alone(m), sl_scale(m->g, sl_cross_entropy(m->g, m->logits, m->ids), 0.5f),
      sl_neg(m->g, sl_scale(m->g, sl_mean(m->g, sl_gelu(m->g, m->x), 0, false), 0.3f)), mean};
  return sl_sub(m->g, sl_add_all(m->g, 4, all), sl_scale(m->g, mean, 0.25f));
}
static sl_tensor *sums(const given *m) {
  sl_tensor *rows = sl_sum(m->g, sl_mul(m->g, m->logits, m->logits), SL_DIM(2), false);
  return sl_scale(m->g, sl_sum(m->g, rows, 0, false), 1e-2f);
}
/* The targets that mask the loss are themselves computed. */
static sl_tensor *masked(const given *m) {
  return sl_add(
      m->g, alone(m),
      sl_cross_entropy_with(
          m->g, m->logits,
          sl_reshape(m->g, sl_reshape(m->g, m->targets, ROWS, POSITIONS, 1), ROWS, POSITIONS),
          NULL));
}

static sl_graph *build(loss_of *loss, int pieces) {
  const sl_graph_options options = {.microbatches = 2, .pieces = pieces};
  given m = {.g = sl_graph_create(&options)};
  sl_tensor *data[2];
  sl_data(m.g, &tokens, data);
  sl_tensor *table = sl_param(m.g, SL_TYPE(SL_F32, CLASSES, WIDTH), SL_NORMAL(0.7f), "table");
  sl_tensor *w = sl_param(m.g, SL_TYPE(SL_F32, WIDTH, WIDTH), SL_NORMAL(0.5f), "w");
  m.ids = data[0], m.targets = data[1];
  m.x = sl_linear(m.g, sl_embedding(m.g, m.ids, table), w, NULL);
  sl_block(m.g, "head");
  sl_tensor *head = sl_param(m.g, SL_TYPE(SL_F32, CLASSES, WIDTH), SL_NORMAL(0.5f), "head");
  m.logits = sl_linear(m.g, m.x, head, NULL);
  sl_train(m.g, loss(&m), NULL);
  CHECK(!sl_graph_status(m.g), "%s", sl_detail());
  return m.g;
}

static sl_status share_out(sl_graph *g, const sli_grid *grid) {
  sli_dim *dims;
  sli_choice choice[SLI_AXES] = {0};
  CHECK(!sli_dims_find(g, &dims), "%s", sl_detail());
  sl_status status = SL_OK;
  for (int a = 0; a < SLI_AXES && !status; a++)
    if (sli_axes[a].rows && grid->size[a] > 1)
      status = sli_choose_rows(g, dims, grid, a, &choice[a]);
  if (!status && grid->size[SLI_AXIS_TENSOR] > 1)
    status = sli_choose_tensor(&(sli_tensor_search){.g = g, .dims = dims, .grid = grid},
                               &choice[SLI_AXIS_TENSOR]);
  if (!status) status = sli_pass_expand(g, dims, grid, choice, SLI_SHARD_NOTHING);
  for (int a = 0; a < SLI_AXES; a++) sli_choice_free(&choice[a]);
  free(dims);
  return status;
}

static sl_status take_apart(sl_graph *g, sli_grid grid) {
  for (int a = 0; a < SLI_AXES; a++) grid.apart[a] = true;
  sl_status status = sli_pass_losses(g);
  if (!status) status = sli_pass_cut(g, NULL);
  if (!status) status = sli_pass_gradients(g);
  if (!status) status = sli_pass_pieces(g);
  return status || sli_grid_ranks(&grid) == 1 ? status : share_out(g, &grid);
}

static void copy_params(const interp *from, const interp *to) {
  for (int p = 0; p < to->g->nparams; p++)
    for (int q = 0; q < from->g->nparams; q++) {
      const sl_tensor *t = to->g->params[p], *whole = from->g->params[q];
      sl_shard all = {whole->type, SL_ALL_PARTS};
      if (!strcmp(t->name, whole->name))
        sl_shard_take(t->shard ? t->shard : &all, interp_data(from, whole), interp_data(to, t));
    }
}

/* Compares the gradients of a device's parts with those of the whole. */
static void compare(const interp *one, const interp *all, const char *how) {
  for (int p = 0; p < all->g->nparams; p++) {
    const sl_tensor *t = all->g->params[p], *whole = NULL;
    for (int q = 0; q < one->g->nparams; q++)
      if (!strcmp(one->g->params[q]->name, t->name)) whole = one->g->params[q];
    sl_shard shard = {whole->type, SL_ALL_PARTS};
    float want[CLASSES * WIDTH + WIDTH * WIDTH];
    sl_shard_take(t->shard ? t->shard : &shard, interp_data(one, whole->grads[0]), want);
    const float *got = interp_data(all, t->grads[0]);
    for (int64_t i = 0; i < sl_type_elements(&t->type); i++)
      CHECK(fabs((double)got[i] - (double)want[i]) <= 3e-6 * (0.1 + fabs((double)want[i])),
            "%s: gradient of %s, device %d, element %lld: %g, not %g", how, t->name, t->rank,
            (long long)i, (double)got[i], (double)want[i]);
  }
}

/* Devices along each axis, and pieces. */
typedef struct way {
  int data, sequence, tensor, pieces;
} way;

static sli_grid grid_of(const way *w) {
  return (sli_grid){.size = {[SLI_AXIS_DATA] = w->data,
                             [SLI_AXIS_SEQUENCE] = w->sequence,
                             [SLI_AXIS_TENSOR] = w->tensor}};
}

static void check_parts(const char *name, loss_of *loss, way w) {
  char how[80];
  int pieces = w.pieces;
  snprintf(how, sizeof how, "%s, data %d, sequence %d, tensor %d, pieces %d", name, w.data,
           w.sequence, w.tensor, pieces);
  sl_graph *one = build(loss, 1), *all = build(loss, pieces);
  CHECK(!sli_pass_gradients(one), "%s", sl_detail());
  CHECK(!take_apart(all, grid_of(&w)), "%s: %s", how, sl_detail());
  interp x = interp_create(one, 5), y = interp_create(all, 5);
  copy_params(&x, &y);
  double want = interp_backward(&x, 0), got = interp_backward(&y, 0);
  CHECK(fabs(want - got) <= 1e-6 * fabs(want), "%s: the loss is %.9g, not %.9g", how, got, want);
  compare(&x, &y, how);
  interp_destroy(&x);
  interp_destroy(&y);
  sl_graph_destroy(one);
  sl_graph_destroy(all);
}

static void parts_make_the_same_loss(void) {
  static const way ways[] = {{2, 1, 1, 1}, {3, 1, 1, 1}, {4, 1, 1, 1}, {8, 1, 1, 1}, {1, 1, 2, 1},
                             {1, 1, 3, 1}, {2, 1, 2, 1}, {1, 1, 1, 2}, {1, 1, 1, 4}, {3, 1, 1, 4},
                             {2, 1, 2, 3}, {1, 2, 1, 1}, {1, 4, 1, 1}, {1, 6, 1, 1}, {3, 2, 1, 1},
                             {8, 6, 1, 1}, {1, 2, 2, 1}, {2, 2, 2, 1}, {1, 2, 1, 2}, {2, 2, 1, 2}};
  static const struct {
    const char *name;
    loss_of *loss;
  } losses[] = {{"alone", alone},
                {"two means", two_means},
                {"several", several},
                {"sums", sums},
                {"masked", masked}};
  for (size_t l = 0; l < SLI_COUNT(losses); l++)
    for (size_t w = 0; w < SLI_COUNT(ways); w++)
      check_parts(losses[l].name, losses[l].loss, ways[w]);
}

/* A term that all devices compute is added once. */
static sl_tensor *with_decay(const given *m) {
  sl_tensor *w = m->x->producer->in[1];
  return sl_add(m->g, alone(m), sl_scale(m->g, sl_sum(m->g, sl_mul(m->g, w, w), 0, false), 1e-2f));
}

/* ---- refused splits -------------------------------------------------------------------------- */

static sl_tensor *of_a_mean(const given *m) {
  return sl_exp(m->g, sl_cross_entropy(m->g, m->logits, m->ids));
}
static sl_tensor *of_a_sum(const given *m) { return sl_exp(m->g, alone(m)); }
static sl_tensor *of_guesses(const given *m) {
  return sl_cross_entropy_with(m->g, m->logits, sl_argmax(m->g, m->logits, -1), NULL);
}

static void refuse_parts(loss_of *loss, way w, const char *text) {
  sl_graph *g = build(loss, w.pieces);
  CHECK(take_apart(g, grid_of(&w)), "refused: %s", text);
  CHECK(strstr(sl_detail(), text) && strstr(sl_detail(), "test_losses.c:"), "%s", sl_detail());
  sl_graph_destroy(g);
}

static void what_cannot_be_in_parts_is_refused(void) {
  refuse_parts(of_a_mean, (way){2, 1, 1, 1},
               "op head/exp.1 (exp) reads head/cross_entropy.1:share, of which each of 2 "
               "data-parallel devices has a partial sum: sums and multiples of it can be shared, "
               "other functions of it cannot; --stages and --tensor leave it whole");
  refuse_parts(of_a_mean, (way){1, 3, 1, 1},
               "of which each of 3 sequence-parallel devices has a partial sum");
  refuse_parts(alone, (way){1, 7, 1, 1}, "its output 0, i32[8, 6], has too few positions");
  refuse_parts(alone, (way){1, 4, 1, 2}, "has too few positions");
  refuse_parts(
      of_a_mean, (way){1, 1, 1, 2},
      "op head/exp.1 (exp) cannot be cut into pieces: each piece has a partial sum of its input 0, "
      "head/cross_entropy.1:share");
  refuse_parts(of_a_sum, (way){2, 1, 1, 1},
               "op head/exp.1 (exp) reads head/weighted_cross_entropy.1, of which");
  refuse_parts(of_a_sum, (way){1, 1, 1, 2},
               "each piece has a partial sum of its input 0, head/weighted_cross_entropy.1");
  refuse_parts(with_decay, (way){1, 1, 1, 2}, "and not together with a whole input");
  refuse_parts(of_guesses, (way){2, 1, 1, 1},
               "reads head/reduce_max.1:1, which depends on parameters: not supported with");
  refuse_parts(of_guesses, (way){1, 1, 1, 2},
               "op head/target_weight.1 (target_weight) works on whole microbatches");
}

int main(void) {
  RUN(it_is_what_pytorch_finds);
  RUN(where_no_row_counts_all_is_zero);
  RUN(what_makes_no_sense_is_refused);
  RUN(parts_make_the_same_loss);
  RUN(check_parts, "with decay", with_decay, (way){3, 1, 1, 1});
  RUN(check_parts, "with decay", with_decay, (way){2, 1, 2, 1});
  RUN(check_parts, "with decay", with_decay, (way){2, 3, 1, 1});
  RUN(check_parts, "exp of a mean", of_a_mean, (way){1, 1, 2, 1});
  RUN(what_cannot_be_in_parts_is_refused);
  return 0;
}
