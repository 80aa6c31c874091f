/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the structure of dims, the signatures by which calls can be sharded, and the data axis.
 * labels: unthreaded */
#include <math.h>
#include <string.h>

#include <sluice/sluice.h>

#include "graph/passes/passes.h"
#include "graph/sharding/sharding.h"
#include "tests/support/shipped.h"
#include "tests/support/test.h"

static sli_dim *dims_of(const sl_graph *g) {
  sli_dim *dims;
  CHECK(!sli_dims_find(g, &dims), "%s", sl_detail());
  return dims;
}

static const sli_dim *dim_of(const sli_dim *dims, const sl_tensor *t, int dim) {
  if (dim < 0) dim += t->type.ndim;
  return &dims[t->id * SL_MAX_DIMS + dim];
}

static void check_dim(const sli_dim *dims, const sl_tensor *t, int dim, int64_t units, int count,
                      const int64_t *segments) {
  const sli_dim *d = dim_of(dims, t, dim);
  CHECK(d->units == units && d->nsegments == count,
        "%s, dim %d: %d segments of %d units, expected "
        "%d of %d",
        t->name, dim, d->nsegments, (int)d->units, count, (int)units);
  for (int s = 0; s < count; s++)
    CHECK(d->segment[s] == segments[s], "%s, dim %d: segment %d is %d long", t->name, dim, s,
          (int)d->segment[s]);
}

static const sl_tensor *param(const sl_graph *g, const char *name) {
  for (int i = 0; i < g->nparams; i++)
    if (!strcmp(g->params[i]->name, name)) return g->params[i];
  CHECK(0, "there is no parameter %s", name);
  return NULL;
}

/* ---- dims ---------------------------------------------------------------------------- */

/* Width 48: 6 heads of size 8. */
static char *gpt[] = {"--layers",  "2",  "--width", "48", "--heads", "6",
                      "--context", "16", "--batch", "8",  NULL};

static void packed_heads_reach_weight_and_bias(int pieces) {
  sl_graph *g = shipped_graph("gpt", gpt, 2, pieces);
  sli_dim *dims = dims_of(g);
  const int64_t three[] = {48, 48, 48}, two[] = {48, 48}, one[] = {48}, wide[] = {192};
  check_dim(dims, param(g, "transformer.h.1.attn.c_attn.weight"), 1, 6, 3, three);
  check_dim(dims, param(g, "transformer.h.1.attn.c_attn.bias"), 0, 6, 3, three);
  check_dim(dims, param(g, "transformer.h.1.attn.c_attn.weight"), 0, 48, 1, one);
  check_dim(dims, shipped_node(g, "h.1/linear.1")->out[0], 2, 6, 3, three);
  check_dim(dims, param(g, "transformer.h.1.attn.c_proj.weight"), 0, 6, 1, one);
  check_dim(dims, param(g, "transformer.h.1.attn.c_proj.weight"), 1, 48, 1, one);
  check_dim(dims, param(g, "transformer.h.0.mlp.c_fc.weight"), 1, 192, 1, wide);
  check_dim(dims, param(g, "transformer.wte.weight"), 0, 256, 1, (int64_t[]){256});
  const sli_node *attention = shipped_node(g, "h.0/attention_packed.1");
  check_dim(dims, attention->out[1], 1, 6, 1, (int64_t[]){6});
  if (pieces > 1) check_dim(dims, attention->out[2], 2, 6, 2, two);
  int64_t positions = attention->out[0]->type.dim[1];
  check_dim(dims, attention->out[0], 1, positions == 16 ? 16 : 1, 1, &positions);
  check_dim(dims, shipped_node(g, "h.0/layernorm.2")->out[0], 1, pieces > 1 ? 1 : 16, 1,
            &positions);
  const sl_tensor *w = param(g, "transformer.h.1.attn.c_attn.weight");
  check_dim(dims, w->grads[0], 1, 6, 3, three);
  free(dims);
  sl_graph_destroy(g);
}

static void queries_have_the_units_of_keys(void) {
  char *words[] = {"--layers", "1",         "--width", "48",      "--heads", "6", "--kv-heads",
                   "2",        "--context", "16",      "--batch", "8",       NULL};
  sl_graph *g = shipped_graph("llama", words, 2, 1);
  sli_dim *dims = dims_of(g);
  check_dim(dims, param(g, "model.layers.0.self_attn.q_proj.weight"), 0, 2, 1, (int64_t[]){48});
  check_dim(dims, param(g, "model.layers.0.self_attn.k_proj.weight"), 0, 2, 1, (int64_t[]){16});
  check_dim(dims, param(g, "model.layers.0.self_attn.v_proj.weight"), 0, 2, 1, (int64_t[]){16});
  check_dim(dims, param(g, "model.layers.0.self_attn.o_proj.weight"), 1, 2, 1, (int64_t[]){48});
  check_dim(dims, shipped_node(g, "h.0/attention.1")->out[1], 1, 2, 1, (int64_t[]){6});
  check_dim(dims, param(g, "model.layers.0.mlp.gate_proj.weight"), 0, 128, 1, (int64_t[]){128});
  free(dims);
  sl_graph_destroy(g);
}

/* Two attentions with 6 and 4 heads read one tensor: they agree on 2 units. */
static void heads_that_differ_agree_on_coarser_units(void) {
  sl_graph *g = sl_graph_create(&(sl_graph_options){0});
  static const sl_type type = {SL_F32, 3, {4, 8, 24}};
  static const sl_source source = {.nout = 1, .types = &type};
  sl_tensor *data, *x, *y;
  sl_data(g, &source, &data);
  sl_tensor *w = sl_param(g, SL_TYPE(SL_F32, 24, 24), SL_NORMAL(1), "w");
  x = sl_linear(g, data, w, NULL);
  y = sl_add(g, sl_attention(g, x, x, x, 6, 6), sl_attention(g, x, x, x, 4, 4));
  sl_train(g, sl_mse(g, y, data), NULL);
  CHECK(!sli_pass_gradients(g), "%s", sl_detail());
  sli_dim *dims = dims_of(g);
  check_dim(dims, w, 0, 2, 1, (int64_t[]){24});
  free(dims);
  sl_graph_destroy(g);
}

/* 36 columns as 1 + 1 + 1 segments of 12 and as 3 heads of 12: no split suits both. */
static void segments_that_differ_are_not_shared_out(void) {
  sl_graph *g = sl_graph_create(&(sl_graph_options){0});
  static const sl_type type = {SL_F32, 3, {4, 8, 36}};
  static const sl_source source = {.nout = 1, .types = &type};
  sl_tensor *data;
  sl_data(g, &source, &data);
  sl_tensor *w = sl_param(g, SL_TYPE(SL_F32, 36, 36), SL_NORMAL(1), "w");
  sl_tensor *v = sl_param(g, SL_TYPE(SL_F32, 36, 12), SL_NORMAL(1), "v");
  sl_tensor *x = sl_linear(g, data, w, NULL), *a = sl_attention_packed(g, x, 3, 3);
  sl_tensor *y = sl_add(g, sl_linear(g, a, v, NULL), sl_attention(g, x, x, x, 3, 3));
  sl_train(g, sl_mse(g, y, data), NULL);
  CHECK(!sli_pass_gradients(g), "%s", sl_detail());
  sli_dim *dims = dims_of(g);
  CHECK(dim_of(dims, w, 0)->units == 1, "%d units", (int)dim_of(dims, w, 0)->units);
  free(dims);
  sl_graph_destroy(g);
}

static void parts_are_disjoint_and_all_there_is(void) {
  const sli_dim packed = {.nsegments = 3, .segment = {30, 20, 20}, .units = 10},
                odd = {.nsegments = 1, .segment = {7}, .units = 7};
  for (int size = 1; size <= 7; size++) {
    int64_t end[3] = {0, 30, 50}, seen = 0;
    for (int m = 0; m < size; m++) {
      sl_part p = sli_dim_part(&packed, 0, size, m);
      CHECK(p.axis == 0 && p.nranges == 3, "three ranges");
      for (int s = 0; s < 3; s++) {
        CHECK(p.begin[s] == end[s], "of %d, %d: range %d begins at %d", size, m, s,
              (int)p.begin[s]);
        end[s] += p.count[s];
      }
      CHECK(p.count[0] * 2 == p.count[1] * 3 && p.count[1] == p.count[2], "units stay together");
      p = sli_dim_part(&odd, 0, size, m);
      CHECK(p.begin[0] == seen && p.count[0] >= 7 / size, "of %d, %d: at %d", size, m,
            (int)p.begin[0]);
      seen += p.count[0];
    }
    CHECK(seen == 7 && end[0] == 30 && end[1] == 50 && end[2] == 70, "all of it");
  }
}

/* ---- signatures ------------------------------------------------------------------------- */

/* Formats a signature as "S0 B -> S0 S0", without absent arguments. */
static const char *text_of(const sli_node *n, const sl_signature *s) {
  static char text[128];
  char sbp[SLI_SBP_TEXT];
  size_t at = 0;
  for (int i = 0; i < n->nin; i++)
    at += (size_t)snprintf(text + at, sizeof text - at, "%s ", sli_sbp_format(sbp, s->in[i]));
  at += (size_t)snprintf(text + at, sizeof text - at, "->");
  for (int o = 0; o < n->nout; o++)
    at += (size_t)snprintf(text + at, sizeof text - at, " %s", sli_sbp_format(sbp, s->out[o]));
  return text;
}

/* Checks that a node has exactly these signatures, in any order, except that the fully replicated
 * one is first. */
static void check_signatures(const sl_graph *g, const sli_dim *dims, const char *node, int size,
                             const char *const *expected) {
  const sli_node *n = shipped_node(g, node);
  sl_signature all[SL_SIGNATURES];
  int count = sli_signatures(dims, n, SLI_AXIS_TENSOR, size, all), found = 0;
  for (int i = 0; i < count; i++) {
    bool known = false;
    for (int e = 0; expected[e]; e++) known |= !strcmp(text_of(n, &all[i]), expected[e]);
    CHECK(known, "%s on %d devices: %s is not expected", node, size, text_of(n, &all[i]));
  }
  while (expected[found]) found++;
  CHECK(count == found, "%s on %d devices: %d signatures, expected %d", node, size, count, found);
  CHECK(!strcmp(text_of(n, &all[0]), expected[0]), "%s: the first is %s", node,
        text_of(n, &all[0]));
}
#define SIGNATURES(node, size, ...) \
  check_signatures(g, dims, node, size, (const char *const[]){__VA_ARGS__, NULL})

static void a_block_can_be_shared_as_its_rows_say(void) {
  sl_graph *g = shipped_graph("gpt", gpt, 2, 1); /* microbatches of 4 rows */
  sli_dim *dims = dims_of(g);
  SIGNATURES("embedding/source.1", 2, "-> B B", "-> S0 S0");
  SIGNATURES("embedding/embedding.1", 2, "B B -> B", "S0 B -> S0", "S1 B -> S1", "B S0 -> P",
             "B S1 -> S2");
  SIGNATURES("embedding/position.1", 2, "B B -> B", "S0 B -> S0", "S1 B -> S1", "S2 S1 -> S2",
             "P P -> P");
  SIGNATURES("h.0/layernorm.1", 2, "B B B -> B B B", "S0 B B -> S0 S0 S0", "S1 B B -> S1 S1 S1");
  SIGNATURES("h.0/linear.1", 2, "B B B -> B", "S0 B B -> S0", "S1 B B -> S1", "B S1 S0 -> S2",
             "S2 S0 P -> P");
  SIGNATURES("h.0/attention_packed.1", 4, "B -> B B", "S0 -> S0 S0", "S2 -> S2 S1");
  SIGNATURES("h.0/attention_packed.1", 5, "B -> B B", "S2 -> S2 S1");
  SIGNATURES("h.0/attention_packed.1", 7, "B -> B B");
  SIGNATURES("h.0/gelu.1", 2, "B -> B", "S0 -> S0", "S1 -> S1", "S2 -> S2");
  SIGNATURES("h.0/add.1", 2, "B B -> B", "S0 S0 -> S0", "S1 S1 -> S1", "S2 S2 -> S2", "P P -> P");
  SIGNATURES("head/linear.1", 8, "B B -> B", "S1 B -> S1", "B S0 -> S2", "S2 S1 -> P");
  SIGNATURES("head/cross_entropy.1", 2, "B B -> B B", "S0 S0 -> P S0", "S1 S1 -> P S1",
             "S2 B -> B B");
  free(dims);
  sl_graph_destroy(g);
  g = shipped_graph("gpt", gpt, 2, 3); /* pieces: nothing is split along positions */
  dims = dims_of(g);
  SIGNATURES("embedding/position.1", 2, "B B -> B", "S0 B -> S0", "S2 S1 -> S2", "P P -> P");
  SIGNATURES("h.1/layernorm.2", 2, "B B B -> B B B", "S0 B B -> S0 S0 S0");
  SIGNATURES("h.0/attention_packed.1", 2, "B -> B B B B", "S0 -> S0 S0 S0 S0", "S2 -> S2 S1 S2 S2");
  free(dims);
  sl_graph_destroy(g);
}

static sl_status infer_pair(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  (void)attrs, (void)nin;
  out[0] = in[0];
  return SL_OK;
}
static const sl_op secret = {
    .name = "secret", .min_in = 1, .max_in = 2, .nout = 1, .infer = infer_pair};
static const sl_op open_row = {.name = "open",
                               .min_in = 1,
                               .max_in = 2,
                               .nout = 1,
                               .infer = infer_pair,
                               .cut = &(const sl_op_cut){.pieces = SL_PIECES_ELEMENTS, .whole = 2}};

static void a_row_without_promises_is_everywhere(void) {
  static const sl_type types[] = {{SL_F32, 2, {4, 6}}, {SL_F32, 1, {4}}};
  static const sl_source source = {.nout = 2, .types = types};
  sl_graph *g = sl_graph_create(&(sl_graph_options){.infer = true});
  sl_tensor *x[2];
  sl_data(g, &source, x);
  sl_apply(g, &open_row, NULL, 2, x, 0, x);
  sl_apply(g, &secret, NULL, 1, x, 0, x);
  sl_output(g, "x", x[0]);
  CHECK(!sli_pass_outputs(g), "%s", sl_detail());
  sli_dim *dims = dims_of(g);
  SIGNATURES("main/secret.1", 2, "B -> B");
  SIGNATURES("main/open.1", 2, "B B -> B", "S0 B -> S0", "S1 B -> S1");
  free(dims);
  sl_graph_destroy(g);
}

static void boxing_costs_what_each_device_receives(void) {
  const sl_sbp b = {SL_BROADCAST, 0}, p = {SL_PARTIAL, 0}, s = {SL_SPLIT, 0}, t = {SL_SPLIT, 1};
  CHECK(sli_boxing_bytes(b, s, 4, 64) == 0 && sli_boxing_bytes(b, p, 4, 64) == 0, "cut and kept");
  CHECK(sli_boxing_bytes(s, b, 4, 64) == 48, "all-gather");
  CHECK(sli_boxing_bytes(p, s, 4, 64) == 48, "reduce-scatter");
  CHECK(sli_boxing_bytes(p, b, 4, 64) == 96, "all-reduce");
  CHECK(sli_boxing_bytes(s, t, 4, 64) == 12, "all-to-all");
  CHECK(sli_boxing_bytes(s, s, 4, 64) == 0 && sli_boxing_bytes(p, b, 1, 64) == 0, "nothing");
}

/* ---- the data axis ------------------------------------------------------------------------ */

static void data_is_shared_by_rows_as_far_as_the_loss(void) {
  static const char *const models[] = {"gpt", "llama"};
  for (int m = 0; m < 2; m++)
    for (int pieces = 1; pieces <= 3; pieces += 2) {
      sl_graph *g = shipped_graph(models[m], gpt, 2, pieces);
      sli_dim *dims = dims_of(g);
      sli_choice choice;
      CHECK(!sli_choose_rows(g, dims, &(sli_grid){.size = {3, 1}}, SLI_AXIS_DATA, &choice), "%s",
            sl_detail());
      for (int i = 0; i < g->nnodes; i++) {
        const sli_node *n = g->nodes[i];
        if (!sli_is_forward(n) && n->op != &sl_op_source) continue;
        for (int a = 0; a < n->nin; a++)
          CHECK(choice.signatures[i].in[a].kind == (n->in[a]->param ? SL_BROADCAST : SL_SPLIT) &&
                    !choice.signatures[i].in[a].dim,
                "%s: input %d", n->name, a);
        for (int o = 0; o < n->nout; o++)
          CHECK(choice.signatures[i].out[o].kind ==
                    (n->out[o] == g->loss.tensor ? SL_PARTIAL : SL_SPLIT),
                "%s: output %d", n->name, o);
      }
      for (int p = 0; p < g->nparams; p++)
        CHECK(choice.params[p].kind == SL_BROADCAST, "parameters are everywhere");
      sli_choice_free(&choice);
      free(dims);
      sl_graph_destroy(g);
    }
}

static void what_cannot_be_shared_by_rows_is_named(void) {
  sl_graph *g = shipped_graph("gpt", gpt, 2, 1);
  sli_dim *dims = dims_of(g);
  sli_choice choice;
  CHECK(
      sli_choose_rows(g, dims, &(sli_grid){.size = {5, 1}}, SLI_AXIS_DATA, &choice) == SL_E_USAGE &&
          strstr(sl_detail(),
                 "the data of embedding/source.1 cannot be split over 5 "
                 "devices: its output 0, i32[4, 16], has too few rows"),
      "%s", sl_detail());
  free(dims);
  sl_graph_destroy(g);

  static const sl_type type = {SL_F32, 2, {4, 6}};
  static const sl_source source = {.nout = 1, .types = &type};
  g = sl_graph_create(&(sl_graph_options){.infer = true});
  sl_tensor *x;
  sl_data(g, &source, &x);
  sl_apply(g, &secret, NULL, 1, &x, 0, &x);
  sl_output(g, "x", x);
  CHECK(!sli_pass_outputs(g), "%s", sl_detail());
  dims = dims_of(g);
  CHECK(sli_choose_rows(g, dims, &(sli_grid){.size = {2, 1}}, SLI_AXIS_DATA, &choice) ==
                SL_E_UNSUPPORTED &&
            strstr(sl_detail(),
                   "op main/secret.1 (secret) has no rule for 2 data-parallel devices "
                   "that have source.1 f32[4, 6] split along dim 0: set .cut or .shard"),
        "%s", sl_detail());
  free(dims);
  sl_graph_destroy(g);
}

int main(void) {
  RUN(packed_heads_reach_weight_and_bias, 1);
  RUN(packed_heads_reach_weight_and_bias, 3);
  RUN(queries_have_the_units_of_keys);
  RUN(heads_that_differ_agree_on_coarser_units);
  RUN(segments_that_differ_are_not_shared_out);
  RUN(parts_are_disjoint_and_all_there_is);
  RUN(a_block_can_be_shared_as_its_rows_say);
  RUN(a_row_without_promises_is_everywhere);
  RUN(boxing_costs_what_each_device_receives);
  RUN(data_is_shared_by_rows_as_far_as_the_loss);
  RUN(what_cannot_be_shared_by_rows_is_named);
  return 0;
}
