/* SPDX-License-Identifier: Apache-2.0 */
/* Handshake of the data plane: two processes of a job prove to each other that they hold its key,
 * and agree on session keys. Anybody may have opened the connection. The code maps bytes to bytes
 * and uses no sockets.
 *
 *   opening   connecting side: its number, the number of the listener, the word from the
 *             listener's address, a fresh public key, and a code over all of these that only
 *             the job's key can make
 *   answer    listening side: its own fresh public key, and a code over both
 *   proof     connecting side: a code derived from the shared secret of the two fresh keys
 *
 * The listener detects a wrong code in an opening with one hash. A recorded opening that is
 * replayed gets an answer, but its sender cannot make the proof. Session keys are derived from the
 * job's key and the shared secret, which nobody can compute once the connection is closed (forward
 * secrecy). */
#ifndef SLUICE_COMM_NET_HANDSHAKE_H
#define SLUICE_COMM_NET_HANDSHAKE_H

#include "base/base.h"

enum {
  SLI_KEY_BYTES = 32,
  SLI_WORD_BYTES = 16,
  SLI_OPENING_BYTES = 8 + 4 + 4 + SLI_WORD_BYTES + 32 + 32,
  SLI_ANSWER_BYTES = 32 + 32,
  SLI_PROOF_BYTES = 32,
};

typedef struct sli_handshake {
  uint8_t key[SLI_KEY_BYTES]; /* key of the job's data plane */
  uint8_t secret[32];         /* fresh secret key */
  uint8_t opening[SLI_OPENING_BYTES], answer[SLI_ANSWER_BYTES];
  uint8_t session[SLI_KEY_BYTES];
} sli_handshake;

/* Derives the data plane's key from the job's key. */
void sli_handshake_key(const char *job_key, uint8_t key[SLI_KEY_BYTES]);

/* Connecting side: writes h->opening. */
void sli_handshake_open(sli_handshake *h, const uint8_t key[SLI_KEY_BYTES], uint32_t from,
                        uint32_t to, const uint8_t word[SLI_WORD_BYTES]);
/* Connecting side: checks h->answer and writes the proof to send. */
bool sli_handshake_prove(sli_handshake *h, uint8_t proof[SLI_PROOF_BYTES]);

/* Listening side: checks h->opening, which must name `self` and repeat its `word`, and writes
 * h->answer. *from is the sender's number. */
bool sli_handshake_answer(sli_handshake *h, const uint8_t key[SLI_KEY_BYTES], uint32_t self,
                          const uint8_t word[SLI_WORD_BYTES], uint32_t *from);
bool sli_handshake_check(sli_handshake *h, const uint8_t proof[SLI_PROOF_BYTES]);

/* Derives the key of one direction, after the proof. */
void sli_handshake_session(const sli_handshake *h, bool to_listener, uint8_t key[SLI_KEY_BYTES]);
void sli_handshake_fini(sli_handshake *h);

#endif
