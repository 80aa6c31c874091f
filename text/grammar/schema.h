/* SPDX-License-Identifier: Apache-2.0 */
/* Shared definitions of the files that turn JSON schemas into grammars. */
#ifndef SLUICE_TEXT_GRAMMAR_SCHEMA_H
#define SLUICE_TEXT_GRAMMAR_SCHEMA_H

#include "base/json.h"
#include "text/grammar/grammar_inner.h"

enum {
  SLI_JSON_NULL = 1,
  SLI_JSON_BOOLEAN = 2,
  SLI_JSON_INTEGER = 4,
  SLI_JSON_FRACTION = 8, /* numbers that are not integers */
  SLI_JSON_NUMBERS = SLI_JSON_INTEGER | SLI_JSON_FRACTION,
  SLI_JSON_STRING = 16,
  SLI_JSON_MAP = 32,
  SLI_JSON_LIST = 64,
  SLI_JSON_TYPES = 127,
  SLI_MOST_MEMBERS = 2048, /* of an object */
  SLI_SCHEMA_SIDES = 7     /* depths at which oneOf compares schemas */
};

typedef struct sli_items {
  const cJSON *item;
  const struct sli_items *next;
} sli_items;

/* The values that all of some schemas accept, without alternatives. Counts below 0: unbounded. */
typedef struct sli_accepted {
  unsigned types;
  const sli_items *fixed; /* "enum" and "const": a value in each of them */
  const sli_chars *chars; /* for strings; NULL: any */
  int64_t least_chars, most_chars;
  const sli_chars *digits; /* for numbers; NULL: any */
  const sli_items *maps;   /* schemas with properties, patternProperties, additionalProperties */
  const sli_items *required, *names; /* names: propertyNames */
  int64_t least_members, most_members;
  const sli_items *lists; /* schemas with prefixItems and items */
  int64_t least_items, most_items;
} sli_accepted;

/* A set of schemas that a value must satisfy, sorted by address, and the rule for such values. */
typedef struct sli_schema_rule {
  int32_t rule;
  size_t count;
  const cJSON **items;
  struct sli_schema_rule *next; /* in creation order */
} sli_schema_rule;

typedef struct sli_schema {
  sli_grammar *g;
  sli_json doc; /* for paths in messages */
  sli_schema_rule *rules, **last;
  sli_term gap, space;   /* at most one space; or a line break with indentation */
  sli_term plain;        /* a term for one character of a string */
  int32_t character;     /* the rule of `plain` */
  const sli_items *ones; /* values of oneOf that are still to be checked */
  struct sli_schema_pattern_of *patterns;
  int alternatives;              /* number so far */
  void *sides[SLI_SCHEMA_SIDES]; /* alternatives under comparison, by depth (disjoint.c) */
} sli_schema;

/* rules.c */
/* Fails with the JSON path of `at`. */
void sli_schema_refuse(const sli_schema *s, const cJSON *at, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
const sli_items *sli_items_add(const sli_schema *s, const sli_items *to, const cJSON *item);
/* Lists the items in the order in which they were added. */
size_t sli_items_list(const sli_schema *s, const sli_items *items, const cJSON ***out);
/* Returns a value that satisfies all these schemas. */
sli_term sli_schema_value(sli_schema *s, size_t count, const cJSON **of);
/* Returns several terms in sequence. The list ends with -1. */
sli_term sli_schema_row(sli_schema *s, const sli_term *terms);
sli_term sli_schema_word(sli_schema *s, const char *text);
/* Returns a string with the texts of the automaton. */
sli_term sli_schema_string(sli_schema *s, const sli_chars *chars);
/* Returns the automaton of texts in which a pattern matches anywhere. NULL: failed. */
const sli_chars *sli_schema_pattern(sli_schema *s, const cJSON *at, const char *pattern);

/* expand.c: calls take() for each alternative of values that satisfy all these schemas. */
typedef void sli_take_values(void *ctx, const sli_accepted *v);
void sli_schema_expand(sli_schema *s, size_t count, const cJSON *const *of, sli_take_values *take,
                       void *ctx);

/* values.c */
/* Returns whether a value may be accepted; inexact for members and elements. */
bool sli_values_have(sli_schema *s, const sli_accepted *accepted, const cJSON *value);
/* Returns strings of these values, or numbers without exponents. NULL: any, or failed. */
const sli_chars *sli_values_chars(sli_schema *s, const sli_accepted *accepted);
const sli_chars *sli_values_digits(sli_schema *s, const sli_accepted *accepted);

/* members.c */
sli_term sli_schema_map(sli_schema *s, const sli_accepted *accepted);
/* Lists the schemas for the member of this name. */
size_t sli_schema_member(sli_schema *s, const sli_accepted *accepted, const char *name,
                         const cJSON ***out);

/* elements.c */
sli_term sli_schema_list(sli_schema *s, const sli_accepted *accepted);

/* disjoint.c: checks that no value satisfies two of the schemas. Refuses them if that cannot be
 * proved. */
void sli_schema_check_one(sli_schema *s, const cJSON *schemas);

/* numbers.c: texts of numbers without exponents. */
typedef enum sli_compared { SLI_LESS = 1, SLI_EQUAL = 2, SLI_MORE = 4 } sli_compared;
/* Returns the numbers that compare with a value in one of these ways. NULL: failed, or the value is
 * too large. */
sli_chars *sli_numbers_compared(sli_grammar *g, double value, unsigned ways);
/* Return multiples of an integer; numbers with a limited number of decimal places; and all numbers,
 * including those with exponents, or integers only. */
sli_chars *sli_numbers_multiples(sli_grammar *g, int32_t of);
sli_chars *sli_numbers_places(sli_grammar *g, int places);
sli_chars *sli_numbers_all(sli_grammar *g, bool exponents);
sli_chars *sli_numbers_whole(sli_grammar *g);
/* Writes a number in JSON's format; `out` has at least 32 bytes. */
char *sli_number_text(double value, char *out);

/* formats.c: returns the strings of a format. NULL: failed, or the format is not known. */
sli_chars *sli_format_chars(sli_grammar *g, const char *format);

#endif
