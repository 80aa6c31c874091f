/* How two processes of a job prove to each other, over a connection that anybody may have made,
 * that they hold its key, and agree on keys for what follows. Bytes in, bytes out: no sockets.
 *
 *   opening   who connects: its number, whom it means, the word that the other's address gave, a
 *             fresh public key, and a code over all that only the job's key can make
 *   answer    who listens: its own fresh public key, and a code over both
 *   proof     who connects: a code that takes what the two fresh keys make together
 *
 * The code of the opening costs a stranger nothing to get wrong and us one hash to see. An
 * opening that was recorded and is sent again gets an answer and cannot make the proof. The keys
 * of a session follow from the job's key and from what nobody can compute any more once the
 * connection is gone. */
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
  uint8_t key[SLI_KEY_BYTES]; /* of the job's data plane */
  uint8_t secret[32];         /* fresh */
  uint8_t opening[SLI_OPENING_BYTES], answer[SLI_ANSWER_BYTES];
  uint8_t session[SLI_KEY_BYTES];
} sli_handshake;

/* The data plane's key, of the job's. */
void sli_handshake_key(const char *job_key, uint8_t key[SLI_KEY_BYTES]);

/* Who connects. */
void sli_handshake_open(sli_handshake *h, const uint8_t key[SLI_KEY_BYTES], uint32_t from,
                        uint32_t to, const uint8_t word[SLI_WORD_BYTES]);
/* Checks h->answer; the proof to send. */
bool sli_handshake_prove(sli_handshake *h, uint8_t proof[SLI_PROOF_BYTES]);

/* Who listens: checks h->opening, which is for `self` and repeats its `word`, and makes h->answer;
 * *from is who says it. */
bool sli_handshake_answer(sli_handshake *h, const uint8_t key[SLI_KEY_BYTES], uint32_t self,
                          const uint8_t word[SLI_WORD_BYTES], uint32_t *from);
bool sli_handshake_check(sli_handshake *h, const uint8_t proof[SLI_PROOF_BYTES]);

/* After the proof: the key of one direction. */
void sli_handshake_session(const sli_handshake *h, bool to_listener, uint8_t key[SLI_KEY_BYTES]);
void sli_handshake_fini(sli_handshake *h);

#endif
