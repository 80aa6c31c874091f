/* SPDX-License-Identifier: Apache-2.0 */
/* Prompts with frames: an encoder turns images or video into rows that replace embeddings of marker
 * tokens.
 *
 *     sl_tensor *frames = sl_frames(g, "frames.npy", rows, 8, SL_TYPE(SL_F32, 4, 16));
 *     sl_tensor *seen = ... an encoder's ops, frame by frame: [rows * 8, 4, C]
 *     x = sl_splice(g, sl_embedding(g, tokens, table), tokens, MARKER, seen);
 *
 * When training from files, each sequence has its own frames. When training from rollouts, the
 * encoder is frozen: it encodes the prompts of a step once, and sampling, reference model and
 * update read the rows from one register. A session receives encoded rows with each request. */
#ifndef SLUICE_FRAMES_H
#define SLUICE_FRAMES_H

#include <sluice/graph.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- models -------------------------------------------------------------------------- */

/* Frames of images or video, f32 [rows * frames, ...]: `frames` per sequence of a microbatch, each
 * shaped as `frame`. The file is a .npy array [N, ...] of f32, or of bytes, which are scaled to 0
 * .. 1. Sequence i of the files that sl_tokens reads has `frames` frames starting at i * frames. */
#define sl_frames(g, path, rows, frames, frame) sl_frames_at(SL_HERE, g, path, rows, frames, frame)
sl_tensor *sl_frames_at(sl_here at, sl_graph *g, const char *path, int64_t rows, int64_t frames,
                        sl_type frame);

/* Replaces embeddings in x [rows, context, C] by an encoder's rows [..., C]: a sequence's rows go,
 * in order, to the positions whose token is `marker`. The number of markers must equal the number
 * of rows. */
#define sl_splice(g, x, tokens, marker, rows) sl_splice_at(SL_HERE, g, x, tokens, marker, rows)
sl_tensor *sl_splice_at(sl_here at, sl_graph *g, sl_tensor *x, sl_tensor *tokens, int32_t marker,
                        sl_tensor *rows);

/* marks(tokens i32 [B, T]), attrs.tokens.marker = token, attrs.tokens.each = n -> i32 [B, T]: b n +
 * k at the k-th occurrence of that token in sequence b, elsewhere -1. A sequence that does not
 * contain the token exactly n times ends the run. splice(x [B, T, C], [rows [R, C]], [at i32 [B,
 * T]]) -> [B, T, C]: rows[at] where `at` is not negative, else x. An index without a row gives NaN.
 * attrs.tokens.each > 0: each sequence has that many rows and places, numbered as by marks;
 * attrs.place.first: the first row of a part. A served graph passes no rows. splice_b(dy, rows, at)
 * -> dx, drows; rows: type only. */
extern const sl_op sl_op_marks, sl_op_splice, sl_op_splice_b;

/* ---- sessions ------------------------------------------------------------------------ */

struct sl_session;
struct sl_request;

/* Rows that replace embeddings of a request's prompt tokens. */
typedef struct sl_spliced {
  const int32_t *at; /* [nprompt] row of each position; -1: the token's embedding */
  const float *rows; /* [count, sl_session_width()] */
  int64_t count;
} sl_spliced;

/* Returns the width of a row, or 0 if the model splices no rows. */
int64_t sl_session_width(const struct sl_session *s);
/* Submits a request whose prompt has spliced rows, which are copied. Errors are those of
 * sl_session_submit(). */
sl_status sl_session_submit_spliced(struct sl_session *s, const struct sl_request *request,
                                    const sl_spliced *spliced, uint64_t *id);

/* Returns the row that replaces the embedding of each position of a tick, [most_rows]; -1 if none.
 * The rows follow, f32 [most_rows, width], in order of position. Only the batch of a model that
 * splices has these two arrays. */
static inline const int32_t *sl_batch_spliced(const sl_batch *b) {
  return (const int32_t *)(const void *)(sl_batch_edits(b) + b->most_edits);
}
static inline const float *sl_batch_spliced_rows(const sl_batch *b) {
  return (const float *)(const void *)(sl_batch_spliced(b) + b->most_rows);
}

/* ---- rollouts ------------------------------------------------------------------------ */

struct sl_rollouts;

/* Frames of a prompt: their indices in the model's file; must outlive the rollouts. */
typedef struct sl_framed {
  const int64_t *frames; /* [count] */
  int64_t count;
} sl_framed;

/* Sets the frames of all prompts [nprompts]; call it before the graph is created. `apart`: sampler,
 * model and reference each encode the frames separately, and for each answer, instead of once for
 * all. */
void sl_rollouts_set_frames(struct sl_rollouts *r, const sl_framed *frames, bool apart);
/* Returns the number of frames per prompt that the model reads, or 0 if none. Call it after the
 * graph is built. */
int64_t sl_rollouts_frames(const struct sl_rollouts *r);
/* Returns the number of frames that encoders have encoded in a step, which must be one of the last
 * three. */
int64_t sl_rollouts_encoded(struct sl_rollouts *r, int64_t step);

/* ---- objectives ---------------------------------------------------------------------- */

/* Frames of an objective's prompts. The encoder's parameters are frozen. */
typedef struct sl_prompt_frames {
  const char *name; /* errors begin with it */
  int64_t prompts;  /* per step */
  bool apart;       /* each model that reads the rows encodes them separately */
  /* Checks the number of frames per prompt; the file has `total` frames. */
  sl_status (*declare)(void *ctx, int64_t frames, int64_t total);
  /* Returns the file's index of frame i of a prompt of the step. */
  int64_t (*frame)(void *ctx, int64_t step, int64_t prompt, int64_t i);
  /* Returns the row that replaces the embedding at each position, i32 [rows, context]: row k of
   * prompt p is p count + k; -1 if none. Each prompt must contain the token `marker` `count` times;
   * if one does not, returns NULL with the reason in sl_detail(). */
  sl_tensor *(*places)(void *ctx, int32_t marker, int64_t count);
  void *ctx;
} sl_prompt_frames;

/* Makes sl_frames and sl_splice read these frames; sl_objective.tokens calls it. `frames` must
 * outlive the graph. */
void sl_graph_set_frames(sl_graph *g, const sl_prompt_frames *frames);

#ifdef __cplusplus
}
#endif
#endif
