/* SPDX-License-Identifier: Apache-2.0 */
/* Cost of a tick, fitted to measured ticks by least squares of the relative error. Errors are
 * relative to the predicted time. In the first pass no prediction exists, so they are relative
 * to the measured time; this gives delayed ticks too little weight.
 *
 * The unknowns are the seconds at each corner, per position, per pair and per sampled token.
 * Without corners, a time per tick and a time per row replace the corner times. A tick between
 * two corners interpolates them linearly, so either model is a linear sum of terms. The ratio of
 * measured to predicted times is the spread. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "serve/serve.h"

enum {
  LEAST = 8,        /* fewest ticks, not counting the first one, which warms up */
  NEWEST = 1 << 14, /* number of newest ticks kept */
  OTHERS = 3,       /* terms other than rows: position, pair, pick */
  TERMS = SL_TICK_CORNERS + OTHERS
};

void sli_fit_note(fit *f, const load *of, double seconds) {
  if (!f->ticks++ || seconds <= 0) return;
  size_t at = (size_t)(f->ticks - 2) % NEWEST;
  if (at == f->count) SLI_GROW(f->items, f->count, f->capacity);
  f->count = SLI_MAX(f->count, at + 1);
  f->items[at] =
      (struct fit_sample){(double)of->rows, of->positions, of->pairs, (double)of->picks, seconds};
}

void sli_fit_fini(fit *f) { free(f->items); }

static int ascending(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

/* ---- corners ---------------------------------------------------------------------------- */

/* Small row counts run in tiles, so each count matters; at larger counts the time changes
 * slowly. */
static bool is_apart(double rows, double last) {
  return rows > last && (rows <= 9 || rows >= 1.3 * last);
}

/* Picks row counts that occur often, and always the smallest and the largest. */
static int find_corners(const fit *f, double *corners) {
  enum { OFTEN = 3 };
  double *rows = sli_calloc(f->count, sizeof *rows), most;
  int n = 0;
  for (size_t i = 0; i < f->count; i++) rows[i] = f->items[i].rows;
  qsort(rows, f->count, sizeof *rows, ascending);
  most = rows[f->count - 1];
  corners[n++] = rows[0];
  for (size_t i = 0, end; i < f->count; i = end) {
    for (end = i; end < f->count && rows[end] <= rows[i];) end++;
    if (end - i >= OFTEN && is_apart(rows[i], corners[n - 1]) && rows[i] < most &&
        n < SL_TICK_CORNERS - 1)
      corners[n++] = rows[i];
  }
  if (most > corners[n - 1]) corners[n++] = most;
  free(rows);
  return n;
}

/* ---- equations -------------------------------------------------------------------------- */

typedef struct system {
  int corners, terms;
  double rows[SL_TICK_CORNERS];
  double products[TERMS][TERMS], sums[TERMS], scale[TERMS];
  double m[TERMS][TERMS + 1];
} system_of;

/* Writes the coefficients of the terms for one tick. */
static void terms_of(const system_of *system, const struct fit_sample *x, double *out) {
  memset(out, 0, sizeof(double[TERMS]));
  int n = system->corners, i = 0;
  while (i + 2 < n && x->rows > system->rows[i + 1]) i++;
  double along = n < 2 ? 0 : (x->rows - system->rows[i]) / (system->rows[i + 1] - system->rows[i]);
  if (n) out[i] = 1 - along;
  if (n > 1) out[i + 1] = along;
  if (!n) out[0] = 1, out[1] = x->rows;
  const double others[OTHERS] = {x->positions, x->pairs, x->picks};
  memcpy(out + system->terms - OTHERS, others, sizeof others);
}

static double seconds_of(const system_of *system, const double *terms, const double *found) {
  double sum = 0;
  for (int i = 0; i < system->terms; i++) sum += terms[i] * found[i];
  return sum;
}

static void add_tick(system_of *system, const struct fit_sample *s, const double *x, double by) {
  for (int i = 0; i < system->terms; i++) {
    for (int j = 0; j < system->terms; j++) system->products[i][j] += x[i] * x[j] * by * by;
    system->sums[i] += x[i] * s->seconds * by * by;
  }
}

/* Sums the normal equations. found: the previous solution, or NULL. */
static void add_up(const fit *f, system_of *system, const double *found) {
  double x[TERMS];
  memset(system->products, 0, sizeof system->products);
  memset(system->sums, 0, sizeof system->sums);
  for (size_t s = 0; s < f->count; s++) {
    terms_of(system, &f->items[s], x);
    double expected = found ? seconds_of(system, x, found) : 0;
    add_tick(system, &f->items[s], x, 1 / (expected > 0 ? expected : f->items[s].seconds));
  }
  for (int i = 0; i < system->terms; i++)
    system->scale[i] = system->products[i][i] > 0 ? sqrt(system->products[i][i]) : 1;
}

/* Builds the equations of the terms in use, scaled to similar magnitude. */
static void equations(system_of *system, const bool *used) {
  int n = system->terms;
  for (int i = 0; i < n; i++) {
    for (int j = 0; j < n; j++)
      system->m[i][j] = used[i] && used[j]
                            ? system->products[i][j] / (system->scale[i] * system->scale[j])
                            : i == j;
    system->m[i][n] = used[i] ? system->sums[i] / system->scale[i] : 0;
  }
}

static void eliminate(system_of *system, int i) {
  int n = system->terms, pivot = i;
  for (int r = i + 1; r < n; r++)
    if (fabs(system->m[r][i]) > fabs(system->m[pivot][i])) pivot = r;
  for (int c = 0; c <= n; c++) {
    double x = system->m[i][c];
    system->m[i][c] = system->m[pivot][c];
    system->m[pivot][c] = x;
  }
  for (int r = 0; r < n; r++) {
    double by = r == i || fabs(system->m[i][i]) < 1e-12 ? 0 : system->m[r][i] / system->m[i][i];
    for (int c = i; c <= n; c++) system->m[r][c] -= by * system->m[i][c];
  }
}

static void solve(system_of *system, const bool *used, double *out) {
  equations(system, used);
  for (int i = 0; i < system->terms; i++) eliminate(system, i);
  for (int i = 0; i < system->terms; i++)
    out[i] = fabs(system->m[i][i]) < 1e-12
                 ? 0
                 : system->m[i][system->terms] / system->m[i][i] / system->scale[i];
}

/* Solves without negative times: repeatedly drops the worst negative term and solves again. */
static void solve_above_zero(system_of *system, double *x) {
  bool used[TERMS];
  memset(used, true, sizeof used);
  for (int left = system->terms, worst = 0; left && worst >= 0; left--) {
    solve(system, used, x);
    worst = -1;
    for (int i = 0; i < system->terms; i++)
      if (x[i] < 0 && (worst < 0 || x[i] * system->sums[i] < x[worst] * system->sums[worst]))
        worst = i;
    if (worst >= 0) used[worst] = false;
  }
}

/* ---- spread ----------------------------------------------------------------------------- */

/* Returns the index of the k-th tick whose spread is kept. Of many ticks, evenly spaced runs of
 * consecutive ticks are kept. */
static size_t kept(size_t k, size_t count) {
  enum { RUN = 64, RUNS = SL_TICK_SPREAD / RUN };
  return count <= SL_TICK_SPREAD ? k : k / RUN * (count - RUN) / (RUNS - 1) + k % RUN;
}

/* Computes the ratio of measured to predicted time of each tick, normalized to mean 1. */
static void find_spread(const fit *f, const system_of *system, const double *found,
                        sl_tick_cost *cost) {
  size_t n = SLI_MIN(f->count, (size_t)SL_TICK_SPREAD);
  double x[TERMS], sum = 0;
  cost->spreads = (int)n;
  for (size_t k = 0; k < n; k++) {
    const struct fit_sample *s = &f->items[kept(k, f->count)];
    terms_of(system, s, x);
    double expected = seconds_of(system, x, found);
    cost->spread[k] = expected > 0 ? s->seconds / expected : 1;
    sum += cost->spread[k];
  }
  for (size_t k = 0; k < n; k++) cost->spread[k] *= (double)n / sum;
}

/* ---- fit -------------------------------------------------------------------------------- */

sl_tick_cost sli_fit_cost(const fit *f, bool corners) {
  if (f->count < LEAST) return (sl_tick_cost){0};
  system_of q = {0};
  double x[TERMS];
  q.corners = corners ? find_corners(f, q.rows) : 0;
  q.terms = SLI_MAX(q.corners, corners ? 1 : 2) + OTHERS;
  add_up(f, &q, NULL);
  solve_above_zero(&q, x);
  add_up(f, &q, x);
  solve_above_zero(&q, x);
  const double *others = x + q.terms - OTHERS;
  sl_tick_cost cost = {
      .position = others[0], .pair = others[1], .pick = others[2], .corners = q.corners};
  if (corners) find_spread(f, &q, x, &cost);
  else cost.tick = x[0], cost.row = x[1];
  memcpy(cost.rows, q.rows, sizeof cost.rows);
  memcpy(cost.seconds, x, (size_t)q.corners * sizeof *x);
  return cost;
}
