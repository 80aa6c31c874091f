/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/disk/loaders.h"

#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "ops/grouped.h"
#include "ops/loads.h"

/* Returns the cache's first slot, which begins a page. */
static char *first_slot(void *cache) {
  uintptr_t at = ((uintptr_t)cache + SLI_SLOT_MULTIPLE - 1) & ~(uintptr_t)(SLI_SLOT_MULTIPLE - 1);
  return (char *)at;
}

static sl_status count_rows(const sl_call *call, const sli_expert_loads *x, int32_t *rows) {
  const int32_t *ids = call->in[0], *levels = call->in[1];
  int64_t each = sl_type_last(&call->in_type[0]), tokens = sl_type_rows(&call->in_type[0]);
  int64_t n = sl_call_rows(call, 0, tokens) * each;
  for (int64_t i = 0; i < n; i++) {
    if (ids[i] < 0) continue;
    if (ids[i] >= x->experts)
      return sl_fail(SL_E_INPUT, "element %lld of its ids is %d, but there are experts 0 to %d",
                     (long long)i, (int)ids[i], x->experts - 1);
    rows[ids[i] * x->levels + sli_expert_level(x, levels, i)]++;
  }
  return SL_OK;
}

static void add_to(uint64_t *counter, int64_t more) {
  __atomic_fetch_add(counter, (uint64_t)more, __ATOMIC_RELAXED);
}

static sl_status begin_tick(const sl_call *call, const sli_expert_loads *x, sli_part_loads *loads) {
  int32_t *rows = sli_calloc((size_t)(x->experts * x->levels), sizeof *rows);
  sl_status status = count_rows(call, x, rows);
  int64_t wanted = status ? 0 : sli_loads_begin(loads, call->tick.number, rows);
  free(rows);
  if (x->reads) add_to(&x->reads->wanted, wanted);
  return status;
}

/* Reads a part: a piece of each matrix. */
static sl_status read_part(const sl_call *call, const char *name, const sli_load *load,
                           sli_load_copy *copy, void *ctx) {
  const sli_expert_loads *x = call->attrs->user;
  char *to = first_slot(call->out[1]) + (size_t)load->slot * x->slot_bytes;
  size_t part = (size_t)load->expert * (size_t)sli_expert_parts(x) + (size_t)load->part;
  if (x->reads) add_to(&x->reads->read, 1), add_to(&x->reads->bytes, (int64_t)x->part_bytes);
  sl_status status = SL_OK;
  for (int m = 0; m < SLI_MATRICES && !status; to += x->piece_bytes[m++])
    status = copy(ctx, name, to, (const char *)call->in[2 + m] + part * x->piece_bytes[m],
                  x->piece_bytes[m]);
  return status;
}

static void lend(const sl_call *call, const sli_part_loads *loads, int32_t (*items)[2], int n) {
  const sli_expert_loads *x = call->attrs->user;
  sli_lent *lent = call->out[0];
  *lent = (sli_lent){loads->state->nth - 1, n, (uint64_t)(uintptr_t)first_slot(call->out[1])};
  for (int i = 0; i < n; i++) {
    sli_lent_item *item = (sli_lent_item *)(uintptr_t)sli_lent_item_at(x, lent, i);
    item->expert = items[i][0];
    item->level = items[i][1];
    for (int p = 0; p < sli_expert_parts(x); p++)
      item->slot[p] = loads->slot_of[items[i][0] * sli_expert_parts(x) + p] - 1;
  }
}

/* Plans a firing, reads its parts, and fills in what is lent. */
static sl_status load_experts_begin(const sl_call *call, const char *name, sli_load_copy *copy,
                                    void *ctx) {
  const sli_expert_loads *x = call->attrs->user;
  sli_part_loads loads = sli_loads_view(x, call->out[2]);
  if (loads.state->tick != call->tick.number + 1) SLI_TRY(begin_tick(call, x, &loads));
  sli_load *reads = sli_calloc((size_t)x->slots, sizeof *reads);
  int32_t(*items)[2] = sli_calloc((size_t)(x->experts * x->levels), sizeof *items);
  int nitems = 0, n = sli_loads_next(&loads, reads, items, &nitems);
  sl_status status = SL_OK;
  for (int i = 0; i < n && !status; i++) status = read_part(call, name, &reads[i], copy, ctx);
  lend(call, &loads, items, nitems);
  free(reads);
  free(items);
  return status;
}

const sli_loader sli_load_experts = {.op = &sl_op_load_experts, .begin = load_experts_begin};
