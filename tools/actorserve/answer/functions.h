/* SPDX-License-Identifier: Apache-2.0 */
/* Functions that a request offers as tools: their names, and the values that parameters take. */
#ifndef SLUICE_TOOLS_ACTORSERVE_ANSWER_FUNCTIONS_H
#define SLUICE_TOOLS_ACTORSERVE_ANSWER_FUNCTIONS_H

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stddef.h>

#include <sluice/status.h>

#include "base/allowance.h"

/* Kinds of JSON values. */
enum {
  ANSWER_IS_TEXT = 1,
  ANSWER_IS_INTEGER = 2,
  ANSWER_IS_FRACTION = 4,
  ANSWER_IS_TRUTH = 8,
  ANSWER_IS_NULL = 16,
  ANSWER_IS_LIST = 32,
  ANSWER_IS_OBJECT = 64,
  ANSWER_IS_ANY = 127
};

typedef struct answer_parameter {
  const char *name; /* NULL: any name that is not listed */
  unsigned takes;   /* kinds of values that its schema accepts */
  int nwords;
  const char **words; /* [nwords] strings among the values of an enum */
} answer_parameter;

typedef struct answer_function {
  const char *name;
  int count;
  answer_parameter *parameters; /* [count] */
} answer_function;

typedef struct answer_functions {
  int count;
  answer_function *functions; /* [count] */
} answer_functions;

/* Lists the functions of `tools`, OpenAI's array, already checked. All data is allocated from
 * `memory`; SL_E_MEMORY if that does not suffice. SL_E_USAGE: the schemas take too long to read. */
sl_status answer_functions_read(const cJSON *tools, sli_bounded *memory, answer_functions *out);
/* Finds a function by name. Returns NULL if it is not offered. `all` may be NULL. */
const answer_function *answer_functions_find(const answer_functions *all, const char *name,
                                             size_t bytes);
/* Finds a parameter. Returns NULL if the schema does not describe it. `f` may be NULL. */
const answer_parameter *answer_function_parameter(const answer_function *f, const char *name,
                                                  size_t bytes);
/* Returns whether the value of a parameter is a string, although its text may be the JSON of
 * another kind. `kind`: that of the JSON, 0 if it is none. `parameter` may be NULL. */
bool answer_parameter_is_text(const answer_parameter *parameter, const char *value, unsigned kind);

#endif
