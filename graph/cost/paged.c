/* SPDX-License-Identifier: Apache-2.0 */
/* Duration of attention to pages, and of ops that keep states, by the positions of each sequence.
 *
 * A call of a tick serves sequences of two kinds. Those that answer have a row or a few, and read
 * all that they see: time follows their number and the bytes of their keys and values. Prompts have
 * many rows, whose arithmetic is that of the whole sequence less that of the positions before. */
#include "graph/cost/cost.h"

#include <stdio.h>
#include <string.h>

#include <sluice/batch.h>

#include "base/base.h"
#include "ops/attention_blocks.h"
#include "ops/heads.h"
#include "ops/ops.h"

enum { FEW_ROWS = 16 }; /* rows of an answer: a token and drafted ones */

static const sl_op *plain_of(const sl_op *served) {
  for (const sl_op *const *o = sl_ops; *o; o++)
    if ((*o)->serve && (*o)->serve->op == served && *o != served) return *o;
  return NULL;
}

/* Returns the flops of the plain op on a sequence of `positions` positions. */
static double sequence_flops(const sli_work *plain, int64_t positions) {
  double flops = 0, bytes;
  sl_type in[plain->op->max_in], out[plain->nout];
  if (positions < 1) return 0;
  for (int i = 0; i < plain->op->max_in; i++) in[i] = plain->in[i];
  memcpy(out, plain->out, sizeof out);
  in[0].dim[0] = out[0].dim[0] = 1;
  in[0].dim[1] = out[0].dim[1] = positions;
  plain->op->cost(plain->attrs, plain->op->max_in, in, out, &flops, &bytes);
  return flops;
}

/* Returns the bytes that output o keeps of a position, or of a sequence. */
static double kept_bytes(const sli_work *w, int o) {
  const sl_type *t = &w->out[o];
  double entries = (double)SLI_MAX(t->dim[0], 1) * (sli_op_serve(w->op)->slots ? 1 : SL_PAGE);
  return (double)sl_type_bytes(t) / entries;
}

static double all_kept_bytes(const sli_work *w) {
  double sum = 0;
  for (int o = 0; o < w->nout; o++)
    if (sli_op_memory(w->op)->updates >> o & 1) sum += kept_bytes(w, o);
  return sum;
}

/* Returns the positions that the last row of a span sees. */
static double seen(const sli_work *w, const sli_paged_rows *s) {
  double all = (double)(s->before + s->rows);
  return w->attrs->attention.window > 0
             ? SLI_MIN(all, (double)(w->attrs->attention.window + s->rows - 1))
             : all;
}

static bool answers(const sli_paged_rows *s) { return s->rows <= FEW_ROWS; }

static int key_heads(const sli_work *w) { return SLI_MAX(sli_key_heads(w->attrs), 1); }

/* ---- curves -------------------------------------------------------------------------------- */

/* Returns the curve of the op, or of its prompts, or NULL. */
static const sl_curve *find_curve(const sl_hardware *h, const sl_op *op, const char *trait) {
  char name[128];
  snprintf(name, sizeof name, "%s%s", op->name, trait);
  for (int i = 0; i < h->nrows; i++)
    if (!strcmp(h->rows[i].op, name) && h->rows[i].curve.seconds) return &h->rows[i].curve;
  return NULL;
}

/* Curves count positions of 128 numbers for keys and as many for values, of 16 bits each. */
static double standard_positions(const sli_work *w, double positions) {
  enum { STANDARD_BYTES = 2 * 128 * 2 };
  return positions * all_kept_bytes(w) / (key_heads(w) * (double)STANDARD_BYTES);
}

static double curve_at(const sli_work *w, const sl_curve *c, double sequences, double positions) {
  const double along[SL_CURVE_AXES] = {[SL_CURVE_SEQUENCES] = sequences,
                                       [SL_CURVE_POSITIONS] = positions,
                                       [SL_CURVE_HEADS] = SLI_MAX(w->attrs->attention.heads, 1),
                                       [SL_CURVE_KEY_HEADS] = key_heads(w)};
  double x[SL_CURVE_DIMS];
  for (int d = 0; d < c->ndims; d++) x[d] = SLI_MAX(along[c->axis[d]], 1);
  return sli_curve_at(c, x);
}

/* ---- time ---------------------------------------------------------------------------------- */

/* Returns the seconds without a curve, at the rate of the plain op. */
static double roofline(const sl_hardware *h, const sli_work *plain, double flops, double bytes) {
  return sli_roofline_seconds(h, plain->op ? sli_work_row(h, plain) : NULL, flops, bytes);
}

static double span_flops(const sli_work *plain, const sli_paged_rows *s) {
  if (!plain->op || !plain->op->cost || plain->out[0].ndim < 3) return 0;
  return sequence_flops(plain, s->before + s->rows) - sequence_flops(plain, s->before);
}

/* Returns the seconds of the sequences that answer, which one launch serves. */
static double answers_seconds(const sl_hardware *h, const sli_work *w, const sli_work *plain, int n,
                              const sli_paged_rows *spans) {
  const sl_curve *c = find_curve(h, w->op, "");
  double count = 0, positions = 0, flops = 0;
  for (int i = 0; i < n; i++) {
    if (!answers(&spans[i])) continue;
    count++;
    positions += seen(w, &spans[i]);
    if (!c) flops += span_flops(plain, &spans[i]);
  }
  if (count < 1) return 0;
  if (c) return curve_at(w, c, count, standard_positions(w, positions / count));
  return roofline(h, plain, flops, positions * all_kept_bytes(w));
}

/* Returns the pairs of positions in a causal sequence; window 0: all. */
static double pairs(double positions, double window) {
  if (window <= 0 || positions <= window) return positions * positions / 2;
  return window * window / 2 + (positions - window) * window;
}

/* Returns the pairs that a span's rows add to its sequence. */
static double span_pairs(const sli_paged_rows *s, int64_t window) {
  double before = (double)s->before, all = (double)(s->before + s->rows);
  return pairs(all, (double)window) - pairs(before, (double)window);
}

/* Returns the part of a prompt's pairs that the span computes if it is a chunk that attends to
 * chosen pages; else 1. */
static double chosen_part(const sli_work *w, const sli_paged_rows *s) {
  const sl_attrs *attrs = w->attrs;
  if (!attrs->pages.prompt_chunk || s->rows != attrs->pages.prompt_chunk ||
      s->before % attrs->pages.prompt_chunk)
    return 1;
  return sli_chunk_pairs(attrs->pages.prompt_share, s->rows, s->before) / span_pairs(s, 0);
}

static double prompt_seconds(const sl_hardware *h, const sli_work *w, const sli_work *plain,
                             const sli_paged_rows *s) {
  const sl_curve *c = find_curve(h, w->op, ".prompt");
  if (c) {
    double before = s->before ? curve_at(w, c, 1, (double)s->before) : 0;
    double whole = curve_at(w, c, 1, (double)(s->before + s->rows)) - before;
    return whole * chosen_part(w, s) * span_pairs(s, w->attrs->attention.window) / span_pairs(s, 0);
  }
  return roofline(h, plain, span_flops(plain, s) * chosen_part(w, s),
                  seen(w, s) * all_kept_bytes(w));
}

double sli_paged_seconds(const sl_hardware *h, const sli_work *w, int n,
                         const sli_paged_rows *spans) {
  if (!sli_op_memory(w->op)->updates || !n) return 0;
  if (!h) h = &sli_default_core;
  if (sli_op_serve(w->op)->slots) return 2 * n * all_kept_bytes(w) / h->bytes_per_second;
  sli_work plain = *w;
  plain.op = plain_of(w->op);
  double seconds = answers_seconds(h, w, &plain, n, spans);
  for (int i = 0; i < n; i++)
    if (!answers(&spans[i])) seconds += prompt_seconds(h, w, &plain, &spans[i]);
  return seconds;
}
