/* SPDX-License-Identifier: Apache-2.0 */
#include "comm/net/handshake.h"

#include <sodium.h>
#include <string.h>

static const uint8_t magic[8] = "SLUICE\1";

/* Offsets in an opening and in an answer. */
enum { FROM = 8, TO = 12, WORD = 16, PUBLIC = WORD + SLI_WORD_BYTES, CODE = PUBLIC + 32 };
enum { ANSWER_CODE = 32 };
_Static_assert(CODE + 32 == SLI_OPENING_BYTES, "an opening ends with its code");

/* Keyed hash over a label and up to two byte strings. */
static void code(uint8_t out[32], const uint8_t key[32], const char *label, const void *a,
                 size_t a_bytes, const void *b, size_t b_bytes) {
  crypto_generichash_state state;
  crypto_generichash_init(&state, key, 32, 32);
  crypto_generichash_update(&state, (const uint8_t *)label, strlen(label) + 1);
  crypto_generichash_update(&state, a, a_bytes);
  if (b_bytes) crypto_generichash_update(&state, b, b_bytes);
  crypto_generichash_final(&state, out, 32);
  sodium_memzero(&state, sizeof state);
}

void sli_handshake_key(const char *job_key, uint8_t key[SLI_KEY_BYTES]) {
  static const uint8_t zero[32];
  SLI_CHECK(sodium_init() >= 0, "libsodium finds no source of random numbers");
  code(key, zero, "sluice data plane: key", job_key, strlen(job_key), NULL, 0);
}

static void draw(uint8_t secret[32], uint8_t public[32]) {
  randombytes_buf(secret, 32);
  crypto_scalarmult_base(public, secret);
}

static void put_number(uint8_t *at, uint32_t number) {
  for (int i = 0; i < 4; i++) at[i] = (uint8_t)(number >> 8 * i);
}

static uint32_t take_number(const uint8_t *at) {
  return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

/* Derives the session key from the fresh keys, the job's key, and both messages. */
static bool mix(sli_handshake *h, const uint8_t public[32]) {
  uint8_t shared[32], key[32];
  if (crypto_scalarmult(shared, h->secret, public)) return false; /* invalid public key */
  code(key, h->key, "sluice data plane: shared", shared, sizeof shared, NULL, 0);
  code(h->session, key, "sluice data plane: session", h->opening, sizeof h->opening, h->answer,
       sizeof h->answer);
  sodium_memzero(shared, sizeof shared);
  sodium_memzero(key, sizeof key);
  return true;
}

static void make_proof(const sli_handshake *h, uint8_t proof[SLI_PROOF_BYTES]) {
  code(proof, h->session, "sluice data plane: proof", "", 0, NULL, 0);
}

/* ---- connecting side --------------------------------------------------------------- */

void sli_handshake_open(sli_handshake *h, const uint8_t key[SLI_KEY_BYTES], uint32_t from,
                        uint32_t to, const uint8_t word[SLI_WORD_BYTES]) {
  memcpy(h->key, key, sizeof h->key);
  memcpy(h->opening, magic, sizeof magic);
  put_number(h->opening + FROM, from);
  put_number(h->opening + TO, to);
  memcpy(h->opening + WORD, word, SLI_WORD_BYTES);
  draw(h->secret, h->opening + PUBLIC);
  code(h->opening + CODE, h->key, "sluice data plane: opening", h->opening, CODE, NULL, 0);
}

bool sli_handshake_prove(sli_handshake *h, uint8_t proof[SLI_PROOF_BYTES]) {
  uint8_t want[32];
  code(want, h->key, "sluice data plane: answer", h->opening, sizeof h->opening, h->answer,
       ANSWER_CODE);
  if (sodium_memcmp(want, h->answer + ANSWER_CODE, sizeof want) || !mix(h, h->answer)) return false;
  make_proof(h, proof);
  return true;
}

/* ---- listening side ---------------------------------------------------------------- */

bool sli_handshake_answer(sli_handshake *h, const uint8_t key[SLI_KEY_BYTES], uint32_t self,
                          const uint8_t word[SLI_WORD_BYTES], uint32_t *from) {
  uint8_t want[32];
  memcpy(h->key, key, sizeof h->key);
  code(want, h->key, "sluice data plane: opening", h->opening, CODE, NULL, 0);
  if (sodium_memcmp(want, h->opening + CODE, sizeof want) ||
      memcmp(h->opening, magic, sizeof magic) || take_number(h->opening + TO) != self ||
      memcmp(h->opening + WORD, word, SLI_WORD_BYTES))
    return false;
  *from = take_number(h->opening + FROM);
  draw(h->secret, h->answer);
  code(h->answer + ANSWER_CODE, h->key, "sluice data plane: answer", h->opening, sizeof h->opening,
       h->answer, ANSWER_CODE);
  return mix(h, h->opening + PUBLIC);
}

bool sli_handshake_check(sli_handshake *h, const uint8_t proof[SLI_PROOF_BYTES]) {
  uint8_t want[SLI_PROOF_BYTES];
  make_proof(h, want);
  return !sodium_memcmp(want, proof, sizeof want);
}

/* ---- both sides -------------------------------------------------------------------- */

void sli_handshake_session(const sli_handshake *h, bool to_listener, uint8_t key[SLI_KEY_BYTES]) {
  code(key, h->session, to_listener ? "to who listens" : "to who connects", "", 0, NULL, 0);
}

void sli_handshake_fini(sli_handshake *h) { sodium_memzero(h, sizeof *h); }
