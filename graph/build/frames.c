/* SPDX-License-Identifier: Apache-2.0 */
/* Frames of prompts, and splicing of their encoder's rows into token embeddings.
 *
 * When training from files, each sequence has frames as it has tokens. When training from rollouts,
 * the graph contains the encoder for one prompt, followed by a span that collects the rows of all
 * prompts of a step (passes/spans.c). A served graph has no encoder: its batch gives the row of
 * each position. */
#include "graph/build/frames.h"
#include "graph/build/build.h"

#include <string.h>
#include <sys/mman.h>

#include "io/file.h"
#include "io/npy.h"
#include "text/tokens/tokens.h"
#include "ops/ops.h"
#include "ops/splice.h"

/* ---- files ---------------------------------------------------------------------------------- */

typedef struct mapping {
  void *bytes;
  size_t size;
} mapping;

static void unmap(void *arg) {
  const mapping *m = arg;
  munmap(m->bytes, m->size);
}

/* Checks that the file's array has frames of the requested shape. */
static sl_status check_array(const sli_frames *f, const char *path, const sli_npy *array) {
  char text[SL_TYPE_TEXT];
  bool fits = array->ndim == f->frame.ndim + 1;
  for (int d = 0; fits && d < f->frame.ndim; d++) fits = array->dim[d + 1] == f->frame.dim[d];
  if (!fits || array->dim[0] < 1)
    return sl_fail(SL_E_INPUT, "%s: not an array of frames, each %s", path,
                   sl_type_format(text, &f->frame));
  if (array->is_float ? array->width == 4 : array->width == 1 && !array->is_signed) return SL_OK;
  return sl_fail(SL_E_INPUT,
                 "%s: frames must be f32, or unsigned bytes, which are scaled to 0 to 1", path);
}

static sl_status open_frames(sl_graph *g, const char *path, sli_frames *f) {
  if (!path || !*path) return sl_fail(SL_E_USAGE, "sl_frames: no file of frames is given");
  mapping *m = sli_arena_alloc(&g->arena, sizeof *m);
  sli_npy array;
  SLI_TRY(sli_file_map(path, &m->bytes, &m->size));
  if (!m->bytes) return sl_fail(SL_E_INPUT, "%s: the file is empty", path);
  sli_graph_cleanup(g, unmap, m);
  SLI_TRY(sli_npy_read(path, m->bytes, m->size, &array));
  SLI_TRY(check_array(f, path, &array));
  f->values = (const char *)m->bytes + array.offset;
  f->bytes = !array.is_float;
  f->total = array.dim[0];
  return sli_graph_add_files(g, path);
}

/* Writes frame number `from` of the file. */
static void copy_frame(const sli_frames *f, int64_t from, float *out) {
  int64_t n = sl_type_elements(&f->frame), at = from % f->total * n;
  const uint8_t *bytes = f->values;
  if (!f->bytes) memcpy(out, (const float *)f->values + at, (size_t)n * sizeof *out);
  for (int64_t i = 0; i < n && f->bytes; i++) out[i] = (float)bytes[at + i] / 255;
}

/* ---- sources -------------------------------------------------------------------------------- */

static void fill_sequences(void *ctx, const sl_tick *tick, void *const *out) {
  const sli_frames *f = ctx;
  int64_t n = sl_type_elements(&f->frame);
  int64_t first = (tick->step * f->microbatches + tick->microbatch) * f->rows;
  for (int64_t r = 0; r < f->rows; r++) {
    int64_t sequence = f->tokens ? sli_tokens_sequence(f->tokens, first + r) : first + r;
    for (int64_t i = 0; i < f->count; i++)
      copy_frame(f, sequence * f->count + i, (float *)out[0] + (r * f->count + i) * n);
  }
}

static void fill_prompt(void *ctx, const sl_tick *tick, void *const *out) {
  const sli_frames *f = ctx;
  int64_t n = sl_type_elements(&f->frame);
  for (int64_t i = 0; i < f->count; i++)
    copy_frame(f, f->prompts->frame(f->prompts->ctx, tick->step, tick->microbatch, f->first + i),
               (float *)out[0] + i * n);
}

/* Sets the source of `rows` times `count` frames. */
static void set_source(sli_frames *f) {
  f->type = f->frame;
  f->type.ndim++;
  memmove(f->type.dim + 1, f->type.dim, (SL_MAX_DIMS - 1) * sizeof *f->type.dim);
  f->type.dim[0] = f->rows * f->count;
  f->source = (sl_source){
      .nout = 1, .types = &f->type, .fill = f->prompts ? fill_prompt : fill_sequences, .ctx = f};
}

const sl_source *sli_frames_part(sl_graph *g, const sl_source *source, int64_t first,
                                 int64_t count) {
  sli_frames *f = sli_arena_alloc(&g->arena, sizeof *f);
  *f = *(const sli_frames *)source->ctx;
  f->first = first;
  f->count = count;
  set_source(f);
  return &f->source;
}

const sli_frames *sli_frames_of(const sli_node *n) {
  const sl_source *s = sli_op_is(n->op, SL_OP_SOURCE) ? n->attrs.user : NULL;
  return s && (s->fill == fill_prompt || s->fill == fill_sequences) ? s->ctx : NULL;
}

/* ---- calls ---------------------------------------------------------------------------------- */

void sl_graph_set_frames(sl_graph *g, const sl_prompt_frames *frames) { g->spans.frames = frames; }

static sl_status refuse_frames(sl_here at, sl_graph *g, int64_t rows, int64_t frames) {
  const sl_objective *o = sli_objective(g);
  if (rows < 1 || frames < 1)
    return sli_graph_fail_at(g, at, SL_E_USAGE,
                             "sl_frames: %lld rows of %lld frames: both must be at least 1",
                             (long long)rows, (long long)frames);
  if (o && !g->spans.frames)
    return sli_graph_fail_at(g, at, SL_E_UNSUPPORTED,
                             "%s: this objective does not support frames (sl_frames)", o->name);
  if (g->options.infer && !g->options.serve)
    return sli_graph_fail_at(g, at, SL_E_UNSUPPORTED,
                             "sl_frames: prompts with frames are not supported for inference");
  return SL_OK;
}

/* Opens the file, except for a served graph, whose rows come with requests. */
static sl_status open_for(sl_graph *g, const char *path, sli_frames *f) {
  if (g->options.serve) return SL_OK;
  sl_status status = open_frames(g, path, f);
  return status || !f->prompts ? status : f->prompts->declare(f->prompts->ctx, f->count, f->total);
}

static sli_frames *make_frames(sl_graph *g, int64_t rows, int64_t frames, sl_type frame) {
  const sl_prompt_frames *prompts = sli_objective(g) ? g->spans.frames : NULL;
  int64_t context, batch;
  sli_frames *f = sli_arena_alloc(&g->arena, sizeof *f);
  *f = (sli_frames){.prompts = prompts,
                    .rows = prompts ? 1 : rows,
                    .count = frames,
                    .frame = frame,
                    .microbatches = g->options.microbatches,
                    .tokens = sli_graph_tokens(g, &context, &batch)};
  f->frame.dtype = SL_F32;
  set_source(f);
  return f;
}

/* Declares frames. A model and its reference read the same frames. */
sl_tensor *sl_frames_at(sl_here at, sl_graph *g, const char *path, int64_t rows, int64_t frames,
                        sl_type frame) {
  if (g->status || refuse_frames(at, g, rows, frames)) return NULL;
  if (g->spans.source) return g->spans.source;
  sli_frames *f = make_frames(g, rows, frames, frame);
  sl_status status = open_for(g, path, f);
  if (status) {
    const char *why = sli_arena_strdup(&g->arena, sl_detail());
    sli_graph_fail_at(g, at, status, "%s", why);
    return NULL;
  }
  sl_tensor *out = NULL;
  sl_data_at(at, g, &f->source, &out);
  if (f->prompts) g->spans.source = out;
  return out;
}

static sl_tensor *splice(sl_here at, sl_graph *g, int64_t count, sl_tensor *x, sl_tensor *rows,
                         sl_tensor *places) {
  sl_tensor *out = NULL;
  sl_apply_at(at, g, &sl_op_splice, &(sl_attrs){.tokens.each = count}, rows ? 3 : 1,
              (sl_tensor *[]){x, rows, places}, 0, &out);
  return out;
}

static sl_tensor *splice_sequences(sl_here at, sl_graph *g, sl_tensor *x, sl_tensor *tokens,
                                   int32_t marker, sl_tensor *rows) {
  int64_t sequences = SLI_MAX(sl_dim(x, 0), 1), all = sl_dim(rows, 0);
  sl_tensor *places = NULL;
  if (all % sequences) {
    sli_graph_fail_at(g, at, SL_E_SHAPE,
                      "sl_splice: %lld rows cannot be divided among %lld sequences", (long long)all,
                      (long long)sequences);
    return NULL;
  }
  sl_apply_at(at, g, &sl_op_marks,
              &(sl_attrs){.tokens.each = all / sequences, .tokens.marker = marker}, 1,
              (sl_tensor *[]){tokens}, 0, &places);
  return places ? splice(at, g, all / sequences, x, rows, places) : NULL;
}

/* Adds the span that collects the rows of a step's prompts. */
static sl_tensor *add_span(sl_here at, sl_graph *g, int64_t prompts, sl_tensor *rows) {
  const sl_attrs attrs = {.shape.ndims = 2,
                          .shape.dims = {prompts * sl_dim(rows, 0), sl_dim(rows, 1)}};
  const char *of = g->frozen.builds ? g->frozen.word : "", *dot = *of ? "." : "";
  const char *name = sli_arena_format(&g->arena, "%s%sspan.%d", of, dot, g->nnodes);
  sli_node *n =
      sli_graph_node(g, &sl_op_span, name, &attrs, SL_CLASS_F, g->nblocks - 1, 1, &rows, 1);
  n->at = at;
  sl_status status = sli_node_infer(n);
  SLI_CHECK(!status, "%s", sl_detail());
  return sli_node_output(g, n, 0, name);
}

static sl_tensor *splice_prompts(sl_here at, sl_graph *g, sl_tensor *x, int32_t marker,
                                 sl_tensor *rows) {
  const sl_prompt_frames *p = g->spans.frames;
  if (!g->spans.source) {
    sli_graph_fail_at(g, at, SL_E_USAGE, "sl_splice: its rows must come from frames (sl_frames)");
    return NULL;
  }
  sl_tensor *places = p->places(p->ctx, marker, sl_dim(rows, 0));
  if (places) return splice(at, g, 0, x, add_span(at, g, p->prompts, rows), places);
  const char *why = sli_arena_strdup(&g->arena, sl_detail());
  sli_graph_fail_at(g, at, SL_E_INPUT, "%s", why);
  return NULL;
}

sl_tensor *sl_splice_at(sl_here at, sl_graph *g, sl_tensor *x, sl_tensor *tokens, int32_t marker,
                        sl_tensor *rows) {
  if (rows && sl_tensor_type(rows)->ndim != 2)
    rows = sl_reshape_at(at, g, rows, SL_TYPE(SL_F32, -1, sl_dim(rows, -1)));
  if (g->status || !x || !tokens || !rows) return NULL;
  if (g->options.serve)
    return sli_serve_spliced(g, sl_dim(x, -1)) ? NULL : splice(at, g, 0, x, NULL, NULL);
  return sli_objective(g) ? splice_prompts(at, g, x, marker, rows)
                          : splice_sequences(at, g, x, tokens, marker, rows);
}
