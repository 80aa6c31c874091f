/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the structure of tensor dims, which determines how they may be split.
 *
 * A signature that splits several arrays of a call ties their dims together: member m runs on its
 * part of each array, so the parts must consist of the same units. Dims that signatures of any
 * forward node tie together form a class. A class has one number of units. It divides the length of
 * each segment of each dim in the class, and the number of heads of nodes that work head by head.
 * If tied dims have different lengths (queries and keys), a unit has a different length in each.
 *
 * Tied dims of equal length also share their segments: the output of a linear layer for packed
 * attention consists of queries, keys and values, and so do its weight's rows and its bias. Only
 * attention combines arguments with different segments; it declares them.
 *
 * If sequences are cut into pieces, the tensor axis does not split the sequence dim: its class has
 * one unit. */
#include <stdlib.h>
#include <string.h>

#include "graph/sharding/search.h"
#include "ops/heads.h"
#include "ops/ops.h"

/* A slot is a dim of a tensor: id * SL_MAX_DIMS + dim. */
typedef struct pass {
  const sl_graph *g;
  int nslots;
  int *tied, *alike; /* parents in two union-find forests of slots */
  sli_dim *segments; /* [slots] at roots of `alike`: declared segments; nsegments 0: none
                        declared */
  int64_t *units;    /* [slots] at roots of `tied`; 0: none declared */
  bool *cut;         /* [slots] at roots of `tied`: cut into pieces */
  bool *heads;       /* [slots] at roots of `tied`: some node splits the dim by heads */
} pass;

static int dims_find(int *parents, int slot) {
  while (parents[slot] != slot) slot = parents[slot] = parents[parents[slot]];
  return slot;
}

static void unite(int *parents, int a, int b) {
  a = dims_find(parents, a);
  b = dims_find(parents, b);
  parents[SLI_MAX(a, b)] = SLI_MIN(a, b);
}

static int slot_of(const sl_tensor *t, int dim) { return t->id * SL_MAX_DIMS + dim; }

static int64_t slot_length(const pass *p, int slot) {
  return p->g->tensors[slot / SL_MAX_DIMS]->type.dim[slot % SL_MAX_DIMS];
}

/* ---- classes ------------------------------------------------------------------------------- */

static sl_heads heads_in(const sli_node *n) { return sli_op_shard(n->op)->heads; }

/* Lists the slots that a signature splits; returns their number. */
static int split_slots(const sli_node *n, const sl_signature *s, int *slots) {
  int count = 0;
  for (int i = 0; i < n->nin; i++) {
    sl_sbp sbp = sli_signature_in(s, i);
    if (n->in[i] && sbp.kind == SL_SPLIT) slots[count++] = slot_of(n->in[i], sbp.dim);
  }
  for (int o = 0; o < n->nout; o++) {
    sl_sbp sbp = sli_signature_out(s, o);
    if (n->out[o] && sbp.kind == SL_SPLIT) slots[count++] = slot_of(n->out[o], sbp.dim);
  }
  return count;
}

static void tie(pass *p, const sli_node *n, const sl_signature *s) {
  int slots[n->nin + n->nout + 1], count = split_slots(n, s, slots);
  for (int i = 1; i < count; i++) {
    unite(p->tied, slots[0], slots[i]);
    for (int j = 0; j < i && !heads_in(n); j++)
      if (slot_length(p, slots[i]) == slot_length(p, slots[j])) unite(p->alike, slots[i], slots[j]);
  }
}

/* True for a parameter, or a tensor computed from parameters alone. */
static bool is_weight(const sl_tensor *t) {
  const sli_node *n = t->producer;
  bool weight = t->param || (n && sli_is_forward(n) && n->nin);
  for (int i = 0; i < (t->param ? 0 : n ? n->nin : 0) && weight; i++)
    weight = !n->in[i] || is_weight(n->in[i]);
  return weight;
}

static void tie_alike(pass *p, const sl_tensor *a, const sl_tensor *b) {
  for (int d = 0; d < SLI_MIN(a->type.ndim, b->type.ndim); d++) {
    unite(p->tied, slot_of(a, d), slot_of(b, d));
    unite(p->alike, slot_of(a, d), slot_of(b, d));
  }
}

/* Ties a weight to the result of an op whose gradient is the identity, which is then the gradient
 * of both. */
static void tie_identities(pass *p, const sli_node *n) {
  for (int r = 0; r < SL_GRAD_RULES && n->op->grad[r].nwrt && sli_is_forward(n); r++) {
    const sl_grad_rule *rule = &n->op->grad[r];
    for (int j = 0; j < sli_rule_gradients(rule, n->nin) && !rule->op; j++) {
      const sl_tensor *in = n->in[sli_rule_of(rule, j)];
      if (in && is_weight(in) && n->out[0]) tie_alike(p, in, n->out[0]);
    }
  }
}

/* Ties a running statistic to the value that it averages, of which a device adds its part. */
static void tie_statistics(pass *p) {
  for (int i = 0; i < p->g->nparams; i++)
    if (p->g->params[i]->running) tie_alike(p, p->g->params[i], p->g->params[i]->running->value);
}

static void tie_all(pass *p) {
  sl_signature all[SLI_SIGNATURES_RAW];
  for (int i = 0; i < p->g->nnodes; i++) {
    const sli_node *n = p->g->nodes[i];
    int count = sli_signatures_raw(n, all);
    for (int s = 0; s < count; s++) tie(p, n, &all[s]);
    tie_identities(p, n);
  }
  tie_statistics(p);
}

/* ---- declarations by nodes --------------------------------------------------------------- */

static void say_units(pass *p, int slot, int64_t units) {
  int64_t *at = &p->units[dims_find(p->tied, slot)];
  *at = sli_common_divisor(units, *at);
}

/* Declares the segments of a tensor's last dim. Conflicting declarations prevent a split. */
static void say_segments(pass *p, const sl_tensor *t, int count, const int64_t *lengths) {
  if (!t || !t->type.ndim) return;
  int slot = slot_of(t, t->type.ndim - 1);
  sli_dim *at = &p->segments[dims_find(p->alike, slot)], said = {.nsegments = count};
  memcpy(said.segment, lengths, (size_t)count * sizeof *lengths);
  if (!at->nsegments) *at = said;
  else if (memcmp(at, &said, sizeof said)) say_units(p, slot, 1);
}

/* Declares a dim of keys followed by values. */
static void say_keys(pass *p, const sl_tensor *t, int64_t keys) {
  say_segments(p, t, 2, (int64_t[]){keys, keys});
}

static void say_sweep(pass *p, const sli_node *n) {
  int64_t queries = sl_type_last(&n->out_type[0]), keys = sl_type_last(&n->in_type[1]) / 2;
  say_segments(p, n->in[0], 1, &queries);
  say_keys(p, n->in[1], keys);
  say_segments(p, n->out[0], 1, &queries);
  say_keys(p, n->out[2], keys);
}

static void say_attention(pass *p, const sli_node *n) {
  int64_t heads = n->attrs.attention.heads, kv_heads = sli_key_heads(&n->attrs);
  int64_t queries = sl_type_last(&n->out_type[0]), keys = queries / heads * kv_heads;
  bool packed = heads_in(n) == SL_HEADS_PACKED;
  if (packed) say_segments(p, n->in[0], 3, (int64_t[]){queries, keys, keys});
  for (int i = 0; i < 3 && !packed; i++)
    say_segments(p, n->in[i], 1, (int64_t[]){sl_type_last(&n->in_type[i])});
  say_segments(p, n->out[0], 1, &queries);
  if (sli_op_shard(n->op)->joins) say_keys(p, n->out[1], keys);
  if (n->nout > 2) say_keys(p, n->out[2], keys);
  if (packed && n->nout > 3) say_segments(p, n->out[3], 1, &queries);
}

static void say_heads(pass *p, const sli_node *n, const sl_signature *s) {
  int64_t heads = sli_key_heads(&n->attrs);
  if (!s->heads || s->in[0].kind != SL_SPLIT) return;
  int slot = slot_of(n->in[0], s->in[0].dim);
  say_units(p, slot, heads);
  p->heads[dims_find(p->tied, slot)] = true;
}

static void say_position(pass *p, const sl_tensor *t, int dim) {
  if (!t || dim >= t->type.ndim) return;
  say_units(p, slot_of(t, dim), 1);
  p->cut[dims_find(p->tied, slot_of(t, dim))] = true;
}

/* Declares the sequence dims: those that grow with the number of positions. */
static void say_positions(pass *p, const sli_node *n) {
  int ntypes = SLI_MAX(n->nin, n->op->max_in);
  sl_type in[ntypes + 1], out[n->nout + 1];
  memcpy(in, n->in_type, (size_t)ntypes * sizeof *in);
  for (int i = 0; i < n->nin; i++) {
    if (!n->in[i] || in[i].ndim < 2 || sli_bit(sli_op_cut(n->op)->whole, i)) continue;
    say_position(p, n->in[i], 1);
    in[i].dim[1]++;
  }
  bool known = !n->op->infer(&n->attrs, n->nin, in, out);
  for (int o = 0; o < n->nout; o++)
    for (int d = 0; d < n->out_type[o].ndim; d++)
      if (!known || out[o].dim[d] != n->out_type[o].dim[d]) say_position(p, n->out[o], d);
}

static void say_source(pass *p, const sli_node *n) {
  const sl_source *source = n->attrs.user;
  for (int o = 0; o < n->nout; o++) say_position(p, n->out[o], source->cut - 1);
}

static void say_cut(pass *p, const sli_node *n) {
  sl_pieces pieces = sli_op_cut(n->op)->pieces;
  if (sli_op_is(n->op, SL_OP_SOURCE)) say_source(p, n);
  if (pieces == SL_PIECES_POSITIONS || pieces == SL_PIECES_STATE) say_positions(p, n);
}

/* Declares the rows of a serving tick, which no device of the tensor axis shares. */
static void say_ticks(pass *p, const sli_node *n) {
  for (int o = 0; o < n->nout; o++)
    for (int d = 0; n->out[o] && d < SLI_MIN(n->out_type[o].ndim, 2); d++)
      say_position(p, n->out[o], d);
}

static void say_all(pass *p) {
  sl_signature all[SLI_SIGNATURES_RAW];
  for (int i = 0; i < p->g->nnodes; i++) {
    const sli_node *n = p->g->nodes[i];
    if (!sli_is_shared(n)) continue;
    if (heads_in(n) == SL_HEADS_JOINED) say_sweep(p, n);
    else if (heads_in(n)) say_attention(p, n);
    if (p->g->cut.nvariants) say_cut(p, n);
    if (p->g->options.serve) say_ticks(p, n);
    int count = sli_signatures_raw(n, all);
    for (int s = 0; s < count; s++) say_heads(p, n, &all[s]);
  }
}

/* Prevents splitting a dim with several segments together with a dim of another length, whose units
 * are arranged differently. */
static void say_uneven(pass *p, const sli_node *n, const sl_signature *s) {
  int slots[n->nin + n->nout + 1], count = split_slots(n, s, slots);
  for (int i = 0; i < count; i++)
    for (int j = 0; j < count; j++)
      if (slot_length(p, slots[i]) != slot_length(p, slots[j]) &&
          p->segments[dims_find(p->alike, slots[i])].nsegments > 1)
        say_units(p, slots[i], 1);
}

static void say_all_uneven(pass *p) {
  sl_signature all[SLI_SIGNATURES_RAW];
  for (int i = 0; i < p->g->nnodes; i++) {
    const sli_node *n = p->g->nodes[i];
    if (heads_in(n)) continue;
    int count = sli_signatures_raw(n, all);
    for (int s = 0; s < count; s++) say_uneven(p, n, &all[s]);
  }
}

/* ---- the result ---------------------------------------------------------------------------- */

static sli_dim dim_of(pass *p, int slot) {
  int64_t length = slot_length(p, slot);
  sli_dim dim = p->segments[dims_find(p->alike, slot)];
  int64_t sum = 0;
  for (int s = 0; s < dim.nsegments; s++) sum += dim.segment[s];
  if (sum != length) dim = (sli_dim){.nsegments = 1, .segment = {length}};
  return dim;
}

static void fill_dims(pass *p, sli_dim *out) {
  for (int t = 0; t < p->g->ntensors; t++)
    for (int d = 0; d < p->g->tensors[t]->type.ndim; d++) {
      int slot = t * SL_MAX_DIMS + d;
      out[slot] = dim_of(p, slot);
      for (int s = 0; s < out[slot].nsegments; s++) say_units(p, slot, out[slot].segment[s]);
    }
  for (int slot = 0; slot < p->nslots; slot++)
    if (out[slot].nsegments) {
      out[slot].units = p->units[dims_find(p->tied, slot)];
      out[slot].cut = p->cut[dims_find(p->tied, slot)];
      out[slot].heads = p->heads[dims_find(p->tied, slot)];
    }
}

/* Copies the structure of parameters to their gradients. */
static void fill_gradients(const sl_graph *g, sli_dim *out) {
  for (int i = 0; i < g->nparams; i++)
    for (int u = 0; u < g->params[i]->ngrads; u++)
      memcpy(&out[slot_of(g->params[i]->grads[u], 0)], &out[slot_of(g->params[i], 0)],
             SL_MAX_DIMS * sizeof *out);
}

sl_status sli_dims_find(const sl_graph *g, sli_dim **out) {
  pass p = {.g = g, .nslots = g->ntensors * SL_MAX_DIMS};
  size_t n = (size_t)p.nslots;
  p.tied = sli_calloc(n, sizeof *p.tied);
  p.alike = sli_calloc(n, sizeof *p.alike);
  p.segments = sli_calloc(n, sizeof *p.segments);
  p.units = sli_calloc(n, sizeof *p.units);
  p.cut = sli_calloc(n, sizeof *p.cut);
  p.heads = sli_calloc(n, sizeof *p.heads);
  for (int i = 0; i < p.nslots; i++) p.tied[i] = p.alike[i] = i;
  tie_all(&p);
  say_all(&p);
  say_all_uneven(&p);
  sli_dim *dims = sli_calloc(n, sizeof *dims);
  fill_dims(&p, dims);
  fill_gradients(g, dims);
  free(p.tied);
  free(p.alike);
  free(p.segments);
  free(p.units);
  free(p.cut);
  free(p.heads);
  *out = dims;
  return SL_OK;
}

sl_part sli_dim_part(const sli_dim *dims, int dim, int size, int member) {
  const sli_dim *d = &dims[dim];
  sl_part part = {.axis = dim, .nranges = d->nsegments};
  int64_t from = d->units * member / size, to = d->units * (member + 1) / size;
  int64_t begin = 0;
  for (int s = 0; s < d->nsegments; s++) {
    int64_t unit = d->segment[s] / d->units;
    part.begin[s] = begin + from * unit;
    part.count[s] = (to - from) * unit;
    begin += d->segment[s];
  }
  return part;
}
