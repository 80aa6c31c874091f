/* Rows that go to the devices of their experts, and come back.
 *
 * Ids lead rows to experts: places of ids count row by row, a token's one behind the other. Whoever
 * has some of the ids' rows sends each device those that are for its experts, in the order of places;
 * a device puts what comes of all sources one behind the other, which is the order of places of all
 * ids, and what it makes of that goes back in the same parts. So who knows all ids knows which row is
 * whose, and nothing has to be said beside rows. Their number is an extent. */
#include <string.h>

#include "kernels/cpu/chunk.h"
#include "kernels/kernels.h"
#include "kernels/route.h"

static const sl_route *route_of(const sl_call *call) { return call->attrs->user; }

/* ---- shapes ------------------------------------------------------------------------------ */

/* What comes of it is said with the route, for it depends on the devices. */
static sl_status route_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  const sl_route *route = attrs->user;
  (void)nin, (void)in;
  if (!route) return sl_fail(SL_E_SHAPE, "attrs.user must point to an sl_route");
  out[0] = route->type;
  return SL_OK;
}

static int64_t width_of(const sl_type *t) { return sl_type_last(t); }

/* Rows that there is room for; where arrays are for tokens and ids alike, rows lie along the first dim
 * that is not 1. */
static int64_t room_of(const sl_type *t) { return sl_type_elements(t) / width_of(t); }

static int64_t rows_of(const sl_call *call, int i) {
  return sl_call_rows(call, i, room_of(&call->in_type[i]));
}

static int64_t expects(const sl_attrs *attrs, int o, const sl_type *type, int32_t tick) {
  (void)o, (void)type, (void)tick;
  return ((const sl_route *)attrs->user)->expected;
}

/* What is read and written, by rows that are there. */
static void route_cost(const sl_attrs *attrs, int nin, const sl_type *in, const sl_type *out,
                       double *flops, double *bytes) {
  (void)attrs, (void)nin, (void)in;
  *flops = 0;
  *bytes = 2.0 * (double)sl_type_bytes(&out[0]);
}

/* ---- ids --------------------------------------------------------------------------------------- */

static bool is_for(const sl_route *r, int32_t id) { return id >= r->first && id < r->first + r->count; }

/* Of the ids before place `end`, those that are for its experts. */
static int64_t count_until(const sl_route *r, const int32_t *ids, int64_t end) {
  int64_t n = 0;
  for (int64_t i = 0; i < end; i++) n += is_for(r, ids[i]);
  return n;
}

/* ---- dispatch ------------------------------------------------------------------------------------- */

static void dispatch_cpu(const sl_call *call) {
  const sl_route *r = route_of(call);
  const int32_t *ids = call->in[1];
  int64_t count = sl_type_elements(&call->in_type[1]), width = width_of(&call->in_type[0]), n = 0;
  int64_t each = count / room_of(&call->in_type[0]), room = room_of(&call->out_type[0]);
  const float *x = call->in[0];
  float *out = call->out[0];
  for (int64_t i = 0; i < count && n < room; i++)
    if (is_for(r, ids[i])) memcpy(out + n++ * width, x + i / each * width, (size_t)width * sizeof *out);
  sl_call_fill(call, 0, n);
}

/* ---- collect --------------------------------------------------------------------------------------- */

static void collect_cpu(const sl_call *call) {
  int64_t width = width_of(&call->out_type[0]), room = room_of(&call->out_type[0]), n = 0;
  float *out = call->out[0];
  for (int p = 0; p < call->nin; p++) {
    int64_t rows = SLI_MIN(rows_of(call, p), room - n);
    memcpy(out + n * width, call->in[p], (size_t)(rows * width) * sizeof *out);
    n += rows;
  }
  sl_call_fill(call, 0, n);
}

/* ---- own_ids ---------------------------------------------------------------------------------------- */

static void own_ids_cpu(const sl_call *call) {
  const sl_route *r = route_of(call);
  const int32_t *ids = call->in[0];
  int32_t *out = call->out[0];
  int64_t count = sl_type_elements(&call->in_type[0]), room = sl_type_elements(&call->out_type[0]), n = 0;
  for (int64_t i = 0; i < count && n < room; i++)
    if (is_for(r, ids[i])) out[n++] = ids[i];
  sl_call_fill(call, 0, n);
}

sl_status sli_own_ids_crowded(const sl_call *call, int64_t rows) {
  const sl_route *r = route_of(call);
  int64_t room = sl_type_elements(&call->out_type[0]);
  return sl_fail(SL_E_INPUT, "%lld rows come to device %d of the stage for its experts %lld to %lld, and it "
                 "has room for %lld: --expert-rows %.3g would have been enough", (long long)rows, r->rank,
                 (long long)r->first, (long long)(r->first + r->count - 1), (long long)room,
                 (double)rows / (double)r->expected);
}

static sl_status own_ids_check(const sl_call *call) {
  int64_t rows = count_until(route_of(call), call->in[0], sl_type_elements(&call->in_type[0]));
  return rows <= sl_type_elements(&call->out_type[0]) ? SL_OK : sli_own_ids_crowded(call, rows);
}

/* ---- give_back --------------------------------------------------------------------------------------- */

static void give_back_cpu(const sl_call *call) {
  const sl_route *r = route_of(call);
  const int32_t *ids = call->in[1];
  int64_t width = width_of(&call->in_type[0]), have = rows_of(call, 0);
  int64_t begin = SLI_MIN(count_until(r, ids, r->begin), have);
  int64_t rows = SLI_MIN(count_until(r, ids, r->end), have) - begin;
  rows = SLI_MIN(rows, room_of(&call->out_type[0]));
  memcpy(call->out[0], (const float *)call->in[0] + begin * width, (size_t)(rows * width) * sizeof(float));
  sl_call_fill(call, 0, rows);
}

/* ---- restore ----------------------------------------------------------------------------------------- */

/* Which of the parts has the rows of an expert. */
static int part_of(const sl_route *r, int parts, int32_t id) {
  int part = (int)((int64_t)id * parts / r->count);
  while ((part + 1) * r->count / parts <= id) part++;
  while (part * r->count / parts > id) part--;
  return part;
}

/* The next row of that part; NULL: an id of no expert's, or a row there was no room for. */
static const float *next_row(const sl_call *call, int32_t id, int64_t *at, int64_t width) {
  const sl_route *r = route_of(call);
  if (id < 0 || id >= r->count) return NULL;
  int part = part_of(r, call->nin - 1, id);
  if (at[part] >= rows_of(call, part + 1)) return NULL;
  return (const float *)call->in[part + 1] + at[part]++ * width;
}

static size_t restore_scratch(const sl_call *call, int threads) {
  (void)threads;
  return (size_t)call->nin * sizeof(int64_t);
}

/* A row for each id, or the sum of a token's, in their order. */
static void restore_cpu(const sl_call *call) {
  const int32_t *ids = call->in[0];
  int64_t count = sl_type_elements(&call->in_type[0]), width = width_of(&call->out_type[0]);
  int64_t each = count / room_of(&call->out_type[0]), *at = call->scratch;
  float *out = call->out[0];
  memset(at, 0, (size_t)call->nin * sizeof *at);
  for (int64_t i = 0; i < count; i++, out += i % each ? 0 : width) {
    const float *row = next_row(call, ids[i], at, width);
    if (i % each == 0) memset(out, 0, (size_t)width * sizeof *out);
    for (int64_t c = 0; row && c < width; c++) out[c] = i % each ? out[c] + row[c] : row[c];
  }
}

/* ---- rows -------------------------------------------------------------------------------------------- */

static uint64_t route_hash(uint64_t hash, const sl_attrs *attrs, int nin) {
  const sl_route *r = attrs->user;
  const int64_t of[] = {r->first, r->count, r->begin, r->end, r->expected};
  (void)nin;
  for (size_t i = 0; i < SLI_COUNT(of); i++) hash = sli_hash_word(hash, (uint64_t)of[i]);
  return hash;
}

const sl_op sl_op_dispatch = {
    .name = "dispatch", .min_in = 2, .max_in = 2, .nout = 1, .hash = route_hash,
    .infer = route_infer, .cost = route_cost, .cpu = dispatch_cpu, .narrow_in = 1, .narrow_out = 1,
    .fills = 1, .second = 1, .expects = expects,
};

const sl_op sl_op_collect = {
    .name = "collect", .min_in = 1, .max_in = -1, .nout = 1, .hash = route_hash,
    .infer = route_infer, .cost = route_cost, .cpu = collect_cpu, .narrow_in = ~0u, .narrow_out = 1,
    .fills = 1, .second = 1, .looks = ~0u, .expects = expects,
};

const sl_op sl_op_own_ids = {
    .name = "own_ids", .min_in = 1, .max_in = 1, .nout = 1, .hash = route_hash,
    .infer = route_infer, .check = own_ids_check, .cpu = own_ids_cpu,
    .fills = 1, .second = 1, .expects = expects,
};

const sl_op sl_op_give_back = {
    .name = "give_back", .min_in = 2, .max_in = 2, .nout = 1, .hash = route_hash,
    .infer = route_infer, .cost = route_cost, .cpu = give_back_cpu, .narrow_in = 1, .narrow_out = 1,
    .fills = 1, .second = 1, .looks = 1, .expects = expects,
};

const sl_op sl_op_restore = {
    .name = "restore", .min_in = 2, .max_in = -1, .nout = 1, .hash = route_hash,
    .infer = route_infer, .cost = route_cost, .scratch = restore_scratch, .cpu = restore_cpu,
    .narrow_in = ~1u, .narrow_out = 1, .looks = ~0u,
};
