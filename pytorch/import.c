/* SPDX-License-Identifier: Apache-2.0 */
/* Functions shared by the rows of the call table: arguments, refusals, calls that change nothing.
 */
#include "pytorch/import.h"
#include "pytorch/sizes.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- arguments ----------------------------------------------------------------------------- */

sli_pt_value *sli_pt_arg_value(const sli_pt_node *n, const char *name) {
  sli_pt_arg *arg = sli_pt_arg_peek(n, name);
  if (!arg || arg->kind != SLI_PT_VALUE || arg->value->symbol) return NULL;
  arg->read = true;
  return arg->value;
}

sli_pt_value *sli_pt_first(const sli_pt_node *n) {
  return n->nargs ? sli_pt_arg_value(n, n->args[0].name) : NULL;
}

static double size_mul(double a, double b) { return a * b; }
static double size_add(double a, double b) { return a + b; }
static double size_sub(double a, double b) { return a - b; }
static double size_floordiv(double a, double b) { return b != 0 ? floor(a / b) : 0; }
static double size_truediv(double a, double b) { return b != 0 ? a / b : 0; }
static double size_same(double a, double b) { return (void)b, a; }

/* Finds a size as a number: rows become those of a microbatch, other sizes are their examples.
 * Returns false if its expression is not understood. */
static bool symbol_number(const sli_import *m, const sli_pt_value *v, double *out) {
  static const struct {
    const char *name;
    int nargs;
    double (*of)(double, double);
  } functions[] = {{"mul", 2, size_mul},         {"add", 2, size_add},
                   {"sub", 2, size_sub},         {"floordiv", 2, size_floordiv},
                   {"truediv", 2, size_truediv}, {"pow", 2, pow},
                   {"sym_float", 1, size_same}};
  const sli_pt_node *n = v->def;
  double a, b = 0;
  int64_t size;
  if (!v->fraction && sli_pt_size(m->p, v, 0, m->rows, &size)) return *out = (double)size, true;
  const char *dot = n ? strrchr(n->target, '.') : NULL;
  for (size_t i = 0; i < SLI_COUNT(functions); i++)
    if (n && n->nargs == functions[i].nargs &&
        !strcmp(dot ? dot + 1 : n->target, functions[i].name) &&
        sli_pt_scalar(m, &n->args[0], &a) && (n->nargs == 1 || sli_pt_scalar(m, &n->args[1], &b)))
      return *out = functions[i].of(a, b), true;
  *out = (double)v->hint;
  return !v->fraction && m->rows == m->exported;
}

bool sli_pt_scalar(const sli_import *m, const sli_pt_arg *arg, double *out) {
  if (!arg) return false;
  switch (arg->kind) {
  case SLI_PT_INT: return *out = (double)arg->i, true;
  case SLI_PT_FLOAT: return *out = arg->f, true;
  case SLI_PT_FLAG: return *out = arg->flag, true;
  case SLI_PT_VALUE:
    if (arg->value->symbol) return symbol_number(m, arg->value, out);
    const sli_pt_array *a = sli_constant(m, arg->value);
    if (!a || !sli_pt_elements(&a->type) || !sli_pt_uniform(a)) return false;
    return *out = sli_pt_at(a, a->offset), true;
  case SLI_PT_ABSENT:
  case SLI_PT_TEXT:
  case SLI_PT_DTYPE:
  case SLI_PT_OTHER:
  case SLI_PT_LIST: break;
  }
  return false;
}

double sli_pt_number(const sli_import *m, const sli_pt_node *n, const char *name, double absent) {
  double v;
  sli_pt_arg *arg = sli_pt_arg_peek(n, name);
  if (!sli_pt_scalar(m, arg, &v)) return absent;
  arg->read = true;
  return v;
}

int64_t sli_pt_whole(const sli_import *m, const sli_pt_node *n, const char *name, int64_t absent) {
  sli_pt_arg *arg = sli_pt_arg_peek(n, name);
  double v;
  if (!sli_pt_scalar(m, arg, &v)) return absent;
  arg->read = true;
  return arg->kind == SLI_PT_INT ? arg->i : sli_pt_integer(v);
}

bool sli_pt_flag(const sli_pt_node *n, const char *name, bool absent) {
  sli_pt_arg *arg = sli_pt_arg_peek(n, name);
  if (!arg || arg->kind != SLI_PT_FLAG) return absent;
  arg->read = true;
  return arg->flag;
}

sli_pt_dtype sli_pt_type_arg(const sli_pt_node *n, const char *name) {
  sli_pt_arg *arg = sli_pt_arg_peek(n, name);
  if (!arg || arg->kind != SLI_PT_DTYPE) return SLI_PT_NONE;
  arg->read = true;
  return (sli_pt_dtype)arg->i;
}

/* Returns a dim counted from the beginning, clamped to the valid range. */
static int inside(int64_t dim, int ndim) {
  if (dim < 0) dim += ndim;
  return (int)SLI_MAX(0, SLI_MIN(dim, ndim - 1));
}

int sli_pt_dims(const sli_import *m, const sli_pt_node *n, const char *name, int ndim, int *out) {
  int64_t dims[SLI_PT_DIMS];
  int count = sli_pt_wholes(m, n, name, SLI_PT_DIMS, dims);
  uint32_t seen = 0;
  for (int i = 0; i < count; i++) {
    if (dims[i] < -ndim || dims[i] >= ndim) return -1;
    out[i] = (int)(dims[i] < 0 ? dims[i] + ndim : dims[i]);
    if (seen >> out[i] & 1) return -1;
    seen |= 1u << out[i];
  }
  return count;
}

bool sli_pt_order(const sli_import *m, const sli_pt_node *n, int ndim, int *out) {
  if (sli_pt_arg_find(n, "dims")) return sli_pt_dims(m, n, "dims", ndim, out) == ndim;
  bool named = sli_pt_arg_find(n, "dim0") != NULL; /* otherwise t() */
  bool axes = sli_pt_arg_find(n, "axis0") != NULL, last = strstr(n->target, ".mT.") != NULL;
  int a = sli_pt_dim(m, n, named ? "dim0" : "axis0", ndim, last ? -2 : 0);
  int b = sli_pt_dim(m, n, named ? "dim1" : "axis1", ndim, ndim - 1);
  if (!named && !axes && !last) a = 0, b = ndim - 1;
  bool reverses = strstr(n->target, "numpy_T") != NULL;
  for (int d = 0; d < ndim; d++) out[d] = reverses ? ndim - 1 - d : d == a ? b : d == b ? a : d;
  return true;
}

int sli_pt_dim(const sli_import *m, const sli_pt_node *n, const char *name, int ndim, int absent) {
  return inside(sli_pt_whole(m, n, name, absent), ndim);
}

int sli_pt_wholes(const sli_import *m, const sli_pt_node *n, const char *name, int most,
                  int64_t *out) {
  sli_pt_arg *arg = sli_pt_arg_peek(n, name);
  double v;
  if (!arg) return -1;
  if (arg->kind != SLI_PT_LIST)
    return sli_pt_scalar(m, arg, &v) && most > 0 ? (out[0] = sli_pt_whole(m, n, name, 0), 1) : -1;
  if (arg->list.count > most) return -1;
  arg->read = true;
  for (int i = 0; i < arg->list.count; i++) {
    const sli_pt_arg *one = &arg->list.of[i];
    if (one->kind == SLI_PT_INT) out[i] = one->i;
    else if (sli_pt_scalar(m, one, &v)) out[i] = sli_pt_integer(v);
    else return -1;
  }
  return arg->list.count;
}

uint32_t sli_pt_axes(const sli_import *m, const sli_pt_node *n, const char *name, int ndim) {
  int64_t dims[SLI_PT_DIMS];
  int count = sli_pt_wholes(m, n, name, SLI_PT_DIMS, dims);
  uint32_t all = (1u << ndim) - 1, axes = 0;
  for (int i = 0; i < count && ndim; i++) axes |= 1u << inside(dims[i], ndim);
  return count > 0 ? axes : all;
}

/* ---- refusal ------------------------------------------------------------------------------- */

void sli_pt_refuse(sli_import *m, const sli_pt_node *n, const char *format, ...) {
  char why[512];
  va_list args;
  va_start(args, format);
  vsnprintf(why, sizeof why, format, args);
  va_end(args);
  sl_graph_fail(m->g, SL_E_UNSUPPORTED, "%s: %s%s%s%s%.0d: %s", sli_archive_path(m->p->archive),
                n->target, n->file ? " at " : "", n->file ? n->file : "", n->file ? ":" : "",
                n->file ? n->line : 0, why);
}

/* ---- calls that change nothing ------------------------------------------------------------- */

static bool is_float_value(const sli_pt_value *v) { return v && sli_pt_floats(v->type.dtype); }

/* Returns whether the call only passes on its first argument. */
static bool passes_on(const sli_import *m, const sli_pt_node *n) {
  static const char *const always[] = {"aten.alias.default", "aten.contiguous.default",
                                       "aten.clone.default", "aten.lift_fresh_copy.default", NULL};
  static const char *const views[] = {"aten.view.default", "aten.reshape.default",
                                      "aten.expand.default", NULL};
  const sli_pt_value *in = n->nargs && n->args[0].kind == SLI_PT_VALUE ? n->args[0].value : NULL;
  if (!in || n->nouts != 1 || !n->outs[0]) return false;
  for (int i = 0; always[i]; i++)
    if (!strcmp(n->target, always[i])) return true;
  for (int i = 0; views[i]; i++)
    if (!strcmp(n->target, views[i])) return sli_pt_same_dims(&in->type, &n->outs[0]->type);
  if (!strncmp(n->target, "aten.to.", 8) || !strcmp(n->target, "aten.type_as.default") ||
      !strcmp(n->target, "aten._to_copy.default"))
    return in->type.dtype == n->outs[0]->type.dtype ||
           (is_float_value(in) && is_float_value(n->outs[0]));
  return !strcmp(n->target, "aten.dropout.default") &&
         (!sli_pt_flag(n, "train", true) || sli_pt_number(m, n, "p", 0.5) == 0 ||
          sl_graph_infer(m->g));
}

const sli_pt_value *sli_pt_peel(const sli_import *m, const sli_pt_value *v) {
  while (v && v->def && !sli_constant(m, v) && passes_on(m, v->def)) v = v->def->args[0].value;
  return v;
}

const sli_pt_node *sli_pt_made_by(const sli_import *m, const sli_pt_value *v, const char *target) {
  v = sli_pt_peel(m, v);
  bool is = v && v->def && !strcmp(v->def->target, target) && sli_pt_plain(v->def);
  return is ? v->def : NULL;
}
