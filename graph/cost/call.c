/* SPDX-License-Identifier: Apache-2.0 */
/* Duration of a call: from its row in the machine file, else from arithmetic and memory traffic. */
#include "graph/cost/cost.h"

#include <math.h>
#include <string.h>

#include "base/base.h"
#include "ops/heads.h"
#include "ops/ops.h"
#include "ops/storage.h"

/* Default core with conservative rates; memory traffic does not overlap with arithmetic. */
const sl_hardware sli_default_core = {
    .flops_per_second = 5e10, .bytes_per_second = 1e10, .in_turn = true};

/* Gets flops and bytes from the op's cost function or, without one, counts the bytes of its
 * arguments, without state that it updates. */
static void amount_of(const sli_work *w, double *flops, double *bytes) {
  *flops = *bytes = 0;
  if (w->op->cost) {
    w->op->cost(w->attrs, w->nin, w->in, w->out, flops, bytes);
    return;
  }
  for (int i = 0; i < w->nin; i++)
    if (w->in[i].ndim >= 0) *bytes += (double)sl_type_bytes(&w->in[i]);
  for (int o = 0; o < w->nout; o++)
    if (!((w->left_out | sli_op_memory(w->op)->updates) >> o & 1))
      *bytes += (double)sl_type_bytes(&w->out[o]);
}

/* ---- sizes of a call ---------------------------------------------------------------------- */

static double last(const sl_type *t) { return t->ndim > 0 ? (double)t->dim[t->ndim - 1] : 1; }
static double rows(const sl_type *t) { return (double)sl_type_elements(t) / last(t); }
static double positions(const sl_type *t) { return t->ndim > 1 ? (double)t->dim[t->ndim - 2] : 1; }

/* Returns the number of heads over all sequences. */
static double heads(const sli_work *w) {
  return rows(&w->out[0]) / positions(&w->out[0]) * SLI_MAX(sli_count_heads(w->attrs), 1);
}

static double depth(const sli_work *w) {
  double flops, bytes;
  amount_of(w, &flops, &bytes);
  return flops / 2 / (double)sl_type_elements(&w->out[0]);
}

/* Returns the experts of a call whose third input is their weights. */
static double experts(const sli_work *w) {
  return w->nin > 2 && w->in[2].ndim == 3 ? (double)w->in[2].dim[0] : 1;
}

double sli_work_along(const sl_hardware *h, const sli_work *w, sl_curve_axis axis) {
  const sl_type *t = &w->out[0];
  double flops, bytes;
  switch (axis) {
  case SL_CURVE_M: return rows(t);
  case SL_CURVE_N: return last(t);
  case SL_CURVE_K: return depth(w);
  case SL_CURVE_POSITIONS: return positions(t);
  case SL_CURVE_HEAD: return last(t) / SLI_MAX(sli_count_heads(w->attrs), 1);
  case SL_CURVE_DEVICES: return h->busy;
  case SL_CURVE_EXPERTS: return experts(w);
  default: break;
  }
  amount_of(w, &flops, &bytes);
  return axis == SL_CURVE_FLOPS ? flops : axis == SL_CURVE_BYTES ? bytes : 1;
}

/* ---- row of a call -------------------------------------------------------------------------- */

const char *const sli_traits[SLI_TRAITS] = {[SLI_TRAIT_TRANSPOSED] = "transposed",
                                            [SLI_TRAIT_PAGES] = "pages",
                                            [SLI_TRAIT_BF16] = "bf16",
                                            [SLI_TRAIT_Q8_0] = "Q8_0",
                                            [SLI_TRAIT_Q4_1] = "Q4_1"};

static bool has_whole_pages(const sli_work *w) {
  enum { PAGE = 4096 };
  bool any = false;
  for (int i = 0; i < w->nin; i++) {
    const sl_type *t = &w->in[i];
    any |= t->ndim > 0 && t->dim[t->ndim - 1] * (int64_t)sl_dtype_bytes(t->dtype) % PAGE == 0;
  }
  return any;
}

/* Returns true if a served product's weights have the format. */
static bool is_stored(const sli_work *w, sl_storage storage) {
  return w->op == &sl_op_linear_served && sli_storage_of(w->attrs, &w->in[1]) == storage;
}

bool sli_work_has(const sli_work *w, sli_trait trait) {
  switch (trait) {
  case SLI_TRAIT_TRANSPOSED: return w->attrs->product.transposed != 0;
  case SLI_TRAIT_PAGES: return has_whole_pages(w);
  case SLI_TRAIT_BF16: return is_stored(w, SL_STORAGE_BF16);
  case SLI_TRAIT_Q8_0:
    return is_stored(w, SL_STORAGE_Q8_0) || is_stored(w, SL_STORAGE_Q6_K) ||
           is_stored(w, SL_STORAGE_Q5_K) || is_stored(w, SL_STORAGE_Q3_K);
  case SLI_TRAIT_Q4_1: return is_stored(w, SL_STORAGE_Q4_1) || is_stored(w, SL_STORAGE_Q4_K);
  default: return false;
  }
}

/* Returns whether the call has the trait that the row is restricted to. */
static bool fits(const char *trait, const sli_work *w) {
  for (int t = 0; t < SLI_TRAITS; t++)
    if (!strcmp(trait, sli_traits[t])) return sli_work_has(w, (sli_trait)t);
  return false;
}

const sl_hardware_row *sli_work_row(const sl_hardware *h, const sli_work *w) {
  const sl_hardware_row *found = NULL;
  size_t chars = strlen(w->op->name);
  for (int i = 0; i < h->nrows; i++) {
    const char *row = h->rows[i].op;
    if (strncmp(row, w->op->name, chars)) continue;
    if (row[chars] ? row[chars] == '.' && fits(row + chars + 1, w) : !found) found = &h->rows[i];
  }
  return found;
}

/* ---- time ------------------------------------------------------------------------------------ */

/* Returns the seconds from a curve. Attention curves are measured per head. */
static double curve_seconds(const sl_hardware *h, const sl_curve *c, const sli_work *w) {
  double x[SL_CURVE_DIMS], times = 1;
  for (int d = 0; d < c->ndims; d++) {
    x[d] = SLI_MAX(sli_work_along(h, w, c->axis[d]), 1);
    if (c->axis[d] == SL_CURVE_POSITIONS) times = heads(w);
  }
  return times * sli_curve_at(c, x);
}

/* Returns the flops of all tiles, rounded up to whole tiles and whole rounds of concurrent
 * tiles. */
static double tiled_flops(const sl_hardware_row *r, const sli_work *w) {
  double tiles = ceil(rows(&w->out[0]) / r->tile_m) * ceil(last(&w->out[0]) / r->tile_n);
  double at_once = SLI_MAX(r->tiles_at_once, 1);
  return ceil(tiles / at_once) * at_once * r->tile_m * r->tile_n * 2 * (depth(w) + r->tile_k);
}

double sli_roofline_seconds(const sl_hardware *h, const sl_hardware_row *r, double flops,
                            double bytes) {
  if (r && r->flops_factor > 0) flops *= r->flops_factor;
  double rate = r && r->flops_per_second > 0 ? r->flops_per_second : h->flops_per_second,
         arithmetic = flops / rate, traffic = bytes / h->bytes_per_second;
  return (h->in_turn || (r && r->in_turn) ? arithmetic + traffic : SLI_MAX(arithmetic, traffic)) +
         h->op_seconds;
}

/* Returns the seconds of an op that reads from disk, on hardware that says how fast that is. */
static double load_seconds(const sl_hardware *h, const sli_work *w) {
  double flops, bytes;
  amount_of(w, &flops, &bytes);
  return bytes / h->disk_read_bytes_per_second;
}

double sli_work_seconds(const sl_hardware *h, const sli_work *w) {
  if (!h) h = &sli_default_core;
  if (sli_op_is(w->op, SL_OP_LOADS) && h->disk_read_bytes_per_second > 0) return load_seconds(h, w);
  const sl_hardware_row *r = sli_work_row(h, w);
  if (r && r->curve.seconds) return curve_seconds(h, &r->curve, w);
  double flops, bytes;
  amount_of(w, &flops, &bytes);
  if (r) {
    if (r->tile_m > 0 && r->tile_n > 0 && flops > 0) flops = tiled_flops(r, w);
    bytes += r->bytes_per_score * heads(w) * positions(&w->out[0]) * positions(&w->out[0]);
  }
  return sli_roofline_seconds(h, r, flops, bytes);
}

/* ---- calls of nodes and programs ------------------------------------------------------------- */

static sli_work work_of(const sli_node *n, const sl_type *in, const sl_type *out) {
  sli_work w = {n->op, &n->attrs, n->nin, in, n->nout, out, 0};
  for (int o = 0; o < n->nout; o++) w.left_out |= (uint32_t)!n->out[o] << o;
  return w;
}

sli_work sli_work_of_call(const sl_program_call *c) {
  sli_work w = {c->op, &c->attrs, c->nin, c->in_type, c->nout, c->out_type, 0};
  for (int o = 0; o < c->nout; o++) w.left_out |= (uint32_t)(c->out[o].base < 0) << o;
  return w;
}

void sli_call_cost(const sli_node *n, const sl_type *in, const sl_type *out, double *flops,
                   double *bytes) {
  const sli_work work = work_of(n, in, out);
  amount_of(&work, flops, bytes);
}

double sli_call_seconds(const sl_hardware *h, const sli_node *n, const sl_type *in,
                        const sl_type *out) {
  const sli_work work = work_of(n, in, out);
  return sli_work_seconds(h, &work);
}

double sli_call_of_program_seconds(const sl_hardware *h, const sl_program *p, int pieces,
                                   int call) {
  double sum = 0;
  if (!p->pieces) pieces = 1;
  for (int k = 0; k < pieces; k++) {
    int variant = p->pieces ? p->pieces[k].variant : 0;
    const sli_work work = sli_work_of_call(&p->calls[variant * p->ncalls + call]);
    sum += sli_work_seconds(h, &work);
  }
  return sum / pieces;
}
