/* SPDX-License-Identifier: Apache-2.0 */
/* A tick's firings in order. Whenever a firing ends, each idle resource starts the ready one of the
 * oldest layer, and of these the one of lowest rank. Attention and exchanges ask for a fixed share;
 * a product takes what they leave. */
#include <math.h>
#include <stdlib.h>

#include "tools/actortune/ranges/ranges.h"

static double first_row(const range_work *w, op_rows rows) {
  return rows == ROWS_PROMPTS ? w->rows - w->prompt_rows : 0;
}
static double last_row(const range_work *w, op_rows rows) {
  return rows == ROWS_ANSWERS ? w->rows - w->prompt_rows : w->rows;
}

double range_begin(const range_work *w, const range_cut *cut, int op, int part) {
  return part ? range_end(w, cut, op, part - 1) : first_row(w, w->ops[op].rows);
}

double range_end(const range_work *w, const range_cut *cut, int op, int part) {
  double first = first_row(w, w->ops[op].rows), last = last_row(w, w->ops[op].rows);
  if (part == cut->count[op] - 1) return last;
  return SLI_MIN(SLI_MAX(cut->end[op][part], first), last);
}

double range_alone(const range_work *w, const range_cut *cut, int op, int part) {
  double rows = range_end(w, cut, op, part) - range_begin(w, cut, op, part),
         all = last_row(w, w->ops[op].rows) - first_row(w, w->ops[op].rows);
  double seconds = all > 0 ? range_seconds(&w->ops[op]) / w->layers * rows / all : 0;
  return SLI_MAX(seconds, w->ops[op].least);
}

/* Returns the place of an op in its layer: those beside each other have one place. */
static int place_of(const range_work *w, int op) {
  int place = 0;
  for (int i = 1; i <= op; i++) place += !w->ops[i].beside;
  return place;
}

/* Attention of prompts sees all their earlier rows. */
bool range_reads(const range_work *w, const range_cut *cut, int op, int part, int from,
                 int from_part, bool *before) {
  int here = place_of(w, op), there = place_of(w, from), last = place_of(w, w->nops - 1);
  *before = !here && there == last;
  if (!*before && there != here - 1) return false;
  double begin = range_begin(w, cut, op, part), end = range_end(w, cut, op, part);
  if (w->ops[op].rows == ROWS_PROMPTS) begin = first_row(w, ROWS_PROMPTS);
  return begin < range_end(w, cut, from, from_part) && range_begin(w, cut, from, from_part) < end;
}

/* ---- listing --------------------------------------------------------------------------------- */

enum { MOST = RANGES_OPS * RANGES_MOST };

/* Firings of one range of one op: one after another, layer by layer. */
typedef struct lane_part {
  int op, part, begun, done;
  double alone;
  int nreads;
  short
      reads[MOST]; /* parts that must have done this layer; below 0: -1 - part, the layer before */
} lane_part;

typedef struct listing {
  const range_work *w;
  const range_cut *cut;
  int layers, nparts;
  lane_part parts[MOST];
  int running[SL_RESOURCES]; /* part, or -1 */
  double ends[SL_RESOURCES], shares[SL_RESOURCES], now;
} listing;

static void add_parts(listing *l) {
  for (int i = 0; i < l->w->nops; i++)
    for (int k = 0; k < l->cut->count[i]; k++)
      if (range_end(l->w, l->cut, i, k) > range_begin(l->w, l->cut, i, k))
        l->parts[l->nparts++] =
            (lane_part){.op = i, .part = k, .alone = range_alone(l->w, l->cut, i, k)};
  for (int i = 0; i < l->nparts; i++)
    for (int k = 0; k < l->nparts; k++) {
      lane_part *p = &l->parts[i];
      bool before;
      if (range_reads(l->w, l->cut, p->op, p->part, l->parts[k].op, l->parts[k].part, &before))
        p->reads[p->nreads++] = (short)(before ? -1 - k : k);
    }
}

static bool is_ready(const listing *l, const lane_part *p) {
  if (p->begun == l->layers) return false;
  for (int i = 0; i < p->nreads; i++) {
    int k = p->reads[i];
    if (k >= 0 ? l->parts[k].done <= p->begun : l->parts[-1 - k].done < p->begun) return false;
  }
  return true;
}

/* Returns the ready part of a resource that goes first, or -1. */
static int find_ready(const listing *l, int resource) {
  int best = -1;
  for (int i = 0; i < l->nparts; i++) {
    const lane_part *p = &l->parts[i], *q = best < 0 ? NULL : &l->parts[best];
    if ((int)l->w->ops[p->op].resource != resource || p->begun != p->done || !is_ready(l, p))
      continue;
    int order = q ? p->begun - q->begun : -1;
    if (!order) order = l->cut->rank[p->op] - l->cut->rank[q->op];
    if (order < 0) best = i;
  }
  return best;
}

/* Starts the next firing of a resource, if it is idle and there is a share. */
static bool start(listing *l, int resource, range_list *out) {
  double left = 1, ask = l->cut->asks[resource];
  if (l->running[resource] >= 0) return false;
  for (int r = 0; r < SL_RESOURCES; r++) left -= l->running[r] >= 0 ? l->shares[r] : 0;
  if (resource == SL_RESOURCE_COMPUTE) ask = SLI_MIN(ask, left);
  double least =
      resource == SL_RESOURCE_COMPUTE ? SLI_MIN(l->cut->least, l->cut->asks[resource]) : ask;
  int i = ask > left + 1e-9 || ask < least - 1e-9 ? -1 : find_ready(l, resource);
  if (i < 0) return false;
  lane_part *p = &l->parts[i];
  ask = floor(ask * 1e4 + 0.5) / 1e4; /* few digits, so that shares add up to no more than 1 */
  out->firings[out->count++] = (range_firing){p->op, p->part, p->begun++, ask};
  l->running[resource] = i;
  l->shares[resource] = ask;
  l->ends[resource] = l->now + p->alone / sl_share_rate(&l->w->hardware->shares[resource], ask);
  return true;
}

static bool advance(listing *l) {
  double next = INFINITY;
  for (int r = 0; r < SL_RESOURCES; r++)
    if (l->running[r] >= 0) next = fmin(next, l->ends[r]);
  if (isinf(next)) return false;
  l->now = next;
  for (int r = 0; r < SL_RESOURCES; r++)
    if (l->running[r] >= 0 && l->ends[r] <= next + 1e-12) {
      l->parts[l->running[r]].done++;
      l->running[r] = -1;
    }
  return true;
}

void ranges_list(const range_work *w, const range_cut *cut, int layers, range_list *out) {
  static const int order[] = {SL_RESOURCE_NETWORK, SL_RESOURCE_DISK, SL_RESOURCE_COPY,
                              SL_RESOURCE_MEMORY, SL_RESOURCE_COMPUTE};
  listing *l = sli_calloc(1, sizeof *l);
  *l = (listing){.w = w, .cut = cut, .layers = layers};
  for (int r = 0; r < SL_RESOURCES; r++) l->running[r] = -1;
  add_parts(l);
  *out =
      (range_list){.firings = sli_calloc((size_t)(l->nparts * layers) + 1, sizeof *out->firings)};
  do
    for (size_t r = 0; r < SLI_COUNT(order); r++) start(l, order[r], out);
  while (advance(l));
  SLI_CHECK(out->count == l->nparts * layers, "a tick starts all its firings");
  out->seconds = l->now;
  free(l);
}

void range_list_fini(range_list *list) { free(list->firings); }

/* A product takes its time at any share; any other firing takes at least its least product of share
 * and time. */
double ranges_bound(const range_work *w) {
  double sum = 0;
  for (int i = 0; i < w->nops; i++) {
    const sl_share_curve *curve = &w->hardware->shares[w->ops[i].resource];
    double least = 1;
    for (int k = 1; k < curve->count; k++)
      if (curve->parts[k] / curve->rates[k] < least) least = curve->parts[k] / curve->rates[k];
    sum += range_seconds(&w->ops[i]) * least;
  }
  return sum;
}
