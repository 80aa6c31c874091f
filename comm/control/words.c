/* Words and meetings. Data of any length travels in parts, one after the other on
 * each way, so that a part needs no more than its offset to find its place; hearts
 * beat in between. Everything passes process 0, which is what makes it simple: it
 * passes on words in the order it gets them, so all processes hear all words that
 * go to all in one order, and it sees when all have met. */
#include <stdlib.h>
#include <string.h>

#include "comm/control/inner.h"

/* ---- out ---------------------------------------------------------------------- */

void sli_data_send(sli_control *c, sli_way *way, sli_data_kind kind, int from, int target,
                   const char *word, const void *data, size_t bytes) {
  sli_frame frame = {.type = SLI_FRAME_DATA,
                     .data = {.kind = kind, .from = (uint32_t)from, .target = target,
                              .total_bytes = bytes}};
  strncpy(frame.data.word, word, sizeof frame.data.word - 1);
  size_t offset = 0;
  do {
    frame.data.offset_bytes = offset;
    frame.tail = (const uint8_t *)data + offset;
    frame.tail_bytes = SLI_MIN(bytes - offset, (size_t)SLI_FRAME_TAIL_BYTES);
    sli_way_send(c, way, &frame);
    offset += frame.tail_bytes;
  } while (offset < bytes);
}

static void hear(sli_control *c, int from, const char *word, const void *data, size_t bytes) {
  if (c->options.on_word && !c->ended) c->options.on_word(c->options.ctx, from, word, data, bytes);
}

static void free_blobs(sli_control_blob *blobs, int count) {
  for (int k = 0; blobs && k < count; k++) free(blobs[k].data);
  free(blobs);
}

/* ---- what all brought, as one ------------------------------------------------------------ */

/* For each process bytes (8 each, little-endian) and data. */
static uint8_t *pack(const sli_control *c, const sli_control_blob *blobs, size_t *bytes) {
  *bytes = 0;
  for (int k = 0; k < c->nprocesses; k++) *bytes += 8 + blobs[k].bytes;
  uint8_t *all = sli_calloc(*bytes, 1), *at = all;
  for (int k = 0; k < c->nprocesses; k++) {
    sli_frame_put64(at, blobs[k].bytes);
    if (blobs[k].bytes) memcpy(at + 8, blobs[k].data, blobs[k].bytes);
    at += 8 + blobs[k].bytes;
  }
  return all;
}

/* NULL if it is malformed. */
static sli_control_blob *unpack(const sli_control *c, const uint8_t *at, size_t left) {
  sli_control_blob *blobs = sli_calloc((size_t)c->nprocesses, sizeof *blobs);
  for (int k = 0; k < c->nprocesses; k++) {
    uint64_t bytes = left < 8 ? UINT64_MAX : sli_frame_take64(at);
    if (left < 8 || bytes > left - 8) {
      free_blobs(blobs, c->nprocesses);
      return NULL;
    }
    blobs[k] = (sli_control_blob){.data = sli_calloc(bytes + 1, 1), .bytes = bytes};
    memcpy(blobs[k].data, at + 8, bytes);
    at += 8 + bytes;
    left -= 8 + bytes;
  }
  return blobs;
}

/* ---- meetings, at process 0 ------------------------------------------------------ */

static sli_meeting *find_meeting(sli_control *c, const char *word) {
  for (sli_meeting *m = c->meetings; m; m = m->next)
    if (!strcmp(m->word, word)) return m;
  sli_meeting *m = sli_calloc(1, sizeof *m);
  strncpy(m->word, word, sizeof m->word - 1);
  m->came = sli_calloc((size_t)c->nprocesses, sizeof *m->came);
  m->blobs = sli_calloc((size_t)c->nprocesses, sizeof *m->blobs);
  m->next = c->meetings;
  c->meetings = m;
  return m;
}

static void destroy_meeting(sli_control *c, sli_meeting *meeting) {
  sli_meeting **at = &c->meetings;
  while (*at != meeting) at = &(*at)->next;
  *at = meeting->next;
  free_blobs(meeting->blobs, c->nprocesses);
  free(meeting->came);
  free(meeting);
}

/* Wakes the thread of this process that waits there, and gives it the blobs. */
static void release_waiter(sli_control *c, const char *word, sli_control_blob *blobs) {
  pthread_mutex_lock(&c->lock);
  sli_waiter *w = c->waiters;
  while (w && (w->done || strcmp(w->word, word))) w = w->next;
  if (w) {
    w->done = true;
    w->blobs = blobs;
    pthread_cond_broadcast(&c->changed);
  }
  pthread_mutex_unlock(&c->lock);
  if (!w) free_blobs(blobs, c->nprocesses);
}

static void end_meeting(sli_control *c, sli_meeting *meeting) {
  size_t bytes = 0;
  uint8_t *all = meeting->shared ? pack(c, meeting->blobs, &bytes) : NULL;
  if (bytes > SLI_FRAME_DATA_BYTES)
    sli_blame(c, SL_E_UNSUPPORTED, 0, "what all share (%s) has %zu bytes, more than %d",
              meeting->word, bytes, SLI_FRAME_DATA_BYTES);
  for (int k = 1; k < c->nprocesses && bytes <= SLI_FRAME_DATA_BYTES; k++)
    sli_data_send(c, &c->peers[k].hub, SLI_DATA_RELEASE, 0, k, meeting->word, all, bytes);
  free(all);
  release_waiter(c, meeting->word, meeting->blobs);
  meeting->blobs = NULL;
  destroy_meeting(c, meeting);
}

/* Of a meeting that is over at process 0. */
static void take_release(sli_control *c, const char *word, const uint8_t *data, size_t bytes) {
  sli_control_blob *blobs = bytes ? unpack(c, data, bytes) : NULL;
  if (bytes && !blobs)
    sli_blame(c, SL_E_INPUT, 0, "process 0 sent malformed data of a meeting (%s)", word);
  else
    release_waiter(c, word, blobs);
}

/* Takes over `data`. */
static void come_to_meeting(sli_control *c, int from, int target, const char *word, void *data,
                            size_t bytes) {
  sli_meeting *meeting = find_meeting(c, word);
  if (meeting->came[from]) {
    free(data);
    sli_refuse(c, SLI_REFUSED_REPLAY, c->peers[from].host, "came to a meeting twice");
    return;
  }
  meeting->came[from] = true;
  meeting->shared |= target < 0;
  meeting->blobs[from] = (sli_control_blob){data, bytes};
  if (++meeting->count == c->nprocesses) end_meeting(c, meeting);
  else sli_meetings_check(c);
}

static void check_meeting(sli_control *c, const sli_meeting *meeting) {
  char name[128];
  for (int k = 0; k < c->nprocesses; k++)
    if (c->peers[k].left && !meeting->came[k])
      sli_blame(c, SL_E_PEER, k, "%s has left and is waited for (%s)", sli_peer_name(c, k, name),
                meeting->word);
}

void sli_meetings_check(sli_control *c) {
  for (const sli_meeting *m = c->meetings; m; m = m->next) check_meeting(c, m);
  if (sli_is_hub(c) || !c->peers[0].left) return;
  pthread_mutex_lock(&c->lock);
  bool waits = false;
  for (const sli_waiter *w = c->waiters; w; w = w->next) waits |= !w->done;
  pthread_mutex_unlock(&c->lock);
  char name[128];
  if (waits)
    sli_blame(c, SL_E_PEER, 0, "%s has left and is waited for", sli_peer_name(c, 0, name));
}

/* ---- words, at process 0 --------------------------------------------------------- */

/* Sends what came on to those for whom it is, as it is. */
static void pass_on(sli_control *c, const sli_frame *frame) {
  for (int k = 1; k < c->nprocesses; k++) {
    sli_frame copy = *frame;
    if (frame->data.target == -1 || frame->data.target == k)
      sli_way_send(c, &c->peers[k].hub, &copy);
  }
}

void sli_order_carry_out(sli_control *c, sli_order *order) {
  if (!sli_is_hub(c)) {
    sli_data_send(c, &c->peers[0].hub, order->kind, c->self, order->target, order->word,
                  order->data, order->bytes);
    sli_meetings_check(c);
  } else if (order->kind == SLI_DATA_MEET) {
    come_to_meeting(c, 0, order->target, order->word, order->data, order->bytes);
    order->data = NULL;
  } else {
    for (int k = 1; k < c->nprocesses; k++)
      if (order->target == -1 || order->target == k)
        sli_data_send(c, &c->peers[k].hub, SLI_DATA_WORD, 0, order->target, order->word,
                      order->data, order->bytes);
    if (order->target <= 0) hear(c, 0, order->word, order->data, order->bytes);
  }
}

/* ---- in ----------------------------------------------------------------------- */

static void take_whole(sli_control *c, int from, const sli_frame *frame, sli_assembly *parts) {
  uint8_t *data = parts->data;
  size_t bytes = parts->bytes;
  *parts = (sli_assembly){0};
  switch (frame->data.kind) {
  case SLI_DATA_TABLE:
    sli_table_take(c, data, bytes);
    break;
  case SLI_DATA_WORD:
    if (!sli_is_hub(c) || frame->data.target <= 0) hear(c, from, frame->data.word, data, bytes);
    break;
  case SLI_DATA_MEET:
    come_to_meeting(c, from, frame->data.target, frame->data.word, data, bytes);
    data = NULL;
    break;
  case SLI_DATA_RELEASE:
    take_release(c, frame->data.word, data, bytes);
    break;
  }
  free(data);
}

/* May this process say that? */
static bool is_due(const sli_control *c, int process, const sli_frame *frame) {
  uint32_t kind = frame->data.kind;
  if (frame->data.from >= (uint32_t)c->nprocesses || frame->data.target >= c->nprocesses)
    return false;
  if (sli_is_hub(c))
    return (kind == SLI_DATA_WORD || kind == SLI_DATA_MEET) && c->joined &&
           frame->data.from == (uint32_t)process;
  if (kind == SLI_DATA_TABLE) return frame->data.from == 0;
  return c->joined && (kind == SLI_DATA_WORD || (kind == SLI_DATA_RELEASE && !frame->data.from));
}

void sli_data_take(sli_control *c, int process, const sli_frame *frame) {
  int from = (int)frame->data.from;
  if (!is_due(c, process, frame)) {
    sli_refuse(c, SLI_REFUSED_MALFORMED, c->peers[process].host, "data that is not due");
    return;
  }
  sli_assembly *parts = &c->peers[from].parts[frame->data.kind];
  if (frame->data.offset_bytes == 0) {
    free(parts->data);
    *parts = (sli_assembly){.data = sli_calloc(frame->data.total_bytes, 1),
                            .total_bytes = frame->data.total_bytes};
  }
  if (!parts->data || frame->data.offset_bytes != parts->bytes ||
      frame->data.total_bytes != parts->total_bytes) {
    sli_refuse(c, SLI_REFUSED_MALFORMED, c->peers[process].host, "a part out of order");
    return;
  }
  if (sli_is_hub(c) && frame->data.kind == SLI_DATA_WORD) pass_on(c, frame);
  if (frame->tail_bytes) memcpy(parts->data + parts->bytes, frame->tail, frame->tail_bytes);
  parts->bytes += frame->tail_bytes;
  if (parts->bytes == parts->total_bytes) take_whole(c, from, frame, parts);
}

void sli_words_fini(sli_control *c) {
  while (c->meetings) destroy_meeting(c, c->meetings);
  for (int k = 0; k < c->nprocesses; k++)
    for (int kind = 0; kind < SLI_DATA_KINDS; kind++) free(c->peers[k].parts[kind].data);
}
