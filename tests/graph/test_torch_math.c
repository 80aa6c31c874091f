/* SPDX-License-Identifier: Apache-2.0 */
/* Arithmetic and indexing ops, called as a model calls them, match PyTorch, and so do their
 * gradients: reference/ops_math.txt and ops_indexed.txt, which make_ops_*.py write.
 * labels: unthreaded */
#include <string.h>

#include <sluice/sluice.h>

#include "tests/support/graph_interp.h"

enum { MOST_INPUTS = 3, MOST_NUMBERS = 256 };
typedef sl_tensor *model(sl_graph *g, sl_tensor *const *x, sl_tensor *ids);

#define MODEL(name, call)                                                            \
  static sl_tensor *name##_model(sl_graph *g, sl_tensor *const *x, sl_tensor *ids) { \
    (void)ids;                                                                       \
    return call;                                                                     \
  }
/* clang-format off */
#define MODELS(X)                                                                         \
  X(silu, sl_silu(g, x[0])) X(sigmoid, sl_sigmoid(g, x[0])) X(exp, sl_exp(g, x[0]))       \
  X(log, sl_log(g, x[0])) X(sqrt, sl_sqrt(g, x[0])) X(rsqrt, sl_rsqrt(g, x[0]))           \
  X(gelu_erf, sl_gelu_erf(g, x[0])) X(erf, sl_erf(g, x[0])) X(sin, sl_sin(g, x[0]))       \
  X(cos, sl_cos(g, x[0])) X(softplus, sl_softplus(g, x[0]))                               \
  X(floor, sl_add(g, sl_floor(g, x[0]), x[0])) X(detach, sl_mul(g, sl_detach(g, x[0]), x[0])) \
  X(abs, sl_abs(g, x[0])) X(clamp, sl_clamp(g, x[0], -0.5f, 0.75f))                       \
  X(neg, sl_neg(g, x[0])) X(scale, sl_scale(g, x[0], -2.5f))                              \
  X(add_constant, sl_add_constant(g, x[0], 0.75f)) X(add, sl_add(g, x[0], x[1]))          \
  X(sub, sl_sub(g, x[0], x[1])) X(mul, sl_mul(g, x[0], x[1]))                             \
  X(div, sl_div(g, x[0], x[1])) X(maximum, sl_maximum(g, x[0], x[1]))                     \
  X(minimum, sl_minimum(g, x[0], x[1]))                                                   \
  X(where, sl_where(g, sl_lt(g, x[0], x[1]), x[0], sl_scale(g, x[1], 2)))                 \
  X(sum, sl_sum(g, x[0], SL_DIM(0) | SL_DIM(2), false))                                   \
  X(mean, sl_mean(g, x[0], SL_DIM(1), true)) X(max, sl_max(g, x[0], SL_DIM(1), false))    \
  X(softmax, sl_softmax(g, x[0], -1)) X(softmax_1, sl_softmax(g, x[0], 1))                \
  X(log_softmax, sl_log_softmax(g, x[0], -1))                                             \
  X(matmul, sl_matmul(g, x[0], x[1], false, false))                                       \
  X(matmul_t, sl_matmul(g, x[0], x[1], true, true))                                       \
  X(gather, sl_gather(g, x[0], 1, ids)) X(gather_rows, sl_gather(g, x[0], 0, ids))        \
  X(scatter_add, sl_scatter_add(g, x[0], -1, ids, x[1]))                                  \
  X(scatter_sum, sl_scatter_sum(g, x[0], 0, ids, 5))                                      \
  X(top_k, sl_top_k(g, x[0], -1, 3, NULL)) X(top_k_1, sl_top_k(g, x[0], 1, 2, NULL))      \
  X(cumsum, sl_cumsum(g, x[0], 1, false, false))                                          \
  X(cumsum_reverse, sl_cumsum(g, x[0], 2, true, false))                                   \
  X(cumsum_exclusive, sl_cumsum(g, x[0], 0, false, true))                                 \
  X(expand, sl_expand(g, x[0], 4, -1, 5)) X(one_hot, sl_mul(g, sl_one_hot(g, ids, 6), x[0])) \
  X(cast, sl_mul(g, sl_cast(g, ids, SL_F32), x[0]))                                       \
  X(group_norm, sl_group_norm(g, x[0], 2, x[1], x[2], 0))                                 \
  X(instance_norm, sl_group_norm(g, x[0], 3, x[1], x[2], 0.1f))                           \
  X(bag, sl_embedding_bag(g, ids, x[0], NULL, NULL))                                      \
  X(bag_mean, sl_embedding_bag(g, ids, x[0], NULL, &(sl_bag){true, true, 2}))             \
  X(bag_weights, sl_embedding_bag(g, ids, x[0], x[1], &(sl_bag){.pads = true, .padding = 1}))
/* clang-format on */
MODELS(MODEL)

static const struct {
  const char *name;
  model *make;
} models[] = {
#define X(name, call) {#name, name##_model},
    MODELS(X)
#undef X
};

typedef struct array {
  sl_type type;
  float numbers[MOST_NUMBERS];
} array;

typedef struct torch_case {
  char name[32];
  int nin;
  array in[MOST_INPUTS], grad[MOST_INPUTS], out, dy, ids;
} torch_case;

/* Reads an array such as "3 5 : 0x1.8p+0 ...". */
static void read_array(char *text, array *a) {
  char *word = strtok(text, " \n");
  a->type = SL_SCALAR(SL_F32);
  for (; word && *word != ':'; word = strtok(NULL, " \n"))
    a->type.dim[a->type.ndim++] = strtoll(word, NULL, 10);
  int64_t n = sl_type_elements(&a->type);
  CHECK(n <= MOST_NUMBERS, "an array of %lld numbers", (long long)n);
  for (int64_t i = 0; i < n; i++) a->numbers[i] = strtof(strtok(NULL, " \n"), NULL);
}

/* Reads until the next case; returns false at the end of the file. */
static bool read_case(FILE *f, torch_case *c) {
  static char line[1 << 16];
  int grads = 0;
  *c = (torch_case){0};
  if (fscanf(f, " case %31s ", c->name) != 1) return false;
  for (long at = ftell(f); fgets(line, sizeof line, f); at = ftell(f)) {
    if (!strncmp(line, "in ", 3)) read_array(line + 3, &c->in[c->nin++]);
    else if (!strncmp(line, "ids ", 4)) read_array(line + 4, &c->ids);
    else if (!strncmp(line, "grad ", 5)) read_array(line + 5, &c->grad[grads++]);
    else if (!strncmp(line, "out ", 4)) read_array(line + 4, &c->out);
    else if (!strncmp(line, "dy ", 3)) read_array(line + 3, &c->dy);
    else return !fseek(f, at, SEEK_SET);
  }
  return true;
}

static void check_near(const torch_case *c, const char *what, const float *got, const array *want) {
  for (int64_t i = 0; i < sl_type_elements(&want->type); i++) {
    double g = (double)got[i], w = (double)want->numbers[i];
    CHECK(fabs(g - w) <= 1e-6 * (1 + fabs(w)), "%s: %s, element %lld is %.9g, of PyTorch %.9g",
          c->name, what, (long long)i, g, w);
  }
}

static sl_tensor *param(sl_graph *g, const array *a, const char *name) {
  return sl_param(g, a->type, SL_CONSTANT(0), "%s", name);
}

static void put(const interp *in, const sl_tensor *t, const array *a) {
  memcpy(interp_data(in, t), a->numbers, sl_type_bytes(&a->type));
}

/* Returns the ids as a constant. */
static sl_tensor *ids_of(sl_graph *g, const array *a) {
  int32_t ids[MOST_NUMBERS];
  sl_type type = a->type;
  type.dtype = SL_I32;
  for (int64_t i = 0; i < sl_type_elements(&type); i++) ids[i] = (int32_t)a->numbers[i];
  return type.ndim ? sl_constant(g, type, ids, NULL) : NULL;
}

/* The loss is the sum of y dy, so dy is the gradient of y. */
static void check_case(const torch_case *c, model *make) {
  sl_graph *g = sl_graph_create(NULL);
  static const char *const names[] = {"a", "b", "c"};
  sl_tensor *x[MOST_INPUTS], *dy = param(g, &c->dy, "dy");
  for (int i = 0; i < c->nin; i++) x[i] = param(g, &c->in[i], names[i]);
  sl_tensor *y = make(g, x, ids_of(g, &c->ids));
  CHECK(y && sl_type_equal(sl_tensor_type(y), &c->out.type), "%s: %s", c->name, sl_detail());
  sl_train(g, sl_sum(g, sl_mul(g, y, dy), 0, false), NULL);
  CHECK(!sli_pass_gradients(g), "%s: %s", c->name, sl_detail());
  interp in = interp_create(g, 3);
  put(&in, dy, &c->dy);
  for (int i = 0; i < c->nin; i++) put(&in, x[i], &c->in[i]);
  interp_backward(&in, 0);
  check_near(c, "the output", interp_data(&in, y), &c->out);
  for (int i = 0; i < c->nin; i++) {
    float sum[MOST_NUMBERS] = {0};
    for (int u = 0; u < x[i]->ngrads; u++)
      for (int64_t e = 0; e < sl_type_elements(&x[i]->type); e++)
        sum[e] += ((float *)interp_data(&in, x[i]->grads[u]))[e];
    check_near(c, names[i], sum, &c->grad[i]);
  }
  interp_destroy(&in);
  sl_graph_destroy(g);
}

/* Returns the number of cases in the file. */
static size_t check_file(const char *name) {
  static torch_case c;
  char path[512];
  size_t done = 0;
  const char *source = getenv("SLUICE_SOURCE");
  snprintf(path, sizeof path, "%s/tests/reference/%s", source ? source : ".", name);
  FILE *f = fopen(path, "r");
  CHECK(f, "%s cannot be read", path);
  while (read_case(f, &c))
    for (size_t m = 0; m < SLI_COUNT(models); m++)
      if (!strcmp(models[m].name, c.name)) check_case(&c, models[m].make), done++;
  fclose(f);
  return done;
}

int main(void) {
  size_t done = 0;
  RUN_AS("ops_math", done += check_file("ops_math.txt"));
  RUN_AS("ops_indexed", done += check_file("ops_indexed.txt"));
  CHECK(!test_whole() || done == SLI_COUNT(models), "%zu of %zu models have a case", done,
        SLI_COUNT(models));
  return 0;
}
