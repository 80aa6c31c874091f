/* A connection: waits for a request, takes it in, and stays with it until its answer is sent. All the
 * while it reads, so that it notices when the client hangs up. */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <event2/buffer.h>

#include "base/base.h"
#include "tools/actorserve/http/inner.h"

enum {
  MOST_READ = 65536,        /* bytes that lie unread behind a request until it is answered */
  LINGER_SECONDS = 2
};

static void wait_for(http_exchange *x, double seconds) {
  struct timeval time = {(time_t)seconds, (suseconds_t)((seconds - (double)(time_t)seconds) * 1e6)};
  event_add(x->deadline, &time);
}

void http_close(http_exchange *x) {
  http *h = x->server;
  if (x->state == HTTP_ANSWER && x->user) h->options.on_gone(h->options.ctx, x->user);
  *x->link = x->next;
  if (x->next) x->next->link = x->link;
  h->count--;
  if (!h->draining && h->listener) evconnlistener_enable(h->listener);
  event_free(x->deadline);
  evbuffer_free(x->fields);
  bufferevent_free(x->stream);
  free(x->head_bytes);
  free(x->data);
  free(x);
}

void http_close_idle(http_exchange *x) {
  if (x->state == HTTP_IDLE && !evbuffer_get_length(bufferevent_get_output(x->stream))) http_close(x);
  else x->keep = false;
}

/* ---- an answer -------------------------------------------------------------------------------------- */

static void begin_waiting(http_exchange *x) {
  x->state = HTTP_IDLE;
  x->pieces = false;
  x->count = 0;
  wait_for(x, x->server->options.idle_seconds);
}

/* Closing while the client still sends would make its system throw away an answer that it has not
 * read yet: the connection goes on reading for a while. */
static void linger(http_exchange *x) {
  x->state = HTTP_LINGER;
  shutdown(bufferevent_getfd(x->stream), SHUT_WR);
  wait_for(x, LINGER_SECONDS);
}

static void on_sent(struct bufferevent *stream, void *ctx) {
  (void)stream;
  http_exchange *x = ctx;
  if (x->state == HTTP_LAST) linger(x);
}

/* What comes next to a connection whose answer is written down. */
static void go_to_next(http_exchange *x) {
  bool more = evbuffer_get_length(bufferevent_get_input(x->stream));
  bool sent = !evbuffer_get_length(bufferevent_get_output(x->stream));
  x->user = NULL;
  if (x->keep) begin_waiting(x);
  else x->state = HTTP_LAST; /* the client has stall_seconds for each time it reads */
  if (!x->keep && sent) linger(x);
  if (x->keep && more)
    bufferevent_trigger(x->stream, EV_READ, BEV_TRIG_IGNORE_WATERMARKS | BEV_TRIG_DEFER_CALLBACKS);
}

void http_answer(http_exchange *x, int status, const char *type, const char *body, size_t bytes) {
  http_write_answer(x, status, type, body, bytes);
  go_to_next(x);
}

bool http_send(http_exchange *x, const char *piece, size_t bytes) {
  size_t unsent = evbuffer_get_length(bufferevent_get_output(x->stream));
  if (unsent + bytes <= x->server->options.most_unsent_bytes) {
    http_write_piece(x, piece, bytes);
    return true;
  }
  x->user = NULL;
  http_close(x);
  return false;
}

void http_end(http_exchange *x) {
  http_write_end(x);
  go_to_next(x);
}

void http_break_off(http_exchange *x) {
  x->keep = false;
  go_to_next(x);
}

/* ---- a request ------------------------------------------------------------------------------------ */

/* Says what is wrong. What the client sends after that is no request, so it is the last answer. */
static void refuse(http_exchange *x, http_fault fault) {
  char *body = x->server->options.error_body(x->server->options.ctx, fault.status, fault.text);
  event_del(x->deadline);
  x->state = HTTP_ANSWER;
  x->keep = false;
  http_answer(x, fault.status, "application/json", body, strlen(body));
  free(body);
}

static void hand_over(http_exchange *x) {
  const http_options *o = &x->server->options;
  event_del(x->deadline);
  x->state = HTTP_ANSWER;
  x->keep = x->head.keep && !x->server->draining;
  SLI_GROW(x->data, x->count, x->capacity);
  x->data[x->count] = 0;
  const http_request request = {.method = x->head.method, .target = x->head.target,
                                .authorization = http_head_field(&x->head, "authorization"),
                                .body = x->data, .bytes = x->count};
  char *data = x->data, *head = x->head_bytes;
  x->data = x->head_bytes = NULL;
  x->capacity = 0;
  o->on_request(o->ctx, x, &request);
  free(data);
  free(head);
}

/* Takes in so many bytes; false: it was refused. */
static bool keep_data(http_exchange *x, const char *bytes, size_t count) {
  size_t most = x->server->options.most_body_bytes, need = x->count + count;
  if (need > most) {
    char text[80];
    snprintf(text, sizeof text, "the body has more than %zu bytes", most);
    refuse(x, (http_fault){413, text});
    return false;
  }
  if (need >= x->capacity) {
    x->capacity = SLI_MAX(need + 1, 2 * x->capacity);
    x->data = sli_realloc(x->data, x->capacity, 1);
  }
  memcpy(x->data + x->count, bytes, count);
  x->count += count;
  return true;
}

/* Whether it may go on with what has come. */
static bool read_body(http_exchange *x, struct evbuffer *in) {
  while (x->body.at != HTTP_BODY_DONE) {
    size_t used, count = SLI_MIN(evbuffer_get_length(in), MOST_READ);
    const char *bytes = (const char *)evbuffer_pullup(in, (ev_ssize_t)count);
    bool data;
    http_fault fault = http_body_next(&x->body, bytes, count, &used, &data);
    if (fault.status) refuse(x, fault);
    if (fault.status || !used || (data && !keep_data(x, bytes, used))) return false;
    evbuffer_drain(in, used);
  }
  hand_over(x);
  return false;
}

static bool begin_body(http_exchange *x) {
  http_body_begin(&x->body, &x->head);
  if (!x->head.chunked && x->head.length > x->server->options.most_body_bytes) {
    char text[96];
    snprintf(text, sizeof text, "the body has %llu bytes, more than %zu", (unsigned long long)x->head.length,
             x->server->options.most_body_bytes);
    refuse(x, (http_fault){413, text});
    return false;
  }
  if (x->head.expects && x->body.at != HTTP_BODY_DONE)
    evbuffer_add_printf(bufferevent_get_output(x->stream), "HTTP/1.1 100 Continue\r\n\r\n");
  x->state = HTTP_BODY;
  wait_for(x, x->server->options.body_seconds);
  return true;
}

static bool take_head(http_exchange *x, struct evbuffer *in, size_t length) {
  free(x->head_bytes);
  x->head_bytes = sli_calloc(1, length + 1);
  evbuffer_remove(in, x->head_bytes, length);
  http_fault fault = http_head_parse(x->head_bytes, length, &x->head);
  if (!fault.status) return begin_body(x);
  refuse(x, fault);
  return false;
}

static bool read_head(http_exchange *x, struct evbuffer *in) {
  size_t count = SLI_MIN(evbuffer_get_length(in), HTTP_MOST_HEAD);
  size_t length = http_head_length((const char *)evbuffer_pullup(in, (ev_ssize_t)count), count);
  if (length) return take_head(x, in, length);
  if (count == HTTP_MOST_HEAD) refuse(x, (http_fault){431, "the head of the request is too long"});
  return false;
}

/* Empty lines before a request mean nothing. */
static bool begin_head(http_exchange *x, struct evbuffer *in) {
  char bytes[2];
  while (evbuffer_copyout(in, bytes, 2) == 2 && !memcmp(bytes, "\r\n", 2)) evbuffer_drain(in, 2);
  if (!evbuffer_get_length(in)) return false;
  x->state = HTTP_HEAD;
  wait_for(x, x->server->options.head_seconds);
  return true;
}

static bool go_on(http_exchange *x) {
  struct evbuffer *in = bufferevent_get_input(x->stream);
  if (x->state == HTTP_IDLE) return begin_head(x, in);
  if (x->state == HTTP_HEAD) return read_head(x, in);
  if (x->state == HTTP_BODY) return read_body(x, in);
  if (x->state == HTTP_LINGER || x->state == HTTP_LAST) evbuffer_drain(in, evbuffer_get_length(in));
  return false; /* what is behind a request waits for its answer */
}

static void on_read(struct bufferevent *stream, void *ctx) {
  (void)stream;
  while (go_on(ctx)) {}
}

static void on_event(struct bufferevent *stream, short what, void *ctx) {
  (void)stream, (void)what;
  http_close(ctx); /* hung up, does not read, or is lost */
}

static void on_deadline(evutil_socket_t fd, short what, void *ctx) {
  (void)fd, (void)what;
  http_exchange *x = ctx;
  bool late = x->state == HTTP_HEAD || x->state == HTTP_BODY;
  if (late) refuse(x, (http_fault){408, "the request did not come in time"});
  else http_close(x);
}

void http_connect(http *h, evutil_socket_t fd) {
  http_exchange *x = sli_calloc(1, sizeof *x);
  int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on); /* a token should not wait for the next */
  setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  *x = (http_exchange){.server = h, .next = h->first, .link = &h->first, .keep = true};
  if (h->first) h->first->link = &x->next;
  h->first = x;
  h->count++;
  x->stream = bufferevent_socket_new(h->base, fd, BEV_OPT_CLOSE_ON_FREE);
  x->deadline = evtimer_new(h->base, on_deadline, x);
  x->fields = evbuffer_new();
  SLI_CHECK(x->stream && x->deadline && x->fields, "no memory for a connection");
  bufferevent_setcb(x->stream, on_read, on_sent, on_event, x);
  bufferevent_setwatermark(x->stream, EV_READ, 0, MOST_READ);
  const struct timeval stall = {(time_t)h->options.stall_seconds, 0};
  bufferevent_set_timeouts(x->stream, NULL, &stall);
  begin_waiting(x);
  bufferevent_enable(x->stream, EV_READ | EV_WRITE);
}
