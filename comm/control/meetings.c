/* SPDX-License-Identifier: Apache-2.0 */
/* Meetings (barriers). Every process tells process 0 that it has arrived, and sends the data it
 * brings. Once all have arrived, process 0 tells all. */
#include <stdlib.h>
#include <string.h>

#include "comm/control/control_inner.h"

void sli_blobs_free(sli_control_blob *blobs, int count) {
  for (int k = 0; blobs && k < count; k++) free(blobs[k].data);
  free(blobs);
}

/* ---- everybody's data in one block ------------------------------------------------------- */

/* Packs, for each process, the size (8 bytes, little-endian) and the data. */
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

/* Unpacks the block; NULL if it is malformed. */
static sli_control_blob *unpack(const sli_control *c, const uint8_t *at, size_t left) {
  sli_control_blob *blobs = sli_calloc((size_t)c->nprocesses, sizeof *blobs);
  for (int k = 0; k < c->nprocesses; k++) {
    uint64_t bytes = left < 8 ? UINT64_MAX : sli_frame_take64(at);
    if (left < 8 || bytes > left - 8) {
      sli_blobs_free(blobs, c->nprocesses);
      return NULL;
    }
    blobs[k] = (sli_control_blob){.data = sli_calloc(bytes + 1, 1), .bytes = bytes};
    memcpy(blobs[k].data, at + 8, bytes);
    at += 8 + bytes;
    left -= 8 + bytes;
  }
  return blobs;
}

/* ---- process 0 ------------------------------------------------------------------- */

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
  sli_blobs_free(meeting->blobs, c->nprocesses);
  free(meeting->came);
  free(meeting);
}

/* Wakes this process's thread in the meeting and gives it the blobs. */
static void release_waiter(sli_control *c, const char *word, sli_control_blob *blobs) {
  pthread_mutex_lock(&c->shared.lock);
  sli_waiter *w = c->shared.waiters;
  while (w && (w->done || strcmp(w->word, word))) w = w->next;
  if (w) {
    w->done = true;
    w->blobs = blobs;
    pthread_cond_broadcast(&c->shared.changed);
  }
  pthread_mutex_unlock(&c->shared.lock);
  if (!w) sli_blobs_free(blobs, c->nprocesses);
}

static void end_meeting(sli_control *c, sli_meeting *meeting) {
  size_t bytes = 0;
  uint8_t *all = meeting->shared ? pack(c, meeting->blobs, &bytes) : NULL;
  if (bytes > SLI_FRAME_DATA_BYTES)
    sli_blame(c, SL_E_UNSUPPORTED, 0, "the shared data (%s) has %zu bytes, more than %d",
              meeting->word, bytes, SLI_FRAME_DATA_BYTES);
  for (int k = 1; k < c->nprocesses && bytes <= SLI_FRAME_DATA_BYTES; k++)
    sli_data_send(c, &c->peers[k].hub, SLI_DATA_RELEASE, 0, k, meeting->word, all, bytes);
  free(all);
  release_waiter(c, meeting->word, meeting->blobs);
  meeting->blobs = NULL;
  destroy_meeting(c, meeting);
}

/* Takes the release of a meeting from process 0. */
void sli_meeting_release(sli_control *c, const char *word, const uint8_t *data, size_t bytes) {
  sli_control_blob *blobs = bytes ? unpack(c, data, bytes) : NULL;
  if (bytes && !blobs)
    sli_blame(c, SL_E_INPUT, 0, "process 0 sent malformed data for a meeting (%s)", word);
  else release_waiter(c, word, blobs);
}

void sli_meeting_come(sli_control *c, int from, int target, const char *word, void *data,
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
      sli_blame(c, SL_E_PEER, k, "%s has left, but others wait for it (%s)",
                sli_peer_name(c, k, name), meeting->word);
}

void sli_meetings_check(sli_control *c) {
  for (const sli_meeting *m = c->meetings; m; m = m->next) check_meeting(c, m);
  if (sli_is_hub(c) || !c->peers[0].left) return;
  pthread_mutex_lock(&c->shared.lock);
  bool waits = false;
  for (const sli_waiter *w = c->shared.waiters; w; w = w->next) waits |= !w->done;
  pthread_mutex_unlock(&c->shared.lock);
  char name[128];
  if (waits)
    sli_blame(c, SL_E_PEER, 0, "%s has left, but others wait for it", sli_peer_name(c, 0, name));
}

void sli_meetings_fini(sli_control *c) {
  while (c->meetings) destroy_meeting(c, c->meetings);
}
