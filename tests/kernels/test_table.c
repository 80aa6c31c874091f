/* SPDX-License-Identifier: Apache-2.0 */
/* Checks that docs/ops.md matches the table of ops from which it is generated. The argument `write`
 * writes the page.
 * labels: unthreaded smoke */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <sluice/ops.h>

#include "base/base.h"
#include "ops/facets.h"
#include "tests/support/test.h"

/* GPU kernels of the ops. */
static const struct {
  const char *name, *how;
} on_gpus[] = {
#define CUDA_OP(name, ...) {#name, "yes"},
#define PRODUCT(name) {#name, "library"},
#include "kernels/cuda/ops.def"
};

/* Ops without a GPU kernel, each with the reason. */
static const struct {
  const char *name, *how, *why;
} elsewhere[] = {
    {"source", "host", "calls a function of the program, which prepares data"},
    {"report", "host", "calls a function of the program, which takes results"},
    {"begin", "host", "says how many rows a tick has, which the host knows"},
    {"picks", "host", "the same, of rows whose logits are needed"},
    {"allow", "host", "calls the grammars of the answers, while the tick computes"},
    {"own_leaves", "CPU", "exact sums (`--exact`), which take the f64 and the order of CPUs"},
};

static const char *on_gpu(const sl_op *op) {
  for (size_t i = 0; i < SLI_COUNT(on_gpus); i++)
    if (!strcmp(on_gpus[i].name, op->name)) return on_gpus[i].how;
  for (size_t i = 0; i < SLI_COUNT(elsewhere); i++)
    if (!strcmp(elsewhere[i].name, op->name)) return elsewhere[i].how;
  CHECK(false, "op %s has neither a GPU kernel nor a reason", op->name);
  return "";
}

static const char head[] =
    "# Ops\n"
    "\n"
    "<!-- Made of the table of ops: tests/kernels/test_table.c, which writes it anew when run with\n"
    "`write`. -->\n"
    "\n"
    "A model is made of these ops, and of ops of its own (`<sluice/op.h>`). `<sluice/ops.h>` has the\n"
    "formula of each, its shapes and its source, and `<sluice/graph.h>` the calls that models use. Names\n"
    "that end in `_b` and `_w` belong to the backward pass.\n"
    "\n"
    "*Inputs*: `+` stands for any number more. *Gradient*: the ops of the backward pass; `dy` is the\n"
    "gradient passed on as it is. *Cut*: the dims along which sequences are cut in pieces, and forward ops\n"
    "are split by rows and columns over devices. *any* is any dim; *rows*, all dims but the last; *positions*,\n"
    "dim 1; *says*, the dims of its signatures; *own*, further signatures of the op. *GPU*: a kernel, or\n"
    "the library of products; *host*: it stays on the host by design; *CPU*: models that need it run on\n"
    "CPUs alone by design. The reasons follow the table. *bf16*: tensors that flow through it may be\n"
    "bf16. *Attributes*: the kinds that calls may set, listed at the end.\n"
    "\n"
    "| op | inputs | outputs | gradient | cut | GPU | bf16 | attributes |\n"
    "| --- | --- | --- | --- | --- | --- | --- | --- |\n";

static const char attributes[] =
    "\n"
    "## Attributes\n"
    "\n"
    "Fields of `sl_attrs` by kind: `attrs.attention.heads` in C, `heads=` in Python's `Graph.apply`. A\n"
    "field that is 0 is not set. An op refuses the kinds that it does not list.\n"
    "\n"
    "| kind | field | type | default | |\n"
    "| --- | --- | --- | --- | --- |\n";
static const char groups[] =
    "\n"
    "The graph sets these for any op:\n"
    "\n"
    "| group | field | type | default | |\n"
    "| --- | --- | --- | --- | --- |\n";

static void print_inputs(const sl_op *op, FILE *out) {
  if (op->max_in < 0) fprintf(out, "%d+", op->min_in);
  else if (op->max_in == op->min_in) fprintf(out, "%d", op->min_in);
  else fprintf(out, "%d-%d", op->min_in, op->max_in);
}

static void print_gradient(const sl_op *op, FILE *out) {
  for (int r = 0; r < SL_GRAD_RULES && op->grad[r].nwrt; r++)
    fprintf(out, "%s%s", r ? ", " : "", op->grad[r].op ? op->grad[r].op->name : "dy");
}

static void print_cut(const sl_op *op, FILE *out) {
  static const char *const cuts[] = {
      [SL_PIECES_REFUSED] = "",           [SL_PIECES_ELEMENTS] = "any",
      [SL_PIECES_ROWS] = "rows",          [SL_PIECES_POSITIONS] = "positions",
      [SL_PIECES_STATE] = "positions",    [SL_PIECES_MEAN] = "rows, as a mean",
      [SL_PIECES_SUM] = "rows, as a sum", [SL_PIECES_SIGNATURES] = "says",
  };
  const sl_op *cut = sli_op_cut(op)->pieced ? sli_op_cut(op)->pieced : op;
  bool own = sli_op_shard(op)->signatures && sli_op_cut(op)->pieces != SL_PIECES_SIGNATURES;
  fprintf(out, "%s%s", cuts[sli_op_cut(cut)->pieces],
          own ? *cuts[sli_op_cut(cut)->pieces] ? "; own" : "own" : "");
}

static void print_row(const sl_op *op, FILE *out) {
  fprintf(out, "| %s | ", op->name);
  print_inputs(op, out);
  if (op->nout < 0) fprintf(out, " | any | ");
  else fprintf(out, " | %d | ", op->nout);
  print_gradient(op, out);
  fprintf(out, " | ");
  print_cut(op, out);
  fprintf(out, " | %s | %s | ", on_gpu(op),
          sli_op_narrow(op)->in || sli_op_narrow(op)->out ? "yes" : "");
  for (int k = 0; k < SL_OP_KINDS && op->attrs[k]; k++)
    fprintf(out, "%s%s", k ? ", " : "", op->attrs[k]->name);
  fprintf(out, " |\n");
}

static void print_fields(const char *title, const sl_attrs_kind *const *kinds, FILE *out) {
  static const char *const types[] = {
#define X(type) #type,
      SL_ATTRS_TYPE_TABLE(X)
#undef X
  };
  fputs(title, out);
  for (; *kinds; kinds++)
    for (const sl_attrs_field *f = (*kinds)->fields; f->name; f++) {
      fprintf(out, "| %s | %s | %s", (*kinds)->name, f->name, types[f->type]);
      if (f->length > 1) fprintf(out, "[%d]", f->length);
      fprintf(out, " | %s | %s |\n", f->none, f->text);
    }
}

static char *made(void) {
  char *text;
  size_t bytes;
  FILE *out = open_memstream(&text, &bytes);
  fputs(head, out);
  for (int i = 0; sl_ops[i]; i++) print_row(sl_ops[i], out);
  fputs("\n| without a GPU kernel | | what it does, or what needs it |\n| --- | --- | --- |\n",
        out);
  for (size_t i = 0; i < SLI_COUNT(elsewhere); i++)
    fprintf(out, "| %s | %s | %s |\n", elsewhere[i].name, elsewhere[i].how, elsewhere[i].why);
  print_fields(attributes, sl_attrs_kinds, out);
  print_fields(groups, sl_attrs_groups, out);
  fclose(out);
  return text;
}

static char *read_all(const char *path) {
  FILE *f = fopen(path, "r");
  CHECK(f, "%s cannot be read", path);
  char *text = calloc(1, 1 << 20);
  size_t n = fread(text, 1, (1 << 20) - 1, f);
  text[n] = 0;
  fclose(f);
  return text;
}

/* Reports the first line that differs. */
static void check_same(const char *is, const char *wanted) {
  for (int line = 1; *is || *wanted; line++) {
    size_t n = strcspn(is, "\n"), m = strcspn(wanted, "\n");
    CHECK(
        n == m && !memcmp(is, wanted, n),
        "docs/ops.md, line %d: \"%.*s\" should be \"%.*s\"; test_kernels_table write makes it anew",
        line, (int)n, is, (int)m, wanted);
    is += n + (is[n] != 0);
    wanted += m + (wanted[m] != 0);
  }
}

static bool is_named(const char *name) {
  for (int i = 0; sl_ops[i]; i++)
    if (!strcmp(sl_ops[i]->name, name)) return true;
  return false;
}

/* Each op has a GPU kernel or a reason, not both. */
static void check_reasons(void) {
  for (size_t i = 0; i < SLI_COUNT(elsewhere); i++) {
    CHECK(is_named(elsewhere[i].name), "there is no op %s", elsewhere[i].name);
    for (size_t g = 0; g < SLI_COUNT(on_gpus); g++)
      CHECK(strcmp(on_gpus[g].name, elsewhere[i].name), "op %s has a GPU kernel and a reason",
            elsewhere[i].name);
  }
}

int main(int argc, char **argv) {
  const char *source = getenv("SLUICE_SOURCE");
  if (!source) {
    printf("skipped: SLUICE_SOURCE does not say where docs/ops.md is\n");
    return 77;
  }
  char *path = sli_format("%s/docs/ops.md", source), *text = made();
  if (argc > 1 && !strcmp(argv[1], "write")) {
    FILE *f = fopen(path, "w");
    CHECK(f && fputs(text, f) >= 0 && !fclose(f), "%s cannot be written", path);
  }
  char *is = read_all(path);
  RUN(check_reasons);
  RUN(check_same, is, text);
  free(is);
  free(text);
  free(path);
  return 0;
}
