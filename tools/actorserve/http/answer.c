/* SPDX-License-Identifier: Apache-2.0 */
/* Serialization of answers, whole or in pieces. */
#include <string.h>

#include "base/base.h"
#include "tools/actorserve/http/http_inner.h"

static const char *phrase(int status) {
  static const struct {
    int status;
    const char *text;
  } all[] = {{200, "OK"},
             {204, "No Content"},
             {400, "Bad Request"},
             {401, "Unauthorized"},
             {403, "Forbidden"},
             {404, "Not Found"},
             {405, "Method Not Allowed"},
             {408, "Request Timeout"},
             {413, "Content Too Large"},
             {417, "Expectation Failed"},
             {429, "Too Many Requests"},
             {431, "Request Header Fields Too Large"},
             {500, "Internal Server Error"},
             {501, "Not Implemented"},
             {503, "Service Unavailable"},
             {505, "HTTP Version Not Supported"}};
  for (size_t i = 0; i < SLI_COUNT(all); i++)
    if (all[i].status == status) return all[i].text;
  return "Unknown";
}

void http_set_user(http_exchange *x, void *user) { x->user = user; }

void http_add_field(http_exchange *x, const char *name, const char *value) {
  if (evbuffer_add_printf(x->fields, "%s: %s\r\n", name, value) < 0) x->broken = true;
}

static void answer_put(http_exchange *x, const char *bytes, size_t count) {
  if (evbuffer_add(bufferevent_get_output(x->stream), bytes, count)) x->broken = true;
}

static void put_text(http_exchange *x, const char *text) { answer_put(x, text, strlen(text)); }

static void answer_begin(http_exchange *x, int status, const char *type) {
  char line[160];
  x->keep &= !x->server->draining;
  x->begun = true;
  x->status = status;
  snprintf(line, sizeof line, "HTTP/1.1 %d %s\r\nConnection: %s\r\n", status, phrase(status),
           x->keep ? "keep-alive" : "close");
  if (type) http_add_field(x, "Content-Type", type);
  put_text(x, line);
  if (evbuffer_add_buffer(bufferevent_get_output(x->stream), x->fields)) x->broken = true;
}

void http_write_answer(http_exchange *x, int status, const char *type, struct evbuffer *body) {
  char line[64];
  snprintf(line, sizeof line, "Content-Length: %zu\r\n\r\n", evbuffer_get_length(body));
  answer_begin(x, status, type);
  if (status != 204) put_text(x, line);
  else put_text(x, "\r\n");
  if (!x->bare && evbuffer_add_buffer(bufferevent_get_output(x->stream), body)) x->broken = true;
}

/* Begins an answer in pieces. An HTTP/1.0 client detects its end by the end of the connection. */
void http_begin(http_exchange *x, int status, const char *type, const char *probe) {
  x->pieces = x->head.minor > 0;
  x->keep &= x->pieces;
  x->probe = probe;
  if (x->pieces) http_add_field(x, "Transfer-Encoding", "chunked");
  http_add_field(x, "Cache-Control", "no-cache");
  answer_begin(x, status, type);
  put_text(x, "\r\n");
}

void http_write_piece(http_exchange *x, const char *piece, size_t bytes) {
  char line[32];
  if (!bytes) return; /* an empty chunk would end the answer */
  snprintf(line, sizeof line, "%zx\r\n", bytes);
  if (x->pieces) put_text(x, line);
  answer_put(x, piece, bytes);
  if (x->pieces) put_text(x, "\r\n");
}

void http_write_end(http_exchange *x) {
  if (x->pieces) put_text(x, "0\r\n\r\n");
}

void http_write_probe(http_exchange *x) {
  if (x->probed) return;
  x->probed = true;
  if (x->begun && x->probe) http_write_piece(x, x->probe, strlen(x->probe));
  if (!x->begun && x->head.minor) put_text(x, "HTTP/1.1 100 Continue\r\n\r\n");
}
