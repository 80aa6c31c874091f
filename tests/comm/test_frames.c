/* SPDX-License-Identifier: Apache-2.0 */
/* Sends frames that no Sluice process would send, to the parser and to a running job.
 *
 *   test_comm_frames [SEED]
 *
 * Strangers without the key send noise and half handshakes. A rogue member with the key sends
 * mutations of frames that a job really uses.
 * labels: random unthreaded
 * needs: zeromq */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>
#include <zmq.h>

#include "comm/control/auth.h"
#include "comm/control/frame.h"
#include "tests/support/comm_node.h"
#include "tests/support/seeds.h"
#include "tests/support/test.h"

enum { PATIENCE_MS = 20000, FUZZ = 300000, NOISE = 300, MAD = 3000, ROUNDS = 20 };

static uint64_t seed;

static uint64_t draw(void) {
  seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
  return seed >> 33;
}

static void fill(void *out, size_t bytes) {
  for (size_t i = 0; i < bytes; i++) ((uint8_t *)out)[i] = (uint8_t)draw();
}

static void fill_name(char *out, size_t bytes) {
  for (size_t i = 0; i < bytes; i++) out[i] = (char)(' ' + draw() % 95);
}

/* ---- the parser ------------------------------------------------------------------ */

/* Returns a random valid frame, with its tail in `tail` (4096 bytes). */
static sli_frame random_frame(uint8_t *tail) {
  sli_frame f = {.version = SLI_FRAME_VERSION,
                 .type = 1 + draw() % (SLI_FRAME_TYPES - 1),
                 .process = (uint32_t)draw() % 4,
                 .incarnation = (uint32_t)draw() % 2,
                 .instance = draw(),
                 .sequence = draw() % 100,
                 .tail = tail};
  fill(tail, 512);
  size_t bytes = draw() % 512;
  switch (f.type) {
  case SLI_FRAME_HELLO:
    f.hello.nprocesses = (uint32_t)draw() % 5;
    fill_name(f.hello.job, draw() % sizeof f.hello.job);
    fill_name(f.hello.host, draw() % sizeof f.hello.host);
    fill_name(f.hello.direct, draw() % sizeof f.hello.direct);
    bytes = 0;
    break;
  case SLI_FRAME_DATA:
    f.data.kind = 1 + (uint32_t)draw() % (SLI_DATA_KINDS - 1);
    f.data.from = (uint32_t)draw() % 4;
    f.data.target = (int32_t)(draw() % 5) - 1;
    fill_name(f.data.word, draw() % sizeof f.data.word);
    bytes = 1 + bytes;
    f.data.offset_bytes = draw() % 2 ? 0 : draw() % 5000;
    f.data.total_bytes = f.data.offset_bytes + bytes + (draw() % 2 ? 0 : draw() % 5000);
    break;
  case SLI_FRAME_PING:
    f.clock.asked_ns = draw();
    bytes = 0;
    break;
  case SLI_FRAME_PONG:
    f.clock.asked_ns = draw(), f.clock.received_ns = draw(), f.clock.answered_ns = draw();
    bytes = 0;
    break;
  case SLI_FRAME_ABORT:
    f.abort.culprit = (uint32_t)draw() % 5, f.abort.status = (uint32_t)draw() % 20;
    break;
  case SLI_FRAME_CLOCKS: bytes = 8 * (1 + bytes / 8); break;
  case SLI_FRAME_BYE: bytes = 0; break;
  }
  f.tail_bytes = bytes;
  return f;
}

static void test_what_is_written_is_read(void) {
  uint8_t tail[4096], bytes[8192], again[8192];
  for (int i = 0; i < FUZZ / 10; i++) {
    sli_frame f = random_frame(tail), g;
    size_t count = sli_frame_bytes(&f);
    sli_frame_write(&f, bytes);
    const char *wrong = sli_frame_parse(bytes, count, &g);
    CHECK(!wrong, "a %s is read: %s", sli_frame_name(f.type), wrong);
    CHECK(g.tail == bytes + count - g.tail_bytes && sli_frame_bytes(&g) == count, "in its place");
    sli_frame_write(&g, again);
    CHECK(!memcmp(bytes, again, count), "a %s is read as it was", sli_frame_name(f.type));
  }
}

static size_t mutate(uint8_t *bytes, size_t count, size_t capacity) {
  for (int n = 1 + (int)(draw() % 3); n > 0; n--) {
    static const uint64_t odd[] = {
        0,         1,          0x7f,       0x80,  0xff,
        0xffff,    0x7fffffff, 0xffffffff, ~0ull, (uint64_t)SLI_FRAME_DATA_BYTES + 1,
        1ull << 63};
    size_t width = (size_t)1 << draw() % 4;
    size_t at = draw() % (count ? count : 1);
    switch (draw() % 4) {
    case 0:
      if (count) bytes[at] ^= (uint8_t)(1u << draw() % 8);
      break;
    case 1:
      if (at + width <= count) memcpy(bytes + at, &odd[draw() % SLI_COUNT(odd)], width);
      break;
    case 2: count = at; break;
    case 3: {
      size_t more = draw() % 64;
      if (count + more > capacity) break;
      fill(bytes + count, more);
      count += more;
    }
    }
  }
  return count;
}

/* Parses a copy of exact size, so that a sanitizer detects reads past the end. */
static bool parse_copy(const uint8_t *bytes, size_t count) {
  uint8_t *copy = malloc(count);
  sli_frame f = {0};
  char text[SLI_FRAME_TEXT_BYTES + 1];
  if (count) memcpy(copy, bytes, count);
  bool good = !sli_frame_parse(copy, count, &f);
  if (good) {
    CHECK(f.type && f.type < SLI_FRAME_TYPES, "the type is known");
    CHECK((const uint8_t *)f.tail + f.tail_bytes == copy + count, "the tail ends where all ends");
    sli_frame_text(&f, text);
    for (const char *c = text; *c; c++) CHECK((unsigned char)*c >= ' ', "a text is one line");
    if (f.type == SLI_FRAME_DATA)
      CHECK(f.data.offset_bytes + f.tail_bytes <= f.data.total_bytes &&
                f.data.total_bytes <= SLI_FRAME_DATA_BYTES &&
                strnlen(f.data.word, sizeof f.data.word) < sizeof f.data.word,
            "a part lies within the whole");
  }
  free(copy);
  return good;
}

static void test_the_parser_takes_anything(void) {
  uint8_t tail[4096], bytes[8192];
  int good = 0;
  int rounds = FUZZ * (int)seeds_times();
  for (int i = 0; i < rounds; i++) {
    size_t count = draw() % 600;
    if (i % 4 == 0) {
      fill(bytes, count);
    } else {
      sli_frame f = random_frame(tail);
      sli_frame_write(&f, bytes);
      count = mutate(bytes, sli_frame_bytes(&f), sizeof bytes);
    }
    good += parse_copy(bytes, count);
  }
  printf("%d of %d mutations were still frames\n", good, rounds);
  CHECK(good > 0 && good < rounds, "some are, some are not");
}

/* ---- a running job ---------------------------------------------------------------- */

enum { JOB = 3 };

static char key[SLI_CONTROL_KEY_CHARS + 1];
static sli_auth auth; /* derived from it */
static node nodes[JOB];

static void start_job(void) {
  for (int k = 0; k < JOB; k++) {
    const char *endpoint = k ? sli_control_endpoint(nodes[0].control) : "127.0.0.1:0";
    sli_control_options options = {.process = k,
                                   .nprocesses = JOB,
                                   .endpoint = endpoint,
                                   .job = "test",
                                   .key = key,
                                   .lost_ms = 10000};
    CHECK(!node_open(&nodes[k], &options), "process %d opens: %s", k, sl_detail());
  }
  for (int k = 0; k < JOB; k++)
    CHECK(!sli_control_join(nodes[k].control), "process %d joins: %s", k, sl_detail());
}

static uint64_t number;

static void check_alive(const char *after) {
  for (int k = 0; k < JOB; k++)
    for (int to = 0; to < JOB; to++)
      if (to != k) node_send(&nodes[k], to, number);
  number++;
  for (int k = 0; k < JOB; k++) {
    CHECK(node_wait_numbers(&nodes[k], number * (JOB - 1), PATIENCE_MS), "alive after %s", after);
    pthread_mutex_lock(&nodes[k].lock);
    CHECK(!nodes[k].displaced && !nodes[k].aborts, "unharmed after %s: %s", after, nodes[k].text);
    CHECK(nodes[k].total == number * (JOB - 1), "nothing but ours was heard after %s", after);
    pthread_mutex_unlock(&nodes[k].lock);
  }
}

/* Waits until process 0 has refused more than `before` messages. */
static bool wait_refused(uint64_t before) {
  for (int i = 0; i < PATIENCE_MS / 10; i++) {
    if (sli_control_count(nodes[0].control).refused > before) return true;
    usleep(10000);
  }
  return false;
}

static int connect_raw(int port) {
  struct sockaddr_in to = {.sin_family = AF_INET,
                           .sin_port = htons((uint16_t)port),
                           .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  (void)!connect(fd, (struct sockaddr *)&to, sizeof to); /* connects at once, or not at all */
  return fd;
}

static int hub_port(void) { return atoi(strrchr(sli_control_endpoint(nodes[0].control), ':') + 1); }

/* Sends the ZMTP greeting for CURVE as a client does. */
static void greet(int fd) {
  uint8_t greeting[64] = {[0] = 0xff, [8] = 1, [9] = 0x7f, [10] = 3, [12] = 'C',
                          'U',        'R',     'V',        'E'};
  (void)!send(fd, greeting, sizeof greeting, MSG_NOSIGNAL);
}

static void test_noise_from_strangers_harms_nothing(void) {
  uint64_t before = sli_control_count(nodes[0].control).refused;
  for (int i = 0; i < NOISE; i++) {
    uint8_t bytes[512];
    int fd = connect_raw(hub_port());
    fill(bytes, sizeof bytes);
    if (i % 3) greet(fd);
    if (i % 3 == 2) memcpy(bytes, "\x04\xc8\x05HELLO\x01\x00", 10);
    (void)!send(fd, bytes, 1 + draw() % sizeof bytes, MSG_NOSIGNAL);
    if (i % 50 == 0) usleep(1000);
    close(fd);
  }
  check_alive("noise");
  CHECK(wait_refused(before), "strangers are counted");
}

typedef struct client {
  void *context, *socket, *events;
} client;

static client client_open(const sli_auth *auth) {
  char text[64];
  client c = {.context = zmq_ctx_new()};
  c.socket = zmq_socket(c.context, ZMQ_DEALER);
  int none = 0, soon_ms = 200; /* strangers may keep the listener busy */
  zmq_setsockopt(c.socket, ZMQ_LINGER, &none, sizeof none);
  zmq_setsockopt(c.socket, ZMQ_CONNECT_TIMEOUT, &soon_ms, sizeof soon_ms);
  sli_auth_set_client(auth, c.socket);
  CHECK(!zmq_socket_monitor(c.socket, "inproc://events", ZMQ_EVENT_HANDSHAKE_FAILED_AUTH),
        "it is watched");
  c.events = zmq_socket(c.context, ZMQ_PAIR);
  CHECK(!zmq_connect(c.events, "inproc://events"), "it is watched");
  snprintf(text, sizeof text, "tcp://%s", sli_control_endpoint(nodes[0].control));
  CHECK(!zmq_connect(c.socket, text), "it connects");
  return c;
}

static void client_close(client *c) {
  zmq_socket_monitor(c->socket, NULL, 0);
  zmq_close(c->events);
  zmq_close(c->socket);
  zmq_ctx_term(c->context);
}

/* A client with the server's public key but a key pair of its own: only the authentication handler
 * keeps it out of the job. */
static void test_a_client_with_a_key_of_its_own_is_not_heard(void) {
  sli_auth own = auth;
  int patience_ms = PATIENCE_MS;
  uint8_t event[6];
  CHECK(!zmq_curve_keypair(own.client_public, own.client_secret), "there are keys");
  uint64_t before = sli_control_count(nodes[0].control).refused;
  client c = client_open(&own);
  zmq_setsockopt(c.events, ZMQ_RCVTIMEO, &patience_ms, sizeof patience_ms);
  zmq_send(c.socket, "let me in", 9, 0);
  CHECK(zmq_recv(c.events, event, sizeof event, 0) == sizeof event, "it is told so");
  CHECK(wait_refused(before), "it is counted");
  client_close(&c);
  check_alive("a client with a key of its own");
}

/* A client inside, with the right key: its invented frames are ignored as well. */
static void test_mutations_from_inside_harm_nothing(void) {
  uint8_t tail[4096], bytes[8192];
  client c = client_open(&auth);
  uint64_t before = sli_control_count(nodes[0].control).refused;
  for (int i = 0; i < MAD; i++) {
    sli_frame f = random_frame(tail);
    sli_frame_write(&f, bytes);
    size_t count = sli_frame_bytes(&f);
    if (i % 2) count = mutate(bytes, count, sizeof bytes);
    zmq_send(c.socket, bytes, count, i % 7 ? 0 : ZMQ_SNDMORE);
  }
  zmq_send(c.socket, "", 0, 0);
  CHECK(wait_refused(before + MAD / 2), "they are refused and counted");
  check_alive("mutations");
  client_close(&c);
}

/* A message longer than any frame ends the connection before it is stored. */
static void test_a_frame_that_is_too_long_is_not_taken_in(void) {
  client c = client_open(&auth);
  size_t bytes = SLI_FRAME_MAX_BYTES + 1;
  uint64_t before = sli_control_count(nodes[0].control).bytes_received;
  uint8_t *data = calloc(bytes, 1);
  zmq_send(c.socket, data, bytes, 0);
  usleep(200000);
  free(data);
  client_close(&c);
  check_alive("a frame that is too long");
  CHECK(sli_control_count(nodes[0].control).bytes_received < before + bytes, "it did not come in");
}

/* ---- a member played by this test ------------------------------------------------ */

typedef struct member {
  client link;
  uint64_t sequence;
} member;

static void member_send(member *m, sli_frame f) {
  uint8_t bytes[8192];
  f.process = 1;
  f.incarnation = 0;
  f.instance = 77;
  f.sequence = ++m->sequence;
  sli_frame_write(&f, bytes);
  zmq_send(m->link.socket, bytes, sli_frame_bytes(&f), 0);
}

/* Starts a job of one node and this member. */
static member member_join(void) {
  sli_control_options options = {
      .nprocesses = 2, .endpoint = "127.0.0.1:0", .job = "test", .key = key, .lost_ms = 10000};
  CHECK(!node_open(&nodes[0], &options), "process 0 opens: %s", sl_detail());
  member m = {.link = client_open(&auth)};
  member_send(&m, (sli_frame){.type = SLI_FRAME_HELLO, .hello = {.nprocesses = 2, .job = "test"}});
  CHECK(!sli_control_join(nodes[0].control), "the member joins: %s", sl_detail());
  return m;
}

static void member_leave(member *m) {
  client_close(&m->link);
  node_close(&nodes[0]);
}

static void test_what_was_said_before_is_not_heard_again(void) {
  member m = member_join();
  sli_frame word = {.type = SLI_FRAME_DATA,
                    .tail = "x",
                    .tail_bytes = 1,
                    .data = {.kind = SLI_DATA_WORD, .from = 1, .word = "once", .total_bytes = 1}};
  member_send(&m, word);
  m.sequence--;
  member_send(&m, word);
  m.sequence--;
  word.data.word[0] = 'O';
  member_send(&m, word);
  strcpy(word.data.word, "last");
  member_send(&m, word);
  CHECK(node_wait_words(&nodes[0], 2, PATIENCE_MS), "words come");
  pthread_mutex_lock(&nodes[0].lock);
  CHECK(nodes[0].nwords == 2 && !strcmp(nodes[0].words[0].word, "once") &&
            !strcmp(nodes[0].words[1].word, "last"),
        "each once");
  CHECK(!nodes[0].aborts, "what is not heard harms nothing: %s", nodes[0].text);
  pthread_mutex_unlock(&nodes[0].lock);
  CHECK(sli_control_count(nodes[0].control).refused == 2, "but is counted");
  m.sequence++;
  member_send(&m, word);
  CHECK(node_wait_abort(&nodes[0], PATIENCE_MS) && nodes[0].culprit == 1 &&
            strstr(nodes[0].text, "some of its frames are missing"),
        "a lost frame ends the job: %s", nodes[0].text);
  member_leave(&m);
}

/* A rogue member may end the job, as every member can, but nothing worse. */
static void test_a_member_gone_mad_ends_the_job_at_worst(void) {
  int ended = 0;
  for (int round = 0; round < ROUNDS; round++) {
    uint8_t tail[4096];
    member m = member_join();
    for (int i = 0; i < 100; i++) {
      sli_frame f = random_frame(tail);
      bool rare = f.type == SLI_FRAME_ABORT || f.type == SLI_FRAME_BYE;
      if (!rare || draw() % 16 == 0) member_send(&m, f);
    }
    member_send(
        &m,
        (sli_frame){
            .type = SLI_FRAME_ABORT, .abort = {.culprit = 1}, .tail = "enough", .tail_bytes = 6});
    ended += node_wait_abort(&nodes[0], 50);
    member_leave(&m);
    CHECK(nodes[0].aborts <= 1, "the end is told once");
  }
  printf("%d of %d jobs with a mad member were ended by it\n", ended, ROUNDS);
}

int main(int argc, char **argv) {
  seed = seed_of(argc, argv, 1) * 1000003;
  RUN(test_what_is_written_is_read);
  RUN(test_the_parser_takes_anything);
  sli_control_make_key(key);
  CHECK(!sli_auth_init(&auth, key), "a key is a key");
  start_job();
  RUN(test_noise_from_strangers_harms_nothing);
  RUN(test_a_client_with_a_key_of_its_own_is_not_heard);
  RUN(test_mutations_from_inside_harm_nothing);
  RUN(test_a_frame_that_is_too_long_is_not_taken_in);
  for (int k = 0; k < JOB; k++) node_close(&nodes[k]);
  RUN(test_what_was_said_before_is_not_heard_again);
  RUN(test_a_member_gone_mad_ends_the_job_at_worst);
  return 0;
}
