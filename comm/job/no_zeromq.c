/* SPDX-License-Identifier: Apache-2.0 */
/* Both planes in a build without ZeroMQ and libsodium: a job has one process, and calls that need
 * more processes fail. */
#include "base/left_out.h"
#include "comm/control/control.h"
#include "comm/net/net.h"

static sl_status fail(void) {
  return SLI_LEFT_OUT("a job of several processes", "ZeroMQ with libsodium", "ZEROMQ",
                      "libzmq3-dev libsodium-dev");
}

/* ---- control plane --------------------------------------------------------------------------- */

sl_status sli_control_make_key(char key[SLI_CONTROL_KEY_CHARS + 1]) {
  (void)key;
  return fail();
}

sl_status sli_control_derive_key(const void *secret, size_t bytes, const char *job,
                                 char key[SLI_CONTROL_KEY_CHARS + 1]) {
  (void)secret, (void)bytes, (void)job, (void)key;
  return fail();
}

sl_status sli_control_open(const sli_control_options *options, sli_control **out) {
  (void)options, (void)out;
  return fail();
}

/* Closes NULL only: this build has no sli_control. */
void sli_control_close(sli_control *c) { (void)c; }

sl_status sli_control_join(sli_control *c) {
  (void)c;
  return fail();
}

const char *sli_control_here(const sli_control *c) {
  (void)c;
  return NULL;
}

void sli_control_host_of(const sli_control *c, int process, char host[SLI_CONTROL_HOST_CHARS]) {
  (void)c, (void)process;
  *host = 0;
}

void sli_control_watch(sli_control *c, int process) { (void)c, (void)process; }

sl_status sli_control_say(sli_control *c, int process, const char *word, const void *data,
                          size_t bytes) {
  (void)c, (void)process, (void)word, (void)data, (void)bytes;
  return fail();
}

sl_status sli_control_meet(sli_control *c, const char *word, const void *data, size_t bytes,
                           sli_control_blob **blobs) {
  (void)c, (void)word, (void)data, (void)bytes, (void)blobs;
  return fail();
}

sl_status sli_control_share(sli_control *c, const char *word, const void *data, size_t bytes,
                            sli_control_blob **blobs) {
  return sli_control_meet(c, word, data, bytes, blobs);
}

void sli_control_abort(sli_control *c, const char *text) { (void)c, (void)text; }

int64_t sli_control_clock_offset(const sli_control *c, int process) {
  (void)c, (void)process;
  return 0;
}

/* ---- data plane ------------------------------------------------------------------------------ */

sl_status sli_net_open(const sli_net_options *options, sli_net **out) {
  (void)options, (void)out;
  return fail();
}

/* Closes NULL only: this build has no sli_net. */
void sli_net_close(sli_net *net) { (void)net; }

sl_status sli_net_listen(sli_net *net, const char *host) {
  (void)net, (void)host;
  return fail();
}

const void *sli_net_address(sli_net *net, size_t *bytes) {
  (void)net;
  *bytes = 0;
  return NULL;
}

sl_status sli_net_connect(sli_net *net, int peer, const char *host, const void *address,
                          size_t bytes) {
  (void)net, (void)peer, (void)host, (void)address, (void)bytes;
  return fail();
}

bool sli_net_ready(sli_net *net) {
  (void)net;
  return true;
}

bool sli_net_send(sli_net *net, int peer, const void *header, const void *data, size_t bytes,
                  uint64_t *fence) {
  (void)net, (void)peer, (void)header, (void)data, (void)bytes, (void)fence;
  return true;
}

bool sli_net_done(sli_net *net, uint64_t fence) {
  (void)net, (void)fence;
  return true;
}

bool sli_net_progress(sli_net *net) {
  (void)net;
  return false;
}

void sli_net_wait(sli_net *net, uint64_t timeout_ns) { (void)net, (void)timeout_ns; }

void sli_net_wake(sli_net *net) { (void)net; }

sli_net_traffic_counts sli_net_traffic(const sli_net *net, int peer) {
  (void)net, (void)peer;
  return (sli_net_traffic_counts){0};
}
