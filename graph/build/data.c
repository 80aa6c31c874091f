/* SPDX-License-Identifier: Apache-2.0 */
/* Data sources: a user's callback, and rows of token files. */
#include "graph/build/build.h"

#include <limits.h>
#include <math.h>
#include <string.h>

#include "io/file.h"
#include "text/tokens/tokens.h"
#include "ops/ops.h"

void sl_data_at(sl_here at, sl_graph *g, const sl_source *source, sl_tensor **outs) {
  const sl_attrs attrs = {.user = source};
  sl_apply_at(at, g, &sl_op_source, &attrs, 0, NULL, 0, outs);
}

/* Context of the token source's callbacks; constant once made. */
typedef struct token_rows {
  sl_source source;
  sl_type types[5]; /* tokens and targets; for chats also a number, documents and positions; each
                       i32 [rows, context]. In a served graph tokens, targets and the batch */
  int64_t rows, context, batch; /* context includes the sinks */
  int64_t sinks;                /* tokens before each sequence, with ids from `sink` on */
  int32_t sink;
  bool chats, alone;          /* the model reads chats; each row has at most one */
  const sli_tokens *files;    /* NULL for inference, and if no data is read */
  const sli_tokens *held_out; /* or NULL */
  double held_out_learned;    /* mean number of tokens in the loss per held-out row */
  void (*feed)(void *ctx, const sl_tick *tick, int32_t *tokens, int64_t count);
  void *feed_ctx;
  const sl_serving *serve; /* or NULL */
} token_rows;

/* Writes a number in binary, as the positions of its 1 bits, highest first, as many as fit:
 * position k stands for 2^(k - POINT). */
enum { PLACES = 64, POINT = 32 };
static void put_number(double number, int64_t count, int32_t *out) {
  int64_t n = 0;
  for (int k = PLACES - 1; k >= 0 && n < count; k--) {
    if (number < ldexp(1, k - POINT)) continue;
    number -= ldexp(1, k - POINT);
    out[n++] = k;
  }
  while (n < count) out[n++] = SLI_UNLEARNED;
}

/* Fills in the sinks among the `count` tokens of a row from `first` on; returns their number. */
static int64_t put_sinks(const token_rows *r, int64_t first, int64_t count, int32_t *tokens,
                         int32_t *targets) {
  int64_t n = SLI_MIN(SLI_MAX(r->sinks - first, 0), count);
  for (int64_t i = 0; i < n; i++) {
    if (tokens) tokens[i] = r->sink + (int32_t)(first + i);
    if (targets) targets[i] = SLI_UNLEARNED;
  }
  return n;
}

static int32_t *behind(int32_t *array, int64_t n) { return array ? array + n : NULL; }

/* Fills rows from sequence `first` on; if sequences are cut, only the tick's piece. */
static void data_fill(const token_rows *r, const sli_tokens *files, int64_t first, double learned,
                      const sl_tick *tick, void *const *out) {
  int64_t count = tick->rows ? tick->rows : r->context;
  int32_t *all[5] = {NULL}; /* each [rows, count] or NULL */
  for (int64_t row = 0; row < r->rows; row++) {
    for (int o = 0; o < r->source.nout; o++)
      all[o] = out[o] ? (int32_t *)out[o] + row * count : NULL;
    int64_t sinks = put_sinks(r, tick->row, count, all[0], all[1]);
    sli_tokens_read(
        files, first + row, tick->row + sinks - r->sinks, count - sinks,
        &(sli_tokens_out){behind(all[0], sinks), behind(all[1], sinks), all[3], all[4]});
    if (all[2]) put_number(learned, count, all[2]);
  }
}

/* Returns the mean number of tokens in the loss per row, over rows from `first` on. */
static double learned_of(const token_rows *r, const sli_tokens *files, int64_t first,
                         int64_t count) {
  if (r->source.nout < 3) return 0;
  if (r->sinks) return (double)(r->context - r->sinks);
  return (double)sli_tokens_learned(files, first, count) / (double)count;
}

static void fill_from_files(void *ctx, const sl_tick *tick, void *const *out) {
  const token_rows *r = ctx;
  int64_t first = tick->step * r->batch;
  data_fill(r, r->files, first + tick->microbatch * r->rows,
            learned_of(r, r->files, first, r->batch), tick, out);
}

static void fill_held_out(void *ctx, const sl_tick *tick, void *const *out) {
  const token_rows *r = ctx;
  data_fill(r, r->held_out, tick->microbatch * r->rows, r->held_out_learned, tick, out);
}

static void fill_from_feed(void *ctx, const sl_tick *tick, void *const *out) {
  const token_rows *r = ctx;
  int64_t count = r->rows * r->context;
  if (out[0]) r->feed(r->feed_ctx, tick, out[0], count);
  if (out[1]) memset(out[1], 0, (size_t)count * sizeof(int32_t));
}

static void fill_from_batch(void *ctx, const sl_tick *tick, void *const *out) {
  const sl_serving *s = ((const token_rows *)ctx)->serve;
  s->fill(s->ctx, tick, out[0], out[2]);
  if (s->adapters) s->choose_adapters(s->ctx, out[3]);
}

static uint64_t await_batch(void *ctx, const sl_tick *tick) {
  const token_rows *r = ctx;
  return r->serve->await ? r->serve->await(r->serve->ctx, tick) : 0;
}

_Static_assert((int)SLI_UNLEARNED == (int)SLI_TOKENS_UNLEARNED, "rows of files have it");

static void close_files(void *files) { sli_tokens_close(files); }

static sli_tokens_options tokens_options(const sl_graph *g, const token_rows *r, const char *paths,
                                         int64_t vocab, uint64_t shuffle) {
  const sl_graph_options *o = &g->options;
  return (sli_tokens_options){.paths = paths,
                              .context = r->context - r->sinks,
                              .vocab = vocab,
                              .shuffle = shuffle,
                              .tokenizer = o->tokenizer,
                              .chat_template = o->chat_template,
                              .learn = o->learn,
                              .long_chats = o->long_chats,
                              .chats = r->chats,
                              .alone = r->alone};
}

static sl_status open_held_out(sl_graph *g, int64_t vocab, token_rows *r) {
  const sli_tokens_options options = tokens_options(g, r, g->options.eval, vocab, 0);
  sli_tokens *files;
  sl_status status = sli_tokens_open(&options, &files);
  if (status) return sl_graph_fail(g, status, "%s", sl_detail());
  sli_graph_cleanup(g, close_files, files);
  if (sli_tokens_are_chats(files, NULL) != sli_tokens_are_chats(r->files, NULL))
    return sl_graph_fail(g, SL_E_INPUT, "%s and %s: either both must be chats, or neither",
                         sli_tokens_path(r->files, 0), sli_tokens_path(files, 0));
  r->held_out = files;
  g->reads_eval = true;
  int64_t rows = sli_tokens_sequences(files), most = g->options.eval_rows;
  if (most > 0) rows = SLI_MIN(rows, most);
  bool marked = sli_tokens_are_chats(files, NULL);
  if (marked) r->held_out_learned = (double)sli_tokens_learned(files, 0, rows) / (double)rows;
  if (r->sinks) r->held_out_learned = (double)(r->context - r->sinks);
  r->source.fill_held_out = fill_held_out;
  r->source.held_out = (int)SLI_MIN(INT_MAX, sli_tokens_sequences(files) / r->rows);
  r->source.held_out_rest = (int)(sli_tokens_sequences(files) % r->rows);
  return SL_OK;
}

static sl_status open_source(sl_here at, sl_graph *g, const char *paths, int64_t vocab,
                             token_rows *r) {
  r->feed = g->options.feed_tokens;
  r->feed_ctx = g->options.feed_ctx;
  if (g->options.infer && r->sinks)
    return sli_graph_fail_at(g, at, SL_E_UNSUPPORTED,
                             "sl_sink_tokens: not supported for inference with feed_tokens");
  if (g->options.infer)
    return r->feed ? SL_OK
                   : sli_graph_fail_at(g, at, SL_E_USAGE,
                                       "sl_tokens: inference needs a feed_tokens callback");
  if (g->options.no_data && (!paths || !*paths)) return SL_OK;
  if (!paths || !*paths)
    return sli_graph_fail_at(g, at, SL_E_USAGE, "sl_tokens: no data file is given");
  const sli_tokens_options options = tokens_options(g, r, paths, vocab, g->options.shuffle);
  sli_tokens *files;
  sl_status status = sli_tokens_open(&options, &files);
  if (status) return sl_graph_fail(g, status, "%s", sl_detail());
  sli_graph_cleanup(g, close_files, files);
  r->files = files;
  if (r->sinks && sli_tokens_are_chats(files, NULL))
    return sli_graph_fail_at(g, at, SL_E_UNSUPPORTED,
                             "%s: sink tokens are not supported with chats",
                             sli_tokens_path(files, 0));
  return g->options.eval ? open_held_out(g, vocab, r) : SL_OK;
}

static const token_rows *data_rows_of(const sli_node *node) {
  /* copies for whole microbatches have the same source */
  bool once = sli_op_is(node->op, SL_OP_SOURCE) && !node->attrs.source.whole;
  const sl_source *source = once ? node->attrs.user : NULL;
  return source && source->fill == fill_from_files ? source->ctx : NULL;
}

/* Creates the source of a served graph: one row of positions of any sequences, and the batch that
 * describes them. */
static sl_tensor *served_tokens(sl_here at, sl_graph *g, int64_t context, int64_t vocab,
                                sl_tensor **targets) {
  sl_serving *s = g->options.serve;
  if (g->served.batch) {
    sli_graph_fail_at(g, at, SL_E_UNSUPPORTED, "sl_tokens: a served model can call it only once");
    return NULL;
  }
  s->context = context;
  s->sinks = g->served.sinks;
  s->sink = (int32_t)vocab;
  s->rows = SLI_MIN(s->rows, context);
  s->picks = (int)SLI_MIN(s->picks ? s->picks : s->sequences, s->rows);
  if (s->edits)
    s->edits = SLI_MIN(s->edits + context, vocab) + (s->picks > s->sequences ? s->picks : 0);
  size_t bytes =
      sl_batch_bytes(s->rows, s->sequences, s->picks, (context + SL_PAGE - 1) / SL_PAGE) +
      (size_t)s->edits * sizeof(sl_batch_edit);
  token_rows *r = sli_arena_alloc(&g->arena, sizeof *r);
  *r = (token_rows){.rows = 1, .context = s->rows, .serve = s};
  r->types[0] = r->types[1] = SL_TYPE(SL_I32, 1, s->rows);
  r->types[2] = SL_TYPE(SL_I32, (int64_t)(bytes / sizeof(int32_t)));
  r->types[3] = r->types[0];
  r->source = (sl_source){.nout = s->adapters ? 4 : 3,
                          .types = r->types,
                          .ctx = r,
                          .fill = fill_from_batch,
                          .await = await_batch,
                          .behind = s->groups};
  sl_tensor *outs[4] = {NULL};
  sl_data_at(at, g, &r->source, outs);
  *targets = outs[1];
  g->served.batch = outs[2];
  g->served.adapters = outs[3];
  return outs[0];
}

sl_status sli_serve_spliced(sl_graph *g, int64_t width) {
  if (!g->served.batch)
    return sl_graph_fail(g, SL_E_UNSUPPORTED,
                         "sl_splice: must come after sl_tokens in a served model");
  if (g->served.sinks)
    return sl_graph_fail(g, SL_E_UNSUPPORTED,
                         "sl_splice: not supported in a served model with sink tokens");
  if (g->spans.width)
    return sl_graph_fail(g, SL_E_UNSUPPORTED, "sl_splice: a served model can call it only once");
  sli_node *n = g->served.batch->producer;
  token_rows *r = ((sl_source *)n->attrs.user)->ctx;
  g->spans.width = width;
  r->types[2].dim[0] += r->context * (1 + width);
  n->out_type[2] = g->served.batch->type = r->types[2];
  return SL_OK;
}

sl_texts sli_texts_of_files(sl_here at, sl_graph *g, const char *paths, int64_t rows,
                            int64_t context, int64_t vocab, bool chats, bool alone) {
  sl_tensor *outs[5] = {NULL};
  context += g->served.sinks;
  if (g->options.serve) {
    outs[0] = served_tokens(at, g, context, vocab, &outs[1]);
    return (sl_texts){outs[0], outs[1], NULL, NULL};
  }
  token_rows *r = sli_arena_alloc(&g->arena, sizeof *r);
  r->rows = rows;
  r->context = context;
  r->sinks = g->served.sinks;
  r->sink = (int32_t)vocab;
  r->batch = rows * g->options.microbatches;
  r->chats = chats;
  r->alone = alone;
  for (size_t i = 0; i < SLI_COUNT(r->types); i++) r->types[i] = SL_TYPE(SL_I32, rows, context);
  r->source = (sl_source){.nout = 2,
                          .types = r->types,
                          .cut = 2,
                          .ctx = r,
                          .fill = g->options.infer ? fill_from_feed : fill_from_files};
  if (open_source(at, g, paths, vocab, r)) return (sl_texts){NULL};
  if (r->files && sli_tokens_are_chats(r->files, NULL)) r->source.nout = alone ? 3 : 5;
  else if (r->sinks) r->source.nout = 3;
  sl_data_at(at, g, &r->source, outs);
  return (sl_texts){outs[0], outs[1], outs[3], outs[4]};
}

sl_tensor *sli_texts_learned(sl_here at, sl_graph *g, const sl_texts *texts) {
  const sli_node *source = texts->targets ? texts->targets->producer : NULL;
  const token_rows *r = source ? data_rows_of(source) : NULL;
  if (!r || r->source.nout < 3) return NULL;
  float powers[PLACES];
  sl_tensor *total = NULL;
  for (int k = 0; k < PLACES; k++) powers[k] = ldexpf(1, k - POINT);
  sl_tensor *table = sl_constant_at(at, g, SL_TYPE(SL_F32, PLACES), powers, NULL);
  sl_apply_at(at, g, &sl_op_target_weight, &(sl_attrs){.loss.ignore = SLI_UNLEARNED}, 2,
              (sl_tensor *[]){source->out[2], table}, 0, &total);
  return total;
}

/* ---- evaluation ----------------------------------------------------------------------- */

typedef struct held_out {
  sl_source source;
  const sl_source *trained;
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

/* Fills all rows with repetitions of the `count` rows from `first` on. Sequences may be cut, rows
 * are not. */
static void repeat_rows(const held_out *h, const sl_tick *tick, int first, int count,
                        void *const *out) {
  for (int o = 0; o < h->trained->nout; o++) {
    const sl_type *type = &h->trained->types[o];
    size_t bytes = sl_type_bytes(type) / (size_t)type->dim[0];
    if (tick->rows) bytes = bytes / (size_t)type->dim[h->trained->cut - 1] * (size_t)tick->rows;
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
  h->trained->fill_held_out(h->trained->ctx, &at, out);
  if (tick->microbatch < e->whole) return;
  int first;
  double share = sli_evaluation_weight(h->graph, tick->microbatch, &first);
  repeat_rows(h, tick, first, (int)lround(share * e->rows), out);
}

const sl_source *sli_source_held_out(sl_graph *g, const sl_source *source) {
  held_out *h = sli_arena_alloc(&g->arena, sizeof *h);
  *h = (held_out){.source = *source, .trained = source, .graph = g};
  h->source.fill = fill_evaluation;
  h->source.ctx = h;
  return &h->source;
}

/* ---- data files ------------------------------------------------------------------------ */

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
    SLI_GROW(f->items, (size_t)f->count, f->capacity);
    f->items[f->count++] = file;
    at += n;
  }
  return SL_OK;
}

static sl_status check_other_files(const sl_graph *g) {
  for (int i = 0; i < g->files.count; i++) {
    const sl_graph_file *f = &g->files.items[i];
    uint64_t bytes, hash;
    SLI_TRY(sli_file_fingerprint(f->path, &bytes, &hash));
    if (bytes != f->bytes || hash != f->hash)
      return sl_fail(SL_E_INPUT, "%s changed after it was read", f->path);
  }
  return SL_OK;
}

int sl_graph_files(const sl_graph *g, int most, sl_graph_file *out) {
  int count = 0;
  const sli_tokens *last = NULL; /* the nodes of one source on several devices are adjacent */
  for (int i = 0; i < g->nnodes; i++) {
    const token_rows *r = data_rows_of(g->nodes[i]);
    if (!r || !r->files || r->files == last) continue;
    last = r->files;
    count = add_files(last, count, most, out);
  }
  for (int i = 0; i < g->files.count; i++, count++)
    if (count < most) out[count] = g->files.items[i];
  return count;
}

const sli_tokens *sli_graph_tokens(const sl_graph *g, int64_t *context, int64_t *batch) {
  for (int i = 0; i < g->nnodes; i++) {
    const token_rows *r = data_rows_of(g->nodes[i]);
    if (!r || !r->files) continue;
    *context = r->context, *batch = r->batch;
    return r->files;
  }
  return NULL;
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
