/* SPDX-License-Identifier: Apache-2.0 */
/* Plans the firings of load_experts, and asks for their reads. */
#include "kernels/disk/loaders.h"

#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "ops/grouped.h"
#include "ops/loads.h"

/* A firing. */
typedef struct firing {
  const sl_call *call;
  const char *name;
  sli_disk_reads *reads;
  sli_part_loads loads;
  sl_status status; /* of copies of weights that stay in memory */
} firing;

static const sli_expert_loads *shape_of(const firing *f) { return f->loads.shape; }

/* Returns the cache's first slot, which begins a page. */
static char *first_slot(void *cache) {
  uintptr_t at = ((uintptr_t)cache + SLI_SLOT_MULTIPLE - 1) & ~(uintptr_t)(SLI_SLOT_MULTIPLE - 1);
  return (char *)at;
}

/* Counts the rows of each expert and level, by ids of an input. The caller frees *rows. */
static sl_status count_rows(const firing *f, int input, int32_t **rows) {
  const sli_expert_loads *x = shape_of(f);
  const sl_type *type = &f->call->in_type[input];
  const int32_t *ids = f->call->in[input], *levels = f->call->in[1];
  int64_t each = sl_type_last(type), tokens = sl_type_rows(type);
  int64_t n = sl_call_rows(f->call, input, tokens) * each;
  *rows = sli_calloc((size_t)(x->experts * x->levels), sizeof **rows);
  for (int64_t i = 0; i < n; i++) {
    if (ids[i] < 0) continue;
    if (ids[i] >= x->experts)
      return sl_fail(SL_E_INPUT, "element %lld of its ids is %d, but there are experts 0 to %d",
                     (long long)i, (int)ids[i], x->experts - 1);
    (*rows)[ids[i] * x->levels + sli_expert_level(x, levels, i)]++;
  }
  return SL_OK;
}

static void add_to(uint64_t *counter, int64_t more) {
  __atomic_fetch_add(counter, (uint64_t)more, __ATOMIC_RELAXED);
}

/* Lists the transfers of a part, a piece of each matrix, and returns their number. Weights that
 * stay in memory, where a disk would save none, are copied at once. */
static size_t list_pieces(firing *f, const sli_load *load, sli_disk_way *ways) {
  size_t n = 0;
  const sli_expert_loads *x = shape_of(f);
  char *to = first_slot(f->call->out[1]) + (size_t)load->slot * x->slot_bytes;
  size_t part = (size_t)load->expert * (size_t)sli_expert_parts(x) + (size_t)load->part;
  for (int m = 0; m < SLI_MATRICES; to += x->piece_bytes[m++]) {
    const char *from = (const char *)f->call->in[2 + m] + part * x->piece_bytes[m];
    ways[n] = sli_disk_way_of(to, from, x->piece_bytes[m]);
    ways[n].name = f->name;
    if (ways[n].file) n++;
    else if (!f->status) f->status = sli_disk_reads_copy(f->reads, to, from, x->piece_bytes[m]);
  }
  return n;
}

static void read_part(firing *f, const sli_load *load) {
  const sli_expert_loads *x = shape_of(f);
  sli_disk_way ways[SLI_MATRICES];
  size_t n = list_pieces(f, load, ways);
  if (x->reads) add_to(&x->reads->read, 1), add_to(&x->reads->bytes, (int64_t)x->part_bytes);
  f->loads.read[load->slot] = n ? sli_disk_reads_ask(f->reads, ways, n) : 0;
}

static void guess_part(firing *f, const sli_load *load) {
  const sli_expert_loads *x = shape_of(f);
  sli_disk_way ways[SLI_MATRICES];
  size_t n = list_pieces(f, load, ways);
  uint64_t *bytes = x->reads ? &x->reads->guessed_bytes : NULL;
  if (x->reads) add_to(&x->reads->guessed, 1);
  if (!n && bytes) add_to(bytes, (int64_t)x->part_bytes);
  f->loads.read[load->slot] = n ? sli_disk_reads_guess(f->reads, ways, n, bytes) : 0;
}

/* Guesses what the tick's rows will want, and asks for it after all that is sure. */
static sl_status guess(firing *f) {
  const sli_expert_loads *x = shape_of(f);
  int32_t *rows;
  sl_status status = count_rows(f, SLI_LOADS_GUESSED, &rows);
  sli_load *loads = sli_calloc((size_t)x->slots, sizeof *loads);
  int n = status ? 0 : sli_loads_guess(&f->loads, f->call->tick.number, rows, loads);
  for (int i = 0; i < n; i++) guess_part(f, &loads[i]);
  free(loads);
  free(rows);
  return status ? status : f->status;
}

static void count_right(const sli_expert_loads *x) {
  add_to(&x->reads->right, 1);
  add_to(&x->reads->right_bytes, (int64_t)x->part_bytes);
}

/* Goes on with guesses that the tick's rows want, and drops the others. */
static void settle_guesses(firing *f) {
  const sli_expert_loads *x = shape_of(f);
  if (f->loads.state->guessed != f->call->tick.number + 1) return;
  for (int32_t s = 0; s < x->slots; s++) {
    if (!f->loads.late[s]) continue;
    bool wanted = sli_loads_wants(&f->loads, s), there;
    f->loads.read[s] = sli_disk_reads_settle(f->reads, f->loads.read[s], wanted, &there);
    if (wanted && x->reads) count_right(x);
    if (!wanted && !there) sli_loads_forget(&f->loads, s);
    if (!wanted || there) f->loads.late[s] = 0;
  }
}

static sl_status begin_tick(firing *f) {
  const sli_expert_loads *x = shape_of(f);
  int32_t *rows;
  sl_status status = count_rows(f, 0, &rows);
  int64_t wanted = status ? 0 : sli_loads_begin(&f->loads, f->call->tick.number, rows);
  free(rows);
  if (x->reads) add_to(&x->reads->wanted, wanted);
  if (!status) settle_guesses(f);
  return status;
}

/* Lends what the items read. Returns the last read that fills one of their slots. */
static uint64_t lend(const firing *f, int32_t (*items)[2], int n) {
  const sli_expert_loads *x = shape_of(f);
  uint64_t last = 0;
  sli_lent *lent = f->call->out[0];
  *lent = (sli_lent){f->loads.state->nth - 1, n, (uint64_t)(uintptr_t)first_slot(f->call->out[1])};
  for (int i = 0; i < n; i++) {
    sli_lent_item *item = (sli_lent_item *)(uintptr_t)sli_lent_item_at(x, lent, i);
    item->expert = items[i][0];
    item->level = items[i][1];
    for (int p = 0; p < sli_expert_parts(x); p++)
      item->slot[p] = f->loads.slot_of[items[i][0] * sli_expert_parts(x) + p] - 1;
    for (int p = 0; p < x->base + item->level; p++)
      last = SLI_MAX(last, f->loads.read[item->slot[p]]);
  }
  return last;
}

static uint64_t plan(firing *f) {
  const sli_expert_loads *x = shape_of(f);
  sli_load *reads = sli_calloc((size_t)x->slots, sizeof *reads);
  int32_t(*items)[2] = sli_calloc((size_t)(x->experts * x->levels), sizeof *items);
  int nitems = 0, n = sli_loads_next(&f->loads, reads, items, &nitems);
  for (int i = 0; i < n; i++) read_part(f, &reads[i]);
  uint64_t last = lend(f, items, nitems);
  free(reads);
  free(items);
  return last;
}

sl_status sli_load_experts(const sl_call *call, const char *name, sli_disk_reads *reads,
                           uint64_t *number) {
  firing f = {.call = call,
              .name = name,
              .reads = reads,
              .loads = sli_loads_view(call->attrs->user, call->out[2])};
  *number = 0;
  if (!call->in[0]) return guess(&f);
  if (f.loads.state->tick != call->tick.number + 1) SLI_TRY(begin_tick(&f));
  *number = plan(&f);
  return f.status;
}
