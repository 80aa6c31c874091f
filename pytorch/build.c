/* SPDX-License-Identifier: Apache-2.0 */
/* Builds the graph of an exported program: steps, blocks, data, loss. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "graph/build/build.h"
#include "pytorch/build.h"
#include "pytorch/emit.h"
#include "pytorch/fold.h"
#include "pytorch/import.h"
#include "pytorch/rows.h"
#include "pytorch/served.h"
#include "pytorch/sizes.h"
#include "pytorch/whole.h"

/* ---- calls on constants -------------------------------------------------------------------- */

static bool is_constant(const sli_import *m, const sli_pt_arg *arg) {
  if (arg->kind == SLI_PT_LIST) {
    for (int i = 0; i < arg->list.count; i++)
      if (!is_constant(m, &arg->list.of[i])) return false;
    return true;
  }
  return arg->kind != SLI_PT_VALUE || arg->value->symbol || sli_constant(m, arg->value);
}

/* Returns whether only the shape of the first tensor counts: zeros_like(x). */
static bool ignores_inputs(const sli_pt_call *row) { return row->fold == sli_fold_fill; }

static bool makes_tensors(const sli_pt_node *n) {
  for (int i = 0; i < n->nouts; i++)
    if (!n->outs[i] || n->outs[i]->symbol) return false;
  return n->nouts > 0;
}

/* Returns whether a call on constants removes a symbolic batch dim: its result may depend on the
 * number of rows, which is not that of the exported batch. */
static bool loses_rows(const sli_import *m, const sli_pt_node *n) {
  int before = 0, after = 0;
  for (int i = 0; i < n->nargs && m->p->rows; i++)
    if (n->args[i].kind == SLI_PT_VALUE && !n->args[i].value->symbol)
      before = SLI_MAX(before, __builtin_popcount(n->args[i].value->type.rows));
  for (int k = 0; k < n->nouts; k++)
    after = SLI_MAX(after, __builtin_popcount(n->outs[k]->type.rows));
  return after < before;
}

/* Gives a constant the symbolic dims of its value. */
static void mark_rows(sli_import *m, const sli_pt_value *v) {
  const sli_pt_array *a = sli_constant(m, v);
  if (!a || a->type.rows == v->type.rows || a->type.ndim != v->type.ndim) return;
  sli_pt_array *marked = sli_pt_array_view(&m->arena, a);
  marked->type.rows = v->type.rows;
  sli_made_of(m, v)->array = marked;
}

/* Computes a call. The result is dropped if an argument was not read. */
static void fold_call(sli_import *m, const sli_pt_node *n, const sli_pt_call *row) {
  const char *wanted;
  if (loses_rows(m, n)) return;
  sli_pt_forget_arguments(n);
  row->fold(m, n, row);
  for (int i = 0; i < n->nouts; i++) mark_rows(m, n->outs[i]);
  if (!sli_pt_unread(n, &wanted)) return;
  for (int i = 0; i < n->nouts; i++) sli_pt_out_array(m, n, i, NULL);
}

static void fold_calls(sli_import *m) {
  for (int i = 0; i < m->p->nnodes; i++) {
    const sli_pt_node *n = m->p->nodes[i];
    const sli_pt_call *row = sli_pt_call_find(n->target);
    bool all = row && row->fold && makes_tensors(n);
    for (int k = 0; all && k < n->nargs && !ignores_inputs(row); k++)
      all = is_constant(m, &n->args[k]);
    if (all) fold_call(m, n, row);
  }
}

/* ---- calls without a row ------------------------------------------------------------------- */

typedef struct missing {
  const char *target;
  int count;
  const sli_pt_node *first;
} missing;

/* Refuses all calls that are missing from the table, in one message. */
static void check_calls(sli_import *m) {
  missing *list = sli_arena_alloc(&m->arena, ((size_t)m->p->nnodes + 1) * sizeof *list);
  int count = 0;
  for (int i = 0; i < m->p->nnodes; i++) {
    const sli_pt_node *n = m->p->nodes[i];
    const sli_pt_call *row = sli_pt_call_find(n->target);
    if (m->pattern[i] || !sli_pt_wanted(m, n) || (row && row->emit)) continue;
    int k = 0;
    while (k < count && strcmp(list[k].target, n->target)) k++;
    if (k == count) list[count++] = (missing){n->target, 0, n};
    list[k].count++;
  }
  if (!count) return;
  char *text = sli_arena_strdup(&m->arena, "");
  for (int k = 0; k < count; k++) {
    const sli_pt_node *n = list[k].first;
    text = sli_arena_format(&m->arena, "%s%s%s (%d time%s, first at %s:%d)", text, k ? ", " : "",
                            list[k].target, list[k].count, list[k].count > 1 ? "s" : "",
                            n->file ? n->file : "?", n->line);
  }
  sl_graph_fail(m->g, SL_E_UNSUPPORTED, "%s calls what is not supported: %s",
                sli_archive_path(m->p->archive), text);
}

/* ---- blocks -------------------------------------------------------------------------------- */

/* Returns the length of a module's path up to its number `which` (from 0): "model.h.3" in
 * "model.h.3.attn". Returns 0 if there is no such number. */
static size_t numbered_end(const char *path, int which) {
  const char *at = path;
  while (*at) {
    const char *end = strchr(at, '.');
    if (!end) end = at + strlen(at);
    bool number = end > at;
    for (const char *c = at; c < end; c++) number &= isdigit((unsigned char)*c) != 0;
    if (number && !which--) return (size_t)(end - path);
    at = *end ? end + 1 : end;
  }
  return 0;
}

static bool same_prefix(const char *a, size_t na, const char *b, size_t nb) {
  return na == nb && !memcmp(a, b, na);
}

/* Counts the distinct blocks for a depth of numbers. */
static int count_blocks(const sli_import *m, int which) {
  const char *last = "";
  size_t length = 0;
  int count = 0;
  for (int i = 0; i < m->p->nnodes; i++) {
    const sli_pt_node *n = m->p->nodes[i];
    size_t end = sli_pt_wanted(m, n) ? numbered_end(n->module, which) : 0;
    if (!end || same_prefix(n->module, end, last, length)) continue;
    last = n->module, length = end;
    count++;
  }
  return count;
}

/* Chooses what ends a block's name: the first number of a path, or the second if the first yields
 * few blocks (stages of convolutions). */
static int pick_depth(const sli_import *m) {
  enum { FEW = 5 };
  int outer = count_blocks(m, 0), inner = count_blocks(m, 1);
  return outer < FEW && inner > outer ? 1 : 0;
}

/* State of the division into blocks. */
typedef struct blocks {
  const char *pattern; /* or NULL */
  int depth, last;     /* last: index of the last call within a block */
  const char *module;
  size_t length;
  bool ended;
} blocks;

/* Finds where the block ends in a path: by the user's pattern ("h.*"), otherwise by its number. */
static size_t block_end(const blocks *b, const char *path) {
  if (!b->pattern) {
    size_t end = numbered_end(path, b->depth);
    return end ? end : b->depth ? numbered_end(path, 0) : 0;
  }
  const char *star = strchr(b->pattern, '*');
  size_t before = star ? (size_t)(star - b->pattern) : strlen(b->pattern);
  for (const char *at = path; *at; at++) {
    if ((at != path && at[-1] != '.') || strncmp(at, b->pattern, before)) continue;
    const char *end = at + before;
    if (star)
      while (*end && *end != '.') end++;
    else if (*end && *end != '.') continue;
    return (size_t)(end - path);
  }
  return 0;
}

static void find_last(const sli_import *m, blocks *b) {
  b->last = -1;
  for (int i = 0; i < m->p->nnodes; i++)
    if (sli_pt_wanted(m, m->p->nodes[i]) && block_end(b, m->p->nodes[i]->module)) b->last = i;
}

/* Begins the block of a call, if it is a different one. Calls between blocks belong to the previous
 * block. */
static void enter_block(sli_import *m, blocks *b, int i) {
  const char *path = m->p->nodes[i]->module;
  size_t end = block_end(b, path);
  if (i > b->last && b->last >= 0 && !b->ended) {
    b->ended = true;
    sl_block(m->g, "head");
  }
  if (b->ended || !end || same_prefix(path, end, b->module, b->length)) return;
  b->module = path, b->length = end;
  sl_block(m->g, "%.*s", (int)end, path);
}

/* ---- calls --------------------------------------------------------------------------------- */

/* Returns whether a tensor has the exported dims, with the rows where they were followed, and where
 * the program says. */
static bool has_dims(sli_import *m, const sl_tensor *t, const sli_pt_value *v) {
  const sli_rows *rows = sli_rows_of(m, t);
  bool same = t->type.ndim == v->type.ndim;
  for (int d = 0; same && d < v->type.ndim; d++) {
    int64_t length = v->type.dim[d], factor = rows->dim[d].outer * rows->dim[d].inner;
    if (factor) same = length == factor * m->exported && t->type.dim[d] == factor * m->rows;
    else if (m->p->rows && sli_pt_size(m->p, v, d, m->rows, &length))
      same = t->type.dim[d] == length || t->type.dim[d] == 1;
    else same = t->type.dim[d] == length || t->type.dim[d] == 1 || rows->lost;
    if (factor && m->p->rows) same &= v->type.rows >> d & 1;
  }
  return same;
}

/* Checks a call's outputs against the types in the program. */
static void check_outputs(sli_import *m, const sli_pt_node *n) {
  char text[SL_TYPE_TEXT];
  for (int k = 0; k < n->nouts && !m->g->status; k++) {
    const sli_made *made = n->outs[k] ? sli_made_of(m, n->outs[k]) : NULL;
    if (!made || n->outs[k]->symbol) continue;
    if (made->tensor && m->rows != m->exported && !has_dims(m, made->tensor, n->outs[k]))
      sli_pt_refuse(m, n,
                    "it moves or mixes the rows of a batch, of which a microbatch has %lld of "
                    "%lld; use one microbatch",
                    (long long)m->rows, (long long)m->exported);
    else if (made->tensor && !has_dims(m, made->tensor, n->outs[k]))
      sli_pt_refuse(m, n, "its result %s is %s, and the program says another shape",
                    n->outs[k]->name, sl_type_format(text, &made->tensor->type));
    else if (made->needed && !made->tensor && !made->array && !made->sorted && !made->ids)
      sli_pt_refuse(m, n, "these arguments are not supported");
  }
}

/* Returns whether a call has a result and, except for a few kinds, a tensor as its first
 * argument. */
static bool is_whole(const sli_pt_node *n, const sli_pt_call *row) {
  static sli_pt_emit_fn *const others[] = {sli_emit_cat,  sli_emit_broadcast, sli_emit_einsum,
                                           sli_emit_draw, sli_emit_of,        sli_emit_nothing};
  bool needs = true;
  for (size_t i = 0; i < SLI_COUNT(others); i++) needs &= row->emit != others[i];
  return n->nouts && n->outs[0] && !n->outs[0]->symbol && (!needs || sli_pt_first(n));
}

/* Refuses a call if one of its arguments was not read and does not have its default. */
static void check_arguments(sli_import *m, const sli_pt_node *n) {
  const char *wanted = NULL;
  const sli_pt_arg *arg = m->g->status ? NULL : sli_pt_unread(n, &wanted);
  if (!arg) return;
  if (wanted)
    sli_pt_refuse(m, n, "argument %s must have its default, %.*s; other values are not supported",
                  arg->name, (int)strcspn(wanted, " "), wanted);
  else sli_pt_refuse(m, n, "argument %s is not supported", arg->name);
}

static bool makes_integers(const sli_pt_node *n) {
  for (int i = 0; i < n->nouts; i++) {
    const sli_pt_value *v = n->outs[i];
    if (v && !v->symbol && !sli_pt_floats(v->type.dtype) && v->type.dtype != SLI_PT_BOOL)
      return true;
  }
  return false;
}

/* Converts results that f32 ops computed: masks to 0 and 1, narrow integers to their range. */
static void settle_integers(sli_import *m, const sli_pt_node *n) {
  for (int i = 0; i < n->nouts && !m->g->status; i++) {
    sli_pt_value *v = n->outs[i];
    sl_tensor *t = v && !v->symbol ? sli_made_of(m, v)->tensor : NULL;
    if (!t || t->type.dtype == SL_I32 || sli_pt_floats(v->type.dtype)) continue;
    if (v->type.dtype == SLI_PT_BOOL) sli_pt_out(m, n, i, sli_pt_truth(m, t, SLI_PT_F32));
    else if (v->type.dtype < SLI_PT_I32)
      sli_pt_out(m, n, i, sli_pt_wrapped(m, sli_pt_i32(m, v), v->type.dtype));
  }
}

static void emit_call(sli_import *m, int i) {
  const sli_pt_node *n = m->p->nodes[i];
  m->at = (sl_here){n->file, n->line};
  m->emitted[i] = true;
  m->first[i] = m->g->nnodes;
  const sli_pt_call *row = sli_pt_call_find(n->target);
  sli_rows_enter(m, n, row, m->pattern[i] ? &m->match[i] : NULL);
  const sli_pt_node *as = m->pattern[i] ? n : sli_rows_constants(m, n);
  bool whole = m->pattern[i] || is_whole(n, row);
  m->exact = makes_integers(n);
  if (!m->pattern[i]) sli_pt_forget_arguments(as);
  if (m->pattern[i]) sli_pt_out(m, n, 0, m->pattern[i]->emit(m, n, &m->match[i]));
  else if (whole && !sli_pt_emit_whole(m, as)) row->emit(m, as, row);
  else if (!whole) sli_pt_refuse(m, n, "arguments are missing");
  check_arguments(m, as);
  settle_integers(m, n);
  m->exact = false;
  sli_rows_leave(m, n);
  check_outputs(m, n);
}

static void emit_calls(sli_import *m, blocks *b) {
  sl_block(m->g, "embedding");
  for (int i = 0; i < m->p->nnodes && !m->g->status; i++) {
    if (!sli_pt_wanted(m, m->p->nodes[i])) continue;
    enter_block(m, b, i);
    emit_call(m, i);
  }
}

/* ---- inputs -------------------------------------------------------------------------------- */

/* Loads buffers and constants that the program does not change. */
static void load_constants(sli_import *m) {
  for (int i = 0; i < m->p->ninputs && !m->g->status; i++) {
    sli_pt_input *in = &m->p->inputs[i];
    void *data;
    if (in->role == SLI_PT_PARAM || in->role == SLI_PT_USER || in->mutated || in->follows) continue;
    if (sli_archive_verify(m->p->archive, in->entry) || sli_pt_input_read(m->p, in, &data)) {
      sl_graph_fail(m->g, SL_E_INPUT, "%s", sl_detail());
      return;
    }
    sli_made_of(m, in->value)->array = sli_pt_array_of(&m->arena, &in->value->type, data);
    free(data);
  }
}

/* Marks float arguments as values that the loss has a gradient for. */
static void learn(sli_import *m, const sli_pt_arg *args, int count) {
  for (int i = 0; i < count; i++)
    if (args[i].kind == SLI_PT_LIST) learn(m, args[i].list.of, args[i].list.count);
    else if (args[i].kind == SLI_PT_VALUE && sli_pt_floats(args[i].value->type.dtype))
      sli_made_of(m, args[i].value)->learned = true;
}

/* Returns whether an argument depends on a parameter. */
static bool depends(const sli_import *m, const bool *on_params, const sli_pt_arg *args, int count) {
  bool any = false;
  for (int i = 0; i < count; i++)
    if (args[i].kind == SLI_PT_LIST)
      any |= depends(m, on_params, args[i].list.of, args[i].list.count);
    else any |= args[i].kind == SLI_PT_VALUE && on_params[args[i].value->id];
  return any;
}

/* Returns true for calls without a gradient. */
static bool stops_gradient(const sli_pt_node *n) {
  static const char *const stops[] = {"aten.detach.default", "aten.floor.default",
                                      "aten.ceil.default",   "aten.round.default",
                                      "aten.trunc.default",  "aten.sign.default"};
  for (size_t i = 0; i < SLI_COUNT(stops); i++)
    if (!strcmp(n->target, stops[i])) return true;
  return false;
}

/* Finds the values that depend on parameters through calls with a gradient. */
static bool *find_dependent(sli_import *m) {
  bool *on = sli_arena_alloc(&m->arena, ((size_t)m->p->nvalues + 1) * sizeof *on);
  for (int i = 0; i < m->p->ninputs; i++)
    on[m->p->inputs[i].value->id] = m->p->inputs[i].role == SLI_PT_PARAM;
  for (int i = 0; i < m->p->nnodes; i++) {
    const sli_pt_node *n = m->p->nodes[i];
    bool any = !stops_gradient(n) && depends(m, on, n->args, n->nargs);
    for (int k = 0; k < n->nouts; k++)
      if (n->outs[k]) on[n->outs[k]->id] = any;
  }
  return on;
}

/* Marks values that depend on parameters and that the loss has a gradient for. Parameters behind a
 * detach() are not marked, and are frozen. */
static void mark_learned(sli_import *m, const sli_pt_value *loss) {
  const bool *on = find_dependent(m);
  sli_made_of(m, loss)->learned = true;
  for (int i = m->p->nnodes - 1; i >= 0; i--) {
    const sli_pt_node *n = m->p->nodes[i];
    bool learned = false;
    for (int k = 0; k < n->nouts; k++)
      learned |= n->outs[k] && !n->outs[k]->symbol && sli_made_of(m, n->outs[k])->learned;
    if (learned && !stops_gradient(n)) learn(m, n->args, n->nargs);
  }
  for (int i = 0; i < m->p->nvalues; i++) m->made[i].learned &= on[i];
  for (int i = 0; i < m->p->ninputs; i++) {
    const sli_pt_input *in = &m->p->inputs[i];
    if (in->same && sli_made_of(m, in->value)->learned)
      sli_made_of(m, in->same->value)->learned = true;
  }
}

static sli_import *begin(sl_graph *g, sli_pt_program *p, int64_t exported, int64_t rows) {
  sli_import *m = sl_graph_alloc(g, sizeof *m);
  *m = (sli_import){.g = g, .p = p, .exported = exported, .rows = rows, .any_order = true};
  m->made = sl_graph_alloc(g, ((size_t)p->nvalues + 1) * sizeof *m->made);
  m->pattern = sl_graph_alloc(g, ((size_t)p->nnodes + 1) * sizeof *m->pattern);
  m->note = sl_graph_alloc(g, ((size_t)p->nnodes + 1) * sizeof *m->note);
  m->emitted = sl_graph_alloc(g, ((size_t)p->nnodes + 1) * sizeof *m->emitted);
  m->match = sl_graph_alloc(g, ((size_t)p->nnodes + 1) * sizeof *m->match);
  m->first = sl_graph_alloc(g, ((size_t)p->nnodes + 1) * sizeof *m->first);
  return m;
}

/* Reports that no output can be the loss, and lists the outputs. */
static void refuse_loss(sli_import *m) {
  char *text = sli_arena_strdup(&m->arena, "");
  for (int i = 0; i < m->p->nouts; i++) {
    const sli_pt_value *v = m->p->outs[i];
    text = sli_arena_format(&m->arena, "%s%s%s", text, i ? ", " : "",
                            sli_pt_dtype_name(v->type.dtype));
    for (int d = 0; d < v->type.ndim; d++)
      text = sli_arena_format(&m->arena, "%s%s%lld%s", text, d ? ", " : "[",
                              (long long)v->type.dim[d], d == v->type.ndim - 1 ? "]" : "");
  }
  sl_graph_fail(m->g, SL_E_USAGE,
                "%s: forward() returns no loss, a float without dims, but %s; wrap the module so "
                "that its forward() computes the loss",
                sli_archive_path(m->p->archive), *text ? text : "nothing");
}

/* ---- state --------------------------------------------------------------------------------- */

/* Updates a buffer as the program does, if it adds a constant, as counters do. Other changes are
 * refused; batch norm updates its own buffers. */
static void follow_buffer(sli_import *m, const sli_pt_input *in) {
  const sli_pt_node *n = in->mutated->def;
  const sli_pt_value *from = n ? sli_pt_arg_value(n, "self") : NULL;
  double by = sli_pt_number(m, n, "other", 0) * sli_pt_number(m, n, "alpha", 1);
  bool adds = from == in->value && !strncmp(n->target, "aten.add", 8) && by != 0;
  m->at = (sl_here){n->file, n->line};
  if (!adds) {
    sli_pt_refuse(m, n,
                  "it changes buffer %s; counters and the statistics of batch norm are the "
                  "buffers that may change",
                  in->name);
    return;
  }
  sl_tensor *param = sli_pt_buffer(m, in->value);
  sl_tensor *value = param ? sl_filled_at(m->at, m->g, param->type, (float)by, NULL) : NULL;
  if (value) sl_running_at(m->at, m->g, param, value, 0);
}

static void follow_buffers(sli_import *m) {
  for (int i = 0; i < m->p->ninputs && !m->g->status; i++)
    if (m->p->inputs[i].mutated && m->p->inputs[i].mutated->def) follow_buffer(m, &m->p->inputs[i]);
}

/* Adds the calls that a result needs, and returns its tensor, or NULL if the graph has failed. */
static sl_tensor *emit_result(sli_import *m, const sli_pt_use *of, sli_pt_value *out) {
  m->constants = of->constants;
  sli_rows_begin(m);
  load_constants(m);
  for (int i = 0; i < of->ninputs && !m->g->status; i++) {
    sli_made_of(m, of->inputs[i]->value)->tensor = of->tensors[i];
    if (of->counts[i] && of->tensors[i]) sli_rows_set_first(m, of->tensors[i]);
  }
  if (!m->g->status) fold_calls(m);
  if (!m->g->status) sli_pt_mark(m, &out, 1);
  for (int i = 0; i < of->ninputs && !m->g->status; i++)
    if (!of->tensors[i] && sli_made_of(m, of->inputs[i]->value)->needed)
      sl_graph_fail(m->g, SL_E_UNSUPPORTED,
                    "%s: its results depend on input %s, but a server has tokens only",
                    sli_archive_path(m->p->archive), of->inputs[i]->name);
  if (!m->g->status) mark_learned(m, out);
  if (!m->g->status) check_calls(m);
  if (!m->g->status) {
    blocks b = {.pattern = of->block, .module = "", .depth = pick_depth(m)};
    find_last(m, &b);
    emit_calls(m, &b);
  }
  return m->g->status ? NULL : sli_pt_tensor(m, out);
}

sl_status sli_pt_build(sl_graph *g, const sli_pt_use *of) {
  sli_import *m = begin(g, of->program, of->exported, of->rows);
  sli_pt_value *out = of->program->loss < 0 ? NULL : of->program->outs[of->program->loss];
  if (!g->status && !out) refuse_loss(m);
  sl_tensor *loss = g->status ? NULL : emit_result(m, of, out);
  if (loss) follow_buffers(m);
  if (g->status) loss = NULL;
  if (loss && loss->type.dtype == SL_F32) loss = sl_op1_at(m->at, g, &sl_op_to_f64, NULL, loss);
  if (loss && sl_graph_infer(g)) sl_output_at(m->at, g, "loss", loss);
  else if (loss) sl_train_at(m->at, g, loss, of->optimizer);
  if (of->show && !g->status) sli_pt_show(m, of->show);
  sli_arena_fini(&m->arena);
  return g->status;
}

/* ---- serving ------------------------------------------------------------------------------- */

/* Returns the call that made a node of the graph. */
static const sli_pt_node *call_of(const sli_import *m, const sli_node *n) {
  const sli_pt_node *found = NULL;
  for (int i = 0; i < m->p->nnodes; i++)
    if (m->emitted[i] && m->first[i] <= n->id) found = m->p->nodes[i];
  return found;
}

static void refuse_served(void *ctx, sl_graph *to, const sli_node *n, const char *why) {
  const sli_import *m = ctx;
  const sli_pt_node *call = call_of(m, n);
  const char *file = call ? call->file : NULL;
  sl_graph_fail(to, SL_E_UNSUPPORTED, "%s cannot be served: %s (%s)%s%s%s%.0d: %s",
                sli_archive_path(m->p->archive), call ? call->target : n->op->name,
                call && call->nouts ? call->outs[0]->name : n->name, file ? " at " : "",
                file ? file : "", file ? ":" : "", file ? call->line : 0, why);
}

static void destroy_graph(void *g) { sl_graph_destroy(g); }

/* Makes a graph of one row, which lives as long as the served one: it has the records of calls. */
static sl_graph *row_graph(sl_graph *g) {
  sl_graph *from = sl_graph_create(&(sl_graph_options){.infer = true, .no_data = true});
  sli_graph_cleanup(g, destroy_graph, from);
  return from;
}

static void fill_nothing(void *ctx, const sl_tick *tick, void *const *out) {
  (void)ctx, (void)tick, (void)out;
}

/* Returns tokens without contents. */
static sl_tensor *blank_tokens(sl_graph *g, sl_type shape) {
  sl_source *source = sl_graph_alloc(g, sizeof *source);
  sl_type *type = sl_graph_alloc(g, sizeof *type);
  sl_tensor *out = NULL;
  *type = shape;
  *source = (sl_source){.nout = 1, .types = type, .fill = fill_nothing};
  sl_data_at(SL_HERE, g, source, &out);
  return out;
}

/* Builds the logits of a number of rows of positions. */
static sl_tensor *emit_batch(sli_import *m, const sli_pt_use *of, int ids, sli_pt_value *logits,
                             sl_tensor **tokens) {
  sl_tensor **tensors = sl_graph_alloc(m->g, (size_t)of->ninputs * sizeof(sl_tensor *));
  sli_pt_use batch = *of;
  batch.rows = m->rows;
  batch.tensors = tensors;
  *tokens = tensors[ids] =
      blank_tokens(m->g, SL_TYPE(SL_I32, SLI_MAX(m->rows, 1), of->inputs[ids]->value->type.dim[1]));
  return m->g->status ? NULL : emit_result(m, &batch, logits);
}

/* Refuses a program that combines the rows of its batch: served rows are sequences of their own. */
static void check_batch(sl_graph *g, const sli_pt_use *of, int ids, sli_pt_value *logits) {
  enum { SOME = 2 };
  const int64_t length = of->inputs[ids]->value->type.dim[1];
  sl_graph *from = row_graph(g), *scratch = row_graph(g);
  sli_import *m = begin(from, of->program, of->exported, of->exported);
  sl_tensor *tokens, *out = emit_batch(m, of, ids, logits, &tokens);
  sl_tensor *rows = blank_tokens(scratch, SL_TYPE(SL_I32, 1, SOME, length));
  const sli_served_how how = {refuse_served, m};
  if (out && rows) sli_served_check_batch(&how, from, tokens, out, scratch, rows);
  if (from->status || scratch->status)
    sl_graph_fail(g, from->status ? from->status : scratch->status, "%s", sl_detail());
  sli_arena_fini(&m->arena);
}

sl_status sli_pt_serve(sl_graph *g, const sli_pt_use *of, int ids, sli_pt_value *logits,
                       sl_tensor *rows) {
  sl_graph *from = row_graph(g);
  sli_import *m = begin(from, of->program, of->exported, of->exported ? 1 : 0);
  sl_tensor *tokens, *out = emit_batch(m, of, ids, logits, &tokens);
  if (!out) sl_graph_fail(g, from->status, "%s", sl_detail());
  const sli_served_how how = {refuse_served, m};
  if (out) out = sli_served_rewrite(&how, from, tokens, out, g, rows);
  if (out) sl_output_at(m->at, g, "logits", out);
  if (out && of->exported > 1) check_batch(g, of, ids, logits);
  if (of->show && !g->status) sli_pt_show(m, of->show);
  sli_arena_fini(&m->arena);
  return g->status;
}
