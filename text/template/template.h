/* SPDX-License-Identifier: Apache-2.0 */
/* Chat templates in the Jinja language: parsing, and evaluation over values. Blocks are trimmed as
 * in transformers (trim_blocks, lstrip_blocks). An unknown feature is rejected with an error that
 * names it and its line. Templates are untrusted, so depth, steps and memory are limited. */
#ifndef SLUICE_TEXT_TEMPLATE_TEMPLATE_H
#define SLUICE_TEXT_TEMPLATE_TEMPLATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/allowance.h"
#include "text/spans.h"

typedef struct sli_template sli_template;

/* Limits: steps of a run, levels of nesting in a template and in a value, levels of evaluation
 * including called macros, and the depth of macro calls. The memory limit is an argument of
 * sli_values_create(). */
enum {
  SLI_TEMPLATE_STEPS = 50000000,
  SLI_TEMPLATE_DEPTH = 100,
  SLI_TEMPLATE_LEVELS = 1000,
  SLI_TEMPLATE_CALLS = 50
};

/* Parses a template. The SL_E_INPUT error names the unknown feature and its line. */
sl_status sli_template_read(const char *text, sli_template **out);
void sli_template_free(sli_template *t);
/* Returns whether the template marks answers, that is, has {% generation %} blocks. */
bool sli_template_marks(const sli_template *t);

/* ---- values ---------------------------------------------------------------------------------- */

typedef struct sli_list sli_list;
typedef struct sli_dict sli_dict;

/* A value, passed by copy. The data it points to lives as long as its sli_values. */
typedef struct sli_value {
  enum {
    SLI_UNDEFINED,
    SLI_NONE,
    SLI_BOOL,
    SLI_INT,
    SLI_REAL,
    SLI_TEXT,
    SLI_LIST,
    SLI_TUPLE,
    SLI_ITERATOR, /* lazy in Jinja: its items can be taken once */
    SLI_DICT,
    SLI_NAMESPACE,
    SLI_MACRO,
    SLI_FUNCTION,
    SLI_LOOP
  } kind;
  union {
    bool truth;
    int64_t number;
    struct {
      double real;
      const char *digits; /* digits of a whole number beyond int64_t; otherwise NULL */
    };
    struct {
      const char *at;
      size_t bytes;
    } text; /* UTF-8; the name of an undefined value */
    sli_list *list;
    sli_dict *dict;
    const void *other;
  };
} sli_value;

/* Memory of values, limited to `most_bytes` and by the allowance. */
typedef struct sli_values sli_values;
sli_values *sli_values_create(size_t most_bytes, const sli_allowance *allowance);
void sli_values_destroy(sli_values *v);

/* Returns zeroed memory that lives as long as the values, or NULL if there is none left. */
void *sli_values_room(sli_values *v, size_t bytes);
sli_value sli_value_text(sli_values *v, const char *text);
sli_value sli_value_list(sli_values *v);
void sli_value_add(sli_values *v, sli_value list, sli_value item);
sli_value sli_value_dict(sli_values *v);
/* Sets a member; replaces an earlier value of the key. */
void sli_value_set(sli_values *v, sli_value dict, const char *key, sli_value item);

/* Returns a member, or the undefined value. */
sli_value sli_value_get(sli_values *v, sli_value dict, const char *key);
/* Return the number of items of a list or dict (0 for other values), an item, and the key of an
 * item. */
size_t sli_value_count(sli_value all);
sli_value sli_value_item(sli_value all, size_t i);
sli_value sli_value_key(sli_value dict, size_t i);
/* Reads a value from JSON. As in Python, numbers without fraction and exponent are whole, and the
 * last of equal keys wins. sli_template_run() returns the errors. */
sli_value sli_value_read(sli_values *v, const char *json, size_t bytes);
/* Returns the first failure of an operation on values; its text is in sl_detail(). */
sl_status sli_values_status(const sli_values *v);

/* Renders the template with a dict of variables into *out, a 0-terminated text that the caller
 * frees. The text is charged to the allowance of the values, and is not given back. Parts that come
 * from {% generation %} blocks are added to `answers`, unless that is NULL. With `answers`, a block
 * within a macro or a captured block fails, because the final position of its text is unknown.
 * SL_E_USAGE: the template itself rejects the input (raise_exception). SL_E_INPUT: the error says
 * what went wrong and in which line. SL_E_MEMORY: the allowance is exhausted. */
sl_status sli_template_run(const sli_template *t, sli_values *v, sli_value names,
                           sli_text_spans *answers, char **out);

#endif
