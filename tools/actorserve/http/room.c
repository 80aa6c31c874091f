/* SPDX-License-Identifier: Apache-2.0 */
/* Waiting times of connections, and the memory that each one holds. */
#include "base/base.h"
#include "tools/actorserve/http/http_inner.h"

/* ---- the waiting list ------------------------------------------------------------------------ */

void http_step_out(http_exchange *x) {
  http *h = x->server;
  if (!x->stands) return;
  *(x->older ? &x->older->newer : &h->oldest) = x->newer;
  *(x->newer ? &x->newer->older : &h->newest) = x->older;
  x->older = x->newer = NULL;
  x->stands = false;
}

void http_stand(http_exchange *x) {
  http *h = x->server;
  http_step_out(x);
  x->older = h->newest;
  *(h->newest ? &h->newest->newer : &h->oldest) = x;
  h->newest = x;
  x->stands = true;
}

/* ---- memory ---------------------------------------------------------------------------------- */

void http_count(http_exchange *x, size_t more, size_t less) {
  x->held += more - less;
  budget_count(x->server->options.budget, more, less);
}

static void on_change(struct evbuffer *buffer, const struct evbuffer_cb_info *info, void *ctx) {
  (void)buffer;
  http_count(ctx, info->n_added, info->n_deleted);
}

void http_watch_buffer(http_exchange *x, struct evbuffer *buffer) {
  evbuffer_add_cb(buffer, on_change, x);
}
