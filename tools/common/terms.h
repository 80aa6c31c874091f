/* SPDX-License-Identifier: Apache-2.0 */
/* Run fingerprint (terms): names and values that processes of one job, or a run and the run it
 * resumes, must have in common. */
#ifndef SLUICE_TOOLS_COMMON_TERMS_H
#define SLUICE_TOOLS_COMMON_TERMS_H

#include <stdbool.h>

#include <sluice/job.h>
#include <sluice/model.h>

typedef struct terms {
  sl_term *items;   /* names and values are owned by the terms */
  const char **usual; /* default values, as in sl_checkpoint_options */
  size_t count, capacity, usual_capacity;
  size_t nresults;  /* the first ones affect results */
} terms;

void terms_fini(terms *t);

/* Adds a term. Takes ownership of the texts; usual may be NULL. */
void terms_add(terms *t, char *name, char *value, char *usual);
bool terms_have(const terms *t, const char *name);

/* Adds one option, named with "--" or another prefix, with the value in force or all values
 * given. */
void terms_add_option(terms *t, const char *prefix, const sl_option *option, const sl_args *args);
/* Adds all options of a table except those that `apart` accepts, which are added already or may
 * differ between processes. An option that shares its name with a model's becomes "the tool's
 * --NAME". */
void terms_add_options(terms *t, const sl_option *options, const sl_args *args, bool (*apart)(const char *name));

/* Adds a file's contents under its name; for weights or adapters, all files of a folder.
 * SL_E_INPUT names an unreadable file. */
sl_status terms_add_file(terms *t, const char *path);
sl_status terms_add_weights(terms *t, const char *path);
sl_status terms_add_adapter(terms *t, const char *dir);

/* Joins all values given for an option, in order; the caller frees it. */
char *terms_given(const sl_args *args, const char *name);

#endif
