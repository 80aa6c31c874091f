/* SPDX-License-Identifier: Apache-2.0 */
/* JSON schemas on their way to a grammar: shared by the files that read them. */
#ifndef SLUICE_IO_GRAMMAR_SCHEMA_H
#define SLUICE_IO_GRAMMAR_SCHEMA_H

#include "base/json.h"
#include "io/grammar/inner.h"

enum {
  SLI_JSON_NULL = 1,
  SLI_JSON_BOOLEAN = 2,
  SLI_JSON_INTEGER = 4,
  SLI_JSON_FRACTION = 8, /* numbers that are not whole */
  SLI_JSON_NUMBERS = SLI_JSON_INTEGER | SLI_JSON_FRACTION,
  SLI_JSON_STRING = 16,
  SLI_JSON_MAP = 32,
  SLI_JSON_LIST = 64,
  SLI_JSON_TYPES = 127
};

typedef struct sli_items {
  const cJSON *item;
  const struct sli_items *next;
} sli_items;

/* The values that some schemas accept, all of them together and without alternatives. Counts below
 * 0: no bound. */
typedef struct sli_accepted {
  unsigned types;
  const sli_items *fixed; /* "enum" and "const": values, one of each */
  const sli_chars *chars; /* of strings; NULL: any */
  int64_t least_chars, most_chars;
  const sli_chars *digits; /* of numbers; NULL: any */
  const sli_items *maps;   /* schemas with properties, patternProperties, additionalProperties */
  const sli_items *required, *names; /* names: propertyNames */
  int64_t least_members, most_members;
  const sli_items *lists; /* schemas with prefixItems and items */
  int64_t least_items, most_items;
} sli_accepted;

/* Several schemas that a value must satisfy, sorted by address, and the rule of these values. */
typedef struct sli_schema_rule {
  int32_t rule;
  size_t count;
  const cJSON **of;
  struct sli_schema_rule *next; /* in the order of their making */
} sli_schema_rule;

typedef struct sli_schema {
  sli_grammar *g;
  sli_json doc; /* for paths in messages */
  sli_schema_rule *rules, **last;
  sli_term gap, space;   /* at most one space; or a line's end and its indentation */
  sli_term plain;        /* one character of a string */
  int32_t character;     /* its rule */
  const sli_items *ones; /* values of oneOf, to be checked */
  struct sli_schema_pattern_of *patterns;
  int alternatives; /* so far */
} sli_schema;

/* rules.c */
/* Fails with the path of `at`. */
void sli_schema_refuse(const sli_schema *s, const cJSON *at, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
const sli_items *sli_items_add(const sli_schema *s, const sli_items *to, const cJSON *item);
/* Lists the items in the order in which they were added. */
size_t sli_items_list(const sli_schema *s, const sli_items *items, const cJSON ***out);
/* A value that satisfies all these schemas. */
sli_term sli_schema_value(sli_schema *s, size_t count, const cJSON **of);
/* Several terms, one after another; ended by -1. */
sli_term sli_schema_row(sli_schema *s, const sli_term *terms);
sli_term sli_schema_word(sli_schema *s, const char *text);
/* A string of the automaton's texts. */
sli_term sli_schema_string(sli_schema *s, const sli_chars *chars);
/* The automaton of texts that a pattern matches somewhere; NULL: failed. */
const sli_chars *sli_schema_pattern(sli_schema *s, const cJSON *at, const char *pattern);

/* expand.c: calls take() for each alternative of values that satisfy all these schemas. */
typedef void sli_take_values(void *ctx, const sli_accepted *v);
void sli_schema_expand(sli_schema *s, size_t count, const cJSON *const *of, sli_take_values *take,
                       void *ctx);

/* values.c */
/* Returns whether a value may be among others; not exact for members and elements. */
bool sli_values_have(sli_schema *s, const sli_accepted *v, const cJSON *value);
/* Strings of these values, and numbers without exponents; NULL: any, or failed. */
const sli_chars *sli_values_chars(sli_schema *s, const sli_accepted *v);
const sli_chars *sli_values_digits(sli_schema *s, const sli_accepted *v);

/* members.c */
sli_term sli_schema_map(sli_schema *s, const sli_accepted *v);
/* Lists the schemas of the member of this name. */
size_t sli_schema_member(sli_schema *s, const sli_accepted *v, const char *name,
                         const cJSON ***out);

/* elements.c */
sli_term sli_schema_list(sli_schema *s, const sli_accepted *v);

/* disjoint.c: checks that no value satisfies two of the schemas; refuses them if that is not
 * proved. */
void sli_schema_check_one(sli_schema *s, const cJSON *schemas);

/* numbers.c: texts of numbers without exponents. */
typedef enum sli_compared { SLI_LESS = 1, SLI_EQUAL = 2, SLI_MORE = 4 } sli_compared;
/* Numbers that compare with a value in one of these ways; NULL: failed, or it is too large. */
sli_chars *sli_numbers_compared(sli_grammar *g, double value, unsigned ways);
/* Whole multiples; numbers with so many digits behind the point; all numbers, with exponents
 * too, or whole ones. */
sli_chars *sli_numbers_multiples(sli_grammar *g, int32_t of);
sli_chars *sli_numbers_places(sli_grammar *g, int places);
sli_chars *sli_numbers_all(sli_grammar *g, bool exponents);
sli_chars *sli_numbers_whole(sli_grammar *g);
/* Writes a number as JSON has it; `out` has at least 32 bytes. */
char *sli_number_text(double value, char *out);

/* formats.c: strings of a format; NULL: failed, or the format is not known. */
sli_chars *sli_format_chars(sli_grammar *g, const char *format);

#endif
