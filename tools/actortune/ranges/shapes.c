/* SPDX-License-Identifier: Apache-2.0 */
/* Ops of a model's layers: products that read the same rows are one op, attention is one for rows
 * of answers and one for rows of prompts, and what the devices exchange is one after each product
 * whose results they sum. Costs follow NanoFlow (Zhu et al., arXiv 2408.12757): arithmetic, bytes
 * read and written, and bytes exchanged, each over the rate of all devices together. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "graph/graph.h"
#include "ops/facets.h"
#include "tools/actortune/ranges/ranges.h"

enum { BYTES = 2 }; /* of an element, in 16 bits */

static int64_t width_of(const sl_type *type) { return type->dim[type->ndim - 1]; }

static bool is_product(const sli_node *n) { return sli_op_weight(n->op) == SL_WEIGHT_PRODUCT; }
/* Attention that keeps pages of keys and values, not states. */
static bool is_attention(const sli_node *n) {
  const sl_op_serve *serve = sli_op_serve(n->op);
  return !is_product(n) && serve->op && !serve->slots && sli_op_memory(serve->op)->updates;
}

/* Returns the width of an attention's keys: of an input of their own, or packed with the others. */
static double key_width(const sli_node *n) {
  if (n->nin > 1 && n->in[1]) return (double)width_of(&n->in_type[1]);
  return (double)(width_of(&n->in_type[0]) - width_of(&n->out_type[0])) / 2;
}

/* Formats the name of a product: "q" for a weight "model.layers.0.self_attn.q_proj.weight". */
static const char *short_name(const sli_node *n, char out[32]) {
  const char *name = n->in[1]->name, *end = strrchr(name, '.');
  if (!end || strcmp(end, ".weight") != 0) end = name + strlen(name);
  const char *at = end;
  while (at > name && at[-1] != '.') at--;
  if (end - at > 5 && !memcmp(end - 5, "_proj", 5)) end -= 5;
  snprintf(out, 32, "%.*s", (int)SLI_MIN(end - at, 31), at);
  return out;
}

static range_op *add_op(range_work *w, const char *name, op_rows rows) {
  range_op *op = &w->ops[w->nops++];
  *op = (range_op){.rows = rows};
  snprintf(op->name, sizeof op->name, "%s", name);
  return op;
}

/* Sets the columns of an op: operations and bytes of one layer. */
static void set_columns(const range_work *w, range_op *op, double flops, double bytes,
                        double exchanged) {
  const sl_hardware *h = w->hardware;
  double devices = w->devices, layers = w->layers;
  op->seconds[SL_RESOURCE_COMPUTE] = layers * flops / (devices * h->flops_per_second);
  op->seconds[SL_RESOURCE_MEMORY] = layers * bytes / (devices * h->bytes_per_second);
  op->seconds[SL_RESOURCE_NETWORK] = layers * exchanged / (devices * h->host_link.bytes_per_second);
  for (int r = 0; r < SL_RESOURCES; r++)
    if (op->seconds[r] > op->seconds[op->resource]) op->resource = (sl_resource)r;
}

/* Adds the attentions: a row of an answer sees the prompt and half the answer, a row of a prompt
 * the prompt, whose keys and values are read once. */
static void add_attentions(range_work *w, const sli_node *n) {
  double q = (double)width_of(&n->out_type[0]), kv = key_width(n),
         seen = w->prompt + w->answer / 2.0, answers = w->rows - w->prompt_rows;
  range_op *op = add_op(w, "attention", ROWS_ANSWERS);
  set_columns(w, op, 4 * answers * seen * q, answers * ((seen + 1) * 2 * kv + 2 * q) * BYTES, 0);
  op = add_op(w, "prompts", ROWS_PROMPTS);
  op->beside = true;
  set_columns(w, op, 4 * w->prompt_rows * w->prompt * q, w->prompt_rows * (2 * kv + 2 * q) * BYTES,
              0);
}

/* Adds the products of a block that read the same tensor as this one, from it on. */
static void add_products(range_work *w, const sl_graph *g, const sli_node *first, int block) {
  double in = (double)width_of(&first->in_type[0]), out = 0;
  char name[64] = "";
  for (int i = 0; i < g->nnodes; i++) {
    const sli_node *n = g->nodes[i];
    if (n->block != block || !is_product(n) || n->in[0] != first->in[0]) continue;
    out += (double)width_of(&n->out_type[0]);
    size_t at = strlen(name);
    char own[32];
    snprintf(name + at, sizeof name - at, "%s%s", at ? "+" : "", short_name(n, own));
  }
  w->parameters += w->layers * in * out;
  int same = 1;
  size_t chars = strlen(name);
  for (int i = 0; i < w->nops; i++)
    same += !strncmp(w->ops[i].name, name, chars) && strchr(".", w->ops[i].name[chars]);
  if (same > 1) snprintf(name + strlen(name), sizeof name - strlen(name), ".%d", same);
  range_op *op = add_op(w, name, ROWS_ALL);
  set_columns(w, op, 2 * w->rows * in * out, (in * out + w->rows * (in + out)) * BYTES, 0);
  op->least = in * out * BYTES / (w->devices * w->hardware->bytes_per_second);
}

/* Adds an exchange of a tick's rows: an all-reduce among the devices. */
static void add_exchange(range_work *w, double width) {
  if (w->devices < 2) return;
  set_columns(w, add_op(w, "exchange", ROWS_ALL), 0, 0,
              2 * (w->devices - 1.0) * w->rows * width * BYTES);
}

static bool is_first_reader(const sl_graph *g, const sli_node *n, int i) {
  for (int k = 0; k < i; k++)
    if (g->nodes[k]->block == n->block && is_product(g->nodes[k]) && g->nodes[k]->in[0] == n->in[0])
      return false;
  return true;
}

/* Counts of a block's ops. */
typedef struct block_ops {
  int products, attentions, others; /* others: products of experts */
} block_ops;

static block_ops count_block(const sl_graph *g, int block) {
  block_ops n = {0};
  for (int i = 0; i < g->nnodes; i++) {
    if (g->nodes[i]->block != block) continue;
    n.products += is_product(g->nodes[i]) && is_first_reader(g, g->nodes[i], i);
    n.attentions += is_attention(g->nodes[i]);
    n.others += sli_op_weight(g->nodes[i]->op) == SL_WEIGHT_EXPERTS;
  }
  return n;
}

/* Finds a layer, and counts the layers, which must be alike. One block after them may have products
 * and no attention: the classifier. */
static sl_status find_layer(const sl_graph *g, range_work *w, int *layer) {
  int products = 0, without = 0;
  for (int b = 0; b < sli_blocks_in_line(g); b++) {
    block_ops n = count_block(g, b);
    without += n.products && !n.attentions;
    if (n.others)
      return sl_fail(SL_E_USAGE, "block %s has experts, whose rows cannot be cut yet",
                     g->blocks[b].name);
    if (without > 1 || n.attentions > 1 || n.products > RANGES_OPS - 4 ||
        (n.attentions && w->layers && n.products != products))
      return sl_fail(SL_E_USAGE,
                     "block %s has %d products and %d attentions: all layers must be alike, with "
                     "one attention",
                     g->blocks[b].name, n.products, n.attentions);
    if (!n.attentions) continue;
    products = n.products;
    if (!w->layers++) *layer = b;
  }
  if (w->layers) return SL_OK;
  return sl_fail(SL_E_USAGE, "the model has no layer with attention, so there is nothing to cut");
}

/* Devices sum the results of two products: the one after attention, and the last. */
static void add_layer(range_work *w, const sl_graph *g, int layer) {
  bool attended = false;
  int products = count_block(g, layer).products, nth = 0;
  for (int i = 0; i < g->nnodes; i++) {
    const sli_node *n = g->nodes[i];
    if (n->block != layer) continue;
    if (is_attention(n)) add_attentions(w, n), attended = true;
    if (!is_product(n) || !is_first_reader(g, n, i)) continue;
    add_products(w, g, n, layer);
    nth++;
    if (attended || nth == products) add_exchange(w, (double)width_of(&n->out_type[0]));
    attended = false;
  }
}

sl_status ranges_shapes(const settings *s, range_work *w) {
  sl_graph *g = NULL;
  int layer = 0;
  sl_status status = plan_graph(s, &g);
  if (!status) status = find_layer(g, w, &layer);
  if (!status) add_layer(w, g, layer);
  sl_graph_destroy(g);
  return status;
}

double range_seconds(const range_op *op) {
  return op->measured > 0 ? op->measured : op->seconds[op->resource];
}

/* Sets the seconds of all ops with a name; several share them. */
static bool set_measured(range_work *w, const char *name, double seconds) {
  int same = 0;
  for (int i = 0; i < w->nops; i++) same += !strcmp(w->ops[i].name, name);
  for (int i = 0; i < w->nops; i++)
    if (!strcmp(w->ops[i].name, name)) w->ops[i].measured = seconds / same;
  return same;
}

sl_status ranges_measured(range_work *w, const char *text) {
  for (const char *at = text; *at;) {
    size_t chars = strcspn(at, "=");
    char name[64], *end = NULL;
    snprintf(name, sizeof name, "%.*s", (int)SLI_MIN(chars, sizeof name - 1), at);
    double seconds = at[chars] ? strtod(at + chars + 1, &end) : 0;
    if (!end || end == at + chars + 1 || !(seconds > 0 && seconds < 1e6) || (*end && *end != ','))
      return sl_fail(SL_E_USAGE, "--measured %s: not a list of seconds such as down=0.035", text);
    if (!set_measured(w, name, seconds)) {
      char known[512] = "";
      for (int i = 0; i < w->nops; i++)
        snprintf(known + strlen(known), sizeof known - strlen(known), "%s%s", i ? ", " : "",
                 w->ops[i].name);
      return sl_fail(SL_E_USAGE, "--measured: a layer has no op %s, but %s", name, known);
    }
    at = end + (*end == ',');
  }
  return SL_OK;
}
