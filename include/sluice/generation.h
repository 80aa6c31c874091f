/* SPDX-License-Identifier: Apache-2.0 */
/* Generation by denoising: the graph that a model of frames builds for it.
 *
 * Frames are generated in blocks. A block begins as noise and is denoised in `steps` ticks; each
 * tick is one pass through the network. The rows of a tick are [context | own]: the last frames of
 * the block before, as they are by then, and the block's own frames. Rows are tokens, `patches` of
 * them a frame, and only those of a tick's frames are valid: a tick without a block has none and
 * computes nothing.
 *
 * A block's next tick comes `lag` ticks later, so its latents are a delay of that many slots
 * (<sluice/delay.h>): the network may be a pipeline, whose other stages then work on other blocks.
 *
 *     sl_generation_at ticks `lag` apart, steps T:
 *       a queue of T blocks, newest first: lag T + 1, near T   (DualParal, arXiv 2505.21070)
 *       one block after another:           lag 1, near 1       (LLIA, arXiv 2506.05806)
 *
 * The solver is Euler's for flow matching: x_s = (1 - s) x + s noise, dx/ds = v. */
#ifndef SLUICE_GENERATION_H
#define SLUICE_GENERATION_H

#include <sluice/delay.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { SL_GENERATION_FEATURES = 32 }; /* features of a noise level: cosines and sines */

/* Work of a tick, as its source says; counts are frames. */
typedef struct sl_generation_tick {
  int32_t own, context; /* frames of the tick; own 0: nothing */
  int32_t fresh;        /* own frames are noise; else those of `lag` ticks ago */
  int32_t from_near;    /* the context is the last frames of `near` ticks ago; else the context of
                           `lag` ticks ago */
  int32_t was_context;  /* context frames of `lag` ticks ago */
  int32_t near_frames;  /* all frames of `near` ticks ago */
  int32_t ahead;        /* frames whose keys the tick before has kept for this one */
  int32_t done;         /* the last step of the block */
  int32_t label, none;  /* class, and the number that means no class */
  float level, next;    /* noise level before and after the step */
  float guidance;       /* scale: v = none + guidance (class - none) */
  float features[SL_GENERATION_FEATURES]; /* of `level` */
} sl_generation_tick;

/* Settings of a graph that generates. */
typedef struct sl_generation {
  int lag, near; /* ticks, at least 1; a block sees the first frames of the block of the tick before
                    if lag > 1 (rows ahead) */
  int steps;     /* ticks of a block; its frames are done in the last */
  int ways;      /* 2: with and without class, for guidance; 1: with class */
  /* Fills a tick, and the noise of its own frames: [own][patches][channels] of them. */
  void (*fill)(void *ctx, const sl_tick *tick, sl_generation_tick *out, float *noise);
  /* Returns the tick number of a step, for devices that hold no values; only counts are read. */
  void (*expect)(void *ctx, int32_t tick, sl_generation_tick *out);
  int behind; /* as in sl_source: ticks in flight, if fill() may block; 0: it does not */
  /* Ticks of a step in which latents of the block itself, and of the block before, are read and
   * written; `lag` and `near` do not matter then. NULL: all. */
  const sl_delay_ticks *before_in, *near_in;
  void *ctx;
  /* Filled in by the model: */
  int64_t frames, context;      /* most frames of a block, and of its context */
  int64_t patches, channels;    /* tokens of a frame, and numbers of a token */
  int64_t height, width, patch; /* size of a frame as the output "frames" has it, and the side of
                                   its patches; 1: rows of pixels */
  int64_t grid[2];              /* patches along height and width */
  int classes;
} sl_generation;

/* Tensors of a tick. R: rows of the most frames, context first. */
typedef struct sl_generated {
  sl_tensor *rows;     /* [1, R, channels], valid: those of the tick */
  sl_tensor *tick;     /* i32: the words of an sl_generation_tick, for calls */
  sl_tensor *features; /* [1, SL_GENERATION_FEATURES] */
  sl_tensor *labels;   /* i32 [ways]: the class, then none */
  const char *block;   /* block of the latents */
  const struct sli_generated_delays *delays;
} sl_generated;

/* Returns the settings of a graph that generates, or NULL. */
sl_generation *sl_graph_generation(const sl_graph *g);
/* Begins a tick in the current block; the model has filled in its part of the settings. */
sl_generated sl_generate_begin(sl_graph *g);
/* Returns v [1, R, channels] of both ways, y [1, R, ways, channels]. */
sl_tensor *sl_generate_guide(sl_graph *g, const sl_generated *tick, sl_tensor *y);
/* Ends a tick: visits the first block again, steps along v, and returns the frames of a block that
 * is done, [1, frames, patches channels], valid: its own frames, none in other ticks. */
sl_tensor *sl_generate_end(sl_graph *g, const sl_generated *tick, sl_tensor *v);

/* Attention between all rows of a tick, and to the rows ahead that the tick before has kept: q, k,
 * v [1, R, ways, C], with RMS norms of each head's q and k (gains [C / heads]) and rotary positions
 * along frames, height and width. Keeps keys and values of the first `context` own frames for the
 * next tick, if there are any. `height`, `width`: patches. */
sl_tensor *sl_generate_attend(sl_graph *g, const sl_generated *tick, sl_tensor *q, sl_tensor *k,
                              sl_tensor *v, sl_tensor *q_gain, sl_tensor *k_gain, int heads,
                              const char *name);
/* Fills the angles' cosines and sines of the rotary positions of a frame's patches for training:
 * [frames][height][width][dim / 2]. The first frame is number 0. */
void sl_generation_angles(int64_t frames, int64_t height, int64_t width, int64_t dim,
                          float *cosines, float *sines);
/* Fills the features of a noise level. */
void sl_generation_features(float level, float out[SL_GENERATION_FEATURES]);

#ifdef __cplusplus
}
#endif
#endif
