/* SPDX-License-Identifier: Apache-2.0 */
/* Parser of HTTP/1.1 requests: heads, and the framing of bodies. Uses no sockets. */
#ifndef SLUICE_TOOLS_ACTORSERVE_HTTP_PARSE_H
#define SLUICE_TOOLS_ACTORSERVE_HTTP_PARSE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { HTTP_MOST_HEAD = 16384, HTTP_MOST_FIELDS = 100, HTTP_MOST_LINE = 256 };

/* An error in a request: an HTTP status, 0 for none, and a text. */
typedef struct http_fault {
  int status;
  const char *text;
} http_fault;

typedef struct http_field {
  char *name, *value;
} http_field;

/* The head of a request. Its texts point into the parsed bytes, which are modified to contain
 * zeros. */
typedef struct http_head {
  char *method, *target; /* target: the decoded path without a query, or "*" */
  int minor;             /* the version is HTTP/1.minor */
  bool keep;             /* the connection stays open */
  bool chunked, expects; /* framing of the body; the client waits for "100 Continue" */
  uint64_t length;       /* bytes of the body, unless it is chunked */
  int nfields;
  http_field fields[HTTP_MOST_FIELDS];
} http_head;

/* Returns the length of the head at the start of the bytes, including its empty line, or 0 if it is
 * incomplete. The first `seen` bytes were examined before. */
size_t http_head_length(const char *bytes, size_t count, size_t seen);
/* Parses a head of `count` bytes. */
http_fault http_head_parse(char *bytes, size_t count, http_head *out);
/* Returns a field by its lowercase name, or NULL if it is absent. */
const char *http_head_field(const http_head *head, const char *name);

/* State of reading a body. */
typedef struct http_body {
  enum { HTTP_CHUNK_SIZE, HTTP_CHUNK_DATA, HTTP_CHUNK_END, HTTP_TRAILER, HTTP_BODY_DONE } at;
  bool chunked;
  uint64_t left; /* remaining bytes of the chunk, or of the body */
  size_t extra;  /* number of ignored bytes so far: chunk extensions, trailer fields */
  int fields;    /* number of trailer fields so far */
} http_body;

void http_body_begin(http_body *b, const http_head *head);
/* Parses the next bytes and consumes *used of them; *data is set if they belong to the body.
 * Consumes nothing while a line is incomplete, and at the end of the body. */
http_fault http_body_next(http_body *b, const char *bytes, size_t count, size_t *used, bool *data);

#endif
