/* SPDX-License-Identifier: Apache-2.0 */
/* Curves from samples.
 *
 * A curve has a duration at every point of its grid, but samples lie where the models put them. For
 * matrix products and attention, every axis value observed for the op becomes a grid line. A grid
 * point without a measurement gets the rate of the nearest measured point. All other ops are curves
 * over bytes, with samples between two powers of four merged. */
#include "tools/actortune/machine/grid.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"

static const char *const names[SL_CURVE_AXES] = {[SL_CURVE_M] = "m",
                                                 [SL_CURVE_N] = "n",
                                                 [SL_CURVE_K] = "k",
                                                 [SL_CURVE_BYTES] = "bytes",
                                                 [SL_CURVE_POSITIONS] = "positions",
                                                 [SL_CURVE_HEAD] = "head",
                                                 [SL_CURVE_DEVICES] = "devices"};

/* Axes on which an op's time depends, and the power of each with which the work grows. */
typedef struct form {
  const char *row; /* name of the op, or a prefix before a '*' */
  int count;
  sl_curve_axis axis[3];
  double power[3];
  sli_trait trait; /* trait whose calls get a separate curve */
} form;

static const form forms[] = {
    {"linear_w", 3, {SL_CURVE_M, SL_CURVE_N, SL_CURVE_K}, {1, 1, 1}, SLI_TRAIT_PAGES},
    {"linear", 3, {SL_CURVE_M, SL_CURVE_N, SL_CURVE_K}, {1, 1, 1}, SLI_TRAIT_TRANSPOSED},
    {"linear_*", 3, {SL_CURVE_M, SL_CURVE_N, SL_CURVE_K}, {1, 1, 1}, SLI_TRAIT_TRANSPOSED},
    {"attention*", 2, {SL_CURVE_POSITIONS, SL_CURVE_HEAD}, {2, 1}, SLI_TRAITS},
    {"*", 1, {SL_CURVE_BYTES}, {1}, SLI_TRAITS}};

static const form *form_of(const char *row) {
  const form *f = forms;
  for (;; f++) {
    size_t chars = strcspn(f->row, "*");
    if (!strncmp(f->row, row, chars) && (f->row[chars] || !row[chars])) return f;
  }
}

/* ---- samples of one op ----------------------------------------------------------------------- */

/* A sample's coordinates on the form's axes. The last one is the number of busy devices. */
typedef struct place {
  double at[SL_CURVE_DIMS], seconds;
} place;

typedef struct row_places {
  const form *form;
  int axes;
  /* places of this curve; places including the op's other curves, which share its grid lines */
  size_t count, lines;
  place *places; /* [lines] */
} row_places;

static double heads_of(const sample *s) {
  return s->at[SL_CURVE_M] / s->at[SL_CURVE_POSITIONS] * s->at[SL_CURVE_N] / s->at[SL_CURVE_HEAD];
}

/* Returns a sample's place. Bytes between powers of four are moved to the middle, keeping the
 * rate. */
static place grid_place_of(const form *f, const sample *s) {
  place p = {.seconds = s->seconds};
  for (int a = 0; a < f->count; a++) {
    double x = p.at[a] = fmax(s->at[f->axis[a]], 1);
    if (f->axis[a] == SL_CURVE_POSITIONS) p.seconds /= heads_of(s);
    if (f->axis[a] != SL_CURVE_BYTES) continue;
    p.at[a] = pow(4, round(log2(x) / 2));
    p.seconds *= p.at[a] / x;
  }
  p.at[f->count] = s->at[SL_CURVE_DEVICES];
  return p;
}

/* Merges the samples at one place into their geometric mean. */
static void merge(row_places *to, const place *p, int *times) {
  size_t i = 0;
  while (i < to->count && memcmp(to->places[i].at, p->at, sizeof p->at)) i++;
  if (i == to->count) to->places[to->count++] = (place){.seconds = 1}, times[i] = 0;
  memcpy(to->places[i].at, p->at, sizeof p->at);
  to->places[i].seconds =
      exp((times[i] * log(to->places[i].seconds) + log(p->seconds)) / (times[i] + 1));
  times[i]++;
}

static bool is_apart(const form *f, const sample *s) {
  return f->trait < SLI_TRAITS && s->has[f->trait];
}

/* Returns whether two calls belong to the same curve. */
static bool same_curve(const sample *a, const sample *b) {
  const form *f = form_of(a->op);
  return !strcmp(a->op, b->op) && is_apart(f, a) == is_apart(f, b);
}

static row_places places_of(const samples *s, const sample *first) {
  const form *f = form_of(first->op);
  row_places r = {
      .form = f, .axes = f->count + 1, .places = sli_calloc(s->count, sizeof *r.places)};
  int *times = sli_calloc(s->count, sizeof *times);
  for (size_t i = 0; i < s->count; i++) {
    if (!same_curve(first, &s->items[i])) continue;
    const place p = grid_place_of(f, &s->items[i]);
    merge(&r, &p, times);
  }
  free(times);
  r.lines = r.count;
  for (size_t i = 0; i < s->count; i++)
    if (!strcmp(first->op, s->items[i].op) && !same_curve(first, &s->items[i]))
      r.places[r.lines++] = grid_place_of(f, &s->items[i]);
  return r;
}

/* ---- the grid -------------------------------------------------------------------------------- */

static int by_number(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

/* Returns the distinct values along an axis; the caller frees them. */
static double *values_along(const row_places *r, int axis, int *count) {
  double *all = sli_calloc(r->lines, sizeof *all);
  int n = 0;
  for (size_t i = 0; i < r->lines; i++) all[i] = r->places[i].at[axis];
  qsort(all, r->lines, sizeof *all, by_number);
  for (size_t i = 0; i < r->lines; i++)
    if (!n || all[i] > all[n - 1]) all[n++] = all[i];
  *count = n;
  return all;
}

/* Returns the distance to a grid point. A different number of devices outweighs every other
 * step. */
static double distance(const row_places *r, const place *p, const double *at) {
  double sum = 0;
  for (int a = 0; a < r->axes; a++) {
    double d = log2(p->at[a] / at[a]);
    sum += (a == r->form->count ? 1e3 : 1) * d * d;
  }
  return sum;
}

static double seconds_at(const row_places *r, const double *at) {
  const place *nearest = &r->places[0];
  for (size_t i = 1; i < r->count; i++)
    if (distance(r, &r->places[i], at) < distance(r, nearest, at)) nearest = &r->places[i];
  double seconds = nearest->seconds;
  for (int a = 0; a < r->form->count; a++)
    seconds *= pow(at[a] / nearest->at[a], r->form->power[a]);
  return seconds;
}

/* Rounds a number to four digits. */
static cJSON *number(double x) {
  char text[32];
  snprintf(text, sizeof text, "%.4g", x);
  return cJSON_CreateNumber(strtod(text, NULL));
}

/* Makes the nested lists of a grid's seconds, axis by axis. */
static cJSON *seconds_json(const row_places *r, double *const *values, const int *counts, int dim,
                           double *at) {
  if (dim >= SLI_MIN(r->axes, SL_CURVE_DIMS)) return number(seconds_at(r, at));
  cJSON *list = cJSON_CreateArray();
  for (int i = 0; i < counts[dim]; i++) {
    at[dim] = values[dim][i];
    cJSON_AddItemToArray(list, seconds_json(r, values, counts, dim + 1, at));
  }
  return list;
}

static cJSON *curve_json(const row_places *r) {
  double *values[SL_CURVE_DIMS], at[SL_CURVE_DIMS];
  int counts[SL_CURVE_DIMS];
  cJSON *curve = cJSON_CreateObject();
  for (int a = 0; a < r->axes; a++) {
    values[a] = values_along(r, a, &counts[a]);
    const char *name = names[a == r->form->count ? SL_CURVE_DEVICES : r->form->axis[a]];
    cJSON_AddItemToObject(curve, name, cJSON_CreateDoubleArray(values[a], counts[a]));
  }
  cJSON_AddItemToObject(curve, "seconds", seconds_json(r, values, counts, 0, at));
  for (int a = 0; a < r->axes; a++) free(values[a]);
  return curve;
}

static void name_of(const sample *s, char *name, size_t size) {
  const form *f = form_of(s->op);
  bool apart = is_apart(f, s);
  snprintf(name, size, "%s%s%s", s->op, apart ? "." : "", apart ? sli_traits[f->trait] : "");
}

cJSON *grid_curves(const samples *s) {
  cJSON *all = cJSON_CreateObject();
  for (size_t i = 0; i < s->count; i++) {
    char name[128];
    name_of(&s->items[i], name, sizeof name);
    if (cJSON_GetObjectItemCaseSensitive(all, name)) continue;
    row_places r = places_of(s, &s->items[i]);
    cJSON_AddItemToObject(all, name, curve_json(&r));
    free(r.places);
  }
  return all;
}

/* ---- spread ---------------------------------------------------------------------------------- */

double grid_spread(const samples *s) {
  double fastest = 0, median = 0;
  for (size_t i = 0; i < s->count; i++)
    fastest += s->items[i].seconds, median += s->items[i].median;
  return fastest > 0 ? median / fastest - 1 : 0;
}
