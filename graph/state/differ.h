/* SPDX-License-Identifier: Apache-2.0 */
/* Differences between a run and the checkpoint that it resumes from. */
#ifndef SLUICE_GRAPH_STATE_DIFFER_H
#define SLUICE_GRAPH_STATE_DIFFER_H

#include <sluice/status.h>

typedef struct sli_differences {
  const char *meant; /* names that are allowed to differ, separated by commas; NULL: none */
  char *text;        /* description of all other differences; NULL: none */
  char *names;       /* names of these differences, separated by commas */
} sli_differences;

/* Returns the name of a setting in `meant`: "lr" for "--lr", "model" for "the model", "seed" for
 * "the model's --seed", "quota" for "--quota param". The caller frees it. */
char *sli_differ_name(const char *item);
/* Records a difference under `name`, with a formatted description. */
void sli_differ(sli_differences *d, const char *name, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Returns SL_E_USAGE with all differences that are not in `meant`. Frees its memory. */
sl_status sli_differ_end(sli_differences *d);

#endif
