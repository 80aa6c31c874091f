/* Templates in the language of Jinja, as models bring them for chats: read, and run over values. Blocks are
 * trimmed as transformers has it (trim_blocks, lstrip_blocks). What is not known is refused by name and line,
 * and a template of a stranger's is held to a depth, a number of steps, and an amount of memory. */
#ifndef SLUICE_BASE_TEMPLATE_H
#define SLUICE_BASE_TEMPLATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <sluice/status.h>

typedef struct sli_template sli_template;

/* SL_E_INPUT names what is not known, and its line. */
sl_status sli_template_read(const char *text, sli_template **out);
void sli_template_free(sli_template *t);

/* ---- values ------------------------------------------------------------------------------------ */

typedef struct sli_list sli_list;
typedef struct sli_dict sli_dict;

/* Values are copied; what they point to lives as long as the values they were made in. */
typedef struct sli_value {
  enum { SLI_UNDEFINED, SLI_NONE, SLI_BOOL, SLI_INT, SLI_REAL, SLI_TEXT, SLI_LIST, SLI_TUPLE, SLI_DICT, SLI_NAMESPACE,
         SLI_MACRO, SLI_FUNCTION, SLI_LOOP } kind;
  union {
    bool truth;
    int64_t number;
    double real;
    struct {
      const char *at;
      size_t bytes;
    } text; /* UTF-8; of an undefined one its name */
    sli_list *list;
    sli_dict *dict;
    const void *other;
  };
} sli_value;

/* Where values live, and what making more of them may take. */
typedef struct sli_values sli_values;
sli_values *sli_values_create(size_t most_bytes);
void sli_values_destroy(sli_values *v);

sli_value sli_value_text(sli_values *v, const char *text);
sli_value sli_value_list(sli_values *v);
void sli_value_add(sli_values *v, sli_value list, sli_value item);
sli_value sli_value_dict(sli_values *v);
/* A key is there once: a later value takes the place of the first. */
void sli_value_set(sli_values *v, sli_value dict, const char *key, sli_value item);

/* What the template makes of a dict of names, in *out, a text with a zero behind it, the caller's to free().
 * SL_E_USAGE: what it refuses itself (raise_exception); SL_E_INPUT: what went wrong, and in which line. */
sl_status sli_template_run(const sli_template *t, sli_values *v, sli_value names, char **out);

#endif
