/* SPDX-License-Identifier: Apache-2.0 */
/* UCX's transports in a build without UCX. */
#include "base/left_out.h"
#include "comm/net/transport.h"

static sl_status fail(sli_net_core *net, const sli_net_options *options, int kind, void **state) {
  (void)net, (void)kind, (void)state;
  return SLI_LEFT_OUT(options->transports, "UCX", "UCX", "libucx-dev");
}

const sli_transport sli_transport_memory = {.name = "memory", .left_out = true, .open = fail};
const sli_transport sli_transport_fabric = {.name = "fabric", .left_out = true, .open = fail};
