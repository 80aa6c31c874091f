/* SPDX-License-Identifier: Apache-2.0 */
/* Symbolic sizes: expressions such as Mul(Integer(10), Symbol('s23', positive=True)). */
#include "pytorch/sizes.h"

#include <stdlib.h>

enum { MOST_DEPTH = 16, NAME = 64 };

/* An expression being computed. Symbols other than the rows have their example values. */
typedef struct reading {
  const sli_pt_program *p;
  const char *at;
  int64_t rows;
  int depth;
  bool failed;
} reading;

/* ---- names ------------------------------------------------------------------------------------
 */

/* Copies the name of the symbol that the expression is, or returns false. */
static bool read_name(const char *text, char name[NAME]) {
  static const char begin[] = "Symbol('";
  if (!text || strncmp(text, begin, sizeof begin - 1)) return false;
  const char *from = text + sizeof begin - 1, *end = strchr(from, '\'');
  size_t length = end ? (size_t)(end - from) : NAME;
  if (length >= NAME) return false;
  memcpy(name, from, length);
  name[length] = 0;
  return true;
}

/* Returns whether the expression mentions a symbol. */
static bool mentions(const char *text, const char *name) {
  char of[NAME];
  for (const char *at = text; at && (at = strstr(at, "Symbol('")); at++)
    if (read_name(at, of) && !strcmp(of, name)) return true;
  return false;
}

bool sli_pt_size_varies(const sli_pt_program *p, const char *text) {
  char of[NAME];
  for (const char *at = text; at && (at = strstr(at, "Symbol('")); at++)
    if (!read_name(at, of) || !p->rows || strcmp(of, p->rows) != 0) return true;
  return false;
}

/* Finds the example value of a symbol, from an input with a dim of that size. */
static bool example_of(const sli_pt_program *p, const char *name, int64_t *out) {
  char of[NAME];
  for (int i = 0; i < p->ninputs; i++) {
    const sli_pt_value *v = p->inputs[i].value;
    for (int d = 0; v->size && d < v->type.ndim; d++)
      if (read_name(v->size[d], of) && !strcmp(of, name)) return *out = v->type.dim[d], true;
  }
  return false;
}

/* ---- numbers ----------------------------------------------------------------------------------
 */

static int64_t floor_of(int64_t a, int64_t b) { return a / b - (a % b && (a < 0) != (b < 0)); }
static bool add(int64_t a, int64_t b, int64_t *out) { return !__builtin_add_overflow(a, b, out); }
static bool multiply(int64_t a, int64_t b, int64_t *out) {
  return !__builtin_mul_overflow(a, b, out);
}
static bool divide(int64_t a, int64_t b, int64_t *out) {
  return b > 0 && (*out = floor_of(a, b), true);
}
static bool power(int64_t a, int64_t b, int64_t *out) {
  for (*out = 1; b > 0 && b < 63; b--)
    if (!multiply(*out, a, out)) return false;
  return b == 0;
}
static bool most(int64_t a, int64_t b, int64_t *out) { return *out = SLI_MAX(a, b), true; }
static bool least(int64_t a, int64_t b, int64_t *out) { return *out = SLI_MIN(a, b), true; }

static const struct {
  const char *name;
  bool (*of)(int64_t, int64_t, int64_t *);
} functions[] = {{"Add", add},   {"Mul", multiply}, {"FloorDiv", divide}, {"CleanDiv", divide},
                 {"Pow", power}, {"Max", most},     {"Min", least}};

static int64_t read_term(reading *r);

static int64_t fail(reading *r) { return r->failed = true, 0; }

/* Skips to the end of the innermost parenthesis. */
static void skip(reading *r) {
  while (*r->at && *r->at != ')') r->at++;
  if (*r->at) r->at++;
  else r->failed = true;
}

static int64_t read_symbol(reading *r) {
  char name[NAME];
  int64_t value = r->rows;
  if (!read_name(r->at, name)) return fail(r);
  if ((!r->p->rows || strcmp(name, r->p->rows) != 0) && !example_of(r->p, name, &value))
    return fail(r);
  skip(r);
  return value;
}

/* Reads the arguments of a function, and applies it from the left. */
static int64_t read_call(reading *r, bool (*of)(int64_t, int64_t, int64_t *)) {
  int64_t value = read_term(r);
  while (!r->failed && *r->at == ',') {
    for (r->at++; *r->at == ' ';) r->at++;
    if (!strncmp(r->at, "evaluate", 8)) break;
    if (!of(value, read_term(r), &value)) return fail(r);
  }
  skip(r);
  return value;
}

static int64_t read_term(reading *r) {
  if (r->depth++ > MOST_DEPTH) return fail(r);
  int64_t value = 0;
  const char *open = strchr(r->at, '(');
  size_t length = open ? (size_t)(open - r->at) : 0;
  char *end;
  if (length == 7 && !strncmp(r->at, "Integer", 7)) {
    value = strtoll(open + 1, &end, 10);
    r->at = end;
    skip(r);
  } else if (length == 6 && !strncmp(r->at, "Symbol", 6)) value = read_symbol(r);
  else {
    size_t i = 0;
    while (i < SLI_COUNT(functions) &&
           (strlen(functions[i].name) != length || strncmp(r->at, functions[i].name, length) != 0))
      i++;
    if (i == SLI_COUNT(functions)) return fail(r);
    r->at = open + 1;
    value = read_call(r, functions[i].of);
  }
  r->depth--;
  return r->failed ? 0 : value;
}

bool sli_pt_size(const sli_pt_program *p, const sli_pt_value *v, int d, int64_t rows,
                 int64_t *out) {
  const char *text = v->size ? v->size[d] : NULL;
  *out = v->symbol ? v->hint : v->type.dim[d];
  if (!text) return true;
  reading r = {.p = p, .at = text, .rows = rows};
  int64_t value = read_term(&r);
  if (!r.failed) *out = value;
  return !r.failed;
}

/* ---- rows -------------------------------------------------------------------------------------
 */

sl_status sli_pt_sizes_find_rows(sli_pt_program *p) {
  char name[NAME];
  for (int i = 0; i < p->ninputs && !p->rows; i++) {
    const sli_pt_input *in = &p->inputs[i];
    if (in->role == SLI_PT_USER && in->value->type.ndim && in->value->size &&
        read_name(in->value->size[0], name))
      p->rows = sli_arena_strdup(&p->arena, name);
  }
  for (int i = 0; p->rows && i < p->nvalues; i++) {
    sli_pt_value *v = p->values[i];
    for (int d = 0; !v->symbol && d < v->type.ndim; d++)
      if (v->size && mentions(v->size[d], p->rows)) v->type.rows |= 1u << d;
  }
  for (int i = 0; p->rows && i < p->ninputs; i++) {
    const sli_pt_input *in = &p->inputs[i];
    if (in->role == SLI_PT_USER && in->value->type.rows & ~1u)
      return sl_fail(SL_E_UNSUPPORTED,
                     "%s: the symbolic batch dim is not dim 0 of input %s; rows are dim 0 of every "
                     "input that has them: transpose in forward()",
                     sli_archive_path(p->archive), in->name);
  }
  return SL_OK;
}
