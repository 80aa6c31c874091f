/* Names and values that processes of one job, or a run and the one that it goes on from, must have alike. */
#ifndef SLUICE_TOOLS_COMMON_TERMS_H
#define SLUICE_TOOLS_COMMON_TERMS_H

#include <stdbool.h>

#include <sluice/job.h>
#include <sluice/model.h>

typedef struct terms {
  sl_term *items;   /* names and values are the terms' */
  const char **usual; /* as in sl_checkpoint_options */
  size_t count, capacity, usual_capacity;
  size_t nresults;  /* the first ones decide results */
} terms;

void terms_fini(terms *t);

/* Takes over the texts; usual may be NULL. */
void terms_add(terms *t, char *name, char *value, char *usual);
bool terms_have(const terms *t, const char *name);

/* One option by its name behind "--" or the like, with the value in force, or all that was given of it. */
void terms_add_option(terms *t, const char *prefix, const sl_option *option, const sl_args *args);
/* All of a table but for those that `apart` says, which are in the terms already or which each process may have for itself.
 * One whose name a model's has already is "the tool's --NAME". */
void terms_add_options(terms *t, const sl_option *options, const sl_args *args, bool (*apart)(const char *name));

/* What a file holds, by its name; of weights or adapters: all files of a folder. SL_E_INPUT names one that
 * cannot be read. */
sl_status terms_add_file(terms *t, const char *path);
sl_status terms_add_weights(terms *t, const char *path);
sl_status terms_add_adapter(terms *t, const char *dir);

/* All that were given of an option, in their order; the caller's to free(). */
char *terms_given(const sl_args *args, const char *name);

#endif
