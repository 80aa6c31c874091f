/* SPDX-License-Identifier: Apache-2.0 */
/* Functions that a request offers as tools: their names, and which parameters are strings. */
#ifndef SLUICE_TOOLS_ACTORSERVE_ANSWER_FUNCTIONS_H
#define SLUICE_TOOLS_ACTORSERVE_ANSWER_FUNCTIONS_H

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/allowance.h"

typedef struct answer_function {
  const char *name;
  int ntexts;
  const char **texts; /* [ntexts] parameters with type string in the schema */
} answer_function;

typedef struct answer_functions {
  int count;
  answer_function *of; /* [count] */
} answer_functions;

/* Lists the functions of `tools`, OpenAI's array, already checked. All data is allocated from
 * `memory`. Returns false if that does not suffice. */
bool answer_functions_read(const cJSON *tools, sli_bounded *memory, answer_functions *out);
/* Finds a function by name. Returns NULL if it is not offered. `all` may be NULL. */
const answer_function *answer_functions_find(const answer_functions *all, const char *name,
                                             size_t bytes);
/* Returns whether a parameter is a string. `f` may be NULL. */
bool answer_function_takes_text(const answer_function *f, const char *parameter, size_t bytes);

#endif
