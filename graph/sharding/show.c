/* SPDX-License-Identifier: Apache-2.0 */
/* Prints a choice as a human-readable table. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "graph/sharding/search.h"

char *sli_signature_format(char out[SLI_SIGNATURE_TEXT], const sli_node *n, const sl_signature *s,
                           bool inputs) {
  int count = SLI_MIN(inputs ? n->nin : n->nout, SL_SIGNATURE_ARGS);
  size_t at = 0;
  *out = 0;
  for (int i = 0; i < count; i++) {
    char text[SLI_SBP_TEXT] = "-";
    if (inputs ? n->in[i] : n->out[i]) sli_sbp_format(text, inputs ? s->in[i] : s->out[i]);
    at += (size_t)snprintf(out + at, SLI_SIGNATURE_TEXT - at, "%s%s", i ? " " : "", text);
  }
  return out;
}

char *sli_seconds_format(char out[SLI_SECONDS_TEXT], double seconds) {
  static const char *const units[] = {"s", "ms", "us", "ns"};
  int u = 0;
  while (u < 3 && seconds < 1 && seconds > 0) seconds *= 1000, u++;
  snprintf(out, SLI_SECONDS_TEXT, "%.*f %s",
           seconds < 10    ? 2
           : seconds < 100 ? 1
                           : 0,
           seconds, units[u]);
  return out;
}

typedef struct table {
  const sl_graph *g;
  int axis;
  const sli_choice *choice;
  const sli_cost *each; /* [nnodes] */
  FILE *out;
} table;

/* Returns "linear.2" of "h.3/linear.2". */
static const char *short_name(const sli_node *n) {
  const char *slash = strchr(n->name, '/');
  return slash ? slash + 1 : n->name;
}

/* True if the node has a row in the table. Along the axis of stages, nodes that are not sharded
 * have none. */
static bool is_row(const table *t, const sli_node *n) {
  return sli_is_shared(n) &&
         !(t->axis == SLI_AXIS_STAGES && sli_is_repeated(&t->choice->signatures[n->id]));
}

/* Returns the first node with a row in the block, at i or later, or -1 if none. */
static int next_in_block(const table *t, int i, int block) {
  for (; i < t->g->nnodes; i++)
    if (is_row(t, t->g->nodes[i]) && t->g->nodes[i]->block == block) return i;
  return -1;
}

static bool same_row(const table *t, int a, int b) {
  const sli_node *n = t->g->nodes[a], *m = t->g->nodes[b];
  char x[2][SLI_SIGNATURE_TEXT], y[2][SLI_SIGNATURE_TEXT];
  if (strcmp(short_name(n), short_name(m))) return false;
  for (int in = 0; in < 2; in++) {
    sli_signature_format(x[in], n, &t->choice->signatures[a], in);
    sli_signature_format(y[in], m, &t->choice->signatures[b], in);
    if (strcmp(x[in], y[in])) return false;
  }
  return true;
}

static bool same_blocks(const table *t, int a, int b) {
  int i = next_in_block(t, 0, a), j = next_in_block(t, 0, b);
  while (i >= 0 && j >= 0) {
    if (!same_row(t, i, j)) return false;
    i = next_in_block(t, i + 1, a);
    j = next_in_block(t, j + 1, b);
  }
  return i < 0 && j < 0;
}

static void print_row(const table *t, int i, const char *block) {
  const sli_node *n = t->g->nodes[i];
  char in[SLI_SIGNATURE_TEXT], out[SLI_SIGNATURE_TEXT], seconds[2][SLI_SECONDS_TEXT], bytes[32];
  sli_signature_format(in, n, &t->choice->signatures[i], true);
  sli_signature_format(out, n, &t->choice->signatures[i], false);
  const sli_cost *cost = &t->each[i];
  fprintf(t->out, "%-18s %-20s %11s -> %-11s %10s", block, short_name(n), in, out,
          sli_seconds_format(seconds[0], cost->compute_seconds));
  if (cost->boxing_bytes > 0)
    fprintf(t->out, " %10s %10s", sli_seconds_format(seconds[1], cost->boxing_seconds),
            sli_format_bytes(bytes, cost->boxing_bytes));
  fputc('\n', t->out);
}

/* Prints a run of equal blocks that starts at `from`; returns the block after the run. */
static int print_blocks(const table *t, int from) {
  int to = from + 1;
  while (to < t->g->nblocks && same_blocks(t, from, to)) to++;
  char *name = to - from > 1
                   ? sli_format("%s .. %s", t->g->blocks[from].name, t->g->blocks[to - 1].name)
                   : sli_strdup(t->g->blocks[from].name);
  const char *label = name;
  for (int i = next_in_block(t, 0, from); i >= 0; i = next_in_block(t, i + 1, from)) {
    print_row(t, i, label);
    label = "";
  }
  free(name);
  return to;
}

static void print_totals(const table *t) {
  char seconds[3][SLI_SECONDS_TEXT], bytes[32];
  const sli_choice *c = t->choice;
  fprintf(t->out, "a microbatch takes a device %s: %s computing, %s boxing (%s received)\n",
          sli_seconds_format(seconds[0], c->seconds),
          sli_seconds_format(seconds[1], c->compute_seconds),
          sli_seconds_format(seconds[2], c->boxing_seconds),
          sli_format_bytes(bytes, c->boxing_bytes));
  if (c->runner_up) fprintf(t->out, "the runner-up has %s\n", c->runner_up);
}

/* Returns the bytes of the largest parameter with a gradient, or 0. */
static double largest_gradient(const sl_graph *g) {
  size_t most = 0;
  for (int p = 0; p < g->nparams; p++)
    if (g->params[p]->ngrads) most = SLI_MAX(most, sl_type_bytes(&g->params[p]->type));
  return (double)most;
}

/* Prints in which form devices sum: the collective, or parts that each reads. */
static void print_forms(const sl_graph *g, const sli_grid *grid, int axis, FILE *out) {
  char seconds[2][SLI_SECONDS_TEXT], bytes[32];
  int size = sli_choice_size(grid, axis);
  double of = largest_gradient(g);
  if (!grid->collectives || sli_is_exact(g) || g->options.serve || size < 2 || of <= 0) return;
  sli_forms forms = sli_exchange_forms(grid, axis, size, SL_PARTIAL, SL_BROADCAST, 1, of);
  fprintf(out, "the sum of %s takes %s as a collective and %s in parts: it is %s\n",
          sli_format_bytes(bytes, of), sli_seconds_format(seconds[0], forms.collective),
          sli_seconds_format(seconds[1], forms.parts),
          forms.collective <= forms.parts ? "a collective" : "in parts");
}

static void print_axis(const sl_graph *g, const sli_dim *dims, const sli_grid *grid, int axis,
                       const sli_choice *choice, FILE *out) {
  sli_costs costs;
  sli_costs_init(&costs, g, dims, grid, axis);
  bool *fixed = sli_calloc((size_t)g->nparams + 1, sizeof *fixed);
  memset(fixed, true, (size_t)g->nparams);
  sli_cost *each = sli_calloc((size_t)g->nnodes + 1, sizeof *each);
  sli_choice copy = *choice;
  costs.chunked = choice->chunked;
  sli_costs_sum(&costs, fixed, &copy, each);
  table t = {g, axis, choice, each, out};
  fprintf(out, "%d devices along the %s axis: B on each, P partial sums, S0 split along dim 0\n",
          sli_choice_size(grid, axis), sli_axes[axis].name);
  fprintf(out, "%-18s %-20s %11s -> %-11s %10s %10s %10s\n", "block", "op", "reads", "gives",
          "compute", "boxing", "received");
  for (int b = 0; b < g->nblocks; b = print_blocks(&t, b)) {}
  if (axis != SLI_AXIS_STAGES) print_totals(&t);
  if (axis != SLI_AXIS_STAGES) print_forms(g, grid, axis, out);
  free(fixed);
  free(each);
  sli_costs_fini(&costs);
}

void sli_choice_print(const sl_graph *g, const sli_grid *grid, const sli_choice choice[SLI_AXES],
                      FILE *out) {
  sli_dim *dims;
  if (sli_dims_find(g, &dims)) return;
  for (int i = 0; i < SLI_AXES; i++)
    if (choice[sli_nesting[i]].signatures)
      print_axis(g, dims, grid, sli_nesting[i], &choice[sli_nesting[i]], out);
  free(dims);
}
