/* SPDX-License-Identifier: Apache-2.0 */
/* Sources of data: a user's callback, and rows of a token file. */
#include "graph/build/build.h"

#include <limits.h>
#include <math.h>
#include <string.h>

#include "io/file.h"
#include "io/tokens/tokens.h"
#include "ops/ops.h"

void sl_data_at(sl_here at, sl_graph *g, const sl_source *source, sl_tensor **outs) {
  const sl_attrs attrs = {.user = source};
  sl_apply_at(at, g, &sl_op_source, &attrs, 0, NULL, 0, outs);
}

/* Context of the token source's callbacks; constant once made. */
typedef struct token_rows {
  sl_source source;
  sl_type types[3]; /* tokens and targets, both i32 [rows, context]; in a served graph also
                       its batch */
  int64_t rows, context, batch;
  const sli_tokens *files;    /* NULL for inference, and where no data is read */
  const sli_tokens *held_out; /* or NULL */
  void (*feed)(void *ctx, const sl_tick *tick, int32_t *tokens, int64_t count);
  void *feed_ctx;
  const sl_serving *serve; /* or NULL */
} token_rows;

/* Fills in rows from sequence `first` on; only the tick's piece, if sequences are cut. */
static void data_fill(const token_rows *r, const sli_tokens *files, int64_t first,
                      const sl_tick *tick, void *const *out) {
  int64_t count = tick->rows ? tick->rows : r->context;
  int32_t *tokens = out[0], *targets = out[1]; /* [rows, count] or NULL */
  for (int64_t row = 0; row < r->rows; row++)
    sli_tokens_read(files, first + row, tick->row, count, tokens ? tokens + row * count : NULL,
                    targets ? targets + row * count : NULL);
}

static void fill_from_files(void *ctx, const sl_tick *tick, void *const *out) {
  const token_rows *r = ctx;
  data_fill(r, r->files, tick->step * r->batch + tick->microbatch * r->rows, tick, out);
}

static void fill_held_out(void *ctx, const sl_tick *tick, void *const *out) {
  const token_rows *r = ctx;
  data_fill(r, r->held_out, tick->microbatch * r->rows, tick, out);
}

static void fill_from_feed(void *ctx, const sl_tick *tick, void *const *out) {
  const token_rows *r = ctx;
  int64_t count = r->rows * r->context;
  if (out[0]) r->feed(r->feed_ctx, tick, out[0], count);
  if (out[1]) memset(out[1], 0, (size_t)count * sizeof(int32_t));
}

static void fill_from_batch(void *ctx, const sl_tick *tick, void *const *out) {
  const token_rows *r = ctx;
  r->serve->fill(r->serve->ctx, tick, out[0], out[2]);
}

static uint64_t await_batch(void *ctx, const sl_tick *tick) {
  const token_rows *r = ctx;
  return r->serve->await ? r->serve->await(r->serve->ctx, tick) : 0;
}

static void close_files(void *files) { sli_tokens_close(files); }

static sl_status open_held_out(sl_graph *g, int64_t vocab, token_rows *r) {
  const sl_graph_options *o = &g->options;
  const sli_tokens_options options = {o->eval, r->context, vocab, 0, o->tokenizer};
  sli_tokens *files;
  sl_status status = sli_tokens_open(&options, &files);
  if (status) return sl_graph_fail(g, status, "%s", sl_detail());
  sli_graph_cleanup(g, close_files, files);
  r->held_out = files;
  g->reads_eval = true;
  r->source.fill_held_out = fill_held_out;
  r->source.held_out = (int)SLI_MIN(INT_MAX, sli_tokens_sequences(files) / r->rows);
  r->source.held_out_rest = (int)(sli_tokens_sequences(files) % r->rows);
  return SL_OK;
}

static sl_status open_source(sl_here at, sl_graph *g, const char *paths, int64_t vocab,
                             token_rows *r) {
  r->feed = g->options.feed_tokens;
  r->feed_ctx = g->options.feed_ctx;
  if (g->options.infer)
    return r->feed ? SL_OK
                   : sli_graph_fail_at(g, at, SL_E_USAGE, "sl_tokens: inference needs feed_tokens");
  if (g->options.no_data && (!paths || !*paths)) return SL_OK;
  if (!paths || !*paths) return sli_graph_fail_at(g, at, SL_E_USAGE, "sl_tokens: no file is given");
  const sli_tokens_options options = {paths, r->context, vocab, g->options.shuffle,
                                      g->options.tokenizer};
  sli_tokens *files;
  sl_status status = sli_tokens_open(&options, &files);
  if (status) return sl_graph_fail(g, status, "%s", sl_detail());
  sli_graph_cleanup(g, close_files, files);
  r->files = files;
  return g->options.eval ? open_held_out(g, vocab, r) : SL_OK;
}

/* Makes the source of a served graph: one row of positions of any sequences, and the batch that
 * describes them. */
static sl_tensor *served_tokens(sl_here at, sl_graph *g, int64_t context, int64_t vocab,
                                sl_tensor **targets) {
  sl_serving *s = g->options.serve;
  if (g->batch) {
    sli_graph_fail_at(g, at, SL_E_UNSUPPORTED,
                      "sl_tokens: a model that is served reads one row of tokens");
    return NULL;
  }
  s->context = context;
  s->rows = SLI_MIN(s->rows, context);
  if (s->edits) s->edits = SLI_MIN(s->edits + context, vocab);
  size_t bytes = sl_batch_bytes(s->rows, s->sequences, (context + SL_PAGE - 1) / SL_PAGE) +
                 (size_t)s->edits * sizeof(sl_batch_edit);
  token_rows *r = sli_arena_alloc(&g->arena, sizeof *r);
  *r = (token_rows){.rows = 1, .context = s->rows, .serve = s};
  r->types[0] = r->types[1] = SL_TYPE(SL_I32, 1, s->rows);
  r->types[2] = SL_TYPE(SL_I32, (int64_t)(bytes / sizeof(int32_t)));
  r->source = (sl_source){.nout = 3,
                          .types = r->types,
                          .ctx = r,
                          .fill = fill_from_batch,
                          .await = await_batch,
                          .behind = s->groups};
  sl_tensor *outs[3];
  sl_data_at(at, g, &r->source, outs);
  *targets = outs[1];
  g->batch = outs[2];
  return outs[0];
}

sl_tensor *sli_tokens_of_files(sl_here at, sl_graph *g, const char *paths, int64_t rows,
                               int64_t context, int64_t vocab, sl_tensor **targets) {
  if (g->options.serve) return served_tokens(at, g, context, vocab, targets);
  token_rows *r = sli_arena_alloc(&g->arena, sizeof *r);
  r->rows = rows;
  r->context = context;
  r->batch = rows * g->options.microbatches;
  r->types[0] = r->types[1] = SL_TYPE(SL_I32, rows, context);
  r->source = (sl_source){.nout = 2,
                          .types = r->types,
                          .cut = 2,
                          .ctx = r,
                          .fill = g->options.infer ? fill_from_feed : fill_from_files};
  if (open_source(at, g, paths, vocab, r)) return NULL;
  sl_tensor *outs[2];
  sl_data_at(at, g, &r->source, outs);
  *targets = outs[1];
  return outs[0];
}

/* ---- evaluation ----------------------------------------------------------------------- */

typedef struct held_out {
  sl_source source;
  const sl_source *of;
  const sl_graph *graph;
} held_out;

double sli_evaluation_weight(const sl_graph *g, int64_t microbatch, int *first) {
  const struct sli_evaluated *e = &g->evaluated;
  int left = e->rest, part = e->rows;
  *first = 0;
  if (microbatch < e->whole) return 1;
  for (int64_t i = e->whole; left; i++, *first += part, left -= part) {
    while (part > left || e->rows % part) part--;
    if (i == microbatch) break;
  }
  return (double)part / e->rows;
}

/* Copies `count` rows from `first` on over all rows, repeatedly. Sequences may be cut, rows are
 * not. */
static void repeat_rows(const held_out *h, const sl_tick *tick, int first, int count,
                        void *const *out) {
  for (int o = 0; o < h->of->nout; o++) {
    const sl_type *type = &h->of->types[o];
    size_t bytes = sl_type_bytes(type) / (size_t)type->dim[0];
    if (tick->rows) bytes = bytes / (size_t)type->dim[h->of->cut - 1] * (size_t)tick->rows;
    if (!out[o] || (!first && count == type->dim[0])) continue;
    char *rows = out[o];
    memmove(rows, rows + (size_t)first * bytes, (size_t)count * bytes);
    for (int64_t i = count; i < type->dim[0]; i++)
      memcpy(rows + (size_t)i * bytes, rows + (size_t)(i - count) * bytes, bytes);
  }
}

/* Fills a microbatch of an evaluation, numbered from 0. */
static void fill_evaluation(void *ctx, const sl_tick *tick, void *const *out) {
  const held_out *h = ctx;
  const struct sli_evaluated *e = &h->graph->evaluated;
  sl_tick at = *tick;
  at.step = 0;
  at.microbatch = (int32_t)SLI_MIN(tick->microbatch, e->whole);
  h->of->fill_held_out(h->of->ctx, &at, out);
  if (tick->microbatch < e->whole) return;
  int first;
  double share = sli_evaluation_weight(h->graph, tick->microbatch, &first);
  repeat_rows(h, tick, first, (int)lround(share * e->rows), out);
}

const sl_source *sli_source_held_out(sl_graph *g, const sl_source *source) {
  held_out *h = sli_arena_alloc(&g->arena, sizeof *h);
  *h = (held_out){.source = *source, .of = source, .graph = g};
  h->source.fill = fill_evaluation;
  h->source.ctx = h;
  return &h->source;
}

/* ---- data files ------------------------------------------------------------------------ */

static const token_rows *data_rows_of(const sli_node *node) {
  /* copies for whole microbatches read the same source */
  bool once = node->op == &sl_op_source && !node->attrs.full;
  const sl_source *source = once ? node->attrs.user : NULL;
  return source && source->fill == fill_from_files ? source->ctx : NULL;
}

/* Appends the files of a source to out[count]; returns the new count. */
static int add_files(const sli_tokens *files, int count, int most, sl_graph_file *out) {
  for (int i = 0; i < sli_tokens_files(files); i++, count++) {
    if (count >= most) continue;
    out[count].path = sli_tokens_path(files, i);
    sli_tokens_fingerprint(files, i, &out[count].bytes, &out[count].hash);
  }
  return count;
}

sl_status sli_graph_add_files(sl_graph *g, const char *paths) {
  struct sli_other_files *f = &g->files;
  for (const char *at = paths; *at; at += *at == '\n') {
    size_t n = strcspn(at, "\n");
    sl_graph_file file = {.path = sli_arena_format(&g->arena, "%.*s", (int)n, at)};
    sl_status status = sli_file_fingerprint(file.path, &file.bytes, &file.hash);
    if (status) return sl_graph_fail(g, status, "%s", sl_detail());
    SLI_GROW(f->of, (size_t)f->count, f->capacity);
    f->of[f->count++] = file;
    at += n;
  }
  return SL_OK;
}

static sl_status check_other_files(const sl_graph *g) {
  for (int i = 0; i < g->files.count; i++) {
    const sl_graph_file *f = &g->files.of[i];
    uint64_t bytes, hash;
    SLI_TRY(sli_file_fingerprint(f->path, &bytes, &hash));
    if (bytes != f->bytes || hash != f->hash)
      return sl_fail(SL_E_INPUT, "%s has changed since it was read", f->path);
  }
  return SL_OK;
}

int sl_graph_files(const sl_graph *g, int most, sl_graph_file *out) {
  int count = 0;
  const sli_tokens *last = NULL; /* nodes of one source, on several devices, are adjacent */
  for (int i = 0; i < g->nnodes; i++) {
    const token_rows *r = data_rows_of(g->nodes[i]);
    if (!r || !r->files || r->files == last) continue;
    last = r->files;
    count = add_files(last, count, most, out);
  }
  for (int i = 0; i < g->files.count; i++, count++)
    if (count < most) out[count] = g->files.of[i];
  return count;
}

int64_t sli_graph_sequences(const sl_graph *g, int64_t *context, int64_t *batch) {
  for (int i = 0; i < g->nnodes; i++) {
    const token_rows *r = data_rows_of(g->nodes[i]);
    if (!r || !r->files) continue;
    *context = r->context, *batch = r->batch;
    return sli_tokens_sequences(r->files);
  }
  return 0;
}

sl_status sl_graph_check_files(const sl_graph *g) {
  const sli_tokens *last = NULL;
  sl_status status = SL_OK;
  for (int i = 0; i < g->nnodes && !status; i++) {
    const token_rows *r = data_rows_of(g->nodes[i]);
    if (!r || !r->files || r->files == last) continue;
    last = r->files;
    status = sli_tokens_check(last);
    if (!status && r->held_out) status = sli_tokens_check(r->held_out);
  }
  return status ? status : check_other_files(g);
}
