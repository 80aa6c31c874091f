/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers of a static program that may be the number of rows: `loss.sum() / 6`. */
#include <math.h>
#include <string.h>

#include "pytorch/emit.h"
#include "pytorch/rows.h"

/* The forms in which a number of rows is found in an expression. */
typedef enum form { FORM_NONE, FORM_TIMES, FORM_OVER, FORM_ROOT, FORM_OVER_ROOT, FORM_LOG } form;

/* Returns whether a number is a multiple of the exported rows, as far as f32 shows. */
static bool is_multiple(const sli_import *m, double v) {
  const double most = 1e7, near = 1e-6;
  double rows = (double)m->exported, whole = nearbyint(v);
  return v >= 1 - near && v < most && fabs(v - whole) <= near * whole && fmod(whole, rows) == 0;
}

static form form_of(const sli_import *m, const sli_pt_node *n, double v) {
  bool adds = strstr(n->target, "add") || strstr(n->target, "sub");
  double size = fabs(v);
  if (m->exported < 1 || size == 0 || !isfinite(v)) return FORM_NONE;
  if (is_multiple(m, size)) return FORM_TIMES;
  if (adds) return m->exported > 1 && is_multiple(m, exp(size)) ? FORM_LOG : FORM_NONE;
  if (is_multiple(m, 1 / size)) return FORM_OVER;
  bool whole = size == nearbyint(size) || fabs(1 / size - nearbyint(1 / size)) < 1e-6 / size;
  if (whole) return FORM_NONE;
  if (is_multiple(m, size * size)) return FORM_ROOT;
  return is_multiple(m, 1 / (size * size)) ? FORM_OVER_ROOT : FORM_NONE;
}

/* Returns the number for the rows of a microbatch. */
static double rescaled(const sli_import *m, form form, double v) {
  double ratio = (double)m->rows / (double)m->exported;
  switch (form) {
  case FORM_NONE: break;
  case FORM_TIMES: return v * ratio;
  case FORM_OVER: return v / ratio;
  case FORM_ROOT: return v * sqrt(ratio);
  case FORM_OVER_ROOT: return v / sqrt(ratio);
  case FORM_LOG: return v > 0 ? v + log(ratio) : v - log(ratio);
  }
  return v;
}

/* ---- calls ------------------------------------------------------------------------------------
 */

/* Returns whether a call combines numbers by arithmetic. */
static bool is_arithmetic(const sli_pt_node *n) {
  static const char *const names[] = {"aten.mul.",          "aten.div.",         "aten.multiply.",
                                      "aten.divide.",       "aten.true_divide.", "aten.add.",
                                      "aten.sub.",          "aten.rsub.",        "aten.subtract.",
                                      "aten.floor_divide.", "aten.pow."};
  for (size_t i = 0; i < SLI_COUNT(names); i++)
    if (!strncmp(n->target, names[i], strlen(names[i]))) return true;
  return false;
}

/* Finds the tensor and the number that a call combines. */
static bool tensor_and_number(const sli_import *m, const sli_pt_node *n, const sli_pt_value **x,
                              int *number, double *v) {
  *x = NULL, *number = -1;
  for (int i = 0; i < n->nargs && i < 2; i++) {
    const sli_pt_arg *a = &n->args[i];
    bool tensor = a->kind == SLI_PT_VALUE && !a->value->symbol && !sli_constant(m, a->value);
    if (tensor) *x = a->value;
    else if (sli_pt_scalar(m, a, v)) *number = i;
  }
  return *x && *number >= 0;
}

void sli_rows_refuse_constant(sli_import *m, const sli_pt_node *n) {
  const sli_pt_value *x;
  int number;
  double v = 0;
  tensor_and_number(m, n, &x, &number, &v);
  sli_pt_refuse(m, n,
                "its number %g may be the %lld rows of the exported batch, and meets a sum over "
                "rows; a microbatch has %lld rows. --rows-in-constants no keeps the number%s; "
                "torch.export.Dim makes the rows known",
                v, (long long)m->exported, (long long)m->rows,
                m->met ? "" : ", --rows-in-constants yes makes it follow the rows");
}

/* Notes that the result's elements are multiplied by what may be the rows. */
static void note_scaled(sli_import *m, const sli_pt_node *n, const sli_pt_value *x) {
  sl_tensor *t = sli_made_of(m, x)->tensor;
  sli_rows rows = t ? *sli_rows_of(m, t) : (sli_rows){0};
  if (!t || rows.scaled || !sli_any_rows(&rows)) return;
  m->scales = n;
}

/* Returns a copy of a call with another number. */
static const sli_pt_node *with_number(sli_import *m, const sli_pt_node *n, int at, double v) {
  sli_pt_node *copy = sli_arena_alloc(&m->arena, sizeof *copy);
  *copy = *n;
  copy->args = sli_arena_alloc(&m->arena, (size_t)n->nargs * sizeof *copy->args);
  memcpy(copy->args, n->args, (size_t)n->nargs * sizeof *copy->args);
  copy->args[at] = (sli_pt_arg){.name = n->args[at].name, .kind = SLI_PT_FLOAT, .f = v};
  return copy;
}

const sli_pt_node *sli_rows_constants(sli_import *m, const sli_pt_node *n) {
  const sli_pt_value *x;
  int number;
  double v;
  m->scales = NULL;
  bool differs = m->exported && m->rows != m->exported && !m->p->rows;
  if (!differs || m->constants == SL_ROWS_NO || !is_arithmetic(n)) return n;
  if (!tensor_and_number(m, n, &x, &number, &v)) return n;
  form form = form_of(m, n, v);
  const sli_rows *rows = sli_rows_of(m, sli_made_of(m, x)->tensor);
  if (form == FORM_NONE) return n;
  bool adds = strstr(n->target, "add") || strstr(n->target, "sub");
  bool fraction = n->args[number].kind != SLI_PT_INT && v != nearbyint(v);
  if (!rows->reduced || (!rows->summed && fraction && !adds)) {
    if (!adds && !rows->reduced) note_scaled(m, n, x);
    return n;
  }
  if (adds && !rows->summed) return n;
  if (m->constants == SL_ROWS_YES) return with_number(m, n, number, rescaled(m, form, v));
  sli_rows_refuse_constant(m, n);
  return n;
}
