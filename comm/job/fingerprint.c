/* SPDX-License-Identifier: Apache-2.0 */
/* Run fingerprint: the settings that all processes of a job must share, compared by name when the
 * processes meet. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "comm/job/job_inner.h"

/* Packs the name and value of each item, each terminated by a 0, then the plan's hash. */
static char *pack(const sl_job *job, int nfingerprint, const sl_fingerprint_item *fingerprint,
                  size_t *bytes) {
  char *text = NULL;
  FILE *out = sli_memory_stream(&text, bytes);
  for (int i = 0; i < nfingerprint; i++)
    fprintf(out, "%s%c%s%c", fingerprint[i].name, 0, fingerprint[i].value, 0);
  fprintf(out, "%c%016" PRIx64 "%c", 0, job->plan->hash, 0);
  fclose(out);
  return text;
}

/* Returns the text at *at and moves *at past it. Returns NULL at the end, or if the text is cut
 * off. */
static const char *next_text(const sl_blob *blob, size_t *at) {
  const char *text = (const char *)blob->data + *at;
  size_t left = blob->bytes - *at, n = left ? strnlen(text, left) : 0;
  if (n == left) return NULL;
  *at += n + 1;
  return text;
}

/* Finds an item. Looks first at *from, where the previous search ended, then everywhere, because
 * items mostly come in the same order. */
static const char *find(const sl_blob *blob, size_t *from, const char *name) {
  size_t at = *from;
  const char *next = next_text(blob, &at), *there = next ? next_text(blob, &at) : NULL;
  if (there && !strcmp(next, name)) {
    *from = at;
    return there;
  }
  at = 0;
  for (const char *text; (text = next_text(blob, &at));) {
    const char *value = next_text(blob, &at);
    if (!value) break;
    if (!strcmp(text, name)) return value;
  }
  return NULL;
}

static sl_status disagree(int process, const char *name, const char *his, const char *ours) {
  if (!*name)
    return sl_fail(SL_E_INPUT, "process %d runs a different plan (%s) than process 0 (%s)", process,
                   his, ours);
  return sl_fail(SL_E_INPUT,
                 "process %d has %s %s, process 0 has %s %s: all processes need the "
                 "same",
                 process, *his ? name : "no", *his ? his : name, *ours ? name : "no",
                 *ours ? ours : name);
}

/* Compares fingerprints: for every item in `named`, both processes must have the same value. An
 * item without a value counts as absent. */
static sl_status compare(const sl_blob *blobs, int process, const sl_blob *named) {
  size_t at = 0, in_ours = 0, in_his = 0;
  for (const char *name; (name = next_text(named, &at)) && next_text(named, &at);) {
    const char *ours = find(&blobs[0], &in_ours, name), *his = find(&blobs[process], &in_his, name);
    ours = ours ? ours : "";
    his = his ? his : "";
    if (strcmp(ours, his)) return disagree(process, name, his, ours);
  }
  return SL_OK;
}

sl_status sli_fingerprint_meet(sl_job *job, int nfingerprint,
                               const sl_fingerprint_item *fingerprint) {
  sl_blob mine, *blobs = NULL;
  mine.data = pack(job, nfingerprint, fingerprint, &mine.bytes);
  sl_status status = sl_job_meet(job, "terms", mine.data, mine.bytes, &blobs);
  free(mine.data);
  for (int i = 1; blobs && i < job->count && !status; i++) {
    status = compare(blobs, i, &blobs[i]);
    if (!status) status = compare(blobs, i, &blobs[0]);
  }
  for (int i = 0; blobs && i < job->count; i++) free(blobs[i].data);
  free(blobs);
  return status;
}
