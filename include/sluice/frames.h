/* SPDX-License-Identifier: Apache-2.0 */
/* Prompts with frames: images or video that an encoder makes rows of, which stand in the place of
 * tokens' embeddings.
 *
 *     sl_tensor *frames = sl_frames(g, "frames.npy", rows, 8, SL_TYPE(SL_F32, 4, 16));
 *     sl_tensor *seen = ... an encoder's ops, frame by frame: [rows * 8, 4, C]
 *     x = sl_splice(g, sl_embedding(g, tokens, table), tokens, MARKER, seen);
 *
 * In training from files each sequence has its frames. In training from rollouts an encoder is
 * frozen: it makes the rows of a step's prompts once, and answers, reference and update read them
 * from one register. A session gets the rows of a request with it. */
#ifndef SLUICE_FRAMES_H
#define SLUICE_FRAMES_H

#include <sluice/graph.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- models -------------------------------------------------------------------------- */

/* Frames of images or video, f32 [rows * frames, ...]: `frames` of each sequence of a microbatch,
 * each shaped as `frame`. The file is a .npy array [N, ...] of f32, or of bytes, which count as 0
 * to 1. Sequence i of the files that sl_tokens reads has the frames from i * frames on. */
#define sl_frames(g, path, rows, frames, frame) sl_frames_at(SL_HERE, g, path, rows, frames, frame)
sl_tensor *sl_frames_at(sl_here at, sl_graph *g, const char *path, int64_t rows, int64_t frames,
                        sl_type frame);

/* Puts rows of an encoder, [..., C], in the place of embeddings x [rows, context, C]: the rows of a
 * sequence, in order, where its tokens are `marker`. A sequence has as many such tokens as rows. */
#define sl_splice(g, x, tokens, marker, rows) sl_splice_at(SL_HERE, g, x, tokens, marker, rows)
sl_tensor *sl_splice_at(sl_here at, sl_graph *g, sl_tensor *x, sl_tensor *tokens, int32_t marker,
                        sl_tensor *rows);

/* marks(tokens i32 [B, T]), attrs.ignore = token, attrs.count = n -> i32 [B, T]: at the k-th place
 * of that token in sequence b the number b n + k, elsewhere -1. A sequence with another number of
 * such places than n ends a run.
 * splice(x [B, T, C], [rows [R, C]], [at i32 [B, T]]) -> [B, T, C]: rows[at] where `at` is not
 * negative, else x. A place that has no row is NaN. attrs.count > 0: rows and places of each
 * sequence follow each other, as marks has them; attrs.first: the first row of a part. Without
 * rows: of a served graph. splice_b(dy, rows, at) -> dx, drows; rows: type only. */
extern const sl_op sl_op_marks, sl_op_splice, sl_op_splice_b;

/* ---- sessions ------------------------------------------------------------------------ */

struct sl_session;
struct sl_request;

/* Rows of a request in the place of its tokens' embeddings. */
typedef struct sl_spliced {
  const int32_t *at; /* [nprompt] the row of each position; -1: its token's own embedding */
  const float *rows; /* [count, sl_session_width()] */
  int64_t count;
} sl_spliced;

/* Returns the numbers of a row; 0: the model splices none. */
int64_t sl_session_width(const struct sl_session *s);
/* Submits a request whose prompt has such rows, which are copied. Errors are those of
 * sl_session_submit(). */
sl_status sl_session_submit_spliced(struct sl_session *s, const struct sl_request *request,
                                    const sl_spliced *spliced, uint64_t *id);

/* Returns which row each position of a tick has in the place of its embedding, [most_rows]; -1:
 * none. Behind them are the rows, f32 [most_rows, width], of positions in order. Only the batch of
 * a model that splices has both. */
static inline const int32_t *sl_batch_spliced(const sl_batch *b) {
  return (const int32_t *)(const void *)(sl_batch_edits(b) + b->most_edits);
}
static inline const float *sl_batch_spliced_rows(const sl_batch *b) {
  return (const float *)(const void *)(sl_batch_spliced(b) + b->most_rows);
}

/* ---- rollouts ------------------------------------------------------------------------ */

struct sl_rollouts;

/* Frames of a prompt: their numbers in the model's file; must outlive the rollouts. */
typedef struct sl_framed {
  const int64_t *of; /* [count] */
  int64_t count;
} sl_framed;

/* Sets the frames of all prompts [nprompts], before a graph is made. `apart`: answers, the model
 * and its reference have frames encoded each for itself, and for each answer, in place of once for
 * all. */
void sl_rollouts_set_frames(struct sl_rollouts *r, const sl_framed *frames, bool apart);
/* Returns how many frames of a prompt the model reads, once its graph is made; 0: none. */
int64_t sl_rollouts_frames(const struct sl_rollouts *r);
/* Returns the frames that encoders have computed rows of in a step, one of the last three. */
int64_t sl_rollouts_encoded(struct sl_rollouts *r, int64_t step);

/* ---- objectives ---------------------------------------------------------------------- */

/* Prompts of a step that have frames, of an objective. The encoder's parameters are frozen. */
typedef struct sl_prompt_frames {
  const char *name; /* errors begin with it */
  int64_t prompts;  /* of a step */
  bool apart;       /* each model that reads the rows has them computed for itself */
  /* Checks a number of frames that each prompt has, of `total` in the file. */
  sl_status (*declare)(void *ctx, int64_t frames, int64_t total);
  /* Returns which of the file's frames is frame i of a prompt of the step. */
  int64_t (*frame)(void *ctx, int64_t step, int64_t prompt, int64_t i);
  /* Returns the row that each position has in place of its token's embedding, i32 [rows, context]:
   * row k of prompt p is p count + k; -1: none. A prompt has `count` tokens `marker`. NULL, with
   * sl_detail(): it has not. */
  sl_tensor *(*places)(void *ctx, int32_t marker, int64_t count);
  void *ctx;
} sl_prompt_frames;

/* Has sl_frames and sl_splice read these; called by sl_objective.tokens. Must outlive the graph. */
void sl_graph_set_frames(sl_graph *g, const sl_prompt_frames *frames);

#ifdef __cplusplus
}
#endif
#endif
