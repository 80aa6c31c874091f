/* SPDX-License-Identifier: Apache-2.0 */
/* Attention mask: the keys that a query attends to, and the cap of its scores, for the kernels of
 * all devices. */
#ifndef SLUICE_OPS_MASK_H
#define SLUICE_OPS_MASK_H

#include <sluice/op.h>

/* The query at position p of a sequence attends to the existing keys from p - behind to p + ahead,
 * and to keys before `shown` up to p + ahead. With ids [batch, keys], it attends only to keys with
 * the query's id, and to no key if that id is negative. */
typedef struct sli_mask {
  int64_t behind, ahead, shown;
  const int32_t *ids; /* NULL without document ids */
  int64_t ids_row;    /* stride, in numbers, between the ids of two sequences */
  float cap;          /* scores s become cap tanh(s / cap); 0: no cap */
} sli_mask;

/* Returns the mask for sequences of `keys` keys. */
static inline sli_mask sli_mask_of(const sl_attrs *attrs, int64_t keys, const void *ids) {
  int64_t far = attrs->attention.window > 0 && attrs->attention.window < keys
                    ? attrs->attention.window - 1
                    : keys;
  sli_mask mask = {far,
                   attrs->attention.full ? far : 0,
                   attrs->attention.shown,
                   (const int32_t *)ids,
                   keys,
                   attrs->attention.cap};
  return mask;
}

/* A run of queries at consecutive positions: rows `row` to row + rows - 1 of the call. The first
 * query is at position `at`. */
typedef struct sli_query_run {
  int64_t row, rows, at;
} sli_query_run;

/* Fills the runs of a call's queries and returns their number. The queries are the whole piece of
 * the call's tick, or a device's share of it (attrs.place.first, attrs.place.run). */
enum { SLI_QUERY_RUNS = 2 };
static inline int sli_query_runs(const sl_call *call, int64_t queries,
                                 sli_query_run out[SLI_QUERY_RUNS]) {
  const sl_attrs *a = call->attrs;
  int64_t at = call->tick.row + a->place.first,
          rows = a->place.run && a->place.run < queries ? a->place.run : queries;
  out[0].row = 0, out[0].rows = rows, out[0].at = at;
  if (rows == queries) return 1;
  out[1].row = rows, out[1].rows = queries - rows, out[1].at = at + rows + a->place.skip;
  return 2;
}

/* Pairing of queries with the keys of the current chunk: attrs.user of attention_step
 * (kernels.h). */
enum { SLI_SPANS = 4 };
typedef struct sli_span {
  int64_t query, queries, key, keys; /* first row and number of rows of q and of kv */
  int64_t at_query, at_key;          /* positions of these first rows */
  bool fresh;                        /* no earlier span covered these queries */
} sli_span;
typedef struct sli_spans {
  int n;
  int64_t length; /* length of the whole sequence */
  sli_span items[SLI_SPANS];
  bool ends; /* with attrs.numbers.exact: no later step has these queries */
} sli_spans;

/* Returns input i of a call, or NULL if the call has fewer. */
static inline const void *sli_optional(const sl_call *call, int i) {
  return i < call->nin ? call->in[i] : NULL;
}

/* Returns twice the average number of keys per query, over a whole sequence of `keys` positions. */
static inline double sli_mask_pairs(const sl_attrs *attrs, int64_t keys) {
  double n = (double)keys, w = attrs->attention.window > 0 && attrs->attention.window < keys
                                   ? (double)attrs->attention.window
                                   : n;
  double s = attrs->attention.shown > 0 ? (double)attrs->attention.shown : 0,
         behind = n - w; /* number of queries with keys out of the window */
  double few = s < behind ? s : behind;
  double shown = few * (few + 1) + 2 * (behind - few) * few;
  double causal = (w * (w + 1) + 2 * behind * w + shown) / n;
  return attrs->attention.full ? 2 * causal - 2 : causal;
}

#endif
