/* SPDX-License-Identifier: Apache-2.0 */
/* Arrays: the first elements by position, and all later ones alike. */
#include <string.h>

#include "text/grammar/schema.h"

typedef struct elements {
  sli_schema *s;
  const cJSON **lists; /* [nlists] */
  size_t nlists;
  int64_t prefix; /* number of elements that differ by position */
  int64_t least, most;
} elements;

static const cJSON *part(const cJSON *schema, const char *keyword) {
  return cJSON_GetObjectItemCaseSensitive(schema, keyword);
}

/* Returns the schemas of the first elements. Older schemas have them in items. */
static const cJSON *first_of(const cJSON *schema) {
  const cJSON *items = part(schema, "items"), *prefix = part(schema, "prefixItems");
  return prefix ? prefix : cJSON_IsArray(items) ? items : NULL;
}

static const cJSON *rest_of(const cJSON *schema) {
  const cJSON *items = part(schema, "items");
  return cJSON_IsArray(items) ? part(schema, "additionalItems") : items;
}

/* Returns the value at a position. */
static sli_term element(elements *x, int64_t at) {
  const cJSON *of[x->nlists + 1];
  size_t n = 0;
  for (size_t i = 0; i < x->nlists; i++) {
    const cJSON *first = first_of(x->lists[i]), *own = NULL;
    int count = cJSON_GetArraySize(first);
    if (!sli_grammar_spend(x->s->g, 1 + (size_t)SLI_MIN(at, count))) return 0;
    own = at < count ? cJSON_GetArrayItem(first, (int)at) : rest_of(x->lists[i]);
    if (own) of[n++] = own;
  }
  return sli_schema_value(x->s, n, of);
}

static sli_term close_list(elements *x) {
  sli_term end = sli_schema_word(x->s, "]");
  return sli_schema_row(x->s, (sli_term[]){x->s->space, end, -1});
}

/* Returns one more element, after a comma unless it is the first, and what follows. */
static sli_term more(elements *x, int64_t at, sli_term behind) {
  sli_term comma = sli_schema_word(x->s, at ? "," : "");
  return sli_schema_row(x->s, (sli_term[]){comma, x->s->space, element(x, at), behind, -1});
}

/* Returns the rest after all elements that differ or must be counted. */
static sli_term tail(elements *x, int64_t at) {
  if (x->most >= 0) return close_list(x);
  sli_term comma = sli_schema_word(x->s, ","), value = element(x, at),
           one = sli_schema_row(x->s, (sli_term[]){comma, x->s->space, value, -1}),
           any = sli_grammar_repeat(x->s->g, one, 0, -1);
  return sli_schema_row(x->s, (sli_term[]){any, close_list(x), -1});
}

/* Makes rules from the last element to the first. Each is the rest of the array from there. */
sli_term sli_schema_list(sli_schema *s, const sli_accepted *accepted) {
  sli_grammar *g = s->g;
  elements x = {.s = s, .least = SLI_MAX(accepted->least_items, 0), .most = accepted->most_items};
  x.nlists = sli_items_list(s, accepted->lists, &x.lists);
  for (size_t i = 0; i < x.nlists; i++)
    x.prefix = SLI_MAX(x.prefix, cJSON_GetArraySize(first_of(x.lists[i])));
  if (x.most >= 0 && x.most < x.least) return 0;
  int64_t last = x.most >= 0 ? x.most : SLI_MAX(SLI_MAX(x.prefix, x.least), 1);
  sli_term behind = tail(&x, last);
  for (int64_t at = last; at-- > 0 && !sli_grammar_failed(g);) {
    sli_term ways[2] = {more(&x, at, behind), at >= x.least ? close_list(&x) : 0};
    int32_t rule = sli_grammar_rule(g);
    sli_term term = sli_grammar_either(g, 2, ways);
    if (sli_grammar_failed(g)) return 0;
    g->rules[rule].term = term;
    behind = sli_grammar_call(g, rule);
  }
  sli_term begin = sli_schema_word(s, "[");
  return sli_schema_row(s, (sli_term[]){begin, behind, -1});
}
