/* What results depend on beside a plan's hash, as terms. */
#ifndef SLUICE_GRAPH_STATE_TERMS_H
#define SLUICE_GRAPH_STATE_TERMS_H

#include <sluice/job.h>

#include "graph/lower/lower.h"

/* How many slots what is trained has on each stage: "1", or "2,1 of wte h.0 | h.1 head". In the arena. */
const char *sli_terms_versions(const sli_lowering *l, int stages, const char *cut, sli_arena *arena);

typedef struct sli_terms_of {
  const char *versions, *cut;
  bool paths;           /* are there any */
  const char *library;  /* that computes products; NULL: none that is known */
  int nparams;
  const sl_param_info *params;
} sli_terms_of;
/* In the arena; returns how many. The first *nresults are compared in a run that goes on from another, too. */
int sli_terms_make(const sli_terms_of *of, sli_arena *arena, sl_term **out, int *nresults);

#endif
