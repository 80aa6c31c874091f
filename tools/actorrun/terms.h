/* What a run is made of, by the names of the options that say so: what decides its results, which
 * a checkpoint is compared by, and besides what all processes of a job must have alike. */
#ifndef SLUICE_TOOLS_ACTORRUN_TERMS_H
#define SLUICE_TOOLS_ACTORRUN_TERMS_H

#include <sluice/job.h>

#include "tools/common/common.h"

typedef struct terms {
  sl_term *items;   /* names and values are the terms' */
  const char **usual; /* as in sl_checkpoint_options */
  size_t count, capacity, usual_capacity;
  size_t nresults;  /* the first ones decide results */
} terms;

void terms_init(terms *t, const settings *s);
void terms_fini(terms *t);
/* Adds the contents of the files that are read. SL_E_INPUT names one that cannot be. */
sl_status terms_add_files(terms *t, const settings *s, const sl_graph *g);

#endif
