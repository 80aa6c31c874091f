/* SPDX-License-Identifier: Apache-2.0 */
/* Untrusted bytes are parsed as successive HTTP requests, with the same result whole and piece by
 * piece. Heads are valid or refused with a status, and bodies have no more bytes than arrived.
 * labels: random unthreaded
 * needs: libevent */
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "tests/fuzz/fuzz.h"
#include "tools/actorserve/http/parse.h"

const char *const fuzz_words[] = {"GET ",
                                  "POST ",
                                  "HEAD ",
                                  "OPTIONS * ",
                                  "http://h/",
                                  "/v1/completions",
                                  "?",
                                  "%2F",
                                  "%00",
                                  " HTTP/1.1",
                                  " HTTP/1.0",
                                  "\r\n",
                                  "\r\n\r\n",
                                  "Host: a",
                                  "Content-Length: 5",
                                  "Transfer-Encoding: chunked",
                                  "Expect: 100-continue",
                                  "Connection: close",
                                  "Connection: keep-alive",
                                  "Authorization: Bearer x",
                                  "0\r\n\r\n",
                                  "5\r\nabcde\r\n",
                                  ";a=b",
                                  "A: b\r\n",
                                  "\n",
                                  "\r",
                                  "\t",
                                  "ffffffffffffffff",
                                  NULL};

/* The result of reading: a hash of the output. Different errors count as one, since their order may
 * differ. */
typedef struct reading {
  uint64_t hash;
  size_t used;
} reading;

static void note(reading *r, const char *text) {
  r->hash = sli_hash(r->hash, text, strlen(text) + 1);
}

static void check_fault(http_fault fault) {
  if (fault.status && (fault.status < 400 || fault.status > 599 || !fault.text || !*fault.text))
    abort();
}

/* Reads a body, with `step` more bytes arriving at a time. Returns false if there is nothing more
 * to read. */
static bool read_body(reading *r, const http_head *head, const uint8_t *bytes, size_t count,
                      size_t step) {
  http_body b;
  size_t have = SLI_MIN(step, count), at = 0, used, total = 0;
  http_body_begin(&b, head);
  while (b.at != HTTP_BODY_DONE) {
    bool data;
    http_fault fault = http_body_next(&b, (const char *)bytes + at, have - at, &used, &data);
    check_fault(fault);
    if (fault.status) note(r, fault.status == 400 ? "bad" : "refused");
    if (fault.status) return false;
    if (used > have - at) abort();
    if (data) r->hash = sli_hash(r->hash, bytes + at, used), total += used;
    at += used;
    if (!used && have == count) return false;
    if (!used) have = SLI_MIN(have + step, count);
  }
  if (total > count || (!head->chunked && total != head->length)) abort();
  r->used += at;
  return true;
}

/* Reads a head, searched again as bytes arrive. */
static bool read_head(reading *r, http_head *head, char *room, const uint8_t *bytes, size_t count,
                      size_t step) {
  size_t length = 0, seen = 0;
  count = SLI_MIN(count, HTTP_MOST_HEAD);
  for (size_t have = SLI_MIN(step, count); !length; have = SLI_MIN(have + step, count)) {
    length = http_head_length((const char *)bytes, have, seen);
    seen = have;
    if (!length && have == count) return false;
  }
  memcpy(room, bytes, length);
  room[length] = 0;
  http_fault fault = http_head_parse(room, length, head);
  check_fault(fault);
  if (fault.status) note(r, fault.status == 400 ? "bad" : "refused");
  if (fault.status) return false;
  if (*head->target != '/' && strcmp(head->target, "*")) abort();
  for (const char *at = head->target; *at; at++)
    if ((unsigned char)*at < ' ' || *at == 127) abort();
  note(r, head->method);
  note(r, head->target);
  for (int i = 0; i < head->nfields; i++)
    note(r, head->fields[i].name), note(r, head->fields[i].value);
  r->used += length;
  return true;
}

static uint64_t read_all(const uint8_t *bytes, size_t count, size_t step) {
  static char room[HTTP_MOST_HEAD + 1];
  reading r = {.hash = SLI_HASH_SEED};
  for (http_head head; read_head(&r, &head, room, bytes + r.used, count - r.used, step);)
    if (!read_body(&r, &head, bytes + r.used, count - r.used, step)) break;
  return r.hash;
}

/* Copies the input into a separate block, so that reads past the end are detected. */
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count) {
  uint8_t *copy = malloc(count ? count : 1);
  if (count) memcpy(copy, bytes, count);
  uint64_t whole = read_all(copy, count, count ? count : 1);
  if (count < 4096 && (read_all(copy, count, 1) != whole || read_all(copy, count, 7) != whole))
    abort();
  free(copy);
  return 0;
}
