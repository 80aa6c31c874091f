/* SPDX-License-Identifier: Apache-2.0 */
/* Authentication: CURVE keys derived from the job's key, and the handler that libzmq asks about
 * each client that presents a key. */
#ifndef SLUICE_COMM_CONTROL_AUTH_H
#define SLUICE_COMM_CONTROL_AUTH_H

#include "base/base.h"

enum { SLI_AUTH_KEY_CHARS = 41 }; /* Z85, with the closing 0 */

typedef struct sli_auth {
  char server_public[SLI_AUTH_KEY_CHARS], server_secret[SLI_AUTH_KEY_CHARS];
  char client_public[SLI_AUTH_KEY_CHARS], client_secret[SLI_AUTH_KEY_CHARS];
  uint8_t client_bytes[32]; /* client_public in binary, as clients present it */
} sli_auth;

sl_status sli_auth_init(sli_auth *auth, const char *key);
void sli_auth_fini(sli_auth *auth);

/* Sets the keys of a socket, before bind or connect. */
void sli_auth_set_server(const sli_auth *auth, void *socket);
void sli_auth_set_client(const sli_auth *auth, void *socket);

/* Binds the socket on which libzmq sends its requests. Returns NULL with errno set on failure. Must
 * be called before any server socket is opened. */
void *sli_auth_open_zap(void *context);
/* Answers one request of libzmq, if there is one. */
typedef enum sli_auth_answer { SLI_AUTH_NONE, SLI_AUTH_LET_IN, SLI_AUTH_REFUSED } sli_auth_answer;
sli_auth_answer sli_auth_answer_zap(const sli_auth *auth, void *zap);

#endif
