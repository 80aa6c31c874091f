/* SPDX-License-Identifier: Apache-2.0 */
/* Rare operations of the net and its transports: allocating a transfer, failing a peer. */
#include <stdio.h>

#include "comm/net/transport.h"

sli_transfer *sli_transfer_make(sli_net_core *net) {
  sli_transfer *t = sli_calloc(1, sizeof *t);
  t->next = net->transfers;
  net->transfers = t;
  return t;
}

void sli_net_fail(sli_net_peer *p, const char *format, ...) {
  if (p->failed) return;
  va_list args;
  va_start(args, format);
  vsnprintf(p->why, sizeof p->why, format, args);
  va_end(args);
  p->failed = p->net->any_failed = true;
}
