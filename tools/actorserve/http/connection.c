/* SPDX-License-Identifier: Apache-2.0 */
/* A connection: waits for a request, reads it, and handles it until the answer is sent. Meanwhile
 * it detects that the client hangs up. */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <netdb.h>
#include <string.h>
#include <sys/socket.h>
#include <event2/buffer.h>

#include "base/base.h"
#include "tools/actorserve/http/http_inner.h"

enum {
  MOST_READ = 65536,    /* bytes of a request that are parsed together */
  MOST_BEHIND = 262144, /* bytes of socket buffer, each way */
  LINGER_SECONDS = 2,
  LEAST_KEPT = 4096, /* bytes of an answer that are always sent */
  LEAST_HELD = 4096  /* a smaller connection is not worth closing */
};
/* interval between checks of a client that is not read from */
static const double look_seconds = .25;

static void wait_for(http_exchange *x, double seconds) {
  struct timeval time = {(time_t)seconds, (suseconds_t)((seconds - (double)(time_t)seconds) * 1e6)};
  event_add(x->deadline, &time);
}

/* Enters a state. While the server handles the request, no deadline applies. */
static void enter(http_exchange *x, int state) {
  x->state = state;
  if (state == HTTP_ANSWER) http_step_out(x);
  else http_stand(x);
}

static void drop_data(http_exchange *x) {
  http_count(x, 0, x->capacity);
  free(x->data);
  x->data = NULL;
  x->count = x->capacity = 0;
}

static void drop_head(http_exchange *x) {
  http_count(x, 0, x->head_count);
  free(x->head_bytes);
  x->head_bytes = NULL;
  x->head_count = 0;
}

static void client_of(const http_exchange *x, char *out, size_t bytes) {
  struct sockaddr_storage a = {0};
  socklen_t size = sizeof a;
  bool known = !getpeername(bufferevent_getfd(x->stream), (struct sockaddr *)&a, &size);
  if (!known ||
      getnameinfo((struct sockaddr *)&a, size, out, (socklen_t)bytes, NULL, 0, NI_NUMERICHOST))
    snprintf(out, bytes, "-");
}

uint64_t http_client(const http_exchange *x) {
  enum { NETWORK = 8 }; /* bytes of an IPv6 address that name a network */
  struct sockaddr_storage a = {0};
  socklen_t size = sizeof a;
  if (getpeername(bufferevent_getfd(x->stream), (struct sockaddr *)&a, &size)) return 0;
  const struct sockaddr_in *four = (const void *)&a;
  const struct sockaddr_in6 *six = (const void *)&a;
  if (a.ss_family == AF_INET)
    return sli_hash(SLI_HASH_SEED, &four->sin_addr, sizeof four->sin_addr);
  return sli_hash(SLI_HASH_SEED, &six->sin6_addr, NETWORK);
}

/* Records a request, for the call of on_done. */
static void begin_request(http_exchange *x, const char *method, const char *target) {
  if (!x->server->options.on_done || x->begin_ns) return;
  x->begin_ns = sli_now_ns();
  snprintf(x->method, sizeof x->method, "%s", method);
  snprintf(x->target, sizeof x->target, "%s", target);
}

static void request_done(http_exchange *x) {
  const http_options *o = &x->server->options;
  char client[64];
  if (o->on_done && x->begin_ns) {
    client_of(x, client, sizeof client);
    o->on_done(o->ctx, &(http_done){client, x->method, x->target, x->status,
                                    (double)(sli_now_ns() - x->begin_ns) * 1e-9});
  }
  x->begin_ns = 0;
  x->status = 0;
}

void http_close(http_exchange *x) {
  http *h = x->server;
  request_done(x);
  if (x->state == HTTP_ANSWER && x->user) h->options.on_gone(h->options.ctx, x->user);
  *x->link = x->next;
  if (x->next) x->next->link = x->link;
  http_step_out(x);
  h->counts.connections--;
  if (!h->draining && h->listener) evconnlistener_enable(h->listener);
  event_free(x->deadline);
  evbuffer_free(x->fields);
  drop_data(x);
  drop_head(x);
  http_count(x, 0, x->held);
  budget_count(h->options.budget, 0, HTTP_CONNECTION_BYTES);
  evutil_socket_t fd = bufferevent_getfd(x->stream);
  bufferevent_setfd(x->stream, -1);
  evutil_closesocket(fd); /* at once: other connections may need a descriptor */
  bufferevent_free(x->stream);
  free(x);
}

void http_close_idle(http_exchange *x) {
  if (x->state == HTTP_SENDING) x->state = HTTP_LAST;
  if (x->state == HTTP_IDLE) http_close(x);
  else x->keep = false;
}

/* ---- memory limit ---------------------------------------------------------------------------- */

bool http_close_oldest(http *h) {
  if (!h->oldest || h->oldest == h->newest) return false;
  h->counts.given_up++;
  http_close(h->oldest);
  return true;
}

static void give_up(http_exchange *x);

bool http_make_room(http *h, const http_exchange *for_whom, size_t bytes) {
  budget *b = h->options.budget;
  for (http_exchange *x = h->oldest, *newer; x && !budget_fits(b, bytes); x = newer) {
    newer = x->newer;
    if (x == for_whom || x->held < LEAST_HELD) continue;
    h->counts.given_up++;
    give_up(x);
  }
  return budget_fits(b, bytes);
}

/* ---- an answer ------------------------------------------------------------------------------- */

static size_t unread(const http_exchange *x) {
  return evbuffer_get_length(bufferevent_get_input(x->stream));
}

static size_t unsent(const http_exchange *x) {
  return evbuffer_get_length(bufferevent_get_output(x->stream));
}

/* Checks a client that is not read from while its answer is unsent: only its socket shows that it
 * is gone. */
static void look_after(http_exchange *x) {
  struct tcp_info info = {0};
  socklen_t size = sizeof info;
  bool known = !getsockopt(bufferevent_getfd(x->stream), IPPROTO_TCP, TCP_INFO, &info, &size);
  if (known && info.tcpi_state == TCP_CLOSE) {
    http_close(x);
    return;
  }
  if (x->ended || (known && info.tcpi_state == TCP_CLOSE_WAIT)) http_write_probe(x);
  wait_for(x, look_seconds);
}

static void begin_waiting(http_exchange *x) {
  if (x->ended && !unread(x)) {
    http_close(x);
    return;
  }
  x->pieces = x->begun = x->probed = x->bare = false;
  x->seen = 0;
  enter(x, HTTP_IDLE);
  wait_for(x, x->server->options.idle_seconds);
  if (!x->ended) bufferevent_enable(x->stream, EV_READ);
  if (unread(x))
    bufferevent_trigger(x->stream, EV_READ, BEV_TRIG_IGNORE_WATERMARKS | BEV_TRIG_DEFER_CALLBACKS);
}

/* Keeps reading for a while before closing. If the connection closed while the client still sends,
 * the client's system would discard the answer before it is read. */
static void linger(http_exchange *x) {
  enter(x, HTTP_LINGER);
  if (!x->ended) bufferevent_enable(x->stream, EV_READ);
  shutdown(bufferevent_getfd(x->stream), SHUT_WR);
  wait_for(x, LINGER_SECONDS);
}

static void on_sent(struct bufferevent *stream, void *ctx) {
  (void)stream;
  http_exchange *x = ctx;
  if (x->state == HTTP_SENDING) begin_waiting(x);
  else if (x->state == HTTP_LAST && x->ended) http_close(x);
  else if (x->state == HTTP_LAST) linger(x);
}

/* Moves on once the answer is written. Nothing is read before it is sent. The client has
 * stall_seconds for each read. */
static void go_to_next(http_exchange *x) {
  request_done(x);
  x->user = NULL;
  x->probe = NULL;
  event_del(x->deadline);
  if (x->broken) {
    http_close(x);
    return;
  }
  enter(x, x->keep ? HTTP_SENDING : HTTP_LAST);
  if (!x->keep) evbuffer_drain(bufferevent_get_input(x->stream), unread(x));
  if (!x->keep && !x->ended) bufferevent_enable(x->stream, EV_READ); /* incoming data is dropped */
  if (!unsent(x)) linger(x);                                         /* the answer was broken off */
}

static void connection_refuse(http_exchange *x, http_fault fault);

void http_answer_buffer(http_exchange *x, int status, const char *type, struct evbuffer *body) {
  size_t bytes = evbuffer_get_length(body);
  if (bytes > LEAST_KEPT && !http_make_room(x->server, x, bytes)) {
    connection_refuse(x, (http_fault){503, "there is no memory for the answer"});
    return;
  }
  http_write_answer(x, status, type, body);
  go_to_next(x);
}

void http_answer(http_exchange *x, int status, const char *type, const char *body, size_t bytes) {
  struct evbuffer *buffer = evbuffer_new();
  if (!buffer || evbuffer_add(buffer, body, bytes)) x->broken = true;
  if (x->broken) go_to_next(x);
  else http_answer_buffer(x, status, type, buffer);
  if (buffer) evbuffer_free(buffer);
}

bool http_send(http_exchange *x, const char *piece, size_t bytes) {
  bool room = unsent(x) + bytes <= x->server->options.most_unsent_bytes &&
              http_make_room(x->server, x, bytes);
  if (room) http_write_piece(x, piece, bytes);
  if (room && !x->broken) return true;
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

/* ---- a request ------------------------------------------------------------------------------- */

/* Answers an invalid request. Later data of the client cannot be parsed, so this is the last
 * answer. */
static void connection_refuse(http_exchange *x, http_fault fault) {
  char *body = x->server->options.error_body(x->server->options.ctx, fault.status, fault.text);
  event_del(x->deadline);
  begin_request(x, "-", "-");
  enter(x, HTTP_ANSWER);
  drop_data(x);
  x->keep = false;
  http_answer(x, fault.status, "application/json", body, strlen(body));
  free(body);
}

static void give_up(http_exchange *x) {
  if (x->state == HTTP_BODY)
    connection_refuse(x, (http_fault){503, "the memory of this request is needed for others"});
  else http_close(x);
}

const char *http_request_field(const http_request *request, const char *name) {
  return http_head_field(request->head, name);
}

static http_request request_of(const http_exchange *x) {
  return (http_request){.method = x->head.method,
                        .target = x->head.target,
                        .head = &x->head,
                        .body = x->data ? x->data : "",
                        .bytes = x->count};
}

static void hand_over(http_exchange *x) {
  const http_options *o = &x->server->options;
  const http_request request = request_of(x);
  http *h = x->server;
  char *data = x->data, *head = x->head_bytes;
  size_t bytes = x->capacity + x->head_count;
  event_del(x->deadline);
  enter(x, HTTP_ANSWER);
  x->keep = x->head.keep && !h->draining;
  x->held -= bytes; /* owned by the server until the program has read it */
  x->data = x->head_bytes = NULL;
  x->count = x->capacity = x->head_count = 0;
  if (data) data[request.bytes] = 0;
  if (x->ended || unread(x)) wait_for(x, 0); /* starts checking the client */
  o->on_request(o->ctx, x, &request);
  budget_count(h->options.budget, 0, bytes);
  free(data);
  free(head);
}

/* Makes room for a body of `need` bytes and a terminating zero. */
static bool make_data_room(http_exchange *x, size_t need) {
  size_t most = x->head.chunked ? x->server->options.most_body_bytes : (size_t)x->head.length;
  size_t capacity = SLI_MIN(SLI_MAX(need, 2 * x->capacity), most) + 1;
  if (need < x->capacity) return true;
  char *data =
      http_make_room(x->server, x, capacity - x->capacity) ? realloc(x->data, capacity) : NULL;
  if (!data) {
    connection_refuse(x, (http_fault){503, "there is no memory for the body"});
    return false;
  }
  http_count(x, capacity - x->capacity, 0);
  x->data = data;
  x->capacity = capacity;
  return true;
}

/* Appends bytes to the body. Returns false if the request was refused. */
static bool keep_data(http_exchange *x, const char *bytes, size_t count) {
  size_t most = x->server->options.most_body_bytes, need = x->count + count;
  if (need > most) {
    char text[80];
    snprintf(text, sizeof text, "the body has more than %zu bytes", most);
    connection_refuse(x, (http_fault){413, text});
    return false;
  }
  if (!make_data_room(x, need)) return false;
  memcpy(x->data + x->count, bytes, count);
  x->count += count;
  return true;
}

/* Waits for more data. Returns false if the client has ended and no more can come. */
static bool wait_for_more(http_exchange *x) {
  if (x->ended) connection_refuse(x, (http_fault){400, "the connection ends within the request"});
  return false;
}

/* Reads the body. Returns true if the caller may continue with buffered data. */
static bool read_body(http_exchange *x, struct evbuffer *in) {
  while (x->body.at != HTTP_BODY_DONE) {
    size_t used, count = SLI_MIN(evbuffer_get_length(in), MOST_READ);
    const char *bytes = (const char *)evbuffer_pullup(in, (ev_ssize_t)count);
    bool data;
    http_fault fault = http_body_next(&x->body, bytes, bytes ? count : 0, &used, &data);
    if (fault.status) connection_refuse(x, fault);
    if (fault.status || (used && data && !keep_data(x, bytes, used))) return false;
    if (!used) return wait_for_more(x);
    evbuffer_drain(in, used);
  }
  hand_over(x);
  return false;
}

/* Calls on_head, which refuses unauthorized clients before the body is read. */
static bool ask_of_head(http_exchange *x) {
  const http_options *o = &x->server->options;
  const http_request request = request_of(x);
  begin_request(x, request.method, request.target);
  event_del(x->deadline);
  enter(x, HTTP_ANSWER);
  x->keep = x->head.keep && x->body.at == HTTP_BODY_DONE && !x->server->draining;
  return o->on_head(o->ctx, x, &request);
}

static bool begin_body(http_exchange *x) {
  x->bare = !strcmp(x->head.method, "HEAD");
  http_body_begin(&x->body, &x->head);
  if (!ask_of_head(x)) return false;
  if (!x->head.chunked && x->head.length > x->server->options.most_body_bytes) {
    char text[96];
    snprintf(text, sizeof text, "the body has %llu bytes, more than %zu",
             (unsigned long long)x->head.length, x->server->options.most_body_bytes);
    connection_refuse(x, (http_fault){413, text});
    return false;
  }
  if (x->head.expects && x->body.at != HTTP_BODY_DONE)
    evbuffer_add_printf(bufferevent_get_output(x->stream), "HTTP/1.1 100 Continue\r\n\r\n");
  enter(x, HTTP_BODY);
  wait_for(x, x->server->options.body_seconds);
  return true;
}

static bool take_head(http_exchange *x, struct evbuffer *in, size_t length) {
  drop_head(x);
  x->head_bytes = sli_calloc(1, length + 1);
  x->head_count = length + 1;
  http_count(x, x->head_count, 0);
  evbuffer_remove(in, x->head_bytes, length);
  http_fault fault = http_head_parse(x->head_bytes, length, &x->head);
  if (!fault.status) return begin_body(x);
  connection_refuse(x, fault);
  return false;
}

static bool read_head(http_exchange *x, struct evbuffer *in) {
  size_t count = SLI_MIN(evbuffer_get_length(in), HTTP_MOST_HEAD);
  const char *bytes = (const char *)evbuffer_pullup(in, (ev_ssize_t)count);
  size_t length = bytes ? http_head_length(bytes, count, x->seen) : 0;
  x->seen = count;
  if (length) return take_head(x, in, length);
  if (count < HTTP_MOST_HEAD) return wait_for_more(x);
  connection_refuse(x, (http_fault){431, "the head of the request is too long"});
  return false;
}

/* Begins a request; empty lines before it are ignored. */
static bool begin_head(http_exchange *x, struct evbuffer *in) {
  char bytes[2];
  while (evbuffer_copyout(in, bytes, 2) == 2 && !memcmp(bytes, "\r\n", 2)) evbuffer_drain(in, 2);
  bool more = evbuffer_get_length(in);
  if (!more && x->ended) http_close(x);
  if (!more) return false;
  enter(x, HTTP_HEAD);
  wait_for(x, x->server->options.head_seconds);
  return true;
}

/* Stops reading until the answer is sent. Pipelined requests stay in the buffers, mostly in the
 * kernel. */
static bool leave_unread(http_exchange *x) {
  if (!unread(x)) return false;
  bufferevent_disable(x->stream, EV_READ);
  if (x->state == HTTP_ANSWER) wait_for(x, look_seconds);
  return false;
}

static bool connection_continue(http_exchange *x) {
  struct evbuffer *in = bufferevent_get_input(x->stream);
  if (x->state == HTTP_IDLE) return begin_head(x, in);
  if (x->state == HTTP_HEAD) return read_head(x, in);
  if (x->state == HTTP_BODY) return read_body(x, in);
  if (x->state == HTTP_ANSWER || x->state == HTTP_SENDING) return leave_unread(x);
  evbuffer_drain(in, evbuffer_get_length(in));
  return false;
}

/* Handles the end of the client's data. The client may be gone, or may still read. */
static void end_of_client(http_exchange *x) {
  x->ended = true;
  if (x->state == HTTP_ANSWER) look_after(x);
  else if (x->state == HTTP_HEAD || x->state == HTTP_BODY) wait_for_more(x);
  else if (x->state == HTTP_LINGER || (x->state == HTTP_IDLE && !unread(x))) http_close(x);
}

static void on_read(struct bufferevent *stream, void *ctx) {
  http_exchange *x = ctx;
  (void)stream;
  while (connection_continue(x)) {}
}

static void on_event(struct bufferevent *stream, short what, void *ctx) {
  (void)stream;
  if ((what & BEV_EVENT_EOF) && !(what & (BEV_EVENT_ERROR | BEV_EVENT_TIMEOUT))) end_of_client(ctx);
  else http_close(ctx); /* the client does not read, or is lost */
}

static void on_deadline(evutil_socket_t fd, short what, void *ctx) {
  (void)fd, (void)what;
  http_exchange *x = ctx;
  bool late = x->state == HTTP_HEAD || x->state == HTTP_BODY;
  if (late) connection_refuse(x, (http_fault){408, "the request did not come in time"});
  else if (x->state == HTTP_ANSWER) look_after(x);
  else http_close(x);
}

/* Sets socket options. Keepalive detects a vanished host after a minute. */
static void set_options(evutil_socket_t fd) {
  enum { SILENT_SECONDS = 30, EACH_SECONDS = 10, TRIES = 3 };
  const struct {
    int level, name, value;
  } all[] = {{IPPROTO_TCP, TCP_NODELAY, 1}, /* a token should not wait for the next one */
             {SOL_SOCKET, SO_KEEPALIVE, 1},
             {IPPROTO_TCP, TCP_KEEPIDLE, SILENT_SECONDS},
             {IPPROTO_TCP, TCP_KEEPINTVL, EACH_SECONDS},
             {IPPROTO_TCP, TCP_KEEPCNT, TRIES},
             {SOL_SOCKET, SO_RCVBUF, MOST_BEHIND},
             {SOL_SOCKET, SO_SNDBUF, MOST_BEHIND}};
  for (size_t i = 0; i < SLI_COUNT(all); i++)
    setsockopt(fd, all[i].level, all[i].name, &all[i].value, sizeof all[i].value);
}

static void link_in(http_exchange *x) {
  http *h = x->server;
  x->next = h->first;
  x->link = &h->first;
  if (h->first) h->first->link = &x->next;
  h->first = x;
  h->counts.connections++;
}

/* Opens a connection's stream. Returns false if memory ran out. */
static bool open_stream(http_exchange *x, evutil_socket_t fd) {
  x->deadline = evtimer_new(x->server->base, on_deadline, x);
  x->fields = evbuffer_new();
  x->stream = bufferevent_socket_new(x->server->base, fd, 0);
  if (x->stream && x->deadline && x->fields) return true;
  if (x->deadline) event_free(x->deadline);
  if (x->fields) evbuffer_free(x->fields);
  if (x->stream) bufferevent_free(x->stream);
  evutil_closesocket(fd);
  return false;
}

void http_connect(http *h, evutil_socket_t fd) {
  http_exchange *x = calloc(1, sizeof *x);
  if (!x) evutil_closesocket(fd);
  if (!x) return;
  *x = (http_exchange){.server = h, .keep = true};
  if (!open_stream(x, fd)) {
    free(x);
    return;
  }
  set_options(fd);
  link_in(x);
  budget_count(h->options.budget, HTTP_CONNECTION_BYTES, 0);
  http_watch_buffer(x, bufferevent_get_input(x->stream));
  http_watch_buffer(x, bufferevent_get_output(x->stream));
  bufferevent_setcb(x->stream, on_read, on_sent, on_event, x);
  bufferevent_setwatermark(x->stream, EV_READ, 0, MOST_READ);
  const struct timeval stall = {(time_t)h->options.stall_seconds, 0};
  bufferevent_set_timeouts(x->stream, NULL, &stall);
  bufferevent_enable(x->stream, EV_WRITE);
  begin_waiting(x);
}
