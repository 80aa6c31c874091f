/* SPDX-License-Identifier: Apache-2.0 */
/* Requests with arrival times, and statistics of how they were answered. */
#ifndef SLUICE_TOOLS_SERVING_ARRIVALS_H
#define SLUICE_TOOLS_SERVING_ARRIVALS_H

#include <sluice/session.h>

#include "base/base.h"

typedef struct arrivals {
  int64_t count;
  int64_t clients;   /* size of a closed loop; 0: requests arrive at their times */
  sl_arrival *items; /* [count] */
} arrivals;

/* Reads a file with one line per request, {"time": 0.25, "prompt": 300, "answer": 40, "id":
 * ...}: time in seconds, lengths in tokens. Allocates from the arena. SL_E_INPUT names file and
 * line. */
sl_status arrivals_read(const char *path, sli_arena *arena, arrivals *out);

/* Tokens of a prompt and of an answer. Answers have from 1 - variation to 1 + variation times as
 * many, evenly drawn. */
typedef struct load_lengths {
  int64_t prompt, answer;
  double variation;
} load_lengths;
/* Makes `count` requests with these lengths for a closed loop of `clients`. */
void arrivals_make(int64_t clients, int64_t count, const load_lengths *lengths, uint64_t seed,
                   sli_arena *arena, arrivals *out);

/* Percentiles reported: 50, 90 and 99 percent of the answered requests had this value or less. */
enum { OUTCOME_SHARES = 3 };
extern const double outcome_shares[OUTCOME_SHARES];
typedef struct outcome {
  int64_t answered, refused;
  double ttft[OUTCOME_SHARES]; /* seconds from arrival to first token */
  double tpot[OUTCOME_SHARES]; /* seconds per token after the first */
  double ttft_mean, tpot_mean;
  double tokens_per_second;
} outcome;

/* Summarizes a run that lasted `seconds`. */
outcome outcome_of(const arrivals *a, const sl_answered *answered, double seconds);

/* Returns the time within which the fraction `share` of all requests got their first token, or with
 * `between_tokens` their later tokens. Returns INFINITY if fewer requests were answered. Answers of
 * one token have no time between tokens. */
double outcome_share(const arrivals *a, const sl_answered *answered, bool between_tokens,
                     double share);

#endif
