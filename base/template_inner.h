/* SPDX-License-Identifier: Apache-2.0 */
/* Definitions shared by the files of templates: trees, values, and evaluation. */
#ifndef SLUICE_BASE_TEMPLATE_INNER_H
#define SLUICE_BASE_TEMPLATE_INNER_H

#include "base/base.h"
#include "base/template.h"

/* ---- trees (template_parse.c) ---------------------------------------------------------------- */

typedef enum node_kind {
  /* expressions */
  CONSTANT,
  NAME,
  LIST,
  TUPLE,
  DICT,
  ATTRIBUTE,
  SUBSCRIPT,
  SLICE,
  CALL,
  FILTER,
  TEST,
  NOT,
  NEGATIVE,
  POSITIVE,
  AND,
  OR,
  IF_ELSE,
  BINARY,
  COMPARE,
  /* statements */
  OUTPUT,
  IF,
  FOR,
  SET,
  SET_BLOCK,
  MACRO,
  FILTER_BLOCK,
  BREAK,
  CONTINUE
} node_kind;

typedef enum operator{
  ADD,
  SUBTRACT,
  MULTIPLY,
  DIVIDE,
  FLOOR_DIVIDE,
  REMAINDER,
  POWER,
  JOIN,
  EQUAL,
  UNEQUAL,
  LESS,
  LESS_EQUAL,
  GREATER,
  GREATER_EQUAL,
  IN,
  NOT_IN
}
operator;

/* A node of the tree. a and b are operands or conditions; items is a list of nodes, keys beside
 * them. */
typedef struct node {
  node_kind kind;
  operator op;
  int line;
  bool negated;
  const char *name;
  sli_value value;
  struct node *a, *b, *c;
  struct node *items;     /* linked by next */
  struct node *otherwise; /* else branch of a statement */
  struct node *next;
} node;

struct sli_template {
  sli_arena arena;
  sli_values *constants;
  node *body;
};

/* ---- tokens (template_read.c) ---------------------------------------------------------------- */

typedef enum token_kind {
  END,
  DATA,
  BEGIN_OUTPUT,
  END_OUTPUT,
  BEGIN_BLOCK,
  END_BLOCK,
  WORD,
  STRING,
  INTEGER,
  FLOAT,
  SIGN
} token_kind;

typedef struct token {
  token_kind kind;
  int line;
  const char *at; /* DATA, STRING: the text itself, 0-terminated; others point into the source */
  size_t bytes;
} token;

typedef struct source {
  sli_arena *arena;
  const char *text, *at;
  int line;
  bool inside, of_block; /* inside {{ }} or {% %}; it is a {% %} block */
  bool begins_line;      /* only white space stands between here and the begin of the line */
  int open;              /* open brackets */
  token now, next;
  sl_status status;
} source;

sl_status sli_source_begin(source *s, sli_arena *arena, const char *text);
void sli_source_advance(source *s);
/* Fails the parse; the first failure is kept. */
void sli_source_fail(source *s, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* ---- values (template_values.c) -------------------------------------------------------------- */

struct sli_list {
  sli_value *items;
  size_t count, capacity;
};

struct sli_dict {
  struct sli_entry {
    sli_value key, value;
  } * items;
  size_t count, capacity;
};

/* A text that grows in the memory of sli_values. */
typedef struct text_buffer {
  char *at;
  size_t bytes, capacity;
} text_buffer;

struct sli_values {
  sli_bounded memory;
  size_t used, most;
  int64_t steps;
  int line;
  sl_status status; /* first failure; later operations do nothing */
};

void sli_values_fail(sli_values *v, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Counts steps of work; false: evaluation has failed, now or before. */
bool sli_values_step(sli_values *v, size_t steps);
void *sli_values_room(sli_values *v, size_t bytes);
void sli_buffer_add(sli_values *v, text_buffer *b, const char *text, size_t bytes);
sli_value sli_buffer_value(const text_buffer *b);

sli_value sli_value_span(const char *text, size_t bytes);
sli_value sli_value_bool(bool truth);
sli_value sli_value_int(int64_t number);
sli_value sli_value_real(double real);
sli_value sli_value_none(void);
sli_value sli_value_undefined(const char *name);
void sli_dict_set(sli_values *v, sli_dict *d, sli_value key, sli_value value);
bool sli_dict_get(sli_values *v, const sli_dict *d, sli_value key, sli_value *out);
bool sli_text_is(sli_value v, const char *text);

bool sli_value_is_true(sli_value v);
bool sli_value_is_number(sli_value v);
double sli_value_as_real(sli_value v);
bool sli_value_equal(sli_values *v, sli_value a, sli_value b);
/* Returns less than 0, 0, or more; fails if the two have no order. */
int sli_value_compare(sli_values *v, sli_value a, sli_value b);
bool sli_value_in(sli_values *v, sli_value item, sli_value all);
const char *sli_value_kind(sli_value v);
/* Prints a value as Python's str() and repr(), or as JSON. */
void sli_value_print(sli_values *v, sli_value value, text_buffer *out);
sli_value sli_value_as_text(sli_values *v, sli_value value);
typedef struct json_style {
  int64_t indent; /* -1: one line */
  bool ascii, sorted;
  sli_value between, behind_key;
} json_style;
void sli_value_json(sli_values *v, sli_value value, const json_style *style, int depth,
                    text_buffer *out);
/* Returns the items of a list, the keys of a dict, or the characters of a text; fails for
 * others. */
sli_list *sli_value_items(sli_values *v, sli_value value);
/* Counts the characters of a text; returns the bytes of the character at `at`. */
size_t sli_text_characters(sli_value text);
size_t sli_text_step(sli_value text, size_t at);
/* Strips white space, or the characters of `set`, from the ends. */
sli_value sli_text_strip(sli_value text, const sli_value *set, bool left, bool right);

/* ---- functions (template_functions.c) -------------------------------------------------------- */

/* Arguments of a call: positional, then named. */
typedef struct arguments {
  sli_value *items;
  size_t count;
  sli_dict *named;
} arguments;

bool sli_is_filter(const char *name);
bool sli_is_test(const char *name);
bool sli_is_method(const char *name);
bool sli_is_function(const char *name);
sli_value sli_call_filter(sli_values *v, const char *name, sli_value subject, const arguments *a);
bool sli_call_test(sli_values *v, const char *name, sli_value subject, const arguments *a);
sli_value sli_call_method(sli_values *v, const char *name, sli_value subject, const arguments *a);
sli_value sli_call_function(sli_values *v, const char *name, const arguments *a);
/* Returns an item by key or index; undefined if there is none. */
sli_value sli_value_at(sli_values *v, sli_value of, sli_value key);

#endif
