/* Writing some of the parameters, under names of one's own. */
#ifndef SLUICE_GRAPH_STATE_WEIGHTS_H
#define SLUICE_GRAPH_STATE_WEIGHTS_H

#include <sluice/state.h>

/* A tensor of a file. */
typedef struct sli_saved {
  const char *name;
  int param;   /* which one it is of */
  bool merged; /* with its adapter */
  int member;  /* of what is one tensor for each position of dim 0: 1 + which; 0: it is all of it */
} sli_saved;

/* As sl_weights_save(). */
sl_status sli_weights_save(const char *path, const sli_saved *list, int n,
                           const sl_lowered *lowered, sl_runtime *rt, sl_job *job);

/* Gives a parameter that rests (sl_param_info.rest) what lies at its place. */
sl_status sli_param_set_lying(const sl_lowered *lowered, sl_runtime *rt, int index, const void *lies);

#endif
