/* Encrypting one direction of a connection: records of up to 32 KiB, numbered, so that none can be
 * read, changed, left out, repeated or put elsewhere by who stands between (ChaCha20-Poly1305).
 *
 *   u32 bytes of what is inside, little-endian, authenticated as well; the sealed bytes; 16 of a
 *   code */
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
  uint64_t number; /* of the next record */
} sli_seal;

/* Writes one record of the `bytes` to `out`; its length. */
size_t sli_seal_close(sli_seal *seal, const uint8_t *inside, size_t bytes, uint8_t *out);
/* Bytes of the whole record that begins here, of which the first 4 are there; 0: there is none
 * like that. */
size_t sli_seal_length(const uint8_t *record);
/* What is inside, in place; false if somebody has changed it. */
bool sli_seal_open(sli_seal *seal, uint8_t *record, uint8_t **inside, size_t *bytes);

#endif
