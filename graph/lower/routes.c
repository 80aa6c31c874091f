/* Table of transfer routes. */
#include "graph/lower/ir.h"

const sli_route_row sli_routes[SLI_ROUTES] = {
    [SLI_ROUTE_LINK] = {.name = "link", .verb = "send", .ops = &sl_queue_link},
    [SLI_ROUTE_DIRECT] = {.name = "direct", .verb = "send", .ops = &sl_queue_link},
    [SLI_ROUTE_WIRE] = {.name = "wire", .verb = "send", .ops = &sl_queue_timed, .in_turn = true},
    [SLI_ROUTE_FLIGHT] = {.name = "way", .verb = "send", .ops = &sl_queue_delay},
    [SLI_ROUTE_MEMORY] = {.name = "memory", .verb = "pass", .ops = &sl_queue_timed, .in_turn = true,
                          .updates = true},
    [SLI_ROUTE_H2D] = {.name = "h2d", .verb = "copy", .role = SLI_ROLE_H2D},
    [SLI_ROUTE_D2H] = {.name = "d2h", .verb = "copy", .role = SLI_ROLE_D2H},
    [SLI_ROUTE_D2D] = {.name = "d2d", .verb = "copy", .role = SLI_ROLE_D2D},
    [SLI_ROUTE_SPILL] = {.name = "spill", .verb = "spill", .homes = true, .role = SLI_ROLES},
    [SLI_ROUTE_FILL] = {.name = "fill", .verb = "fill", .homes = true, .role = SLI_ROLE_FILL}};
