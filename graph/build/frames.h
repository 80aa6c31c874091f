/* SPDX-License-Identifier: Apache-2.0 */
/* Sources of frames (sl_frames). */
#ifndef SLUICE_GRAPH_BUILD_FRAMES_H
#define SLUICE_GRAPH_BUILD_FRAMES_H

#include <sluice/frames.h>

#include "graph/graph.h"

/* Context of a source of frames; constant once made. */
typedef struct sli_frames {
  sl_source source;
  sl_type frame, type; /* type of one frame; type of the source's output */
  const void *values;  /* values of the file; NULL: no file is read */
  bool bytes;          /* the values are bytes, which are scaled to 0 .. 1 */
  int64_t total;       /* number of frames in the file */
  int64_t rows, count; /* sequences or prompts per tick, and frames of each */
  int64_t first;       /* index of the first one among a prompt's frames */
  int64_t microbatches;
  const struct sli_tokens *tokens; /* files with the sequences that the frames belong to; NULL: not
                                      from files */
  const sl_prompt_frames *prompts; /* NULL: frames belong to sequences */
} sli_frames;

/* Creates a source of `count` frames of each prompt from `first` on, for one device. */
const sl_source *sli_frames_part(sl_graph *g, const sl_source *source, int64_t first,
                                 int64_t count);
/* Returns the frames of a source node, or NULL if the node is not a source of frames. */
const sli_frames *sli_frames_of(const sli_node *n);
/* Extends the batch of a served graph with the rows that replace embeddings, each of `width`
 * numbers, and their positions. */
sl_status sli_serve_spliced(sl_graph *g, int64_t width);

#endif
