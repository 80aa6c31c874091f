/* What a tick takes, as far as ticks that ran can tell: least squares, relative to what each took. */
#include <math.h>
#include <string.h>

#include "serve/serve.h"

enum { LEAST = 8 }; /* ticks, without the first one, which warms up */

void sli_fit_note(fit *f, const load *of, double seconds) {
  if (!f->ticks++ || seconds <= 0) return;
  const double x[FIT_TERMS] = {1, of->positions, (double)of->rows, of->pairs};
  for (int i = 0; i < FIT_TERMS; i++) {
    for (int j = 0; j < FIT_TERMS; j++) f->products[i][j] += x[i] * x[j] / (seconds * seconds);
    f->sums[i] += x[i] / seconds;
  }
}

typedef double matrix[FIT_TERMS][FIT_TERMS + 1];

/* Of the terms that are used, scaled so that all are about as large. */
static void equations(const fit *f, const bool *used, const double *scale, matrix m) {
  for (int i = 0; i < FIT_TERMS; i++) {
    for (int j = 0; j < FIT_TERMS; j++)
      m[i][j] = used[i] && used[j] ? f->products[i][j] / (scale[i] * scale[j]) : i == j;
    m[i][FIT_TERMS] = used[i] ? f->sums[i] / scale[i] : 0;
  }
}

static void eliminate(matrix m, int i) {
  int pivot = i;
  for (int r = i + 1; r < FIT_TERMS; r++)
    if (fabs(m[r][i]) > fabs(m[pivot][i])) pivot = r;
  for (int c = 0; c <= FIT_TERMS; c++) {
    double x = m[i][c];
    m[i][c] = m[pivot][c];
    m[pivot][c] = x;
  }
  for (int r = 0; r < FIT_TERMS; r++) {
    double by = r == i || fabs(m[i][i]) < 1e-12 ? 0 : m[r][i] / m[i][i];
    for (int c = i; c <= FIT_TERMS; c++) m[r][c] -= by * m[i][c];
  }
}

static void solve(const fit *f, const bool *used, double *out) {
  double scale[FIT_TERMS];
  matrix m;
  for (int i = 0; i < FIT_TERMS; i++) scale[i] = f->products[i][i] > 0 ? sqrt(f->products[i][i]) : 1;
  equations(f, used, scale, m);
  for (int i = 0; i < FIT_TERMS; i++) eliminate(m, i);
  for (int i = 0; i < FIT_TERMS; i++)
    out[i] = fabs(m[i][i]) < 1e-12 ? 0 : m[i][FIT_TERMS] / m[i][i] / scale[i];
}

/* Nothing takes less than no time: the term that would is left out, and the others are found again. */
sl_tick_cost sli_fit_cost(const fit *f) {
  bool used[FIT_TERMS] = {true, true, true, true};
  double x[FIT_TERMS] = {0};
  if (f->ticks <= LEAST) return (sl_tick_cost){0};
  for (int left = FIT_TERMS, worst = 0; left && worst >= 0; left--) {
    solve(f, used, x);
    worst = -1;
    for (int i = 0; i < FIT_TERMS; i++)
      if (x[i] < 0 && (worst < 0 || x[i] * f->sums[i] < x[worst] * f->sums[worst])) worst = i;
    if (worst >= 0) used[worst] = false;
  }
  return (sl_tick_cost){x[0], x[1], x[2], x[3]};
}
