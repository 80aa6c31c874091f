/* Requests that come at some time, and how those were answered that have. */
#ifndef SLUICE_TOOLS_COMMON_ARRIVALS_H
#define SLUICE_TOOLS_COMMON_ARRIVALS_H

#include <sluice/session.h>

#include "base/base.h"

typedef struct arrivals {
  int64_t count;
  sl_arrival *of;
} arrivals;

/* A file with a line for each, {"time": 0.25, "prompt": 300, "answer": 40, "id": ...}: seconds, and tokens. In the
 * arena. SL_E_INPUT names file and line. */
sl_status arrivals_read(const char *path, sli_arena *arena, arrivals *out);

/* Of those that were answered, half, nine tenths and 99 of a hundred had this or less. */
enum { OUTCOME_SHARES = 3 };
extern const double outcome_shares[OUTCOME_SHARES];
typedef struct outcome {
  int64_t answered, refused;
  double ttft[OUTCOME_SHARES]; /* seconds from its arrival to its first token */
  double tpot[OUTCOME_SHARES]; /* seconds from token to token, behind the first */
  double tokens_per_second;
} outcome;

/* Of a run of so many seconds. */
outcome outcome_of(const arrivals *a, const sl_answered *answered, double seconds);

/* So many of all requests (`share`) had their first token in so many seconds, or their tokens behind it `between_tokens`;
 * INFINITY where fewer were answered. Of one token there is nothing between. */
double outcome_share(const arrivals *a, const sl_answered *answered, bool between_tokens, double share);

#endif
