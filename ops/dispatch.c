/* SPDX-License-Identifier: Apache-2.0 */
/* Ops that dispatch (route) rows to the devices of their experts and collect the results.
 *
 * Ids name the expert of each row. The places of ids count row by row; a token's places are
 * consecutive. A device with some of the ids' rows sends every other device the rows for its
 * experts, in the order of places. The receiver concatenates the rows of all sources, which gives
 * the order of places over all ids. Its results return in the same parts. A device that knows all
 * ids therefore knows the owner of each row, and only rows are transferred. The number of rows is a
 * valid length (extent). */
#include "ops/crowded.h"
#include "ops/ops.h"
#include "ops/dispatch.h"

/* ---- shapes ------------------------------------------------------------------------------ */

/* The route holds the output type, which depends on the devices. */
static sl_status route_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  const sl_dispatch *route = attrs->user;
  (void)nin, (void)in;
  if (!route) return sl_fail(SL_E_SHAPE, "attrs.user must point to an sl_dispatch");
  out[0] = route->type;
  return SL_OK;
}

static int64_t expects(const sl_attrs *attrs, int o, const sl_type *type, int32_t tick) {
  (void)o, (void)type, (void)tick;
  return ((const sl_dispatch *)attrs->user)->expected;
}

/* Counts bytes read and written for the existing rows. */
static void route_cost(const sl_attrs *attrs, int nin, const sl_type *in, const sl_type *out,
                       double *flops, double *bytes) {
  (void)attrs, (void)nin, (void)in;
  *flops = 0;
  *bytes = 2.0 * (double)sl_type_bytes(&out[0]);
}

/* ---- own_ids --------------------------------------------------------------------------------- */

sl_status sli_own_ids_crowded(const sl_call *call, int64_t rows) {
  const sl_dispatch *r = sli_dispatch_of(call);
  int64_t room = sl_type_elements(&call->out_type[0]);
  return sl_fail(
      SL_E_INPUT,
      "%lld rows come to device %d of the stage for its experts %lld to %lld, but it has room "
      "for %lld: --expert-rows %.3g would have been enough",
      (long long)rows, r->rank, (long long)r->first, (long long)(r->first + r->count - 1),
      (long long)room, (double)rows / (double)r->expected);
}

static sl_status own_ids_check(const sl_call *call) {
  int64_t rows =
      sli_dispatch_count(sli_dispatch_of(call), call->in[0], sl_type_elements(&call->in_type[0]));
  return rows <= sl_type_elements(&call->out_type[0]) ? SL_OK : sli_own_ids_crowded(call, rows);
}

/* ---- own_leaves ------------------------------------------------------------------------------ */

static uint64_t hash_region(uint64_t hash, const sl_region *r) {
  for (int d = 0; d < r->ndim; d++) {
    hash = sli_hash_word(hash, (uint64_t)r->whole[d]);
    for (int i = 0; i < r->parts[d].nranges; i++) {
      hash = sli_hash_word(hash, (uint64_t)r->parts[d].begin[i]);
      hash = sli_hash_word(hash, (uint64_t)r->parts[d].count[i]);
    }
  }
  return hash;
}

/* ---- ops ------------------------------------------------------------------------------------- */

static uint64_t route_hash(uint64_t hash, const sl_attrs *attrs, int nin) {
  const sl_dispatch *r = attrs->user;
  const int64_t of[] = {r->first, r->count, r->begin, r->end, r->expected};
  (void)nin;
  for (size_t i = 0; i < SLI_COUNT(of); i++) hash = sli_hash_word(hash, (uint64_t)of[i]);
  return hash;
}

static uint64_t leaves_hash(uint64_t hash, const sl_attrs *attrs, int nin) {
  const sl_dispatch_leaves *l = attrs->user;
  hash = sli_hash_word(route_hash(hash, attrs, nin), (uint64_t)l->leaf);
  for (int s = 0; s < l->sources; s++) hash = hash_region(hash, l->regions[s]);
  return hash;
}

const sl_op sl_op_dispatch = {
    .name = "dispatch",
    .min_in = 2,
    .max_in = 2,
    .nout = 1,
    .hash = route_hash,
    .infer = route_infer,
    .cost = route_cost,
    .narrow = &(const sl_op_narrow){.in = 1, .out = 1},
    .rows = &(const sl_op_rows){.fills = 1, .second = 1, .expects = expects},
};

const sl_op sl_op_collect = {
    .name = "collect",
    .min_in = 1,
    .max_in = -1,
    .nout = 1,
    .hash = route_hash,
    .infer = route_infer,
    .cost = route_cost,
    .narrow = &(const sl_op_narrow){.in = ~0u, .out = 1},
    .rows = &(const sl_op_rows){.fills = 1, .second = 1, .looks = ~0u, .expects = expects},
};

const sl_op sl_op_own_ids = {
    .name = "own_ids",
    .min_in = 1,
    .max_in = 1,
    .nout = 1,
    .hash = route_hash,
    .infer = route_infer,
    .check = own_ids_check,
    .rows = &(const sl_op_rows){.fills = 1, .second = 1, .expects = expects},
};

const sl_op sl_op_own_leaves = {
    .name = "own_leaves",
    .min_in = 1,
    .max_in = 1,
    .nout = 1,
    .hash = leaves_hash,
    .infer = route_infer,
    .rows = &(const sl_op_rows){.fills = 1, .second = 1, .expects = expects},
};

const sl_op sl_op_give_back = {
    .name = "give_back",
    .min_in = 2,
    .max_in = 2,
    .nout = 1,
    .hash = route_hash,
    .infer = route_infer,
    .cost = route_cost,
    .narrow = &(const sl_op_narrow){.in = 1, .out = 1},
    .rows = &(const sl_op_rows){.fills = 1, .second = 1, .looks = 1, .expects = expects},
};

const sl_op sl_op_restore = {
    .name = "restore",
    .min_in = 2,
    .max_in = -1,
    .nout = 1,
    .hash = route_hash,
    .infer = route_infer,
    .cost = route_cost,
    .narrow = &(const sl_op_narrow){.in = ~1u, .out = 1},
    .rows = &(const sl_op_rows){.looks = ~0u},
};
