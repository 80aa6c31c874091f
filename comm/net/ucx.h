/* SPDX-License-Identifier: Apache-2.0 */
/* UCX, loaded on first use and configured for Sluice. */
#ifndef SLUICE_COMM_NET_UCX_H
#define SLUICE_COMM_NET_UCX_H

#include <ucp/api/ucp.h>

#include "base/base.h"

/* clang-format off */
#define SLI_UCX_FUNCTIONS(X)                                                              \
  X(ucp_am_recv_data_nbx)                                                                 \
  X(ucp_am_send_nbx)                                                                      \
  X(ucp_cleanup)                                                                          \
  X(ucp_config_modify)                                                                    \
  X(ucp_config_read)                                                                      \
  X(ucp_config_release)                                                                   \
  X(ucp_ep_close_nbx)                                                                     \
  X(ucp_ep_create)                                                                        \
  X(ucp_init_version)                                                                     \
  X(ucp_request_free)                                                                     \
  X(ucp_worker_arm)                                                                       \
  X(ucp_worker_create)                                                                    \
  X(ucp_worker_destroy)                                                                   \
  X(ucp_worker_get_address)                                                               \
  X(ucp_worker_get_efd)                                                                   \
  X(ucp_worker_progress)                                                                  \
  X(ucp_worker_release_address)                                                           \
  X(ucp_worker_set_am_recv_handler)                                                       \
  X(ucs_status_string)
/* clang-format on */

/* UCX's functions under their own names: sli_ucx.ucp_worker_progress(...). */
typedef struct sli_ucx_functions {
#define X(function) __typeof__(function) *function;
  SLI_UCX_FUNCTIONS(X)
#undef X
} sli_ucx_functions;

/* Function table, filled by sli_ucx_load. The library is never unloaded. */
extern sli_ucx_functions sli_ucx;

typedef enum sli_ucx_kind {
  SLI_UCX_MEMORY, /* shared memory, which other users cannot reach */
  SLI_UCX_FABRIC, /* transports that UCX's environment variables select; by default all but TCP */
} sli_ucx_kind;

/* Loads UCX, once. Fails if the system lacks it. Other threads must not use the environment during
 * the call. */
sl_status sli_ucx_load(void);
/* Creates a context for active messages between `nprocesses` processes, with its shared memory
 * files in `folder`. The caller destroys it with ucp_cleanup. Other threads must not use the
 * environment during the call. */
sl_status sli_ucx_open(int nprocesses, sli_ucx_kind kind, const char *folder, ucp_context_h *out);
/* Fails with `what` and UCX's status, as in "UCX opens no way: No space", or with a likely cause on
 * this host. */
sl_status sli_ucx_fail(const char *what, ucs_status_t status);

#endif
