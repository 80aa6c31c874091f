/* Connections that others made, until they have proved that they are of the job. Strangers
 * cannot hold more than some of them, and nothing they send gets further than the handshake. */
#ifndef SLUICE_COMM_NET_ADMISSION_H
#define SLUICE_COMM_NET_ADMISSION_H

#include "comm/net/handshake.h"

typedef struct sli_admission sli_admission;

/* Who has proved it: takes over the connection. */
typedef void sli_admission_member(void *ctx, uint32_t from, int fd, const sli_handshake *h);

/* Listens at `host`, an address in numbers ("*": at all of this host), as process `self`. */
sl_status sli_admission_open(const char *host, uint32_t self, const uint8_t key[SLI_KEY_BYTES],
                             const uint8_t word[SLI_WORD_BYTES], sli_admission **out);
void sli_admission_close(sli_admission *a);
int sli_admission_port(const sli_admission *a);
int sli_admission_fd(const sli_admission *a); /* readable: there is something to do */
void sli_admission_progress(sli_admission *a, sli_admission_member *member, void *ctx);

#endif
