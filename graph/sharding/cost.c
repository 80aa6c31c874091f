/* SPDX-License-Identifier: Apache-2.0 */
/* Cost of a choice of signatures.
 *
 * Calls: each device runs every call on its own part, so the time of a call follows from its op's
 * cost at local shapes: arithmetic or memory traffic, whichever takes longer. The backward pass
 * runs the op's gradient rules at the local shapes of their arguments. If parts are uneven, the
 * largest counts.
 *
 * Boxing: a tensor is converted from its layout to the one that a reader wants, and the gradient
 * from the reader's layout to the one that the producer wants. A reader that repeats the same work
 * on every device returns a whole gradient; a reader that uses a broadcast input for its own part
 * returns a summand. Producers of summands want whole gradients. Within a block, readers share
 * boxed tensors, and gradients in the same layout are added before boxing. A tensor that the
 * backward pass rereads is boxed again, not kept, unless row axes exchange parts for other parts of
 * the same size.
 *
 * Parameters have the layout that their first reader wants. Other work on them and their gradients
 * happens once per step, so its cost and that of the update are divided by the number of
 * microbatches. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "graph/passes/passes.h"
#include "graph/sharding/search.h"
#include "ops/heads.h"
#include "ops/ops.h"

static const sl_sbp broadcast = {SL_BROADCAST, 0};

/* Value of not storing a byte, as a fraction of the time to move it; breaks ties. */
static const double memory_weight = 1e-6;

/* Default device: the rates of the default core, but memory traffic overlaps with arithmetic. */
static const sl_hardware any = {.flops_per_second = 5e10, .bytes_per_second = 1e10};

static const sl_hardware *hardware(const sli_costs *c) {
  return c->grid->hardware ? c->grid->hardware : &any;
}

static double bytes_rate(const sli_costs *c) { return hardware(c)->bytes_per_second; }

double sli_cost_weight(const sli_costs *c, sli_cost cost) {
  return cost.compute_seconds + cost.boxing_seconds +
         cost.memory_bytes * memory_weight / bytes_rate(c);
}

/* ---- construction ------------------------------------------------------------------------- */

void sli_costs_init(sli_costs *c, const sl_graph *g, const sli_dim *dims, const sli_grid *grid,
                    int axis) {
  *c = (sli_costs){
      .g = g, .dims = dims, .grid = grid, .axis = axis, .size = sli_choice_size(grid, axis)};
  c->share = axis == SLI_AXIS_TENSOR ? sli_grid_size(grid, sli_along_data) : 1;
  c->has_rows = sli_calloc((size_t)g->ntensors, sizeof *c->has_rows);
  for (int i = 0; i < g->nnodes; i++) {
    const sli_node *n = g->nodes[i];
    if (!sli_is_shared(n)) continue;
    bool rows = sli_op_is(n->op, SL_OP_SOURCE);
    for (int a = 0; a < n->nin; a++) rows |= n->in[a] && c->has_rows[n->in[a]->id];
    for (int o = 0; o < n->nout; o++)
      if (n->out[o]) c->has_rows[n->out[o]->id] = rows;
  }
}

void sli_costs_fini(sli_costs *c) { free(c->has_rows); }

/* ---- shapes -------------------------------------------------------------------------------- */

static int64_t share_of(int64_t count, int size) { return (count + size - 1) / size; }

/* Returns the tensor's layout along the sequence axis. */
static sl_sbp sequence_of(const sli_costs *c, const sl_tensor *t) {
  if (!c->sequence || !t || !t->producer) return broadcast;
  return sli_signature_out(&c->sequence->signatures[t->producer->id], t->output);
}

/* Returns the type on the device with the largest part. */
static sl_type local_type(const sli_costs *c, const sl_type *whole, const sl_tensor *t,
                          sl_sbp sbp) {
  sl_type type = *whole;
  /* assumes equally many rows per expert */
  if (sbp.kind == SL_DISPATCHED) sbp = (sl_sbp){SL_SPLIT, 0};
  if (sbp.kind == SL_SPLIT) {
    const sli_dim *dim = t ? &c->dims[t->id * SL_MAX_DIMS + sbp.dim] : NULL;
    int64_t units = dim ? dim->units : type.dim[sbp.dim];
    type.dim[sbp.dim] = type.dim[sbp.dim] / units * share_of(units, c->size);
  }
  if (t && c->has_rows[t->id] && type.ndim) type.dim[0] = share_of(type.dim[0], c->share);
  sl_sbp sequence = sequence_of(c, t);
  if (sequence.kind == SL_SPLIT)
    type.dim[sequence.dim] = share_of(type.dim[sequence.dim], c->grid->size[SLI_AXIS_SEQUENCE]);
  if (t && t->narrow) type.dtype = SL_BF16;
  return type;
}

static sl_type gradient_type(sl_type type) {
  if (type.dtype != SL_BF16) type.dtype = SL_F32;
  return type;
}

static double tensor_bytes(const sli_costs *c, const sl_tensor *t) {
  sl_type type = local_type(c, &t->type, t, broadcast);
  return (double)sl_type_bytes(&type);
}

static double gradient_bytes(const sli_costs *c, const sl_tensor *t) {
  sl_type type = gradient_type(local_type(c, &t->type, t, broadcast));
  return (double)sl_type_bytes(&type);
}

/* Arguments of a node on one device. in[] has room for op->max_in types. */
typedef struct local {
  sl_attrs attrs;
  sl_type *in, *out;
} local;

static void localize(const sli_costs *c, const sli_node *n, const sl_signature *s, local *l) {
  for (int i = 0; i < SLI_MAX(n->nin, n->op->max_in); i++)
    l->in[i] = i < n->nin && n->in[i]
                   ? local_type(c, &n->in_type[i], n->in[i], sli_signature_in(s, i))
                   : *sl_tensor_type(NULL);
  for (int o = 0; o < n->nout; o++)
    l->out[o] = local_type(c, &n->out_type[o], n->out[o], sli_signature_out(s, o));
  l->attrs = n->attrs;
  l->attrs.place.partial |= s->first > 0;
  if (!s->heads) return;
  int64_t units = c->dims[n->in[0]->id * SL_MAX_DIMS + s->in[0].dim].units;
  int64_t own = share_of(units, c->size);
  sli_heads_share(&l->attrs, own, units);
}

/* ---- calls --------------------------------------------------------------------------------- */

static double call_seconds(const sli_costs *c, const sl_op *op, const sl_attrs *attrs, int nin,
                           const sl_type *in, int nout, const sl_type *out) {
  const sli_work work = {op, attrs, nin, in, nout, out, 0};
  return sli_work_seconds(hardware(c), &work);
}

static bool wants_gradient(const sli_costs *c, const sl_tensor *t) {
  return !c->g->options.infer && t && t->needs_grad;
}

static bool rule_runs(const sli_costs *c, const sli_node *n, const sl_grad_rule *rule) {
  for (int j = 0; j < sli_rule_gradients(rule, n->nin); j++) {
    int i = sli_rule_of(rule, j);
    if (i < n->nin && wants_gradient(c, n->in[i])) return true;
  }
  return false;
}

static sl_type argument_type(const sli_node *n, const local *l, sl_grad_arg arg) {
  if (arg.kind == SL_ARG_DOUT) return gradient_type(l->out[arg.index]);
  if (arg.kind == SL_ARG_OUT) return l->out[arg.index];
  return arg.index < n->nin ? l->in[arg.index] : *sl_tensor_type(NULL);
}

static double rule_seconds(const sli_costs *c, const sli_node *n, const local *l,
                           const sl_grad_rule *rule) {
  int nin = sli_rule_arguments(rule, n->nin, n->nout),
      ngradients = sli_rule_gradients(rule, n->nin);
  int nout = SLI_MAX(sli_op_outputs(rule->op, &l->attrs, nin), ngradients);
  sl_type in[SLI_MAX(nin, rule->op->max_in) + 1], out[nout];
  for (int i = 0; i < nin; i++)
    in[i] = argument_type(n, l, sli_rule_argument(rule, n->nin, n->nout, i));
  for (int i = nin; i < rule->op->max_in; i++) in[i] = *sl_tensor_type(NULL);
  for (int o = 0; o < nout; o++) {
    int of = o < ngradients ? sli_rule_of(rule, o) : n->nin;
    out[o] = of < n->nin ? gradient_type(l->in[of]) : SL_SCALAR(SL_F32);
  }
  return call_seconds(c, rule->op, &l->attrs, nin, in, nout, out);
}

static double backward_seconds(const sli_costs *c, const sli_node *n, const local *l) {
  double seconds = 0;
  for (int r = 0; r < SL_GRAD_RULES && n->op->grad[r].nwrt; r++)
    if (n->op->grad[r].op && rule_runs(c, n, &n->op->grad[r]))
      seconds += rule_seconds(c, n, l, &n->op->grad[r]);
  return seconds;
}

/* ---- boxing -------------------------------------------------------------------------------- */

/* Returns the seconds that a device works in its own memory for an exchange of `bytes` bytes, or 0
 * if measurements include them. A reduce-scatter reads all summands of the device's part and writes
 * the part; other exchanges read and write everything. */
static double own_seconds(const sli_costs *c, const sli_axis_link *link, sli_half half,
                          double bytes) {
  const sl_hardware *h = c->grid->hardware;
  if (!h || sli_exchange_is_measured(link, half)) return 0;
  double moved = half == SLI_REDUCE_SCATTER ? (c->size + 1.0) / c->size * bytes : 2 * bytes;
  return moved / h->bytes_per_second + h->op_seconds;
}

static double half_seconds(const sli_costs *c, sli_half half, double received, double bytes) {
  const sli_axis_link *link = &c->grid->link[c->axis];
  if (received <= 0) return 0;
  return sli_exchange_seconds(link, half, received) + own_seconds(c, link, half, bytes);
}

static bool is_part(sl_sbp a) { return a.kind == SL_SPLIT || a.kind == SL_DISPATCHED; }

static sli_cost boxing(const sli_costs *c, sl_sbp a, sl_sbp b, double bytes) {
  double moved = sli_boxing_bytes(a, b, c->size, bytes), seconds;
  bool swaps = is_part(a) && is_part(b);
  if (a.kind == SL_PARTIAL && b.kind == SL_BROADCAST)
    seconds = half_seconds(c, SLI_REDUCE_SCATTER, moved / 2, bytes) +
              half_seconds(c, SLI_ALL_GATHER, moved / 2, bytes);
  else if (a.kind == SL_PARTIAL) seconds = half_seconds(c, SLI_REDUCE_SCATTER, moved, bytes);
  else
    seconds = half_seconds(c, swaps ? SLI_ALL_TO_ALL : SLI_ALL_GATHER, moved,
                           swaps ? bytes / c->size : bytes);
  return (sli_cost){.boxing_seconds = seconds, .boxing_bytes = moved};
}

/* ---- a node -------------------------------------------------------------------------------- */

/* Infers the result type of the first of two calls; its shape rule handles only f32. */
static sl_status infer_part(const sli_node *n, const sl_signature *s, const local *l,
                            sl_type *part) {
  int count = SLI_MAX(n->nin, n->op->max_in);
  sl_type in[count + 1];
  for (int i = 0; i < count; i++) {
    in[i] = l->in[i];
    if (i < n->nin) in[i].dtype = n->in_type[i].dtype;
  }
  return s->local->infer(&l->attrs, n->nin, in, part);
}

/* Returns the cost of a call split in two: each device runs the first call on its part, the parts
 * are joined, and the second call runs on the whole. */
static sli_cost two_calls(const sli_costs *c, const sli_node *n, const sl_signature *s,
                          const local *l) {
  sl_type part;
  sl_status status = infer_part(n, s, l, &part);
  SLI_CHECK(!status && part.ndim, "op %s (%s): its row's %s does not fit: %s", n->name, n->op->name,
            s->local->name, sl_detail());
  sl_type all = part;
  all.dim[all.ndim - 1] *= c->size;
  sl_sbp split = {SL_SPLIT, all.ndim - 1};
  sli_cost cost = boxing(c, split, broadcast, (double)sl_type_bytes(&all));
  cost.compute_seconds = call_seconds(c, s->local, &l->attrs, n->nin, l->in, 1, &part) +
                         call_seconds(c, s->joined, &l->attrs, 1, &all, n->nout, l->out);
  return cost;
}

static double kept_bytes(const sli_costs *c, const sl_tensor *t, const sl_type *type, sl_sbp lies) {
  bool rows = lies.kind == SL_SPLIT && !lies.dim && c->has_rows[t->id];
  return (double)sl_type_bytes(type) * (rows && c->rows_last ? 1.5 : 1);
}

/* Returns the boxing cost of ring attention. Chunks arrive while devices compute: once in the
 * forward pass and, with their gradients, twice in the backward pass. Only transfer time that
 * exceeds the computation costs time. kv: bytes of a device's own keys and values. */
static sli_cost rounds_cost(const sli_costs *c, const sli_node *n, double kv, double compute) {
  double seen = n->attrs.attention.full || !c->grid->zigzag ? 1 : 0.75, P = c->size;
  const sli_axis_link *link = &c->grid->link[c->axis];
  sli_cost cost = {.boxing_bytes = 3 * seen * (P - 1) * kv};
  double wire = link->bytes_per_second > 0 ? cost.boxing_bytes / link->bytes_per_second : 0;
  cost.boxing_seconds = SLI_MAX(wire - compute, 0) + 3 * (P - 1) * link->seconds;
  return cost;
}

/* Returns the cost of exchanges by piece: keys and values of a piece are gathered before its
 * queries read them, and their gradients are reduced in the backward pass. */
static sli_cost pieces_cost(const sli_costs *c, double kv) {
  const sl_sbp split = {SL_SPLIT, 1};
  sli_cost cost = boxing(c, split, broadcast, c->size * kv);
  sli_cost_add(&cost, boxing(c, (sl_sbp){SL_PARTIAL, 0}, split, c->size * kv));
  return cost;
}

/* Returns the cost of ring attention on the busiest device. Pairs of queries and keys are balanced,
 * or in a contiguous layout the last device has the most. */
static sli_cost chunks_cost(const sli_costs *c, const sli_node *n, const local *l) {
  double P = c->size, K = c->g->options.pieces;
  double all =
      call_seconds(c, n->op, &l->attrs, n->nin, l->in, n->nout, l->out) + backward_seconds(c, n, l);
  int64_t heads = n->attrs.attention.heads, kv_heads = sli_key_heads(&n->attrs);
  double kv = 2.0 * (double)kv_heads / (double)heads * (double)sl_type_bytes(&l->out[0]) / P;
  bool uneven = !n->attrs.attention.full && !c->grid->zigzag;
  double compute = all / P * (uneven ? (K + 1 - 1 / P) / K : 1);
  sli_cost cost = K > 1 ? pieces_cost(c, kv) : rounds_cost(c, n, kv, compute);
  cost.compute_seconds = compute;
  return cost;
}

/* Returns the cost of exchanging states, on top of the call itself: the records, and the reads of
 * the last device, forward and backward. Each piece has a separate exchange. */
static sli_cost states_cost(const sli_costs *c, const sli_node *n, const local *l) {
  const sl_op *share = &sl_op_linear_attention_share;
  double pieces = !sli_op_keeps_record(n->op) ? SLI_MAX(c->g->options.pieces, 1) : 1;
  sl_type record;
  sl_status status = share->infer(&l->attrs, n->nin, l->in, &record);
  SLI_CHECK(!status, "op %s (%s) has no records: %s", n->name, n->op->name, sl_detail());
  sli_cost cost =
      boxing(c, (sl_sbp){SL_SPLIT, 1}, broadcast, c->size * (double)sl_type_bytes(&record));
  cost.boxing_seconds *= 2 * pieces;
  cost.boxing_bytes *= 2 * pieces;
  cost.compute_seconds = 2 * call_seconds(c, share, &l->attrs, n->nin, l->in, 1, &record);
  return cost;
}

static bool exchanges_states(const sli_costs *c, const sli_node *n, const sl_signature *s) {
  return c->axis == SLI_AXIS_SEQUENCE && sli_has_states(n) && s->in[0].kind == SL_SPLIT &&
         s->in[0].dim == 1;
}

static bool is_chunked(const sli_costs *c, const sli_node *n) {
  return c->chunked && c->chunked[n->id];
}

sli_cost sli_cost_node(const sli_costs *c, const sli_node *n, const sl_signature *s) {
  static const sl_signature whole;
  sl_type in[SLI_MAX(n->nin, n->op->max_in) + 1], out[n->nout + 1];
  local l = {.in = in, .out = out};
  sli_cost cost = {0};
  localize(c, n, is_chunked(c, n) ? &whole : s, &l);
  if (is_chunked(c, n)) return chunks_cost(c, n, &l);
  if (exchanges_states(c, n, s)) cost = states_cost(c, n, &l);
  if (s->local) cost = two_calls(c, n, s, &l);
  else if (!sli_op_is(n->op, SL_OP_SOURCE))
    cost.compute_seconds += call_seconds(c, n->op, &l.attrs, n->nin, in, n->nout, out);
  cost.compute_seconds += backward_seconds(c, n, &l);
  for (int o = 0; o < n->nout; o++)
    if (n->out[o]) cost.memory_bytes += kept_bytes(c, n->out[o], &out[o], sli_signature_out(s, o));
  return cost;
}

/* Returns the cost of summing a device's part of a parameter gradient over the row axes, once per
 * step. */
static sli_cost summing(const sli_costs *c, double bytes) {
  int size = sli_grid_size(c->grid, sli_grid_rows());
  if (sli_axes[c->axis].rows || size == 1 || c->size == 1) return (sli_cost){0};
  const sli_axis_link *link = &c->grid->link[SLI_AXIS_DATA];
  double moved = sli_boxing_bytes((sl_sbp){SL_PARTIAL, 0}, broadcast, size, bytes);
  double seconds = sli_exchange_seconds(link, SLI_REDUCE_SCATTER, moved / 2) +
                   sli_exchange_seconds(link, SLI_ALL_GATHER, moved / 2);
  return (sli_cost){.boxing_seconds = seconds / sli_weighed_microbatches(c->g)};
}

/* Prices an update: it reads and writes the parameter and its moments, and reads the gradient
 * twice. */
sli_cost sli_cost_update(const sli_costs *c, const sl_tensor *param, sl_sbp lies) {
  sl_type type = local_type(c, &param->type, param, lies);
  double bytes = (double)sl_type_bytes(&type);
  sli_cost cost = {.memory_bytes = bytes};
  if (wants_gradient(c, param)) {
    cost = summing(c, bytes);
    cost.compute_seconds = 8 * bytes / bytes_rate(c) / sli_weighed_microbatches(c->g);
    cost.memory_bytes = 4 * bytes;
  }
  return cost;
}

/* ---- reads ------------------------------------------------------------------------------ */

/* True if the backward pass reads input i. Gradient rules of class F run in the forward pass, where
 * the input is present anyway. */
static bool read_again(const sli_costs *c, const sli_node *n, int i) {
  for (int r = 0; r < SL_GRAD_RULES && n->op->grad[r].nwrt; r++) {
    const sl_grad_rule *rule = &n->op->grad[r];
    if (!rule->op || rule->cls == SL_CLASS_F || !rule_runs(c, n, rule)) continue;
    for (int a = 0; a < sli_rule_arguments(rule, n->nin, n->nout); a++) {
      sl_grad_arg arg = sli_rule_argument(rule, n->nin, n->nout, a);
      if (arg.kind == SL_ARG_IN && arg.index == i &&
          !sli_bit_on(sli_op_memory(rule->op)->unread, a))
        return true;
    }
  }
  return false;
}

sli_reading sli_reading_of(const sli_costs *c, const sli_node *n, const sl_signature *s, int i) {
  sl_sbp want = sli_signature_in(s, i), gradient = sli_gradient_given(s, i);
  bool any = wants_gradient(c, n->in[i]);
  return (sli_reading){.want = (uint8_t)sli_sbp_code(want),
                       .gradient = (uint8_t)(any ? sli_sbp_code(gradient) : SLI_SBP_CODES),
                       .again = any && !n->in[i]->param && read_again(c, n, i)};
}

/* Returns the cost of gradients that arrive in these layouts: they are converted to a split layout,
 * if any has one, and added; the total is converted to the wanted layout. */
static sli_cost gradients_cost(const sli_costs *c, unsigned codes, sl_sbp wanted, double bytes) {
  sl_sbp to = wanted;
  if (wanted.kind == SL_BROADCAST && codes >> 2) to = sli_code_sbp(2 + __builtin_ctz(codes >> 2));
  sli_cost cost = {0};
  for (int g = 0; g < SLI_SBP_CODES; g++)
    if (codes >> g & 1) sli_cost_add(&cost, boxing(c, sli_code_sbp(g), to, bytes));
  sli_cost_add(&cost, boxing(c, to, wanted, bytes));
  return cost;
}

static sli_cost times(sli_cost cost, double factor) {
  return (sli_cost){cost.compute_seconds * factor, cost.boxing_seconds * factor,
                    cost.boxing_bytes * factor, cost.memory_bytes * factor};
}

/* Returns the cost of reading a served model's weight: prohibitive unless the reader wants the
 * weight's layout. */
static sli_cost served_reading(const sli_seen *seen, sli_reading r) {
  const double much = 1e6; /* seconds */
  return (sli_cost){.boxing_seconds = seen->layout == r.want ? 0 : much};
}

/* Returns the cost of a parameter's read, once per step; each use has its own gradient. */
static sli_cost param_reading(const sli_costs *c, const sl_tensor *t, sli_reading r,
                              sli_seen *seen) {
  double bytes = tensor_bytes(c, t);
  sl_sbp lies = sli_code_sbp(seen->layout);
  sli_cost cost = {0};
  if (c->g->options.serve) return served_reading(seen, r);
  if (!(seen->forward >> r.want & 1)) cost = boxing(c, lies, sli_code_sbp(r.want), bytes);
  seen->forward |= (uint16_t)(1 << r.want);
  if (r.gradient < SLI_SBP_CODES)
    sli_cost_add(&cost, boxing(c, sli_code_sbp(r.gradient), lies, bytes));
  return times(cost, 1.0 / sli_weighed_microbatches(c->g));
}

/* True for a tensor that must be read in its original layout. */
static bool is_own(const sl_tensor *t) {
  return t->producer && sli_bit(sli_op_cut(t->producer->op)->own, t->output);
}

sli_cost sli_cost_reading(const sli_costs *c, const sl_tensor *t, sli_reading r, sli_seen *seen) {
  if (t->param) return param_reading(c, t, r, seen);
  double bytes = tensor_bytes(c, t);
  sl_sbp lies = sli_code_sbp(seen->layout), want = sli_code_sbp(r.want);
  sli_cost cost = {0};
  uint16_t bit = (uint16_t)(1 << r.want);
  if (is_own(t) && !sli_sbp_equal(lies, want)) return (sli_cost){.boxing_seconds = INFINITY};
  if (!(seen->forward & bit)) cost = boxing(c, lies, want, bytes);
  bool kept = sli_axes[c->axis].rows && is_part(lies) && is_part(want);
  if (r.again && !kept && !(seen->backward & bit))
    sli_cost_add(&cost, boxing(c, lies, want, bytes));
  seen->forward |= bit;
  if (r.again) seen->backward |= bit;
  if (r.gradient >= SLI_SBP_CODES) return cost;
  double sent_back = gradient_bytes(c, t);
  sl_sbp wanted = lies.kind == SL_PARTIAL ? broadcast : lies;
  sli_cost before = gradients_cost(c, seen->gradients, wanted, sent_back);
  seen->gradients |= (uint16_t)(1 << r.gradient);
  sli_cost_add(&cost, gradients_cost(c, seen->gradients, wanted, sent_back));
  sli_cost_add(&cost, times(before, -1));
  return cost;
}

/* ---- totals ------------------------------------------------------------------------------- */

/* Choice that is being priced. */
typedef struct sum {
  const sli_costs *c;
  sli_choice *choice;
  sli_seen *seen; /* [ntensors] */
  bool *met;      /* [nparams] layout is decided */
} sum;

static sli_cost meet_param(sum *s, const sl_tensor *t, sli_reading r) {
  sl_sbp *lies = &s->choice->params[t->param_index];
  if (!s->met[t->param_index]) *lies = sli_code_sbp(sli_param_lies(r.want));
  s->met[t->param_index] = true;
  s->seen[t->id].layout = (uint16_t)sli_sbp_code(*lies);
  return sli_cost_update(s->c, t, *lies);
}

static sli_cost add_node(sum *s, const sli_node *n, bool *read) {
  const sl_signature *way = &s->choice->signatures[n->id];
  sli_cost cost = sli_cost_node(s->c, n, way);
  for (int i = 0; i < n->nin; i++) {
    const sl_tensor *t = n->in[i];
    if (!t) continue;
    sli_reading r = sli_reading_of(s->c, n, way, i);
    if (t->param && !read[t->id]) sli_cost_add(&cost, meet_param(s, t, r));
    read[t->id] = true;
    sli_cost_add(&cost, sli_cost_reading(s->c, t, r, &s->seen[t->id]));
  }
  for (int o = 0; o < n->nout; o++)
    if (n->out[o])
      s->seen[n->out[o]->id].layout = (uint16_t)sli_sbp_code(sli_signature_out(way, o));
  return cost;
}

static void begin_block(const sum *s) {
  for (int t = 0; t < s->c->g->ntensors; t++) s->seen[t].forward = s->seen[t].backward = 0;
}

double sli_costs_sum(const sli_costs *c, const bool *fixed, sli_choice *choice, sli_cost *each) {
  const sl_graph *g = c->g;
  size_t ntensors = (size_t)g->ntensors + 1;
  sum s = {c, choice, sli_calloc(ntensors, sizeof *s.seen),
           sli_calloc((size_t)g->nparams + 1, sizeof *s.met)};
  bool *read = sli_calloc(ntensors, sizeof *read);
  sli_cost total = {0};
  if (fixed) memcpy(s.met, fixed, (size_t)g->nparams * sizeof *fixed);
  for (int i = 0, block = -1; i < g->nnodes; i++) {
    const sli_node *n = g->nodes[i];
    if (!sli_is_shared(n)) continue;
    if (n->cls == SL_CLASS_F && n->block != block) begin_block(&s);
    if (n->cls == SL_CLASS_F) block = n->block;
    sli_cost cost = add_node(&s, n, read);
    sli_cost_add(&total, cost);
    if (each) each[i] = cost;
  }
  choice->compute_seconds = total.compute_seconds;
  choice->boxing_seconds = total.boxing_seconds;
  choice->boxing_bytes = total.boxing_bytes;
  choice->seconds = total.compute_seconds + total.boxing_seconds;
  free(s.seen);
  free(s.met);
  free(read);
  return sli_cost_weight(c, total);
}
