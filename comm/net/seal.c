/* SPDX-License-Identifier: Apache-2.0 */
#include "comm/net/seal.h"

#include <endian.h>
#include <sodium.h>
#include <string.h>

enum { LENGTH_BYTES = 4, NONCE_BYTES = crypto_aead_chacha20poly1305_ietf_NPUBBYTES };

/* Writes the next nonce. A key serves one direction of one connection, so a counter suffices. */
static void next_nonce(sli_seal *seal, uint8_t nonce[NONCE_BYTES]) {
  uint64_t number = htole64(seal->number++);
  memset(nonce, 0, NONCE_BYTES);
  memcpy(nonce + NONCE_BYTES - sizeof number, &number, sizeof number);
}

size_t sli_seal_close(sli_seal *seal, const uint8_t *inside, size_t bytes, uint8_t *out) {
  uint8_t nonce[NONCE_BYTES];
  uint32_t length = htole32((uint32_t)bytes);
  unsigned long long sealed = 0;
  next_nonce(seal, nonce);
  memcpy(out, &length, LENGTH_BYTES);
  crypto_aead_chacha20poly1305_ietf_encrypt(out + LENGTH_BYTES, &sealed, inside, bytes, out,
                                            LENGTH_BYTES, NULL, nonce, seal->key);
  return LENGTH_BYTES + (size_t)sealed;
}

size_t sli_seal_length(const uint8_t *record) {
  uint32_t length;
  memcpy(&length, record, LENGTH_BYTES);
  length = le32toh(length);
  return length && length <= SLI_SEAL_INSIDE_BYTES ? length + SLI_SEAL_EXTRA_BYTES : 0;
}

bool sli_seal_open(sli_seal *seal, uint8_t *record, uint8_t **inside, size_t *bytes) {
  uint8_t nonce[NONCE_BYTES];
  unsigned long long opened = 0;
  next_nonce(seal, nonce);
  if (crypto_aead_chacha20poly1305_ietf_decrypt(
          record + LENGTH_BYTES, &opened, NULL, record + LENGTH_BYTES,
          sli_seal_length(record) - LENGTH_BYTES, record, LENGTH_BYTES, nonce, seal->key))
    return false;
  *inside = record + LENGTH_BYTES;
  *bytes = (size_t)opened;
  return true;
}
