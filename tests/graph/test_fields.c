/* SPDX-License-Identifier: Apache-2.0 */
/* Checks the table of lowering options: names are unique, fields fall within the record, and each
 * default is a value that its option accepts. */
#include <stdlib.h>
#include <string.h>

#include <sluice/options.h>

#include "tests/support/test.h"

static bool has(const char *const *words, const char *word) {
  while (*words && strcmp(*words, word)) words++;
  return *words;
}

static size_t size_of(sl_option_kind kind) {
  return kind == SL_OPTION_INT     ? sizeof(int)
         : kind == SL_OPTION_FLOAT ? sizeof(double)
         : kind == SL_OPTION_FLAG  ? sizeof(bool)
                                   : sizeof(const char *);
}

static void fields_and_names_are_there_once(void) {
  for (const sl_lower_field *a = sl_lower_fields(); a->field; a++) {
    CHECK(strchr(a->field, '.') && !strstr(a->field, "--"), "%s lies in a group", a->field);
    CHECK(a->offset + size_of(a->option.kind) <= sizeof(sl_lower_options), "%s lies in the record",
          a->field);
    for (const sl_lower_field *b = a + 1; b->field; b++) {
      CHECK(strcmp(a->field, b->field), "%s is there twice", a->field);
      CHECK(strcmp(a->option.name, b->option.name), "--%s is there twice", a->option.name);
      bool apart = a->offset + size_of(a->option.kind) <= b->offset ||
                   b->offset + size_of(b->option.kind) <= a->offset;
      CHECK(!a->option.help || !b->option.help || apart, "%s and %s share memory", a->field,
            b->field);
    }
  }
}

static void defaults_can_be_given(void) {
  int count = 0;
  for (const sl_lower_field *f = sl_lower_fields(); f->field; f++) {
    const sl_option *o = &f->option;
    if (!o->help) continue;
    double number = strtod(o->value, NULL);
    bool bounded = o->kind == SL_OPTION_INT || o->kind == SL_OPTION_FLOAT;
    CHECK(!bounded || (number >= o->min && number <= o->max && o->min < o->max),
          "--%s: %s lies within its bounds", o->name, o->value);
    CHECK(!f->words || !*o->value || has(f->words, o->value), "--%s: %s is one of its words",
          o->name, o->value);
    CHECK(!strstr(o->help, "--") || strstr(o->help, "--pieces"), "--%s: help names fields",
          o->name);
    count++;
  }
  CHECK(count > 25, "%d options", count);
}

int main(void) {
  fields_and_names_are_there_once();
  defaults_can_be_given();
  return 0;
}
