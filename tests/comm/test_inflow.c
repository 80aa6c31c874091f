/* SPDX-License-Identifier: Apache-2.0 */
/* A stream on a data plane connection, cut anywhere, is reassembled as it was sent, and any other
 * stream does no harm. No bit of a handshake or of a sealed record can be changed unnoticed.
 * labels: unthreaded computes
 * needs: zeromq */
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/net/handshake.h"
#include "comm/net/inflow.h"
#include "comm/net/seal.h"
#include "tests/support/rng.h"
#include "tests/support/seeds.h"
#include "tests/support/test.h"

enum { MESSAGES = 12, MOST_BYTES = 3000, STREAM_BYTES = MESSAGES * (MOST_BYTES + 64) };

static rng d;

static uint32_t draw(size_t sides) { return rng_below(&d, (uint32_t)sides); }

/* ---- streams --------------------------------------------------------------------------- */

typedef struct receiver {
  sli_net_core net;
  sli_net_peer peers[2];
  sli_inflow in;
  uint8_t data[MOST_BYTES];
  int arrived;
} receiver;

static size_t size_of(int message) { return message % 4 ? (size_t)message * 397 % MOST_BYTES : 0; }
static uint8_t byte_of(int message, size_t i) { return (uint8_t)(message * 31 + (int)(i * 7)); }

static void *place(void *ctx, int peer, const void *header, size_t bytes) {
  (void)peer, (void)header;
  receiver *r = ctx;
  if (bytes > sizeof r->data) return NULL;
  memset(r->data, 0, sizeof r->data);
  return r->data;
}

static void arrived(void *ctx, int peer, const void *header, size_t bytes) {
  receiver *r = ctx;
  (void)peer, (void)bytes;
  uint8_t first;
  memcpy(&first, header, 1);
  r->arrived++;
}

static void open_receiver(receiver *r) {
  *r = (receiver){.net = {.npeers = 2, .events = {r, place, arrived, NULL}}};
  r->net.peers = r->peers;
  r->peers[1] = (sli_net_peer){.net = &r->net, .number = 1};
  r->in.peer = sli_net_peer_of(&r->net, 1);
}

static size_t write_stream(uint8_t *out) {
  uint8_t *at = out;
  for (int m = 0; m < MESSAGES; m++) {
    sli_tcp_head head = {.header = {(uint8_t)m}, .bytes = size_of(m), .number = (uint64_t)m};
    memcpy(at, &head, sizeof head);
    at += sizeof head;
    for (size_t i = 0; i < head.bytes; i++) *at++ = byte_of(m, i);
  }
  return (size_t)(at - out);
}

static void check_message(const receiver *r, int message) {
  size_t bytes = size_of(message);
  CHECK(r->in.head.header[0] == message && r->in.head.bytes == bytes, "message %d has its head",
        message);
  for (size_t i = 0; i < bytes; i++)
    CHECK(r->data[i] == byte_of(message, i), "message %d has its data", message);
}

/* Feeds some bytes at a time, either written directly to their destination or passed to the
 * parser. */
static void test_a_stream_cut_anywhere_arrives(void) {
  static uint8_t stream[STREAM_BYTES];
  size_t bytes = write_stream(stream);
  for (int trial = 0; trial < 300; trial++) {
    receiver r;
    open_receiver(&r);
    for (size_t at = 0, count; at < bytes; at += count) {
      count = 1 + draw(trial % 3 ? 900 : 5);
      count = SLI_MIN(count, bytes - at);
      int before = r.arrived;
      if (r.in.left && draw(2)) {
        count = SLI_MIN(count, r.in.left);
        memcpy(r.in.place, stream + at, count);
        CHECK(sli_inflow_filled(&r.in, count), "data is taken");
      } else {
        CHECK(sli_inflow_take(&r.in, stream + at, count), "bytes are taken");
      }
      if (r.arrived == before + 1 && !r.in.left && !r.in.head_bytes) check_message(&r, before);
    }
    CHECK(r.arrived == MESSAGES && !r.in.left && !r.in.head_bytes, "all messages arrive");
  }
}

/* A rogue peer of the job flips bits, drops bytes and invents some. */
static void test_a_damaged_stream_does_no_harm(void) {
  static uint8_t stream[STREAM_BYTES];
  int refused = 0;
  for (int trial = 0; trial < 3000; trial++) {
    receiver r;
    size_t bytes = write_stream(stream);
    open_receiver(&r);
    if (trial % 3 == 0)
      for (size_t i = 0; i < bytes; i++) stream[i] = (uint8_t)draw(256);
    for (uint64_t i = 1 + draw(4); i; i--) stream[draw(bytes)] ^= (uint8_t)(1u << draw(8));
    size_t left_out = draw(2) ? draw(100) : 0;
    bool good = true;
    for (size_t at = left_out, count; at < bytes && good; at += count) {
      count = 1 + draw(2000);
      count = SLI_MIN(count, bytes - at);
      good = sli_inflow_take(&r.in, stream + at, count);
    }
    CHECK(good != r.peers[1].failed, "who sends nonsense has failed, and nobody else");
    refused += !good;
  }
  CHECK(refused > 1500, "nonsense is seen: %d of 3000", refused);
}

/* ---- handshakes ------------------------------------------------------------------------ */

static uint8_t key[SLI_KEY_BYTES], word[SLI_WORD_BYTES];

/* Runs a handshake between 1 and 2, with one bit of one message possibly flipped; returns whether
 * both sides accept. */
static bool shake(int message, size_t bit, uint8_t sessions[2][SLI_KEY_BYTES]) {
  sli_handshake from = {0}, to = {0};
  uint8_t proof[SLI_PROOF_BYTES];
  uint32_t who = 0;
  sli_handshake_open(&from, key, 1, 2, word);
  memcpy(to.opening, from.opening, sizeof to.opening);
  if (message == 0) to.opening[bit / 8 % sizeof to.opening] ^= (uint8_t)(1u << bit % 8);
  if (!sli_handshake_answer(&to, key, 2, word, &who) || who != 1) return false;
  memcpy(from.answer, to.answer, sizeof from.answer);
  if (message == 1) from.answer[bit / 8 % sizeof from.answer] ^= (uint8_t)(1u << bit % 8);
  if (!sli_handshake_prove(&from, proof)) return false;
  if (message == 2) proof[bit / 8 % sizeof proof] ^= (uint8_t)(1u << bit % 8);
  if (!sli_handshake_check(&to, proof)) return false;
  sli_handshake_session(&from, true, sessions[0]);
  sli_handshake_session(&to, true, sessions[1]);
  return true;
}

static void test_both_sides_of_a_handshake_agree(void) {
  uint8_t first[2][SLI_KEY_BYTES], second[2][SLI_KEY_BYTES];
  CHECK(shake(-1, 0, first) && shake(-1, 0, second), "a handshake succeeds");
  CHECK(!memcmp(first[0], first[1], SLI_KEY_BYTES), "both sides have the same key");
  CHECK(memcmp(first[0], second[0], SLI_KEY_BYTES), "which is another each time");
}

static void test_no_bit_of_a_handshake_can_be_changed(void) {
  static const size_t bytes[] = {SLI_OPENING_BYTES, SLI_ANSWER_BYTES, SLI_PROOF_BYTES};
  uint8_t sessions[2][SLI_KEY_BYTES];
  for (int message = 0; message < 3; message++)
    for (size_t bit = 0; bit < 8 * bytes[message]; bit++)
      CHECK(!shake(message, bit, sessions), "message %d, bit %zu", message, bit);
}

static void test_an_opening_is_for_one_process_of_one_job(void) {
  sli_handshake from = {0}, to = {0};
  uint8_t other[SLI_KEY_BYTES] = {1}, words[SLI_WORD_BYTES] = {1};
  uint32_t who;
  sli_handshake_open(&from, key, 1, 2, word);
  to = from;
  CHECK(!sli_handshake_answer(&to, other, 2, word, &who), "another key");
  to = from;
  CHECK(!sli_handshake_answer(&to, key, 3, word, &who), "another process");
  to = from;
  CHECK(!sli_handshake_answer(&to, key, 2, words, &who), "another run");
}

/* A replayed opening gets an answer, but the attacker cannot produce the proof. */
static void test_an_opening_said_again_gets_nowhere(void) {
  sli_handshake from = {0}, first = {0}, again = {0};
  uint8_t proof[SLI_PROOF_BYTES];
  uint32_t who;
  sli_handshake_open(&from, key, 1, 2, word);
  memcpy(first.opening, from.opening, sizeof first.opening);
  memcpy(again.opening, from.opening, sizeof again.opening);
  CHECK(sli_handshake_answer(&first, key, 2, word, &who), "it is answered");
  memcpy(from.answer, first.answer, sizeof from.answer);
  CHECK(sli_handshake_prove(&from, proof) && sli_handshake_check(&first, proof), "and proved");
  CHECK(sli_handshake_answer(&again, key, 2, word, &who), "again it is answered");
  CHECK(!sli_handshake_check(&again, proof), "and the proof is another");
}

/* ---- seals ----------------------------------------------------------------------------- */

static void test_no_bit_of_a_sealed_record_can_be_changed(void) {
  uint8_t data[100], record[SLI_SEAL_BYTES], copy[SLI_SEAL_BYTES], *inside;
  size_t bytes;
  for (size_t i = 0; i < sizeof data; i++) data[i] = (uint8_t)i;
  sli_seal out = {.key = {5}};
  size_t length = sli_seal_close(&out, data, sizeof data, record);
  for (size_t bit = 0; bit < 8 * length; bit++) {
    sli_seal in = {.key = {5}};
    memcpy(copy, record, length);
    copy[bit / 8] ^= (uint8_t)(1u << bit % 8);
    CHECK(sli_seal_length(copy) != length || !sli_seal_open(&in, copy, &inside, &bytes), "bit %zu",
          bit);
  }
  sli_seal in = {.key = {5}};
  memcpy(copy, record, length);
  CHECK(sli_seal_length(copy) == length && sli_seal_open(&in, copy, &inside, &bytes) &&
            bytes == sizeof data && !memcmp(inside, data, bytes),
        "what is sealed is inside");
  memcpy(copy, record, length);
  CHECK(!sli_seal_open(&in, copy, &inside, &bytes), "it cannot be said again");
}

int main(int argc, char **argv) {
  d.key = seed_of(argc, argv, 1);
  sli_handshake_key("some key", key);
  randombytes_buf(word, sizeof word);
  RUN(test_a_stream_cut_anywhere_arrives);
  RUN(test_a_damaged_stream_does_no_harm);
  RUN(test_both_sides_of_a_handshake_agree);
  RUN(test_no_bit_of_a_handshake_can_be_changed);
  RUN(test_an_opening_is_for_one_process_of_one_job);
  RUN(test_an_opening_said_again_gets_nowhere);
  RUN(test_no_bit_of_a_sealed_record_can_be_changed);
  return 0;
}
