/* SPDX-License-Identifier: Apache-2.0 */
/* The line of blocks of a generator: which block makes which step in which tick. */
#ifndef SLUICE_SERVE_LINE_H
#define SLUICE_SERVE_LINE_H

#include <sluice/generator.h>

#include "base/base.h"

/* A clip that is generated. The line and each of its blocks hold a use of it. */
typedef struct sli_clip {
  struct sli_clip *next;
  sl_clip clip;
  uint64_t id, came_ns;
  int uses;
  bool cancelled;
  int64_t entered, blocks; /* blocks that have entered, and all */
  int64_t delivered, late; /* frames */
  int64_t noised;          /* blocks whose noise has been drawn */
  float *pool;             /* noise of the next block: [frames + context] frames; NULL: not yet */
  const sl_generation *shape;
} sli_clip;

/* A block in a tick; clip NULL: none. */
typedef struct sli_block_at {
  sli_clip *clip;
  int64_t number; /* among the clip's blocks */
  int step;
} sli_block_at;

typedef struct sli_block_line {
  sl_clip_order order;
  int steps;
  float guidance;
  const sl_generation *shape;
  int64_t tick;       /* number of the next tick */
  sli_block_at *ring; /* [lag] blocks of the latest ticks */
  int64_t active;     /* ticks of the ring with a block whose clip is wanted */
  sli_clip *first;    /* clips that have blocks to enter, in turn */
} sli_block_line;

/* Sets the delays of an order. */
void sli_block_line_settle(sl_clip_order order, int steps, sl_generation *shape);
void sli_block_line_init(sli_block_line *l, sl_clip_order order, int steps, float guidance,
                         const sl_generation *shape);
void sli_block_line_fini(sli_block_line *l);
/* Returns the blocks of a clip, and the frames and the first frame of one of them. */
int64_t sli_clip_blocks(const sl_clip *clip, int64_t frames);
int64_t sli_block_frames(const sl_clip *clip, int64_t frames, int64_t number, int64_t *first);
/* Returns true if the next tick has a block, or a later one will. */
bool sli_block_line_busy(const sli_block_line *l);
/* Chooses the block of the next tick. `done`: uses of clips that end with the tick, by the caller.
 */
sli_block_at sli_block_line_next(sli_block_line *l, sl_generation_tick *out);
/* Draws the noise of a block: each later block of a clip reuses the frames of the one before in
 * another order, so that neighbours begin alike. */
void sli_clip_noise(sli_clip *clip, int64_t number, float *out);

sli_clip *sli_clip_create(const sl_clip *clip, const sl_generation *shape);
void sli_clip_drop(sli_clip *clip); /* drops a use */

#endif
