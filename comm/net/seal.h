/* SPDX-License-Identifier: Apache-2.0 */
/* Encryption of one direction of a connection (ChaCha20-Poly1305). Records of up to 32 KiB are
 * numbered. An attacker on the network can neither read them, nor change, drop, repeat or reorder
 * them undetected.
 *
 *   u32 plaintext bytes, little-endian, authenticated as well; ciphertext; 16 bytes of tag */
#ifndef SLUICE_COMM_NET_SEAL_H
#define SLUICE_COMM_NET_SEAL_H

#include "base/base.h"

enum {
  SLI_SEAL_INSIDE_BYTES = 32 << 10,
  SLI_SEAL_EXTRA_BYTES = 4 + 16,
  SLI_SEAL_BYTES = SLI_SEAL_INSIDE_BYTES + SLI_SEAL_EXTRA_BYTES,
};

typedef struct sli_seal {
  uint8_t key[32];
  uint64_t number; /* number of the next record */
} sli_seal;

/* Encrypts `bytes` into one record at `out`; returns its length. */
size_t sli_seal_close(sli_seal *seal, const uint8_t *inside, size_t bytes, uint8_t *out);
/* Returns the length of a record, given its first 4 bytes, or 0 if it is invalid. */
size_t sli_seal_length(const uint8_t *record);
/* Decrypts a record in place. Returns false if it was changed. */
bool sli_seal_open(sli_seal *seal, uint8_t *record, uint8_t **inside, size_t *bytes);

#endif
