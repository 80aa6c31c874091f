/* SPDX-License-Identifier: Apache-2.0 */
/* Run fingerprint: names and values that must agree between the processes of a job, or between a
 * run and the run it resumes. */
#ifndef SLUICE_TOOLS_CLI_FINGERPRINT_H
#define SLUICE_TOOLS_CLI_FINGERPRINT_H

#include <stdbool.h>

#include <sluice/job.h>
#include <sluice/model.h>

typedef struct fingerprint {
  sl_fingerprint_item *items; /* names and values are owned by the fingerprint */
  const char **usual;         /* default values, as in sl_checkpoint_options */
  size_t count, capacity, usual_capacity;
  size_t nresults; /* number of leading items that affect results */
} fingerprint;

void fingerprint_fini(fingerprint *fingerprint);

/* Adds an item. Takes ownership of the texts; usual may be NULL. */
void fingerprint_add(fingerprint *fingerprint, char *name, char *value, char *usual);
bool fingerprint_have(const fingerprint *fingerprint, const char *name);

/* Adds one option, named with "--" or another prefix, with the value in force or all values
 * given. */
void fingerprint_add_option(fingerprint *fingerprint, const char *prefix, const sl_option *option,
                            const sl_args *args);
/* Adds all options of a table except those accepted by `apart`, which were added before or may
 * differ between processes. An option that shares its name with a model's option becomes "the
 * tool's --NAME". */
void fingerprint_add_options(fingerprint *fingerprint, const sl_option *options,
                             const sl_args *args, bool (*apart)(const char *name));

/* Adds a file's contents under its name. For weights or adapters in a folder, adds all files of the
 * folder. SL_E_INPUT names an unreadable file. */
sl_status fingerprint_add_file(fingerprint *fingerprint, const char *path);
sl_status fingerprint_add_weights(fingerprint *fingerprint, const char *path);
sl_status fingerprint_add_adapter(fingerprint *fingerprint, const char *dir);

/* Joins all values given for an option, in order; the caller frees it. */
char *fingerprint_given(const sl_args *args, const char *name);

#endif
