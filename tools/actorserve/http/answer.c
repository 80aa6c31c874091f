/* Answers as bytes, whole or in pieces. */
#include <event2/buffer.h>
#include <string.h>

#include "base/base.h"
#include "tools/actorserve/http/inner.h"

static const char *phrase(int status) {
  static const struct {
    int status;
    const char *text;
  } all[] = {{200, "OK"}, {400, "Bad Request"}, {401, "Unauthorized"}, {404, "Not Found"},
             {405, "Method Not Allowed"}, {408, "Request Timeout"}, {413, "Content Too Large"},
             {417, "Expectation Failed"}, {431, "Request Header Fields Too Large"},
             {500, "Internal Server Error"}, {501, "Not Implemented"}, {503, "Service Unavailable"},
             {505, "HTTP Version Not Supported"}};
  for (size_t i = 0; i < SLI_COUNT(all); i++)
    if (all[i].status == status) return all[i].text;
  return "Unknown";
}

void http_set_user(http_exchange *x, void *user) { x->user = user; }

void http_add_field(http_exchange *x, const char *name, const char *value) {
  evbuffer_add_printf(x->fields, "%s: %s\r\n", name, value);
}

static void begin(http_exchange *x, int status, const char *type) {
  struct evbuffer *out = bufferevent_get_output(x->stream);
  x->keep &= !x->server->draining;
  evbuffer_add_printf(out, "HTTP/1.1 %d %s\r\nContent-Type: %s\r\nConnection: %s\r\n", status,
                      phrase(status), type, x->keep ? "keep-alive" : "close");
  evbuffer_add_buffer(out, x->fields);
}

void http_write_answer(http_exchange *x, int status, const char *type, const char *body, size_t bytes) {
  struct evbuffer *out = bufferevent_get_output(x->stream);
  begin(x, status, type);
  evbuffer_add_printf(out, "Content-Length: %zu\r\n\r\n", bytes);
  evbuffer_add(out, body, bytes);
}

/* A client of HTTP/1.0 knows the end of an answer by that of the connection. */
void http_begin(http_exchange *x, int status, const char *type) {
  x->pieces = x->head.minor > 0;
  x->keep &= x->pieces;
  if (x->pieces) http_add_field(x, "Transfer-Encoding", "chunked");
  http_add_field(x, "Cache-Control", "no-cache");
  begin(x, status, type);
  evbuffer_add(bufferevent_get_output(x->stream), "\r\n", 2);
}

void http_write_piece(http_exchange *x, const char *piece, size_t bytes) {
  struct evbuffer *out = bufferevent_get_output(x->stream);
  if (!bytes) return; /* an empty chunk would be the last */
  if (x->pieces) evbuffer_add_printf(out, "%zx\r\n", bytes);
  evbuffer_add(out, piece, bytes);
  if (x->pieces) evbuffer_add(out, "\r\n", 2);
}

void http_write_end(http_exchange *x) {
  if (x->pieces) evbuffer_add(bufferevent_get_output(x->stream), "0\r\n\r\n", 5);
}
