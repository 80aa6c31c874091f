/* SPDX-License-Identifier: Apache-2.0 */
/* Proofs that no value satisfies two schemas, so that oneOf equals anyOf. */
#include <string.h>

#include "text/grammar/schema.h"

enum { MOST_DEPTH = SLI_SCHEMA_SIDES - 1, MOST_SIDE = 256 };

/* Alternatives of one schema. */
typedef struct side {
  sli_schema *s;
  int count;
  sli_accepted items[MOST_SIDE];
} side;

static void take(void *ctx, const sli_accepted *accepted) {
  side *x = ctx;
  if (x->count < MOST_SIDE) x->items[x->count] = *accepted;
  x->count++;
}

static bool sides_differ(sli_schema *s, size_t n, const cJSON *const *a, size_t m,
                         const cJSON *const *b, int depth);

/* Returns whether no fixed value of the first satisfies both. */
static bool fixed_differ(sli_schema *s, const sli_accepted *a, const sli_accepted *b) {
  const cJSON *fixed = a->fixed->item, *each;
  bool differ = true;
  if (strcmp(fixed->string, "enum") != 0)
    return !sli_values_have(s, a, fixed) || !sli_values_have(s, b, fixed);
  cJSON_ArrayForEach(each, fixed) differ &=
      !sli_values_have(s, a, each) || !sli_values_have(s, b, each);
  return differ;
}

static bool chars_differ(sli_schema *s, const sli_chars *chars, const sli_chars *b) {
  const sli_chars *both = chars && b ? sli_chars_both(s->g, chars, b) : NULL;
  return both && sli_chars_is_empty(s->g, both);
}

static bool strings_differ(sli_schema *s, const sli_accepted *a, const sli_accepted *b) {
  bool shorter = a->most_chars >= 0 && a->most_chars < b->least_chars,
       longer = b->most_chars >= 0 && b->most_chars < a->least_chars;
  return shorter || longer || chars_differ(s, sli_values_chars(s, a), sli_values_chars(s, b));
}

/* Returns whether a member required by the first has no value that suits both. */
static bool members_differ(sli_schema *s, const sli_accepted *a, const sli_accepted *b, int depth) {
  for (const sli_items *x = a->required; x; x = x->next) {
    const cJSON **of, **other;
    size_t n = sli_schema_member(s, a, x->item->valuestring, &of),
           m = sli_schema_member(s, b, x->item->valuestring, &other);
    if (n + m && sides_differ(s, n, of, m, other, depth + 1)) return true;
  }
  return false;
}

static bool values_differ(sli_schema *s, const sli_accepted *a, const sli_accepted *b, int depth) {
  unsigned common = a->types & b->types;
  if ((a->fixed && fixed_differ(s, a, b)) || (b->fixed && fixed_differ(s, b, a))) return true;
  if (common & (SLI_JSON_NULL | SLI_JSON_BOOLEAN | SLI_JSON_LIST)) return false;
  if (common & SLI_JSON_STRING && !strings_differ(s, a, b)) return false;
  if (common & SLI_JSON_NUMBERS &&
      !chars_differ(s, sli_values_digits(s, a), sli_values_digits(s, b)))
    return false;
  return !(common & SLI_JSON_MAP) || members_differ(s, a, b, depth) ||
         members_differ(s, b, a, depth);
}

static bool sides_differ(sli_schema *s, size_t n, const cJSON *const *a, size_t m,
                         const cJSON *const *b, int depth) {
  if (depth > MOST_DEPTH) return false;
  side *x = s->sides[depth];
  if (!x) x = s->sides[depth] = sli_grammar_alloc(s->g, 2 * sizeof *x);
  if (!x) return false;
  x[0].count = x[1].count = 0;
  sli_schema_expand(s, n, a, take, &x[0]);
  sli_schema_expand(s, m, b, take, &x[1]);
  bool differ = x[0].count <= MOST_SIDE && x[1].count <= MOST_SIDE;
  for (int i = 0; i < x[0].count && differ; i++)
    for (int k = 0; k < x[1].count && differ && sli_grammar_spend(s->g, 1); k++)
      differ = values_differ(s, &x[0].items[i], &x[1].items[k], depth);
  return differ;
}

void sli_schema_check_one(sli_schema *s, const cJSON *schemas) {
  const cJSON *a, *b;
  int i = 0;
  cJSON_ArrayForEach(a, schemas) {
    int k = ++i;
    for (b = a->next; b && !sli_grammar_failed(s->g); b = b->next) {
      k++;
      if (sides_differ(s, 1, &a, 1, &b, 0) || sli_grammar_failed(s->g)) continue;
      sli_schema_refuse(
          s, schemas,
          "a value may satisfy number %d and number %d: write anyOf, or tell them apart by a const",
          i, k);
    }
  }
}
