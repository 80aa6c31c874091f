/* SPDX-License-Identifier: Apache-2.0 */
/* The table of attention (ops/attention.def): each variant in each form is a row of sl_op or has a
 * reason to refuse; facets name the forms; shapes of forward and backward calls agree.
 * labels: unthreaded smoke */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "ops/attention_blocks.h"
#include "ops/attention_table.h"
#include "tests/support/test.h"

enum { B = 2, T = 128, HEADS = 4, KEYS = 2, DIM = 8, LENGTH = 2 * T, MOST = 16 };

static const sl_attrs attrs = {.attention.heads = HEADS,
                               .attention.kv_heads = KEYS,
                               .place.length = LENGTH,
                               .attention.chunk = SLI_KEY_TILE,
                               .pages.count = 2};

/* Inputs of each variant, in the order of the table. */
#define F32(...) SL_TYPE(SL_F32, __VA_ARGS__)
#define I32(...) SL_TYPE(SL_I32, __VA_ARGS__)
#define Q F32(B, T, HEADS *DIM)
#define K F32(B, T, KEYS *DIM)
static const struct {
  const sl_op *op;
  sl_type in[5];
} cases[] = {
    {&sl_op_attention, {Q, K, K}},
    {&sl_op_attention_packed, {F32(B, T, (HEADS + 2 * KEYS) * DIM)}},
    {&sl_op_attention_sinks, {Q, K, K, F32(B, T, HEADS)}},
    {&sl_op_attention_dual, {Q, K, K, Q, Q}},
    {&sl_op_attention_blocks, {Q, K, K, I32(B, HEADS, T / SLI_BLOCK, 2)}},
    {&sl_op_attention_chosen, {Q, Q, F32(B, T, HEADS * 5), I32(B, T, 3)}},
};

/* A call that has been inferred. */
typedef struct call {
  const sl_op *op;
  int nin, nout;
  sl_type in[MOST], out[MOST];
} call;

static void infer(call *c) {
  c->nout = c->op->nout < 0 ? c->op->outputs(&attrs, c->nin) : c->op->nout;
  CHECK(c->nin >= c->op->min_in && c->nin <= c->op->max_in, "%s: %d inputs", c->op->name, c->nin);
  CHECK(!c->op->infer(&attrs, c->nin, c->in, c->out), "%s: %s", c->op->name, sl_detail());
}

static void copy_types(sl_type *to, int *n, const sl_type *from, int count) {
  for (int i = 0; i < count; i++) to[(*n)++] = from[i];
}

/* Returns the backward call that an op's gradient rule makes. */
static call backward(const call *forward) {
  const sl_grad_rule *rule = &forward->op->grad[0];
  call c = {.op = rule->op};
  for (const sl_grad_arg *a = rule->in; a < rule->in + SL_GRAD_ARGS && a->kind; a++) {
    bool in = a->kind == SL_ARG_IN || a->kind == SL_ARG_INS;
    bool all = a->kind == SL_ARG_INS || a->kind == SL_ARG_OUTS;
    int end = in ? forward->nin : forward->nout;
    CHECK(!in || a->index < forward->op->max_in, "%s has an input %d", forward->op->name, a->index);
    copy_types(c.in, &c.nin, (in ? forward->in : forward->out) + a->index,
               all ? SLI_MAX(end - a->index, 0) : 1);
  }
  infer(&c);
  return c;
}

static void check_backward(const call *forward) {
  const sl_grad_rule *rule = &forward->op->grad[0];
  call b = backward(forward);
  double flops[2], bytes;
  for (int i = 0; i < rule->nwrt; i++)
    CHECK(sl_type_equal(&b.out[i], &forward->in[rule->wrt[i]]),
          "%s: output %d has not the type of input %d", b.op->name, i, rule->wrt[i]);
  if (!forward->op->cost) return;
  forward->op->cost(&attrs, forward->nin, forward->in, forward->out, &flops[0], &bytes);
  b.op->cost(&attrs, b.nin, b.in, b.out, &flops[1], &bytes);
  CHECK(flops[0] > 0 && flops[1] > 2 * flops[0] && flops[1] < 3 * flops[0], "%s: %g, %g",
        b.op->name, flops[0], flops[1]);
}

/* Checks the call recomputed in the backward pass: it has the outputs of the forward call. */
static void check_again(const call *forward) {
  const sl_op *op = forward->op->rematerialized;
  call c = {.op = op, .nin = forward->nin};
  memcpy(c.in, forward->in, sizeof c.in);
  for (int o = 0; o < forward->nout; o++)
    if (sli_op_memory(forward->op)->updates >> o & 1) copy_types(c.in, &c.nin, &forward->out[o], 1);
  infer(&c);
  CHECK(c.nout == forward->nout, "%s: %d outputs", op->name, c.nout);
  for (int o = 0; o < c.nout; o++)
    CHECK(sl_type_equal(&c.out[o], &forward->out[o]), "%s: output %d", op->name, o);
}

/* Checks a variant in a form that has its inputs, with and without ids. */
static void check_form(int v, const sl_op *op) {
  const sli_attention_variant *variant = &sli_attention_variants[v];
  for (int ids = 0; ids <= variant->ids; ids++) {
    call c = {.op = op};
    copy_types(c.in, &c.nin, cases[v].in, variant->inputs);
    if (ids) copy_types(c.in, &c.nin, &I32(B, T), 1);
    infer(&c);
    check_backward(&c);
    if (op->rematerialized) check_again(&c);
  }
}

/* Checks a form of the parts that a variant makes. */
static void check_parts(int v, const sl_op *parts, const sl_op *op) {
  call p = {.op = parts}, c = {.op = op};
  copy_types(p.in, &p.nin, cases[v].in, parts->max_in);
  infer(&p);
  copy_types(c.in, &c.nin, p.out, p.nout);
  infer(&c);
  check_backward(&c);
  if (op->rematerialized) check_again(&c);
}

static void check_served(int v, const sl_op *op) {
  const sli_attention_variant *variant = &sli_attention_variants[v];
  call c = {.op = op};
  copy_types(c.in, &c.nin, cases[v].in, variant->inputs);
  if (variant->ids) c.in[c.nin++].ndim = -1;
  copy_types(c.in, &c.nin, &I32(64), 1);
  infer(&c);
  CHECK(sli_op_rows(op)->looks == (1u << variant->inputs) - 1, "%s", op->name);
}

/* ---- the table ------------------------------------------------------------------------------- */

static const char *const forms[] = {
    [SLI_ATTENTION_WHOLE] = "",
    [SLI_ATTENTION_PIECE] = "_piece",
    [SLI_ATTENTION_PIECE_AGAIN] = "_piece_again",
    [SLI_ATTENTION_PARTS] = "_parts",
    [SLI_ATTENTION_SWEEP] = "_sweep",
    [SLI_ATTENTION_SHARE] = "_share",
    [SLI_ATTENTION_SHARE_AGAIN] = "_share_again",
    [SLI_ATTENTION_STEP] = "_step",
    [SLI_ATTENTION_SERVED] = "_served",
};

/* Checks that a cell has an op of that form, or a reason that reads as part of a message. */
static void check_cell(const sl_op *whole, const sli_attention_cell *cell, int form) {
  CHECK(!cell->op != !cell->refusal, "%s, form %d: an op or a reason", whole->name, form);
  if (cell->refusal) {
    CHECK(islower((unsigned char)cell->refusal[0]) && strlen(cell->refusal) > 20, "%s",
          cell->refusal);
    CHECK(sli_attention_refusal(whole, form) == cell->refusal, "%s", cell->refusal);
    return;
  }
  const char *name = cell->op->name;
  size_t n = strlen(name), end = strlen(forms[form]);
  CHECK(n > end && !strcmp(name + n - end, forms[form]), "%s ends with %s", name, forms[form]);
  CHECK(sl_op_find(name) == cell->op, "%s is in the table of ops", name);
  CHECK(!sli_attention_refusal(whole, form), "%s", name);
}

static void check_variant(int v) {
  const sli_attention_cell *cells = sli_attention_cells[v];
  const sl_op *op = cells[SLI_ATTENTION_WHOLE].op, *piece = cells[SLI_ATTENTION_PIECE].op,
              *parts = cells[SLI_ATTENTION_PARTS].op;
  CHECK(op == cases[v].op, "row %d is %s", v, op->name);
  for (int f = 0; f < SLI_ATTENTION_FORMS; f++) check_cell(op, &cells[f], f);
  const sl_op_cut *cut = sli_op_cut(op);
  CHECK(cut->pieced == piece, "%s in pieces", op->name);
  CHECK((piece ? piece->rematerialized : NULL) == cells[SLI_ATTENTION_PIECE_AGAIN].op, "%s",
        op->name);
  CHECK(cut->parts == parts && cut->swept == cells[SLI_ATTENTION_SWEEP].op &&
            cut->shared == cells[SLI_ATTENTION_SHARE].op,
        "%s in parts", op->name);
  CHECK((sli_op_sequence(op) == SL_SEQUENCE_RING) == !!cells[SLI_ATTENTION_STEP].op, "%s in a ring",
        op->name);
  CHECK(sli_op_serve(op)->op == cells[SLI_ATTENTION_SERVED].op, "%s served", op->name);
  check_form(v, op);
  if (piece) check_form(v, piece);
  if (parts) check_parts(v, parts, cut->swept);
  if (parts) check_parts(v, parts, cut->shared);
  if (sli_op_serve(op)->op) check_served(v, sli_op_serve(op)->op);
}

int main(void) {
  CHECK(SLI_COUNT(cases) == SLI_VARIANTS, "%d variants", (int)SLI_VARIANTS);
  for (int v = 0; v < SLI_VARIANTS; v++) check_variant(v);
  CHECK(!sli_attention_refusal(&sl_op_linear, SLI_ATTENTION_PIECE), "linear is no attention");
}
