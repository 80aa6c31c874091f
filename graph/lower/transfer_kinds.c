/* SPDX-License-Identifier: Apache-2.0 */
/* Table of transfer routes. */
#include "graph/lower/ir.h"

const sli_transfer_traits sli_transfer_kinds[SLI_TRANSFERS] = {
    [SLI_TRANSFER_LINK] = {.name = "link", .verb = "send", .ops = &sl_queue_link},
    [SLI_TRANSFER_DIRECT] = {.name = "direct", .verb = "send", .ops = &sl_queue_link},
    [SLI_TRANSFER_WIRE] = {.name = "wire", .verb = "send", .ops = &sl_queue_timed, .in_turn = true},
    [SLI_TRANSFER_FLIGHT] = {.name = "way", .verb = "send", .ops = &sl_queue_delay},
    [SLI_TRANSFER_MEMORY] = {.name = "memory",
                             .verb = "pass",
                             .ops = &sl_queue_timed,
                             .in_turn = true,
                             .updates = true},
    [SLI_TRANSFER_CORES] = {.name = "cores",
                            .verb = "update",
                            .ops = &sl_queue_timed,
                            .in_turn = true},
    [SLI_TRANSFER_H2D] = {.name = "h2d", .verb = "copy", .role = SLI_ROLE_H2D},
    [SLI_TRANSFER_D2H] = {.name = "d2h", .verb = "copy", .role = SLI_ROLE_D2H},
    [SLI_TRANSFER_D2D] = {.name = "d2d", .verb = "copy", .role = SLI_ROLE_D2D},
    [SLI_TRANSFER_SPILL] = {.name = "spill", .verb = "spill", .homes = true, .role = SLI_ROLES},
    [SLI_TRANSFER_FILL] = {.name = "fill", .verb = "fill", .homes = true, .role = SLI_ROLE_FILL},
    [SLI_TRANSFER_LOADS] = {.name = "loads", .verb = "load", .loads = true}};
