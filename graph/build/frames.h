/* SPDX-License-Identifier: Apache-2.0 */
/* Sources of frames (sl_frames). */
#ifndef SLUICE_GRAPH_BUILD_FRAMES_H
#define SLUICE_GRAPH_BUILD_FRAMES_H

#include <sluice/frames.h>

#include "graph/graph.h"

/* Context of a source of frames; constant once made. */
typedef struct sli_frames {
  sl_source source;
  sl_type frame, type; /* of one frame; of all that the source gives */
  const void *values;  /* of the file; NULL: none is read */
  bool bytes;          /* they are bytes, which count as 0 to 1 */
  int64_t total;       /* frames of the file */
  int64_t rows, count; /* sequences or prompts at a time, and frames of each */
  int64_t first;       /* of a prompt's frames, the first one */
  int64_t microbatches;
  const struct sli_tokens *tokens; /* whose sequences the frames are of; NULL: not of files */
  const sl_prompt_frames *prompts; /* NULL: frames are of sequences */
} sli_frames;

/* Makes a source of some frames of each prompt, for one device. */
const sl_source *sli_frames_part(sl_graph *g, const sl_source *source, int64_t first,
                                 int64_t count);
/* Returns the frames that a node is the source of; NULL: it is none. */
const sli_frames *sli_frames_of(const sli_node *n);
/* Has the batch of a served graph say which rows positions have in place of their embeddings, and
 * give them, each of `width` numbers. */
sl_status sli_serve_spliced(sl_graph *g, int64_t width);

#endif
