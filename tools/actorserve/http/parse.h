/* HTTP/1.1 requests as bytes: their heads, and how their bodies are cut. Knows no sockets. */
#ifndef SLUICE_TOOLS_ACTORSERVE_HTTP_PARSE_H
#define SLUICE_TOOLS_ACTORSERVE_HTTP_PARSE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { HTTP_MOST_HEAD = 16384, HTTP_MOST_FIELDS = 100, HTTP_MOST_LINE = 256 };

/* What is wrong with a request: an HTTP status, 0 if nothing is, and what to say of it. */
typedef struct http_fault {
  int status;
  const char *text;
} http_fault;

typedef struct http_field {
  char *name, *value;
} http_field;

/* The head of a request. Its texts lie in the bytes that were parsed, which have zeros in them now. */
typedef struct http_head {
  char *method, *target;    /* target: the path, without %XX and a query; or "*" */
  int minor;                /* of HTTP/1.minor */
  bool keep;                /* the connection is to stay open */
  bool chunked, expects;    /* the body; "100 Continue" before it comes */
  uint64_t length;          /* of the body, if it is not chunked */
  int nfields;
  http_field fields[HTTP_MOST_FIELDS];
} http_head;

/* The length of the head that the bytes begin with, its empty line included; 0: it is not whole. `seen` of them have been
 * looked at before. */
size_t http_head_length(const char *bytes, size_t count, size_t seen);
/* Parses so many bytes. */
http_fault http_head_parse(char *bytes, size_t count, http_head *out);
/* NULL: there is none of that name, which is in small letters. */
const char *http_head_field(const http_head *head, const char *name);

/* How far a body has come. */
typedef struct http_body {
  enum { HTTP_CHUNK_SIZE, HTTP_CHUNK_DATA, HTTP_CHUNK_END, HTTP_TRAILER, HTTP_BODY_DONE } at;
  bool chunked;
  uint64_t left;  /* of the chunk, or of the body */
  size_t extra;   /* bytes so far of what says nothing: extensions of chunks, fields behind the body */
  int fields;     /* of those, so far */
} http_body;

void http_body_begin(http_body *b, const http_head *head);
/* Looks at the next bytes, of which *used are used up; *data: those are the body's. Nothing is used
 * while a line is not whole, and at the end of the body. */
http_fault http_body_next(http_body *b, const char *bytes, size_t count, size_t *used, bool *data);

#endif
