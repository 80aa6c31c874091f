/* SPDX-License-Identifier: Apache-2.0 */
/* Heartbeats run on every connection. A peer that is silent for too long is lost, as is a peer that
 * closed its connection without a goodbye. */
#include "comm/control/control_inner.h"

#define CONNECT_NS UINT64_C(30000000000) /* time for a direct link to connect */

void sli_beat(sli_control *c) {
  for (int k = 0; k < c->nprocesses; k++) {
    sli_peer *peer = &c->peers[k];
    if (k == c->self || !peer->here || peer->left) continue;
    if (sli_is_hub(c) || k == 0) sli_clock_ask(c, &peer->hub);
    if (peer->out.socket) sli_clock_ask(c, &peer->out);
  }
  if (sli_is_hub(c) && c->shared.joined && c->nprocesses > 2 && c->beats++ % 10 == 2)
    sli_clocks_send(c);
}

/* Reads all remaining frames of a line: a closed connection may be reported before them. */
static void drain(sli_control *c, int k, const sli_line *line) {
  sli_origin origin = line == &c->peers[k].out  ? SLI_DIRECT_OUT
                      : line == &c->peers[k].in ? SLI_DIRECT_IN
                      : sli_is_hub(c)           ? SLI_AT_HUB
                                                : SLI_FROM_HUB;
  for (int i = 0; i < 100 && sli_receive(c, line->socket, origin, k); i++) continue;
}

static void look_at(sli_control *c, int k, const sli_line *line, const char *how, uint64_t now_ns) {
  char name[128];
  uint64_t lost_ns = (uint64_t)c->options.lost_ms * 1000000;
  if (!line->socket) return;
  if (!line->heard_ns && line->opened_ns && now_ns > line->opened_ns + CONNECT_NS)
    sli_blame(c, SL_E_PEER, k, "%s cannot be reached directly, at %s, for %.0f s",
              sli_peer_name(c, k, name), c->peers[k].direct, CONNECT_NS * 1e-9);
  if (!line->heard_ns) return;
  if (line->closed) drain(c, k, line);
  if (c->peers[k].left || !line->socket) return;
  if (line->closed)
    sli_blame(c, SL_E_PEER, k, "%s is gone: its connection%s is closed", sli_peer_name(c, k, name),
              how);
  else if (now_ns > line->heard_ns + lost_ns)
    sli_blame(c, SL_E_PEER, k, "%s is lost: silent%s for %.1f s", sli_peer_name(c, k, name), how,
              (double)(now_ns - line->heard_ns) * 1e-9);
}

/* Extends deadlines by the time for which this process was not scheduled, because its own delay
 * says nothing about its peers. */
static void forgive(sli_control *c, uint64_t late_ns, uint64_t now_ns) {
  for (int k = 0; k < c->nprocesses; k++) {
    sli_line *lines[] = {&c->peers[k].hub, &c->peers[k].out, &c->peers[k].in};
    for (size_t i = 0; i < SLI_COUNT(lines); i++)
      if (lines[i]->heard_ns) lines[i]->heard_ns = SLI_MIN(lines[i]->heard_ns + late_ns, now_ns);
  }
}

void sli_check_silence(sli_control *c, uint64_t now_ns) {
  if (c->due.look_ns && now_ns > c->due.look_ns) forgive(c, now_ns - c->due.look_ns, now_ns);
  for (int k = 0; k < c->nprocesses; k++) {
    sli_peer *peer = &c->peers[k];
    if (k == c->self || !peer->here || peer->left) continue;
    look_at(c, k, &peer->hub, "", now_ns);
    look_at(c, k, &peer->out, " on the direct link", now_ns);
    look_at(c, k, &peer->in, " on its direct link", now_ns);
  }
}
