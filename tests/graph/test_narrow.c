/* SPDX-License-Identifier: Apache-2.0 */
/* On devices that compute in bf16, activations are bf16 and nothing else is: weights, their
 * gradients, statistics and losses stay f32. Each call has data of one type, and an op that
 * supports only f32 keeps the tensors it touches in f32.
 * labels: unthreaded */
#include <stdlib.h>
#include <string.h>

#include "graph/passes/passes.h"
#include "tests/support/shipped.h"

static bool may_be(uint32_t narrow, int i) { return narrow >> SLI_MIN(i, 31) & 1; }

static bool is_packed(const sl_tensor *t) { return t->producer && t->producer->op == &sl_op_pack; }

/* Checks one argument. *seen is the type of the arguments before it, or -1 if there are none. */
static void check_argument(const sli_node *n, const sl_tensor *t, const sl_type *type, bool may,
                           int *seen) {
  CHECK(type->dtype == t->type.dtype, "%s takes %s for %s", n->name, sl_dtype_name(type->dtype),
        t->name);
  if (!may) {
    CHECK(t->type.dtype != SL_BF16 || is_packed(t), "%s of %s (%s) is bf16", t->name, n->name,
          n->op->name);
  } else if (!sli_op_narrow(n->op)->mixed) {
    CHECK(*seen < 0 || *seen == (int)t->type.dtype, "%s (%s) has %s as %s", n->name, n->op->name,
          t->name, sl_dtype_name(t->type.dtype));
    *seen = (int)t->type.dtype;
  }
}

static void check_calls(const sl_graph *g) {
  for (int i = 0; i < g->nnodes; i++) {
    const sli_node *n = g->nodes[i];
    int seen = -1;
    for (int a = 0; a < n->nin; a++)
      if (n->in[a])
        check_argument(n, n->in[a], &n->in_type[a], may_be(sli_op_narrow(n->op)->in, a), &seen);
    for (int o = 0; o < n->nout; o++)
      if (n->out[o])
        check_argument(n, n->out[o], &n->out_type[o], may_be(sli_op_narrow(n->op)->out, o), &seen);
    for (int v = 0; n->shapes && v < g->cut.nvariants; v++)
      for (int o = 0; o < n->nout; o++)
        CHECK(n->shapes[v].out[o].dtype == n->out_type[o].dtype, "%s: output %d of length %d",
              n->name, o, v);
  }
}

static void check_weights(const sl_graph *g) {
  for (int i = 0; i < g->nparams; i++) {
    const sl_tensor *p = g->params[i];
    CHECK(p->type.dtype == SL_F32, "%s is a weight", p->name);
    for (int u = 0; u < p->ngrads; u++)
      CHECK(p->grads[u]->type.dtype == SL_F32, "%s is a weight's gradient", p->grads[u]->name);
  }
}

static void is(const sl_graph *g, const char *node, int output, sl_dtype want) {
  const sli_node *n = shipped_node(g, node);
  CHECK(n->out_type[output].dtype == want, "output %d of %s is %s", output, node,
        sl_dtype_name(n->out_type[output].dtype));
}

/* Returns the bytes of all tensors that are neither weights nor computed once per step. */
static size_t flowing(const sl_graph *g) {
  size_t bytes = 0;
  for (int i = 0; i < g->ntensors; i++) {
    const sl_tensor *t = g->tensors[i];
    if (t->producer && t->producer->phase == SLI_PHASE_MAIN &&
        !(t->producer->accumulate_span >> t->output & 1))
      bytes += sl_type_bytes(&t->type);
  }
  return bytes;
}

static void shipped_models_are_narrow(const char *model, int pieces) {
  char *words[] = {"--layers",  "2",  "--width", "64", "--heads", "4",
                   "--context", "32", "--batch", "4",  NULL};
  sl_graph *g = shipped_graph(model, words, 2, pieces);
  size_t before = flowing(g);
  sli_pass_products(g, false);
  sli_pass_narrow(g);
  check_calls(g);
  check_weights(g);
  size_t after = flowing(g);
  CHECK(after > before / 2 && (double)after < 0.54 * (double)before, "%s: %zu bytes of %zu", model,
        after, before);
  CHECK(g->loss.tensor->type.dtype == SL_F64, "the loss is f64");
  sl_graph_destroy(g);
}

static void statistics_stay(void) {
  char *words[] = {"--layers", "1", "--width", "64", "--heads", "4", NULL};
  sl_graph *g = shipped_graph("gpt", words, 1, 1);
  sli_pass_products(g, false);
  sli_pass_narrow(g);
  is(g, "h.0/layernorm.1", 0, SL_BF16);
  is(g, "h.0/layernorm.1", 1, SL_F32);
  is(g, "h.0/layernorm.1", 2, SL_F32);
  is(g, "h.0/attention_packed.1", 0, SL_BF16);
  is(g, "h.0/attention_packed.1", 1, SL_F32);
  is(g, "h.0/linear.1", 0, SL_BF16);
  is(g, "h.0/linear.1:linear_w", 0, SL_F32);
  is(g, "head/cross_entropy.1", 1, SL_F32);
  sl_graph_destroy(g);
}

/* ---- packing of weights -------------------------------------------------------------- */

/* Counts the pack nodes of a one-layer GPT: four linear maps and a classifier, each of which
 * computes an input gradient. */
static int packs(int microbatches, bool as_they_go, int *by_products) {
  char *words[] = {"--layers", "1", "--width", "64", "--heads", "4", NULL};
  sl_graph *g = shipped_graph("gpt", words, microbatches, 1);
  int n = 0;
  sli_pass_products(g, as_they_go);
  *by_products = 0;
  for (int i = 0; i < g->nnodes; i++) {
    const sl_op *op = g->nodes[i]->op;
    n += op == &sl_op_pack;
    *by_products +=
        (op == &sl_op_linear || op == &sl_op_linear_b) && g->nodes[i]->attrs.numbers.bf16;
  }
  sl_graph_destroy(g);
  return n;
}

static void what_a_step_reads_once_is_packed_by_its_product(void) {
  int by_products;
  CHECK(packs(1, true, &by_products) == 0 && by_products == 10, "%d products pack", by_products);
  CHECK(packs(2, true, &by_products) == 5 && !by_products,
        "each weight is packed once a step, %d products pack", by_products);
  CHECK(packs(1, false, &by_products) == 5 && !by_products, "devices that cannot: %d products pack",
        by_products);
}

/* ---- ops that support only f32 -------------------------------------------------------- */

static sl_status probe_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  (void)attrs, (void)nin;
  out[0] = in[0];
  return SL_OK;
}

static void fill(void *ctx, const sl_tick *tick, void *const *out) {
  (void)ctx, (void)tick;
  memset(out[0], 0, 8 * 4 * sizeof(float));
}

/* x -> linear -> a -> + a weight -> b -> probe -> c -> linear -> d -> gelu -> e -> mse(e, x):
 * tensors that the probe, a weight or data touches stay f32, and so do tensors that must share
 * their type. Types change at products. */
static void a_row_keeps_what_it_touches(void) {
  static const sl_op probe = {
      .name = "probe",
      .min_in = 1,
      .max_in = 1,
      .nout = 1,
      .infer = probe_infer,
      .grad = {{.op = &probe, .cls = SL_CLASS_B, .in = {SL_DOUT(0)}, .nwrt = 1, .wrt = {0}}}};
  const sl_type type = SL_TYPE(SL_F32, 8, 4), square = SL_TYPE(SL_F32, 4, 4);
  const sl_source source = {.nout = 1, .types = &type, .fill = fill};
  sl_graph *g = sl_graph_create(&(sl_graph_options){0});
  sl_tensor *x[1], *w[3];
  sl_data(g, &source, x);
  for (int i = 0; i < 3; i++) w[i] = sl_param(g, square, SL_CONSTANT(0), "w%d", i);
  sl_tensor *p = sl_param(g, type, SL_CONSTANT(0), "p");
  sl_tensor *a = sl_linear(g, x[0], w[0], NULL), *b = sl_add(g, a, p), *c;
  sl_apply(g, &probe, NULL, 1, &b, 0, &c);
  sl_tensor *d = sl_linear(g, c, w[1], NULL), *e = sl_gelu(g, d), *f = sl_linear(g, e, w[2], NULL);
  sl_train(g, sl_mse(g, f, x[0]), NULL);
  CHECK(!sl_graph_status(g), "%s", sl_detail());
  CHECK(!sli_pass_gradients(g), "%s", sl_detail());
  sli_pass_narrow(g);
  check_calls(g);
  check_weights(g);
  sl_tensor *wide[] = {a, b, c, f}, *narrow[] = {d, e};
  for (int i = 0; i < 4; i++) CHECK(wide[i]->type.dtype == SL_F32, "%s touches f32", wide[i]->name);
  for (int i = 0; i < 2; i++)
    CHECK(narrow[i]->type.dtype == SL_BF16, "%s may be bf16", narrow[i]->name);
  sl_graph_destroy(g);
}

/* ---- whole plans ------------------------------------------------------------------------ */

/* Where arithmetic dominates the time, sharding does not depend on the type. */
static const sl_hardware slow = {.flops_per_second = 1e6,
                                 .bytes_per_second = 1e30,
                                 .devices_per_host = 8,
                                 .link = {0, 1e9},
                                 .host_link = {0, 1e9}};

typedef struct shape {
  size_t activations;
  uint64_t pipeline, tensor;
} shape;

static shape plan_of(sl_dtype dtype, const char *kind, int tensor, const char *shard) {
  char *words[] = {"--layers", "4",       "--width", "128",     "--heads", "4", "--context",
                   "64",       "--batch", "4",       "--vocab", "512",     NULL};
  const sl_model *const *m = sli_models;
  while (strcmp((*m)->name, "gpt")) m++;
  sl_args *args;
  int used;
  CHECK(!sl_args_create((*m)->options, &args), "%s", sl_detail());
  for (char **w = words; *w; w += used) CHECK(!sl_args_take(args, 2, w, &used), "%s", *w);
  sl_graph *g = sl_graph_create(&(sl_graph_options){.microbatches = 2, .no_data = true});
  CHECK(!(*m)->build(g, args), "%s", sl_detail());
  sl_args_destroy(args);
  sl_lower_options options = {.parallel.stages = 2,
                              .parallel.tensor = tensor,
                              .numbers.dtype = dtype,
                              .parallel.data = shard ? 2 : 1,
                              .memory.shard = shard,
                              .simulation.hardware = strcmp(kind, "timed") ? NULL : &slow,
                              .devices = {.kind = kind}};
  sl_lowered *l;
  CHECK(!sl_lower(g, &options, &l), "%s", sl_detail());
  const sl_plan *plan = sl_lowered_plan(l);
  uint64_t moved[plan->ndevices][SL_TRAFFIC_COUNT];
  sl_lowered_moved(l, moved);
  shape s = {.activations = sl_plan_memory(plan, 0, SL_MEMORY_ACTIVATIONS),
             .pipeline = moved[plan->ndevices - 1][SL_TRAFFIC_PIPELINE],
             .tensor = moved[0][SL_TRAFFIC_TENSOR]};
  CHECK(!strcmp(sl_lowered_tensors(l), dtype == SL_BF16 && strcmp(kind, "cpu") ? "bf16" : "f32"),
        "tensors on %s are %s", kind, sl_lowered_tensors(l));
  sl_lowered_destroy(l);
  sl_graph_destroy(g);
  return s;
}

static void plans_hold_and_move_half(void) {
  const uint64_t crossing = (uint64_t)4 * 64 * 128; /* values, besides tokens and a tied weight */
  shape f32 = plan_of(SL_F32, "timed", 1, NULL), bf16 = plan_of(SL_BF16, "timed", 1, NULL);
  CHECK((double)bf16.activations < 0.54 * (double)f32.activations, "activations take %zu of %zu",
        bf16.activations, f32.activations);
  CHECK(bf16.pipeline + 2 * crossing == f32.pipeline, "the pipeline carries %llu of %llu",
        (unsigned long long)bf16.pipeline, (unsigned long long)f32.pipeline);
  f32 = plan_of(SL_F32, "timed", 2, NULL), bf16 = plan_of(SL_BF16, "timed", 2, NULL);
  CHECK(bf16.tensor + crossing <= f32.tensor, "tensor links carry %llu of %llu",
        (unsigned long long)bf16.tensor, (unsigned long long)f32.tensor);
  plan_of(SL_BF16, "cpu", 1, NULL);
  plan_of(SL_BF16, "timed", 1, "parameters"); /* no weight has to be packed for a step */
}

int main(void) {
  for (int pieces = 1; pieces < 3; pieces++) {
    RUN(shipped_models_are_narrow, "gpt", pieces);
    RUN(shipped_models_are_narrow, "llama", pieces);
  }
  RUN(statistics_stay);
  RUN(what_a_step_reads_once_is_packed_by_its_product);
  RUN(a_row_keeps_what_it_touches);
  RUN(plans_hold_and_move_half);
  return 0;
}
