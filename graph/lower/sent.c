/* SPDX-License-Identifier: Apache-2.0 */
/* Traffic of a step, for the search for a better device assignment (search/anneal.c). */
#include <stdlib.h>

#include "graph/lower/ir.h"
#include "graph/lower/lower.h"

static int by_exchange(const void *a, const void *b) {
  const sli_sent_exchange *x = a, *y = b;
  if (x->along != y->along) return x->along - y->along;
  if (x->axis != y->axis) return x->axis - y->axis;
  if (x->half != y->half) return (int)x->half - (int)y->half;
  return x->bytes < y->bytes ? -1 : x->bytes > y->bytes;
}

/* Merges equal exchanges and adds up their counts. */
static int merge_exchanges(sli_sent_exchange *of, int n) {
  int count = 0;
  if (n) qsort(of, (size_t)n, sizeof *of, by_exchange);
  for (int i = 0; i < n; i++) {
    if (count && !by_exchange(&of[count - 1], &of[i])) of[count - 1].times += of[i].times;
    else of[count++] = of[i];
  }
  return count;
}

static void add_exchanges(const sli_lowering *l, const sli_task *task, sli_sent *to,
                          size_t *capacity) {
  double bytes[SLI_AXES][SLI_ALL_TO_ALL + 1];
  sli_lower_received(l, task, bytes);
  for (int a = 0; a < SLI_AXES; a++)
    for (int h = 0; h <= SLI_ALL_TO_ALL; h++) {
      if (bytes[a][h] <= 0) continue;
      SLI_GROW(to->exchanges, (size_t)to->nexchanges, *capacity);
      to->exchanges[to->nexchanges++] =
          (sli_sent_exchange){sli_along_of(l->in, task->device), a, (sli_half)h, bytes[a][h],
                              sli_lower_times(l, task->rate)};
    }
}

typedef struct transfers {
  const sli_lowering *l;
  sli_sent *to;
  size_t capacity;
} transfers;

static void add_transfer(void *ctx, int32_t from, int32_t to, sl_traffic traffic, uint64_t bytes) {
  transfers *h = ctx;
  const int *place = h->l->in->place_of;
  if (traffic != SL_TRAFFIC_PIPELINE || from == to) return;
  SLI_GROW(h->to->transfers, (size_t)h->to->ntransfers, h->capacity);
  h->to->transfers[h->to->ntransfers++] =
      (sli_sent_transfer){place[from], place[to], (double)bytes};
}

static int by_places(const void *a, const void *b) {
  const sli_sent_transfer *x = a, *y = b;
  return x->from != y->from ? x->from - y->from : x->to - y->to;
}

static int merge_transfers(sli_sent_transfer *of, int n) {
  int count = 0;
  if (n) qsort(of, (size_t)n, sizeof *of, by_places);
  for (int i = 0; i < n; i++) {
    if (count && !by_places(&of[count - 1], &of[i])) of[count - 1].bytes += of[i].bytes;
    else of[count++] = of[i];
  }
  return count;
}

static double computing(const sli_lowering *l) {
  double most = 0, of[SL_CLASS_COUNT];
  for (int d = 0; d < l->in->p; d++) {
    double sum = 0;
    for (int s = 0; s < l->stages; s++) {
      if (l->device_of[s] != d) continue;
      sli_lowering_seconds(l, s, of);
      for (int c = 0; c < SL_CLASS_COUNT; c++) sum += of[c];
    }
    most = SLI_MAX(most, sum);
  }
  return most * l->in->m * l->in->k;
}

sli_sent *sli_lower_sent(const sli_lowering *l) {
  sli_sent *to = sli_calloc(1, sizeof *to);
  size_t capacity = 0;
  *to = (sli_sent){.ticks = l->in->m * l->in->k, .computing = computing(l)};
  for (int i = 0; i < l->ntasks; i++)
    if (!l->tasks[i].rank && l->tasks[i].device >= 0) add_exchanges(l, &l->tasks[i], to, &capacity);
  to->nexchanges = merge_exchanges(to->exchanges, to->nexchanges);
  sl_plan_moves(l->plan, add_transfer, &(transfers){.l = l, .to = to});
  to->ntransfers = merge_transfers(to->transfers, to->ntransfers);
  return to;
}

void sli_sent_destroy(sli_sent *sent) {
  if (!sent) return;
  free(sent->exchanges);
  free(sent->transfers);
  free(sent);
}
