/* SPDX-License-Identifier: Apache-2.0 */
/* Incoming connections whose peers have not yet proved that they belong to the job. The number of
 * such connections is limited, and only the handshake parses their bytes. */
#ifndef SLUICE_COMM_NET_ADMISSION_H
#define SLUICE_COMM_NET_ADMISSION_H

#include "comm/net/handshake.h"

typedef struct sli_admission sli_admission;

/* Called when a peer has proved membership. Takes ownership of the connection. */
typedef void sli_admission_member(void *ctx, uint32_t from, int fd, const sli_handshake *h);

/* Listens at `host`, a numeric address ("*": all addresses of this host), as process `self`. */
sl_status sli_admission_open(const char *host, uint32_t self, const uint8_t key[SLI_KEY_BYTES],
                             const uint8_t word[SLI_WORD_BYTES], sli_admission **out);
void sli_admission_close(sli_admission *a);
int sli_admission_port(const sli_admission *a);
int sli_admission_fd(const sli_admission *a); /* readable: call sli_admission_progress */
void sli_admission_progress(sli_admission *a, sli_admission_member *member, void *ctx);

#endif
