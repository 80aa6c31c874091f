/* SPDX-License-Identifier: Apache-2.0 */
/* Tables in JSON whose rows complete each other, and formulas over the keys of a file. */
#ifndef SLUICE_IO_ROWS_H
#define SLUICE_IO_ROWS_H

#include <cjson/cJSON.h>

#include <sluice/status.h>

/* Parses an array of rows, each named by its member `name`. A row with "like" takes what it lacks
 * from the row of that name, objects member by member;
 * `own` lists members that are not taken over, ending with NULL. Rows with "base" are left out. The
 * caller frees the result with cJSON_Delete(). A bad table aborts. */
cJSON *sli_rows_parse(const char *text, const char *name, const char *const *own);

/* A file's keys, as formulas see them. */
typedef struct sli_formula_keys {
  const char *path;   /* of the file, for messages */
  const cJSON *root;  /* the keys */
  const char *prefix; /* put before keys of formulas */
} sli_formula_keys;

/* Computes factors joined by * / + and -, from left to right. A factor is a number, KEY|KEY for the
 * first of these keys that the file has, KEY|KEY:NUMBER with the value if all are absent or null,
 * or #KEY|KEY, the number of items or letters. SL_E_INPUT names absent keys. */
sl_status sli_formula(const sli_formula_keys *keys, const char *formula, double *out);

#endif
