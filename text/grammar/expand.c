/* SPDX-License-Identifier: Apache-2.0 */
/* Expands schemas keyword by keyword: what several schemas require together becomes alternatives of
 * values. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "text/grammar/schema.h"

enum { MOST_ALTERNATIVES = 4096, MOST_PLACES = 12, MOST_MULTIPLE = 4096, MOST_VALUES = 4096 };

typedef struct expansion {
  sli_schema *s;
  sli_take_values *take;
  void *ctx;
} expansion;

/* An alternative: what is known about it, and what is still to be read. */
typedef struct place {
  sli_accepted v;
  const sli_items *todo, *seen, *branches; /* branches: anyOf and oneOf */
} place;

typedef void read_keyword(expansion *e, place *p, const cJSON *schema, const cJSON *item);

static void want(const expansion *e, const cJSON *item, const char *what) {
  sli_schema_refuse(e->s, item, "must be %s", what);
}

/* ---- types and fixed values ------------------------------------------------------------------ */

static unsigned type_named(const cJSON *name) {
  static const struct {
    const char *name;
    unsigned types;
  } types[] = {{"null", SLI_JSON_NULL},       {"boolean", SLI_JSON_BOOLEAN},
               {"integer", SLI_JSON_INTEGER}, {"number", SLI_JSON_NUMBERS},
               {"string", SLI_JSON_STRING},   {"object", SLI_JSON_MAP},
               {"array", SLI_JSON_LIST}};
  for (size_t i = 0; cJSON_IsString(name) && i < SLI_COUNT(types); i++)
    if (!strcmp(name->valuestring, types[i].name)) return types[i].types;
  return 0;
}

static void read_type(expansion *e, place *p, const cJSON *schema, const cJSON *item) {
  const cJSON *each;
  unsigned types = type_named(item);
  bool good = types || (cJSON_IsArray(item) && item->child);
  (void)schema;
  cJSON_ArrayForEach(each, item) {
    good &= type_named(each) != 0;
    types |= type_named(each);
  }
  if (!good) want(e, item, "a type of JSON, or an array of them");
  p->v.types &= types;
}

/* Refuses a list that is too long at once, before any of it is read. */
static void check_count(const expansion *e, const cJSON *item, size_t most, const char *what) {
  size_t count = sli_json_count(item);
  if (count > most)
    sli_schema_refuse(e->s, item, "has %zu %s; at most %zu can be read", count, what, most);
}

static void read_enum(expansion *e, place *p, const cJSON *schema, const cJSON *item) {
  (void)schema;
  if (!cJSON_IsArray(item)) want(e, item, "an array");
  check_count(e, item, MOST_VALUES, "values");
  p->v.fixed = sli_items_add(e->s, p->v.fixed, item);
}

static void read_const(expansion *e, place *p, const cJSON *schema, const cJSON *item) {
  (void)schema;
  p->v.fixed = sli_items_add(e->s, p->v.fixed, item);
}

/* ---- counts ---------------------------------------------------------------------------------- */

static int64_t read_count(const expansion *e, const cJSON *item) {
  double n = cJSON_IsNumber(item) ? item->valuedouble : -1;
  if (n < 0 || n != floor(n)) want(e, item, "a whole number, 0 or more");
  else if (n >= SLI_MOST_REPEATS)
    sli_schema_refuse(e->s, item, "%.0f is more than a grammar can count, %d", n,
                      SLI_MOST_REPEATS - 1);
  return (int64_t)SLI_MIN(SLI_MAX(n, 0), SLI_MOST_REPEATS);
}

static void at_least(const expansion *e, const cJSON *item, int64_t *least) {
  *least = SLI_MAX(*least, read_count(e, item));
}

static void at_most(const expansion *e, const cJSON *item, int64_t *most) {
  int64_t n = read_count(e, item);
  *most = *most < 0 ? n : SLI_MIN(*most, n);
}

static void read_size(expansion *e, place *p, const cJSON *schema, const cJSON *item) {
  sli_accepted *v = &p->v;
  const struct {
    const char *name;
    int64_t *least, *most;
  } counts[] = {{"Length", &v->least_chars, &v->most_chars},
                {"Items", &v->least_items, &v->most_items},
                {"Properties", &v->least_members, &v->most_members}};
  (void)schema;
  for (size_t i = 0; i < SLI_COUNT(counts); i++) {
    if (strcmp(item->string + 3, counts[i].name) != 0) continue;
    if (item->string[1] == 'i') at_least(e, item, counts[i].least);
    else at_most(e, item, counts[i].most);
  }
}

/* ---- strings --------------------------------------------------------------------------------- */

static void and_chars(const expansion *e, place *p, const sli_chars *chars) {
  p->v.chars = p->v.chars ? sli_chars_both(e->s->g, p->v.chars, chars) : chars;
}

static void read_pattern(expansion *e, place *p, const cJSON *schema, const cJSON *item) {
  (void)schema;
  if (!cJSON_IsString(item)) want(e, item, "a text");
  else and_chars(e, p, sli_schema_pattern(e->s, item, item->valuestring));
}

static void read_format(expansion *e, place *p, const cJSON *schema, const cJSON *item) {
  (void)schema;
  const char *name = cJSON_IsString(item) ? item->valuestring : "";
  const sli_chars *chars = sli_format_chars(e->s->g, name);
  if (chars) and_chars(e, p, chars);
  else sli_schema_refuse(e->s, item, "\"%.40s\" is not a format that is supported", name);
}

/* ---- numbers --------------------------------------------------------------------------------- */

static void and_digits(const expansion *e, place *p, const cJSON *item, const sli_chars *digits) {
  if (!digits) sli_schema_refuse(e->s, item, "%g is too large or too small", item->valuedouble);
  p->v.digits = p->v.digits ? sli_chars_both(e->s->g, p->v.digits, digits) : digits;
}

static void read_bound(expansion *e, place *p, const cJSON *schema, const cJSON *item) {
  static const struct {
    const char *name;
    unsigned ways;
  } bounds[] = {{"minimum", SLI_EQUAL | SLI_MORE},
                {"maximum", SLI_EQUAL | SLI_LESS},
                {"exclusiveMinimum", SLI_MORE},
                {"exclusiveMaximum", SLI_LESS}};
  (void)schema;
  if (!cJSON_IsNumber(item)) {
    want(e, item, "a number");
    return;
  }
  for (size_t i = 0; i < SLI_COUNT(bounds); i++)
    if (!strcmp(item->string, bounds[i].name))
      and_digits(e, p, item, sli_numbers_compared(e->s->g, item->valuedouble, bounds[i].ways));
}

/* Returns the number of decimal places of 0.1, 0.01 and so on, or 0 for any other number. */
static int places_of(double value) {
  double unit = 1;
  for (int places = 1; places <= MOST_PLACES; places++) {
    unit *= 10;
    if (fabs(value * unit - 1) < 1e-9) return places;
  }
  return 0;
}

static void read_multiple(expansion *e, place *p, const cJSON *schema, const cJSON *item) {
  double n = cJSON_IsNumber(item) ? item->valuedouble : 0;
  int places = places_of(n);
  (void)schema;
  if (places) {
    and_digits(e, p, item, sli_numbers_places(e->s->g, places));
  } else if (n >= 1 && n <= MOST_MULTIPLE && n == floor(n)) {
    p->v.types &= ~(unsigned)SLI_JSON_FRACTION;
    and_digits(e, p, item, sli_numbers_multiples(e->s->g, (int32_t)n));
  } else
    sli_schema_refuse(e->s, item, "may be a whole number up to %d, or 0.1, 0.01 ...",
                      MOST_MULTIPLE);
}

/* ---- members and elements -------------------------------------------------------------------- */

static void add_once(const expansion *e, const sli_items **to, const cJSON *schema) {
  if (!*to || (*to)->item != schema) *to = sli_items_add(e->s, *to, schema);
}

static bool is_schema(const cJSON *item) { return cJSON_IsObject(item) || cJSON_IsBool(item); }

static void check_schemas(const expansion *e, const cJSON *item) {
  const cJSON *each;
  cJSON_ArrayForEach(each, item) if (!is_schema(each)) want(e, each, "a schema");
}

static void read_map(expansion *e, place *p, const cJSON *schema, const cJSON *item) {
  bool one = !strcmp(item->string, "additionalProperties");
  if (one ? !is_schema(item) : !cJSON_IsObject(item))
    want(e, item, one ? "a schema" : "an object of schemas");
  else if (!one) check_schemas(e, item);
  if (!one) check_count(e, item, SLI_MOST_MEMBERS, "members");
  add_once(e, &p->v.maps, schema);
}

static void read_names(expansion *e, place *p, const cJSON *schema, const cJSON *item) {
  (void)schema;
  if (!is_schema(item)) want(e, item, "a schema");
  p->v.names = sli_items_add(e->s, p->v.names, item);
}

static void read_required(expansion *e, place *p, const cJSON *schema, const cJSON *item) {
  const cJSON *each;
  (void)schema;
  if (!cJSON_IsArray(item)) want(e, item, "an array of texts");
  check_count(e, item, SLI_MOST_MEMBERS, "names");
  cJSON_ArrayForEach(each, item) {
    if (!cJSON_IsString(each)) want(e, item, "an array of texts");
    p->v.required = sli_items_add(e->s, p->v.required, each);
  }
}

static void read_list(expansion *e, place *p, const cJSON *schema, const cJSON *item) {
  bool several = cJSON_IsArray(item), prefix = !strcmp(item->string, "prefixItems"),
       rest = !strcmp(item->string, "additionalItems");
  if (several ? rest : prefix || !is_schema(item))
    want(e, item, prefix ? "an array of schemas" : "a schema");
  else if (several) check_schemas(e, item);
  if (several) check_count(e, item, MOST_VALUES, "schemas");
  add_once(e, &p->v.lists, schema);
}

static void read_unique(expansion *e, place *p, const cJSON *schema, const cJSON *item) {
  (void)p, (void)schema;
  if (!cJSON_IsFalse(item)) sli_schema_refuse(e->s, item, "is not supported");
}

/* ---- schemas within schemas ------------------------------------------------------------------ */

static void read_all(expansion *e, place *p, const cJSON *schema, const cJSON *item) {
  const cJSON *each;
  (void)schema;
  if (!cJSON_IsArray(item) || !item->child) want(e, item, "an array of schemas");
  else check_schemas(e, item);
  check_count(e, item, MOST_VALUES, "schemas");
  /* pushed in reverse, so that the first is read first */
  for (int i = cJSON_GetArraySize(item); i-- > 0 && (each = cJSON_GetArrayItem(item, i)) &&
                                         sli_grammar_spend(e->s->g, 1 + (size_t)i);)
    p->todo = sli_items_add(e->s, p->todo, each);
}

static void read_any(expansion *e, place *p, const cJSON *schema, const cJSON *item) {
  (void)schema;
  if (!cJSON_IsArray(item) || !item->child) {
    want(e, item, "an array of schemas");
    return;
  }
  check_schemas(e, item);
  check_count(e, item, MOST_VALUES, "schemas");
  p->branches = sli_items_add(e->s, p->branches, item);
  if (!strcmp(item->string, "oneOf")) e->s->ones = sli_items_add(e->s, e->s->ones, item);
}

static int hex(char c) {
  static const char digits[] = "0123456789abcdef";
  const char *at = c ? strchr(digits, c | ' ') : NULL;
  return at ? (int)(at - digits) : -1;
}

/* Copies a token of a pointer, with %2F, ~1 and ~0 decoded. */
static char *pointer_token(const expansion *e, const char *from, size_t bytes) {
  char *out = sli_grammar_alloc(e->s->g, bytes + 1), *to = out;
  for (size_t i = 0; out && i < bytes; i++) {
    char c = from[i];
    bool coded = c == '%' && i + 2 < bytes + 0 && hex(from[i + 1]) >= 0 && hex(from[i + 2]) >= 0;
    if (coded) c = (char)(hex(from[i + 1]) * 16 + hex(from[i + 2])), i += 2;
    if (c == '~' && i + 1 < bytes) c = from[++i] == '1' ? '/' : '~';
    *to++ = c;
  }
  return out;
}

/* Follows a pointer into the document. Returns NULL if it leads nowhere. */
static const cJSON *follow(const expansion *e, const char *pointer) {
  const cJSON *at = e->s->doc.root;
  while (at && *pointer == '/') {
    size_t bytes = strcspn(++pointer, "/");
    const char *token = pointer_token(e, pointer, bytes);
    if (!token || !sli_grammar_spend(e->s->g, bytes + sli_json_count(at))) return NULL;
    at = cJSON_IsArray(at) ? cJSON_GetArrayItem(at, atoi(token))
                           : cJSON_GetObjectItemCaseSensitive(at, token);
    pointer += bytes;
  }
  return *pointer ? NULL : at;
}

static void read_ref(expansion *e, place *p, const cJSON *schema, const cJSON *item) {
  const char *ref = cJSON_IsString(item) ? item->valuestring : "";
  const cJSON *to = *ref == '#' ? follow(e, ref + 1) : NULL;
  (void)schema;
  if (sli_grammar_failed(e->s->g)) return;
  if (!to || !is_schema(to))
    sli_schema_refuse(e->s, item, "\"%.80s\" is not a schema in this document", ref);
  else p->todo = sli_items_add(e->s, p->todo, to);
}

/* ---- keywords -------------------------------------------------------------------------------- */

static const struct keyword {
  const char *name;
  read_keyword *read; /* NULL: does not restrict values */
} keywords[] = {{"type", read_type},
                {"enum", read_enum},
                {"const", read_const},
                {"properties", read_map},
                {"patternProperties", read_map},
                {"additionalProperties", read_map},
                {"propertyNames", read_names},
                {"required", read_required},
                {"minProperties", read_size},
                {"maxProperties", read_size},
                {"prefixItems", read_list},
                {"items", read_list},
                {"additionalItems", read_list},
                {"minItems", read_size},
                {"maxItems", read_size},
                {"uniqueItems", read_unique},
                {"minLength", read_size},
                {"maxLength", read_size},
                {"pattern", read_pattern},
                {"format", read_format},
                {"minimum", read_bound},
                {"maximum", read_bound},
                {"exclusiveMinimum", read_bound},
                {"exclusiveMaximum", read_bound},
                {"multipleOf", read_multiple},
                {"allOf", read_all},
                {"anyOf", read_any},
                {"oneOf", read_any},
                {"$ref", read_ref},
                {"$defs", NULL},
                {"definitions", NULL},
                {"$schema", NULL},
                {"$id", NULL},
                {"$comment", NULL},
                {"$anchor", NULL},
                {"title", NULL},
                {"description", NULL},
                {"default", NULL},
                {"example", NULL},
                {"examples", NULL},
                {"deprecated", NULL},
                {"readOnly", NULL},
                {"writeOnly", NULL},
                {"contentEncoding", NULL},
                {"contentMediaType", NULL},
                {"discriminator", NULL},
                {"strict", NULL}};

static void read_member(expansion *e, place *p, const cJSON *schema, const cJSON *item) {
  for (size_t i = 0; i < SLI_COUNT(keywords); i++) {
    if (strcmp(item->string, keywords[i].name) != 0) continue;
    if (keywords[i].read) keywords[i].read(e, p, schema, item);
    return;
  }
  if (strncmp(item->string, "x-", 2) != 0)
    sli_schema_refuse(e->s, item, "this keyword is not supported");
}

/* ---- alternatives ---------------------------------------------------------------------------- */

static bool is_seen(const expansion *e, const place *p, const cJSON *schema) {
  for (const sli_items *x = p->seen; x && sli_grammar_spend(e->s->g, 1); x = x->next)
    if (x->item == schema) return true;
  return false;
}

/* Reads all pending schemas. Returns false if there are no values. */
static bool read_schemas(expansion *e, place *p) {
  while (p->todo && !sli_grammar_failed(e->s->g)) {
    const cJSON *schema = p->todo->item, *item;
    p->todo = p->todo->next;
    if (cJSON_IsFalse(schema)) return false;
    if (is_seen(e, p, schema)) continue;
    p->seen = sli_items_add(e->s, p->seen, schema);
    cJSON_ArrayForEach(item, schema) if (sli_grammar_spend(e->s->g, 1))
        read_member(e, p, schema, item);
  }
  return p->v.types && !sli_grammar_failed(e->s->g);
}

static void expand(expansion *e, place p) {
  if (!read_schemas(e, &p)) return;
  if (++e->s->alternatives > MOST_ALTERNATIVES) {
    sli_schema_refuse(e->s, p.seen ? p.seen->item : e->s->doc.root,
                      "anyOf and oneOf make more than %d alternatives", MOST_ALTERNATIVES);
    return;
  }
  if (!p.branches) {
    e->take(e->ctx, &p.v);
    return;
  }
  const cJSON *branch = p.branches->item, *each;
  p.branches = p.branches->next;
  cJSON_ArrayForEach(each, branch) {
    place next = p;
    next.todo = sli_items_add(e->s, NULL, each);
    expand(e, next);
  }
}

void sli_schema_expand(sli_schema *s, size_t count, const cJSON *const *of, sli_take_values *take,
                       void *ctx) {
  expansion e = {s, take, ctx};
  place p = {
      .v = {.types = SLI_JSON_TYPES, .most_chars = -1, .most_members = -1, .most_items = -1}};
  for (size_t i = count; i-- > 0;) p.todo = sli_items_add(s, p.todo, of[i]);
  expand(&e, p);
}
