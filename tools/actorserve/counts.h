/* SPDX-License-Identifier: Apache-2.0 */
/* Counters of a session, under the same names in --report, /metrics and `actorrun status`. */
#ifndef SLUICE_TOOLS_ACTORSERVE_COUNTS_H
#define SLUICE_TOOLS_ACTORSERVE_COUNTS_H

#include <stdbool.h>

#include <sluice/session.h>

struct cJSON;

enum { COUNTS = 35, LIMITS = 5 };

typedef struct count {
  const char *name, *what;
  bool grows; /* a counter that never decreases */
} count;
extern const count counts[COUNTS];
void counts_list(const sl_session_stats *x, uint64_t out[COUNTS]);
/* Adds all counters, with `ended` and `limits`. */
void counts_add(struct cJSON *to, const sl_session_stats *x);

/* A limit, named as `--quota` and the other options of actorserve name it. */
typedef struct limit {
  const char *name, *what;
} limit;
extern const limit limits[LIMITS];
void limits_list(const sl_session_limits *x, int64_t out[LIMITS]);
sl_session_limits limits_of(const int64_t n[LIMITS]);

#endif
