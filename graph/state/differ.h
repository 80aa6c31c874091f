/* What is not as it was in the checkpoint that a run goes on from. */
#ifndef SLUICE_GRAPH_STATE_DIFFER_H
#define SLUICE_GRAPH_STATE_DIFFER_H

#include <sluice/status.h>

typedef struct sli_differences {
  const char *meant; /* names of what may differ, separated by commas; NULL: none */
  char *text;        /* of the others; NULL: there are none */
  char *names;       /* separated by commas */
} sli_differences;

/* The name that a term goes by in `meant`: "lr" of "--lr", "model" of "the model", "seed" of "the
 * model's --seed", "quota" of "--quota param". The caller's to free. */
char *sli_differ_name(const char *term);
/* Something goes by that name and is not as it was, as the format says. */
void sli_differ(sli_differences *d, const char *name, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* SL_E_USAGE with all that was found and not meant. Frees what it holds. */
sl_status sli_differ_end(sli_differences *d);

#endif
