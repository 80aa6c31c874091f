/* SPDX-License-Identifier: Apache-2.0 */
/* The control socket of a run, and the thread that answers requests.
 *
 * A run listens on a Unix socket, named by process id, in a directory that only its user may enter.
 * A request is one line, the answer is text, and the connection then ends. `quota act.b@1=3`
 * changes a quota, `quota` lists all that can be changed, `status` reports the run's state, and
 * `trace FILE` and `trace off` control tracing.
 *
 * In a job of several processes a request becomes a question to all of them. The message "ask" goes
 * to every process, in one order everywhere, and "answer" returns to the asker. The control plane's
 * thread receives the messages and only queues them. The control thread takes messages from the
 * queue, even while it waits for answers, so two processes can ask each other concurrently. Only
 * the control thread changes quotas. */
#include "tools/control/control.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "base/memory.h"
#include "tools/control/socket.h"

/* A message queued by the control plane's thread. */
typedef struct heard {
  struct heard *next;
  int from;
  bool asks; /* a question; else an answer */
  size_t bytes;
  char data[];
} heard;

/* The header of both messages. The question's or the answer's text follows. */
typedef struct question_header {
  uint64_t number; /* the question's number, counted by the asker */
  char word[16];
} question_header;

struct control {
  const subject *subject;
  const topic *topics;
  pthread_t thread;
  bool runs;
  atomic_bool stop;
  atomic_int listener; /* listening socket; -1: none yet */
  int news;            /* an eventfd that signals messages, a listener, or shutdown */
  char path[108];
  pthread_mutex_t lock; /* guards the message queue */
  heard *first, **last;
  int nheard;
  /* The question in progress. */
  uint64_t number;
  int nanswers;
  sl_blob *answers; /* [processes]; NULL: no question is in progress */
  tracing tracing;
};

tracing *control_tracing(control *c) { return &c->tracing; }

static int count_processes(const control *c) { return sl_job_processes(c->subject->processes); }

/* ---- messages ---------------------------------------------------------------------------- */

static void rouse(control *c) {
  uint64_t one = 1;
  /* the counter is full: the thread is already awake */
  if (write(c->news, &one, sizeof one) < 0) {}
}

/* Queues a message. Runs on the control plane's thread. */
static bool on_word(void *ctx, int from, const char *word, const void *data, size_t bytes) {
  enum { MOST = 1024 };
  control *c = ctx;
  bool asks = !strcmp(word, "ask");
  if (!asks && strcmp(word, "answer")) return false;
  pthread_mutex_lock(&c->lock);
  if (bytes >= sizeof(question_header) && c->nheard < MOST) {
    heard *h = sli_calloc(1, sizeof *h + bytes + 1);
    h->from = from;
    h->asks = asks;
    h->bytes = bytes;
    memcpy(h->data, data, bytes);
    *c->last = h;
    c->last = &h->next;
    c->nheard++;
  }
  pthread_mutex_unlock(&c->lock);
  rouse(c);
  return true;
}

static heard *next_word(control *c) {
  pthread_mutex_lock(&c->lock);
  heard *h = c->first;
  if (h) {
    c->first = h->next;
    c->nheard--;
    if (!c->first) c->last = &c->first;
  }
  pthread_mutex_unlock(&c->lock);
  return h;
}

static void make_answer(control *c, const question *q, const void *data, size_t bytes,
                        sl_blob *out) {
  char *text = NULL;
  FILE *stream = sli_memory_stream(&text, &out->bytes);
  q->answer(c, c->subject, data, bytes, stream);
  fclose(stream);
  out->data = text;
}

static void answer_word(control *c, const heard *h) {
  question_header a;
  memcpy(&a, h->data, sizeof a);
  for (const topic *t = c->topics; t->question; t++) {
    if (strncmp(a.word, t->question->word, sizeof a.word)) continue;
    sl_blob answer;
    make_answer(c, t->question, h->data + sizeof a, h->bytes - sizeof a, &answer);
    char *data = sli_calloc(1, sizeof a + answer.bytes);
    memcpy(data, &a, sizeof a);
    memcpy(data + sizeof a, answer.data, answer.bytes);
    sli_job_say(c->subject->processes, h->from, "answer", data, sizeof a + answer.bytes);
    free(answer.data);
    free(data);
  }
}

static void keep_answer(control *c, const heard *h) {
  question_header a;
  memcpy(&a, h->data, sizeof a);
  if (!c->answers || a.number != c->number || c->answers[h->from].data) return;
  sl_blob *to = &c->answers[h->from];
  to->bytes = h->bytes - sizeof a;
  to->data = sli_calloc(1, to->bytes + 1);
  memcpy(to->data, h->data + sizeof a, to->bytes);
  c->nanswers++;
}

static void take_words(control *c) {
  for (heard *h; (h = next_word(c)); free(h))
    if (h->asks) answer_word(c, h);
    else keep_answer(c, h);
}

/* ---- waiting ------------------------------------------------------------------------------- */

/* Waits for a descriptor to become readable (-1: none) or for news, which it consumes. Returns
 * false on shutdown or timeout. */
static bool wait_for(control *c, int fd, uint64_t until_ns, bool *readable) {
  uint64_t now = sli_now_ns(), drop;
  if (atomic_load(&c->stop) || now >= until_ns) return false;
  int ms = until_ns == UINT64_MAX ? -1 : (int)((until_ns - now) / 1000000) + 1;
  struct pollfd fds[] = {{c->news, POLLIN, 0}, {fd, POLLIN, 0}};
  if (poll(fds, 2, ms) < 0 && errno != EINTR) return false;
  /* nothing to clear */
  if ((fds[0].revents & POLLIN) && read(c->news, &drop, sizeof drop) < 0) {}
  take_words(c);
  *readable = fd >= 0 && fds[1].revents;
  return !atomic_load(&c->stop);
}

static void ask_others(control *c, const question *q, const void *data, size_t bytes,
                       uint64_t until_ns) {
  question_header a = {.number = ++c->number};
  strncpy(a.word, q->word, sizeof a.word - 1);
  char *text = sli_calloc(1, sizeof a + bytes);
  memcpy(text, &a, sizeof a);
  if (bytes) memcpy(text + sizeof a, data, bytes);
  sli_job_say(c->subject->processes, -1, "ask", text, sizeof a + bytes);
  free(text);
  bool readable;
  while (c->nanswers < count_processes(c) && wait_for(c, -1, until_ns, &readable)) {}
}

sl_blob *control_ask(control *c, const question *q, const void *data, size_t bytes, int ms) {
  c->nanswers = 0;
  c->answers = sli_calloc((size_t)count_processes(c), sizeof *c->answers);
  if (count_processes(c) == 1) make_answer(c, q, data, bytes, &c->answers[0]);
  else ask_others(c, q, data, bytes, sli_now_ns() + (uint64_t)ms * 1000000u);
  sl_blob *answers = c->answers;
  c->answers = NULL;
  return answers;
}

/* ---- requests ------------------------------------------------------------------------------ */

/* Returns the rest of a line after the word `request`, or NULL if the line begins with another
 * word. */
static const char *after(const char *line, const char *request) {
  size_t n = strlen(request);
  if (strncmp(line, request, n) || (line[n] && line[n] != ' ')) return NULL;
  return line + n + strspn(line + n, " ");
}

static void answer_line(control *c, char *line, FILE *out) {
  line[strcspn(line, "\r\n")] = 0;
  const topic *topic = c->topics;
  const char *text = NULL;
  while (topic->question && !(text = after(line, topic->word))) topic++;
  sl_status status =
      text
          ? topic->request(c, c->subject, text, out)
          : sl_fail(
                SL_E_USAGE,
                "%s: unknown command; use status, quota, quota NAME[@STAGE]=N, trace FILE or trace off",
                line);
  if (status) fprintf(out, "error %d %s\n", sl_status_exit(status), sl_detail());
}

/* Reads a request's line. A line that arrives too slowly or is too long is rejected. */
static bool receive_line(int fd, char *line, size_t size) {
  size_t n = 0;
  while (n + 1 < size) {
    ssize_t got = recv(fd, line + n, size - 1 - n, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    n += (size_t)got;
    if (memchr(line + n - got, '\n', (size_t)got)) break;
  }
  line[n] = 0;
  return n > 0;
}

/* Sends the answer. If the client has gone or does not read, the answer is dropped and the run
 * continues. */
static void send_all(int fd, const char *text, size_t bytes) {
  while (bytes) {
    ssize_t sent = send(fd, text, bytes, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return;
    text += sent;
    bytes -= (size_t)sent;
  }
}

static void send_answer(control *c, int fd, char *line) {
  char *text = NULL;
  size_t bytes = 0;
  FILE *out = sli_memory_stream(&text, &bytes);
  answer_line(c, line, out);
  fclose(out);
  send_all(fd, text, bytes);
  free(text);
}

/* Serves one client, with a short timeout for its request and a shorter one for reading the
 * answer. */
static void converse(control *c, int fd) {
  uint64_t until = sli_now_ns() + 2000000000u;
  bool readable = false;
  while (!readable && wait_for(c, fd, until, &readable)) {}
  struct timeval patience = {0, 300000};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
  char line[PATH_MAX + 64];
  if (readable && receive_line(fd, line, sizeof line)) send_answer(c, fd, line);
  close(fd);
}

static void *control_main(void *arg) {
  control *c = arg;
  bool readable = false;
  for (;;) {
    int listener = atomic_load(&c->listener);
    if (!wait_for(c, listener, UINT64_MAX, &readable)) return NULL;
    int fd = readable ? accept4(listener, NULL, NULL, SOCK_CLOEXEC) : -1;
    if (fd >= 0) converse(c, fd);
  }
}

/* ---- opening --------------------------------------------------------------------------------- */

sl_status control_open(const subject *s, const topic *topics, control **out) {
  control *c = sli_calloc(1, sizeof *c);
  c->subject = s;
  c->topics = topics;
  c->last = &c->first;
  c->listener = -1;
  pthread_mutex_init(&c->lock, NULL);
  c->news = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  c->runs = c->news >= 0 && !pthread_create(&c->thread, NULL, control_main, c);
  if (!c->runs) {
    control_close(c);
    return sl_fail(SL_E_MEMORY, "cannot start the control thread");
  }
  sli_job_listen(s->processes, on_word, c);
  *out = c;
  return SL_OK;
}

sl_status control_listen(control *c) {
  int listener;
  sl_status status = socket_listen(c->path, &listener);
  if (status) return status;
  atomic_store(&c->listener, listener);
  rouse(c);
  return SL_OK;
}

void control_close(control *c) {
  if (!c) return;
  sli_job_listen(c->subject->processes, NULL, NULL);
  atomic_store(&c->stop, true);
  if (c->runs) {
    rouse(c);
    pthread_join(c->thread, NULL);
  }
  if (c->listener >= 0) {
    close(c->listener);
    unlink(c->path);
  }
  for (heard *h; (h = next_word(c)); free(h)) {}
  if (c->news >= 0) close(c->news);
  pthread_mutex_destroy(&c->lock);
  free(c->tracing.path);
  free(c);
}
