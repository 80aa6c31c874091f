/* SPDX-License-Identifier: Apache-2.0 */
/* Definitions shared within template/: trees, values, and evaluation. */
#ifndef SLUICE_TEXT_TEMPLATE_TEMPLATE_INNER_H
#define SLUICE_TEXT_TEMPLATE_TEMPLATE_INNER_H

#include "base/base.h"
#include "text/template/template.h"

/* ---- trees (parse.c, statements.c) ----------------------------------------------------------- */

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
  CALL_BLOCK,
  WITH,
  GENERATION,
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

enum { REST_LIST = 1, REST_DICT = 2, REST_CALLER = 4 };

/* Form of an argument. */
typedef enum given_as { GIVEN, UNPACKED_LIST, UNPACKED_DICT } given_as;

/* A node of the tree. a, b and c are operands, targets or conditions; items is a list of nodes. */
typedef struct node {
  node_kind kind;
  operator op;
  given_as as;
  int line, height; /* height: longest path to a leaf of the expression, in nodes */
  bool negated, recursive;
  int rest; /* macro: REST_LIST, REST_DICT, REST_CALLER if it takes such arguments */
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
  bool marks; /* has generation blocks */
};

/* ---- tokens (read.c) ---------------------------------------------------------------- */

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
  bool inside, of_block; /* inside {{ }} or {% %}; inside a {% %} block */
  bool begins_line;      /* only white space between the beginning of the line and here */
  int open;              /* open brackets */
  token now, next;
  sl_status status;
} source;

sl_status sli_source_begin(source *s, sli_arena *arena, const char *text);
void sli_source_advance(source *s);
/* Fails the parse; the first failure is kept. */
void sli_source_fail(source *s, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* ---- expressions (parse.c) ------------------------------------------------------------------- */

typedef struct parser {
  source s;
  sli_values *constants;
  int depth, loops;
  bool marks; /* has generation blocks */
  int rest;   /* REST_LIST, REST_DICT, REST_CALLER: the macro refers to varargs, kwargs, caller */
} parser;

bool sli_parse_sees(const parser *p, const char *sign);
bool sli_parse_sees_word(const parser *p, const char *word);
/* Returns whether the token after the current one is this word. */
bool sli_parse_next_word(const parser *p, const char *word);
bool sli_parse_take(parser *p, const char *sign);
bool sli_parse_take_word(parser *p, const char *word);
void sli_parse_expect(parser *p, const char *sign);
void sli_parse_end_block(parser *p);
void sli_parse_unexpected(parser *p, const char *wanted);
const char *sli_parse_name(parser *p);
/* Counts a level of nesting. Returns false if there are too many. The caller decrements the
 * count. */
bool sli_parse_deeper(parser *p);
node *sli_parse_node(parser *p, node_kind kind);
node *sli_parse_constant(parser *p, sli_value value);
/* Parse an expression with conditions (a if b else c), one without, or several as a tuple. */
node *sli_parse_expression(parser *p);
node *sli_parse_disjunction(parser *p);
node *sli_parse_expressions(parser *p);
/* Parses filters without a subject, as in {% filter %}. */
node *sli_parse_filters(parser *p);

/* ---- values (values.c) -------------------------------------------------------------- */

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
  int line, depth;  /* depth: levels of a comparison */
  sl_status status; /* first failure; later operations do nothing */
};

void sli_values_fail(sli_values *v, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Counts steps of work. Returns false if evaluation has failed, now or earlier. */
bool sli_values_step(sli_values *v, size_t steps);
void sli_buffer_add(sli_values *v, text_buffer *b, const char *text, size_t bytes);
sli_value sli_buffer_value(const text_buffer *b);

static inline sli_value sli_value_span(const char *text, size_t bytes) {
  return (sli_value){.kind = SLI_TEXT, .text = {text, bytes}};
}
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
/* Returns less than 0, 0, or more than 0. Fails if the two have no order. */
int sli_value_compare(sli_values *v, sli_value a, sli_value b);
bool sli_value_in(sli_values *v, sli_value item, sli_value all);
const char *sli_value_kind(sli_value v);
/* Returns whether a value is a list or a tuple. */
bool sli_value_is_row(sli_value v);
/* Returns the items of a list, the keys of a dict, or the characters of a text. Items of an
 * iterator are removed from it; an undefined value has none. Fails for other values. */
sli_list *sli_value_items(sli_values *v, sli_value value);
/* Turns a list into an iterator: as in Python, its items can be taken once. */
sli_value sli_value_iterator(sli_value list);
/* Returns an item by key or index, or an undefined value if there is none. */
sli_value sli_value_at(sli_values *v, sli_value of, sli_value key);
/* Follows a path "a.b", or an index. */
sli_value sli_value_follow(sli_values *v, sli_value of, sli_value path);

/* ---- printing (print.c) ---------------------------------------------------------------------- */

/* Prints a value as Python's str() does. */
void sli_value_print(sli_values *v, sli_value value, text_buffer *out);
/* Prints a value as Python's repr() does. */
void sli_value_print_inner(sli_values *v, sli_value value, text_buffer *out);
sli_value sli_value_as_text(sli_values *v, sli_value value);
typedef struct json_style {
  sli_value indent; /* a text; none: one line */
  bool ascii, sorted;
  sli_value between, behind_key;
} json_style;
void sli_value_json(sli_values *v, sli_value value, const json_style *style, int depth,
                    text_buffer *out);

/* ---- characters (characters.c) --------------------------------------------------------------- */

/* Return the number of characters in a text, and the length in bytes of the character at `at`. */
size_t sli_text_characters(sli_value text);
size_t sli_text_step(sli_value text, size_t at);
/* Writes a character. Returns its length in bytes, at most 4. */
size_t sli_text_put(char *out, uint32_t character);
/* Tests for white space as Python's str.strip() defines it; `bytes` is the character's length. */
bool sli_text_is_space(const char *at, size_t bytes);
/* Strips white space, or the characters of `set`, from the ends. */
sli_value sli_text_strip(sli_value text, const sli_value *set, bool left, bool right);
/* Returns the part from character `from` up to `to`. */
sli_value sli_text_part(sli_value text, size_t from, size_t to);

/* ---- texts (texts.c) ------------------------------------------------------------------------- */

typedef enum text_case { UPPER, LOWER, CAPITALIZED, TITLE, WORDS } text_case;
/* Changes the case of letters; WORDS does so as Jinja's filter "title". Fails beyond ASCII. */
sli_value sli_text_case(sli_values *v, sli_value text, text_case how);
sli_value sli_text_replace(sli_values *v, sli_value text, sli_value from, sli_value to,
                           int64_t most);
/* Splits a text at a separator, or at white space if `by` is NULL, at most `most` times; everywhere
 * if `most` is negative. */
sli_value sli_text_split(sli_values *v, sli_value text, const sli_value *by, int64_t most);
/* Returns the last occurrence of a text, or NULL if there is none. */
const char *sli_text_last(sli_values *v, sli_value text, sli_value what);
sli_value sli_text_rsplit(sli_values *v, sli_value text, sli_value by, int64_t most);
sli_value sli_text_lines(sli_values *v, sli_value text, bool ends);
sli_value sli_text_join(sli_values *v, sli_value all, sli_value by, const sli_value *attribute);
/* Adds `left` and `right` characters `fill` to the ends of a text. */
sli_value sli_text_pad(sli_values *v, sli_value text, int64_t left, int64_t right, char fill);

/* ---- arguments (arguments.c) ----------------------------------------------------------------- */

/* Arguments of a call: positional, then named. */
typedef struct arguments {
  sli_value *items;
  size_t count;
  sli_dict *named; /* NULL: none */
} arguments;

/* Counts a call's steps by the size of its subject and arguments: a filter or a method may read all
 * of them. */
bool sli_arguments_step(sli_values *v, sli_value subject, const arguments *a);
/* Fails if there are more than `most` positional arguments, or named ones that are not in
 * `names` (NULL-terminated). */
bool sli_arguments_check(sli_values *v, const char *what, const arguments *a, size_t most,
                         const char *const *names);
/* Returns a positional or named argument; `otherwise` if it is absent. */
sli_value sli_argument_or(sli_values *v, const arguments *a, size_t place, const char *name,
                          sli_value otherwise);
sli_value sli_argument(sli_values *v, const arguments *a, size_t place, const char *name);
sli_value sli_argument_text(sli_values *v, const arguments *a, size_t place, const char *name);
int64_t sli_argument_int(sli_values *v, const arguments *a, size_t place, const char *name,
                         int64_t otherwise);
bool sli_argument_flag(sli_values *v, const arguments *a, size_t place, const char *name);
/* Returns the arguments after the first `from`. */
arguments sli_arguments_behind(const arguments *a, size_t from);

/* ---- formats (format.c) ---------------------------------------------------------------------- */

/* Format as Python's "..." % x and "...".format() do. */
sli_value sli_format_percent(sli_values *v, sli_value text, sli_value with);
sli_value sli_format_braces(sli_values *v, sli_value text, const arguments *a);

/* ---- operators (operators.c) ----------------------------------------------------------------- */

sli_value sli_operate(sli_values *v, operator op, sli_value a, sli_value b);
sli_value sli_negative(sli_values *v, sli_value a);

/* ---- filters (sequences.c, filters.c), tests, methods, functions ----------------------------- */

bool sli_is_filter(const char *name);
bool sli_is_test(const char *name);
bool sli_is_function(const char *name);
/* Returns whether the value has a Python method of this name. */
bool sli_has_method(sli_value of, sli_value name);
sli_value sli_call_filter(sli_values *v, const char *name, sli_value subject, const arguments *a);
bool sli_call_test(sli_values *v, const char *name, sli_value subject, const arguments *a);
sli_value sli_call_method(sli_values *v, const char *name, sli_value subject, const arguments *a);
sli_value sli_call_function(sli_values *v, const char *name, const arguments *a);

typedef sli_value template_callable(sli_values *v, sli_value subject, const arguments *a);
/* Returns a filter of one value (filters.c), which takes at most *most arguments, or NULL if there
 * is none. */
template_callable *sli_value_filter(const char *name, size_t *most);

#endif
