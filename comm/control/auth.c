/* SPDX-License-Identifier: Apache-2.0 */
/* A job has one secret, its key. Two CURVE key pairs are derived from it with different labels: one
 * for all sockets that bind, one for all sockets that connect. A process with the job's key
 * therefore knows what a server and a client of the job must prove, and no other process can prove
 * either.
 *
 * libzmq itself checks a server's key. It accepts a client with any key unless a handler decides at
 * inproc://zeromq.zap.01 (ZeroMQ RFC 27, ZAP). */
#include "comm/control/auth.h"

#include <sodium.h>
#include <string.h>
#include <zmq.h>

#include "comm/control/control.h"

static void derive(const void *secret, size_t secret_bytes, const char *label, const char *name,
                   uint8_t out[32]) {
  crypto_generichash_state state;
  crypto_generichash_init(&state, NULL, 0, 32);
  crypto_generichash_update(&state, (const uint8_t *)label, strlen(label) + 1);
  crypto_generichash_update(&state, (const uint8_t *)name, strlen(name) + 1);
  crypto_generichash_update(&state, secret, secret_bytes);
  crypto_generichash_final(&state, out, 32);
  sodium_memzero(&state, sizeof state);
}

static void start_sodium(void) {
  SLI_CHECK(sodium_init() >= 0, "libsodium cannot initialize: no source of random numbers");
}

sl_status sli_control_make_key(char key[SLI_CONTROL_KEY_CHARS + 1]) {
  uint8_t bytes[32];
  start_sodium();
  randombytes_buf(bytes, sizeof bytes);
  zmq_z85_encode(key, bytes, sizeof bytes);
  sodium_memzero(bytes, sizeof bytes);
  return SL_OK;
}

sl_status sli_control_derive_key(const void *secret, size_t bytes, const char *job,
                                 char key[SLI_CONTROL_KEY_CHARS + 1]) {
  uint8_t derived[32];
  start_sodium();
  derive(secret, bytes, "sluice control: key of a job", job, derived);
  zmq_z85_encode(key, derived, sizeof derived);
  sodium_memzero(derived, sizeof derived);
  return SL_OK;
}

static void make_pair(const uint8_t key[32], const char *label, uint8_t public_bytes[32],
                      char *public_text, char *secret_text) {
  uint8_t seed[32], secret[32];
  derive(key, 32, label, "", seed);
  crypto_box_seed_keypair(public_bytes, secret, seed);
  zmq_z85_encode(public_text, public_bytes, 32);
  zmq_z85_encode(secret_text, secret, 32);
  sodium_memzero(seed, sizeof seed);
  sodium_memzero(secret, sizeof secret);
}

sl_status sli_auth_init(sli_auth *auth, const char *key) {
  uint8_t bytes[32], server_bytes[32];
  start_sodium();
  if (!key || strlen(key) != SLI_CONTROL_KEY_CHARS || !zmq_z85_decode(bytes, key))
    return sl_fail(SL_E_USAGE, "the job's key must be %d characters of Z85", SLI_CONTROL_KEY_CHARS);
  make_pair(bytes, "sluice control: server", server_bytes, auth->server_public,
            auth->server_secret);
  make_pair(bytes, "sluice control: client", auth->client_bytes, auth->client_public,
            auth->client_secret);
  sodium_memzero(bytes, sizeof bytes);
  return SL_OK;
}

void sli_auth_fini(sli_auth *auth) { sodium_memzero(auth, sizeof *auth); }

static void set_text(void *socket, int option, const char *text) {
  SLI_CHECK(!zmq_setsockopt(socket, option, text, strlen(text) + 1),
            "libzmq does not accept CURVE keys: %s", zmq_strerror(zmq_errno()));
}

void sli_auth_set_server(const sli_auth *auth, void *socket) {
  int yes = 1;
  zmq_setsockopt(socket, ZMQ_CURVE_SERVER, &yes, sizeof yes);
  set_text(socket, ZMQ_CURVE_SECRETKEY, auth->server_secret);
  zmq_setsockopt(socket, ZMQ_ZAP_DOMAIN, "sluice", 6);
}

void sli_auth_set_client(const sli_auth *auth, void *socket) {
  set_text(socket, ZMQ_CURVE_SERVERKEY, auth->server_public);
  set_text(socket, ZMQ_CURVE_PUBLICKEY, auth->client_public);
  set_text(socket, ZMQ_CURVE_SECRETKEY, auth->client_secret);
}

void *sli_auth_open_zap(void *context) {
  void *zap = zmq_socket(context, ZMQ_REP);
  int none = 0;
  if (!zap) return NULL;
  zmq_setsockopt(zap, ZMQ_LINGER, &none, sizeof none);
  if (!zmq_bind(zap, "inproc://zeromq.zap.01")) return zap;
  zmq_close(zap);
  return NULL;
}

/* Parts of a request: version, request, domain, address, routing id, mechanism, credentials.
 * Parts of a reply: version, request, code, text, user, metadata. */
enum { VERSION, REQUEST, DOMAIN, ADDRESS, ROUTE, MECHANISM, CREDENTIALS, PARTS };

typedef struct part {
  char bytes[256];
  size_t count;
} part;

static int receive_parts(void *zap, part parts[PARTS]) {
  for (int i = 0;; i++) {
    part spare, *p = i < PARTS ? &parts[i] : &spare;
    int count = zmq_recv(zap, p->bytes, sizeof p->bytes, i ? 0 : ZMQ_DONTWAIT);
    int more = 0;
    size_t size = sizeof more;
    if (count < 0) return 0;
    p->count = SLI_MIN((size_t)count, sizeof p->bytes);
    zmq_getsockopt(zap, ZMQ_RCVMORE, &more, &size);
    if (!more) return i + 1;
  }
}

static bool is_text(const part *p, const char *text) {
  return p->count == strlen(text) && !memcmp(p->bytes, text, p->count);
}

sli_auth_answer sli_auth_answer_zap(const sli_auth *auth, void *zap) {
  part parts[PARTS];
  int count = receive_parts(zap, parts);
  if (!count) return SLI_AUTH_NONE;
  bool known = count == PARTS && is_text(&parts[VERSION], "1.0") &&
               is_text(&parts[MECHANISM], "CURVE") && parts[CREDENTIALS].count == 32 &&
               !sodium_memcmp(parts[CREDENTIALS].bytes, auth->client_bytes, 32);
  size_t request = count > REQUEST ? parts[REQUEST].count : 0;
  zmq_send(zap, "1.0", 3, ZMQ_SNDMORE);
  zmq_send(zap, parts[REQUEST].bytes, request, ZMQ_SNDMORE);
  zmq_send(zap, known ? "200" : "400", 3, ZMQ_SNDMORE);
  zmq_send(zap, known ? "OK" : "not of this job", known ? 2 : 15, ZMQ_SNDMORE);
  zmq_send(zap, "", 0, ZMQ_SNDMORE);
  zmq_send(zap, "", 0, 0);
  return known ? SLI_AUTH_LET_IN : SLI_AUTH_REFUSED;
}
