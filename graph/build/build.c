/* SPDX-License-Identifier: Apache-2.0 */
/* Construction of a graph: blocks, parameters, loss or outputs, and the first error. apply.c
 * applies ops. */
#include "graph/build/build.h"

#include <math.h>
#include <stdio.h>
#include <locale.h>
#include <stdlib.h>
#include <string.h>

#include "actors/plan/plan.h"

/* ---- life and errors -------------------------------------------------------- */

/* Refuses a locale in which the numbers of options and files would be read and written otherwise.
 */
static void check_locale(sl_graph *g) {
  const char *point = localeconv()->decimal_point;
  if (strcmp(point, "."))
    sl_graph_fail(
        g, SL_E_USAGE,
        "the program's locale writes \"%s\" for the decimal point, so that numbers would be "
        "misread: call setlocale(LC_NUMERIC, \"C\") after setlocale(LC_ALL, \"\")",
        point);
}

sl_graph *sl_graph_create(const sl_graph_options *options) {
  sl_graph *g = sli_calloc(1, sizeof *g);
  if (options) g->options = *options;
  if (!g->options.microbatches) g->options.microbatches = 1;
  if (!g->options.pieces) g->options.pieces = 1;
  check_locale(g);
  if (g->options.eval_every < 0 || g->options.eval_every > SLI_EVERY_MOST)
    sl_graph_fail(g, SL_E_USAGE, "evaluation every %lld steps: must be from 0 to %d",
                  (long long)g->options.eval_every, SLI_EVERY_MOST);
  if (g->options.microbatches < 1 || g->options.pieces < 1)
    sl_graph_fail(g, SL_E_USAGE, "%d microbatches of %d pieces: both must be at least 1",
                  g->options.microbatches, g->options.pieces);
  else if (g->options.infer && g->options.pieces > 1)
    sl_graph_fail(g, SL_E_USAGE, "%d pieces: inference does not cut sequences into pieces",
                  g->options.pieces);
  else if (g->options.lengths) {
    size_t bytes = (size_t)g->options.pieces * sizeof *g->options.lengths;
    g->options.lengths = memcpy(sli_arena_alloc(&g->arena, bytes), g->options.lengths, bytes);
  }
  return g;
}

void sl_graph_destroy(sl_graph *g) {
  if (!g) return;
  struct sli_cleanups *c = &g->cleanups;
  while (c->count--) c->items[c->count].fn(c->items[c->count].arg);
  free(c->items);
  free(g->nodes);
  free(g->tensors);
  free(g->blocks);
  free(g->params);
  free(g->known.hashes);
  free(g->outputs);
  free(g->metrics.items);
  free(g->metrics.counters.of);
  free(g->files.items);
  free(g->training.rules);
  free(g->training.adapters.rules);
  sli_arena_fini(&g->arena);
  free(g);
}

void sli_graph_cleanup(sl_graph *g, void (*fn)(void *), void *arg) {
  struct sli_cleanups *c = &g->cleanups;
  SLI_GROW(c->items, (size_t)c->count, c->capacity);
  c->items[c->count++] = (struct sli_cleanup){fn, arg};
}

sl_status sl_graph_status(const sl_graph *g) {
  return g->status ? sl_fail(g->status, "%s", g->detail) : SL_OK;
}

static sl_status record(sl_graph *g, sl_status status, char *text) {
  SLI_CHECK(status, "an error without a status: %s", text);
  if (!g->status) {
    g->status = status;
    g->detail = text;
  }
  return sl_graph_status(g);
}

sl_status sl_graph_fail(sl_graph *g, sl_status status, const char *format, ...) {
  va_list args;
  va_start(args, format);
  char *text = sli_format_list(&g->arena, format, args);
  va_end(args);
  return record(g, status, text);
}

sl_status sli_graph_fail_at(sl_graph *g, sl_here at, sl_status status, const char *format, ...) {
  va_list args;
  va_start(args, format);
  char *text = sli_format_list(&g->arena, format, args);
  va_end(args);
  if (at.file) text = sli_arena_format(&g->arena, "%s:%d: %s", at.file, at.line, text);
  return record(g, status, text);
}

/* ---- settings ----------------------------------------------------------------- */

int sl_graph_microbatches(const sl_graph *g) { return g->options.microbatches; }
int sl_graph_stages(const sl_graph *g) { return SLI_MAX(g->options.stages, 1); }
bool sl_graph_infer(const sl_graph *g) { return g->options.infer; }
bool sl_graph_reads_data(const sl_graph *g) {
  const sl_objective *o = sli_objective(g);
  return !g->options.infer && !g->options.no_data && !(o && o->tokens);
}
void *sl_graph_alloc(sl_graph *g, size_t bytes) { return sli_arena_alloc(&g->arena, bytes); }

int64_t sl_microbatch_rows(sl_graph *g, int64_t batch) {
  if (g->options.infer) return 1;
  int m = g->options.microbatches;
  if (batch < 1) {
    sl_graph_fail(g, SL_E_USAGE, "batch of %lld rows: must have at least 1", (long long)batch);
    return 1;
  }
  if (batch % m) {
    sl_graph_fail(g, SL_E_USAGE, "a batch of %lld rows cannot be cut into %d equal microbatches",
                  (long long)batch, m);
    return 1;
  }
  return batch / m;
}

/* ---- blocks ------------------------------------------------------------------- */

/* Returns the block of this name, or -1. */
static int find_block(const sl_graph *g, const char *name) {
  for (int b = 0; b < g->nblocks; b++)
    if (!strcmp(g->blocks[b].name, name)) return b;
  return -1;
}

/* Opens a block, numbered if the name is taken. */
static sli_block *open_block(sl_graph *g, const char *given) {
  const char *name = given;
  for (int n = 2; find_block(g, name) >= 0; n++)
    name = sli_arena_format(&g->arena, "%s.%d", given, n);
  SLI_GROW(g->blocks, (size_t)g->nblocks, g->capacity.blocks);
  int stage = g->nblocks ? g->blocks[g->nblocks - 1].stage : -1;
  g->blocks[g->nblocks] = (sli_block){.name = name, .stage = stage, .first = g->nblocks};
  return &g->blocks[g->nblocks++];
}

void sl_block(sl_graph *g, const char *format, ...) {
  if (g->status) return;
  va_list args;
  va_start(args, format);
  open_block(g, sli_format_list(&g->arena, format, args));
  va_end(args);
}

void sl_block_again(sl_graph *g, const char *format, ...) {
  if (g->status) return;
  va_list args;
  va_start(args, format);
  const char *name = sli_format_list(&g->arena, format, args);
  va_end(args);
  int first = find_block(g, name);
  if (first < 0) {
    sl_graph_fail(g, SL_E_USAGE, "block %s: cannot be visited again before it exists", name);
    return;
  }
  first = g->blocks[first].first;
  sli_block *block = open_block(g, g->blocks[first].name);
  block->first = first;
  for (int b = 0; b + 1 < g->nblocks; b++) block->visits += g->blocks[b].first == first;
}

void sl_block_stage(sl_graph *g, int stage) {
  if (g->status) return;
  if (!g->nblocks) sl_block(g, "main");
  sli_block *block = &g->blocks[g->nblocks - 1];
  if (block->visits) {
    sl_graph_fail(g, SL_E_USAGE, "block %s: runs on the stage of block %s, which it visits again",
                  block->name, g->blocks[block->first].name);
    return;
  }
  int before = g->nblocks > 1 ? g->blocks[g->nblocks - 2].stage : -1;
  if (stage < 0 || stage < before) {
    sl_graph_fail(g, SL_E_USAGE, "block %s: invalid stage %d: %s", block->name, stage,
                  stage < 0 ? "stages count from 0" : "the block before it is on a later stage");
    return;
  }
  block->stage = stage;
}

/* ---- tensors -------------------------------------------------------------------- */

sl_tensor *sli_graph_tensor(sl_graph *g, const sl_type *type, const char *name) {
  sl_tensor *t = sli_arena_alloc(&g->arena, sizeof *t);
  *t = (sl_tensor){.id = g->ntensors, .name = name, .type = *type, .param_index = -1, .home = -1};
  SLI_GROW(g->tensors, (size_t)g->ntensors, g->capacity.tensors);
  return g->tensors[g->ntensors++] = t;
}

bool sli_type_possible(const sl_type *type) {
  int64_t elements = 1;
  if (type->ndim < 0 || type->ndim > SL_MAX_DIMS || (unsigned)type->dtype >= SL_DTYPE_COUNT)
    return false;
  for (int d = 0; d < type->ndim; d++)
    if (type->dim[d] < 1 || __builtin_mul_overflow(elements, type->dim[d], &elements) ||
        elements > INT64_MAX / 64)
      return false;
  return true;
}

char *sli_type_text(char *out, const sl_type *type) {
  if (type->ndim <= SL_MAX_DIMS) return sl_type_format(out, type);
  snprintf(out, SL_TYPE_TEXT, "%s with %d dims", sl_dtype_name(type->dtype), type->ndim);
  return out;
}

static uint64_t name_hash(const char *name) { return sli_hash(SLI_HASH_SEED, name, strlen(name)); }

static sl_tensor *find_param(const sl_graph *g, const char *name) {
  uint64_t hash = name_hash(name);
  for (int i = 0; i < g->nparams; i++)
    if (g->known.hashes[i] == hash && !strcmp(g->params[i]->name, name)) return g->params[i];
  return NULL;
}

/* True if the ops that follow visit a block again, whose parameters exist. */
static bool is_again(const sl_graph *g) { return g->nblocks && g->blocks[g->nblocks - 1].visits; }

static sl_status refuse_shape(sl_graph *g, sl_here at, const sl_type *type,
                              const sl_tensor *known) {
  char now[SL_TYPE_TEXT], then[SL_TYPE_TEXT];
  const sli_block *block = &g->blocks[g->nblocks - 1];
  return sli_graph_fail_at(
      g, at, SL_E_SHAPE,
      "block %s: visit %d needs parameter %s as %s, but it is %s: all visits of a block have the "
      "same shapes",
      g->blocks[block->first].name, block->visits + 1, known->name, sl_type_format(now, type),
      sl_type_format(then, &known->type));
}

static sl_status check_param(sl_graph *g, sl_here at, const sl_type *type, sl_init init,
                             const char *name) {
  char text[SL_TYPE_TEXT];
  if (!sli_type_possible(type))
    return sli_graph_fail_at(g, at, SL_E_SHAPE, "parameter %s: %s is not a possible shape", name,
                             sli_type_text(text, type));
  if (type->dtype != SL_F32)
    return sli_graph_fail_at(g, at, SL_E_SHAPE, "parameter %s must be f32, got %s", name,
                             sl_type_format(text, type));
  if (!isfinite(init.scale) || init.kind > SL_INIT_GIVEN ||
      (init.kind == SL_INIT_GIVEN && (!init.given || !init.given->read)))
    return sli_graph_fail_at(g, at, SL_E_USAGE, "parameter %s: invalid init rule %d or scale %g",
                             name, (int)init.kind, (double)init.scale);
  const sl_tensor *other = find_param(g, name);
  if (other && is_again(g))
    return sl_type_equal(&other->type, type) ? SL_OK : refuse_shape(g, at, type, other);
  if (other && !other->at.file)
    return sli_graph_fail_at(g, at, SL_E_USAGE, "parameter %s already exists", name);
  if (other)
    return sli_graph_fail_at(g, at, SL_E_USAGE, "parameter %s already exists, from %s:%d", name,
                             other->at.file, other->at.line);
  return SL_OK;
}

static void add_param(sl_graph *g, sl_tensor *t) {
  SLI_GROW(g->params, (size_t)g->nparams, g->capacity.params);
  SLI_GROW(g->known.hashes, (size_t)g->nparams, g->known.capacity);
  g->known.hashes[g->nparams] = name_hash(t->name);
  t->param_index = g->nparams;
  g->params[g->nparams++] = t;
}

sl_tensor *sl_param_at(sl_here at, sl_graph *g, sl_type type, sl_init init, const char *format,
                       ...) {
  if (g->status) return NULL;
  va_list args;
  va_start(args, format);
  const char *name = sli_format_list(&g->arena, format, args),
             *frozen = g->frozen.builds ? name : NULL;
  va_end(args);
  if (frozen) name = sli_arena_format(&g->arena, "%s.%s", g->frozen.word, frozen);
  if (check_param(g, at, &type, init, name)) return NULL;
  if (find_param(g, name)) return find_param(g, name); /* of a block that is visited again */
  sl_tensor *t = sli_graph_tensor(g, &type, name);
  t->at = at;
  t->param = true;
  t->needs_grad = !frozen;
  t->frozen = frozen;
  t->init = init;
  add_param(g, t);
  return t;
}

const sl_type *sl_tensor_type(const sl_tensor *t) {
  static const sl_type nothing = {SL_F32, -1, {0}};
  return t ? &t->type : &nothing;
}

const char *sl_tensor_name(const sl_tensor *t) { return t ? t->name : ""; }

int64_t sl_dim(const sl_tensor *t, int i) {
  if (!t) return 0;
  if (i < 0) i += t->type.ndim;
  return i >= 0 && i < t->type.ndim ? t->type.dim[i] : 0;
}

/* ---- nodes ---------------------------------------------------------------------- */

static bool are_types_of(const sl_type *types, int count, sl_tensor *const *in) {
  for (int i = 0; i < count; i++)
    if (memcmp(&types[i], sl_tensor_type(in[i]), sizeof *types)) return false;
  return true;
}

static sl_type *copy_types(sl_graph *g, int ntypes, int nin, sl_tensor *const *in) {
  sl_type *types = sli_arena_alloc(&g->arena, (size_t)ntypes * sizeof *types);
  for (int i = 0; i < ntypes; i++) types[i] = *sl_tensor_type(i < nin ? in[i] : NULL);
  return types;
}

/* Returns the input types of a node. Nodes that read the parts of all devices have many inputs, so
 * they share the types of an earlier node if these are equal. */
static sl_type *types_of(sl_graph *g, int ntypes, int nin, sl_tensor *const *in) {
  if (ntypes > nin || nin < SLI_MANY_INPUTS) return copy_types(g, ntypes, nin, in);
  sli_types *last = &g->known.types[nin % (int)SLI_COUNT(g->known.types)];
  if (last->count != nin || !are_types_of(last->types, nin, in))
    *last = (sli_types){nin, copy_types(g, nin, nin, in)};
  return last->types;
}

void sli_node_own_types(sl_graph *g, sli_node *n) {
  if (n->nin < SLI_MANY_INPUTS || n->shapes) return;
  n->in_type = memcpy(sli_arena_alloc(&g->arena, (size_t)n->nin * sizeof *n->in_type), n->in_type,
                      (size_t)n->nin * sizeof *n->in_type);
}

sli_node *sli_graph_node(sl_graph *g, const sl_op *op, const char *name, const sl_attrs *attrs,
                         sl_class cls, int block, int nin, sl_tensor *const *in, int nout) {
  /* shape rules may read the type of any optional input, so all inputs get a type */
  int ntypes = SLI_MAX(nin, op->max_in);
  sli_node *n = sli_arena_alloc(&g->arena, sizeof *n);
  *n = (sli_node){.id = g->nnodes,
                  .op = op,
                  .name = name,
                  .cls = cls,
                  .block = block,
                  .nin = nin,
                  .nout = nout};
  if (attrs) n->attrs = *attrs;
  n->in = sli_arena_alloc(&g->arena, (size_t)nin * sizeof *n->in);
  n->out = sli_arena_alloc(&g->arena, (size_t)nout * sizeof *n->out);
  n->in_type = types_of(g, ntypes, nin, in);
  n->out_type = sli_arena_alloc(&g->arena, (size_t)nout * sizeof *n->out_type);
  for (int i = 0; i < nin; i++) n->in[i] = in[i];
  SLI_GROW(g->nodes, (size_t)g->nnodes, g->capacity.nodes);
  return g->nodes[g->nnodes++] = n;
}

void sli_graph_reorder(sl_graph *g, sli_node *const *nodes) {
  for (int i = 0; i < g->nnodes; i++) {
    g->nodes[i] = nodes[i];
    g->nodes[i]->id = i;
  }
}

void sli_graph_move_before(sl_graph *g, const sli_node *next) {
  sli_node **nodes = sli_arena_alloc(&g->arena, (size_t)g->nnodes * sizeof *nodes), *last;
  int n = 0, count = g->nnodes;
  last = g->nodes[count - 1];
  for (int i = 0; i + 1 < count; i++) {
    if (g->nodes[i] == next) nodes[n++] = last;
    nodes[n++] = g->nodes[i];
  }
  sli_graph_reorder(g, nodes);
}

void sli_graph_replace_reads(sl_graph *g, int first, const sl_tensor *of, sl_tensor *by) {
  for (int i = first; i < g->nnodes; i++)
    for (int a = 0; a < g->nodes[i]->nin; a++)
      if (g->nodes[i]->in[a] == of) g->nodes[i]->in[a] = by;
}

sl_status sli_node_infer(sli_node *node) {
  return node->op->infer(&node->attrs, node->nin, node->in_type, node->out_type);
}

sl_tensor *sli_node_output(sl_graph *g, sli_node *node, int o, const char *name) {
  sl_tensor *t = sli_graph_tensor(g, &node->out_type[o], name);
  t->at = node->at;
  t->producer = node;
  t->output = o;
  return node->out[o] = t;
}

/* ---- outputs -------------------------------------------------------------------------- */

void sl_output_at(sl_here at, sl_graph *g, const char *name, sl_tensor *t) {
  if (g->status || g->frozen.builds) return;
  if (!t) {
    sli_graph_fail_at(g, at, SL_E_USAGE, "output %s is NULL", name);
    return;
  }
  for (int i = 0; i < g->noutputs; i++)
    if (!strcmp(g->outputs[i].name, name)) {
      sli_graph_fail_at(g, at, SL_E_USAGE, "output %s already exists", name);
      return;
    }
  SLI_GROW(g->outputs, (size_t)g->noutputs, g->capacity.outputs);
  g->outputs[g->noutputs].name = sli_arena_strdup(&g->arena, name);
  g->outputs[g->noutputs++].tensor = t;
}
