/* SPDX-License-Identifier: Apache-2.0 */
/* Data of any length is sent in parts, in order on each line, so a part needs only its offset to
 * find its place. Heartbeats are sent in between. */
#include <stdlib.h>
#include <string.h>

#include "comm/control/control_inner.h"

void sli_data_send(sli_control *c, sli_line *line, sli_data_kind kind, int from, int target,
                   const char *word, const void *data, size_t bytes) {
  sli_frame frame = {
      .type = SLI_FRAME_DATA,
      .data = {.kind = kind, .from = (uint32_t)from, .target = target, .total_bytes = bytes}};
  strncpy(frame.data.word, word, sizeof frame.data.word - 1);
  size_t offset = 0;
  do {
    frame.data.offset_bytes = offset;
    frame.tail = (const uint8_t *)data + offset;
    frame.tail_bytes = SLI_MIN(bytes - offset, (size_t)SLI_FRAME_TAIL_BYTES);
    sli_line_send(c, line, &frame);
    offset += frame.tail_bytes;
  } while (offset < bytes);
}

/* Returns whether this process may send this kind of data. */
static bool is_due(const sli_control *c, int process, const sli_frame *frame) {
  uint32_t kind = frame->data.kind;
  if (frame->data.from >= (uint32_t)c->nprocesses || frame->data.target >= c->nprocesses)
    return false;
  if (sli_is_hub(c))
    return (kind == SLI_DATA_WORD || kind == SLI_DATA_MEET) && c->shared.joined &&
           frame->data.from == (uint32_t)process;
  if (kind == SLI_DATA_TABLE) return frame->data.from == 0;
  return c->shared.joined &&
         (kind == SLI_DATA_WORD || (kind == SLI_DATA_RELEASE && !frame->data.from));
}

static void parts_begin(sli_assembly *all, const sli_frame *frame) {
  free(all->data);
  *all = (sli_assembly){.data = sli_calloc(frame->data.total_bytes, 1),
                        .total_bytes = frame->data.total_bytes};
}

sli_part sli_part_take(sli_control *c, int process, const sli_frame *frame, uint8_t **data,
                       size_t *bytes) {
  if (!is_due(c, process, frame)) {
    sli_refuse(c, SLI_REFUSED_MALFORMED, c->peers[process].host, "unexpected data");
    return SLI_PART_REFUSED;
  }
  sli_assembly *all = &c->peers[frame->data.from].parts[frame->data.kind];
  if (frame->data.offset_bytes == 0) parts_begin(all, frame);
  if (!all->data || frame->data.offset_bytes != all->bytes ||
      frame->data.total_bytes != all->total_bytes) {
    sli_refuse(c, SLI_REFUSED_MALFORMED, c->peers[process].host, "a part out of order");
    return SLI_PART_REFUSED;
  }
  if (frame->tail_bytes) memcpy(all->data + all->bytes, frame->tail, frame->tail_bytes);
  all->bytes += frame->tail_bytes;
  if (all->bytes < all->total_bytes) return SLI_PART_TAKEN;
  *data = all->data;
  *bytes = all->bytes;
  *all = (sli_assembly){0};
  return SLI_PART_LAST;
}

void sli_parts_fini(sli_control *c) {
  for (int k = 0; k < c->nprocesses; k++)
    for (int kind = 0; kind < SLI_DATA_KINDS; kind++) free(c->peers[k].parts[kind].data);
}
