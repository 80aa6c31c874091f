/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/lower/roles.h"

#include <string.h>

#define ROW(text, counted, number, ...) \
  { .name = text, .memory = SL_MEMORY_##counted, .slots = SLI_SLOTS_##number, __VA_ARGS__ }

const sli_role_row sli_roles[SLI_ROLES] = {
    [SLI_ROLE_PARAM] = ROW("param", PARAMETERS, ONE, .home = "weights", .filled = SLI_ROLE_WEIGHTS),
    [SLI_ROLE_GATHER] =
        ROW("gather", PARAMETERS, TWO, .home = "weights", .filled = SLI_ROLE_WEIGHTS),
    [SLI_ROLE_PACKED] =
        ROW("packed", PARAMETERS, ONE, .home = "weights", .filled = SLI_ROLE_WEIGHTS),
    [SLI_ROLE_GRAD] = ROW("grad", GRADIENTS, ONE),
    [SLI_ROLE_REDUCE] = ROW("reduce", GRADIENTS, TWO),
    [SLI_ROLE_STATE] = ROW("state", OPTIMIZER, ONE, .home = "state", .filled = SLI_ROLE_FILL),
    [SLI_ROLE_ACT_B] = ROW("act.b", ACTIVATIONS, ACT_B, .activation = true, .home = "act.b",
                           .filled = SLI_ROLE_FILL),
    [SLI_ROLE_ACT_W] = ROW("act.w", ACTIVATIONS, ACT_W, .activation = true, .home = "act.w",
                           .filled = SLI_ROLE_FILL),
    [SLI_ROLE_ACT_PART] = ROW("act.part", ACTIVATIONS, LEAVING, .activation = true, .home = "act.b",
                              .filled = SLI_ROLE_FILL),
    [SLI_ROLE_KV] = ROW("kv", ACTIVATIONS, BEGUN, .follows = true, .per_microbatch = true,
                        .home = "kv", .filled = SLI_ROLE_KV_FILL),
    [SLI_ROLE_DKV] = ROW("kv.grad", ACTIVATIONS, ONE, .per_microbatch = true),
    [SLI_ROLE_CACHE] = ROW("cache", ACTIVATIONS, ONE, .per_microbatch = true),
    [SLI_ROLE_SPAN] = ROW("span", ACTIVATIONS, ONE),
    [SLI_ROLE_RECORD] = ROW("record", ACTIVATIONS, ONE, .per_microbatch = true),
    [SLI_ROLE_FWD] = ROW("fwd", ACTIVATIONS, CROSSING, .follows = true),
    [SLI_ROLE_BWD] = ROW("bwd", ACTIVATIONS, CROSSING, .follows = true),
    [SLI_ROLE_DY] = ROW("dy", ACTIVATIONS, ACT_W, .follows = true),
    [SLI_ROLE_INNER] = ROW("inner", ACTIVATIONS, INNER),
    [SLI_ROLE_BETWEEN] = ROW("between", ACTIVATIONS, BETWEEN),
    [SLI_ROLE_SHARDED] = ROW("spread", ACTIVATIONS, SHARDED),
    [SLI_ROLE_LOAD] = ROW("load", ACTIVATIONS, LOAD, .follows = true),
    [SLI_ROLE_REPORT] = ROW("report", ACTIVATIONS, FOUR),
    [SLI_ROLE_STEP] = ROW("step", ACTIVATIONS, ONE),
    [SLI_ROLE_EVAL] = ROW("eval", PARAMETERS, ONE),
    [SLI_ROLE_STORE] = ROW("store", CHECKPOINT, ONE),
    [SLI_ROLE_WRITTEN] = ROW("written", CHECKPOINT, ONE),
    [SLI_ROLE_BACK] = ROW("back", ACTIVATIONS, INITIAL),
    [SLI_ROLE_ROLLED] = ROW("rolled", ACTIVATIONS, ONE),
    [SLI_ROLE_VERSION] = ROW("version", ACTIVATIONS, INITIAL),
    [SLI_ROLE_DELAY] = ROW("delay", ACTIVATIONS, DELAY),
    [SLI_ROLE_TURN] = ROW("turn", ACTIVATIONS, ONE),
    [SLI_ROLE_H2D] = ROW("h2d", ACTIVATIONS, SOURCE, .follows = true),
    [SLI_ROLE_D2H] = ROW("d2h", ACTIVATIONS, SOURCE, .follows = true),
    [SLI_ROLE_D2D] = ROW("d2d", ACTIVATIONS, SOURCE, .follows = true),
    [SLI_ROLE_SPILL] = ROW("spill", ACTIVATIONS, STAGING),
    [SLI_ROLE_FILL] = ROW("fill", ACTIVATIONS, STAGING),
    [SLI_ROLE_WEIGHTS] = ROW("weights", PARAMETERS, STAGING),
    [SLI_ROLE_EXPERTS] = ROW("experts", PARAMETERS, ONE),
    [SLI_ROLE_LENT] = ROW("lent", PARAMETERS, STAGING),
    [SLI_ROLE_KV_SPILL] = ROW("kv.spill", ACTIVATIONS, STAGING),
    [SLI_ROLE_KV_FILL] = ROW("kv.fill", ACTIVATIONS, STAGING),
};

const sli_role_row *sli_role_find(const char *name) {
  for (int r = 0; r < SLI_ROLES; r++)
    if (!strcmp(sli_roles[r].name, name)) return &sli_roles[r];
  return NULL;
}
