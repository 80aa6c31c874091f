/* SPDX-License-Identifier: Apache-2.0 */
/* Objects: the members that schemas name, in order, followed by other members. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text/grammar/schema.h"

enum { MOST_PATTERNS = 6, MOST_RESTS = 1 << 16 };

typedef struct members {
  sli_schema *s;
  const sli_accepted *v;
  const cJSON **maps; /* [nmaps] */
  size_t nmaps;
  const char **names;
  size_t count, capacity;
  bool *needed;    /* [count] */
  sli_term *pairs; /* [count] name and value, as a term */
  sli_term extra;  /* name and value of any other member */
  bool has_extra;
  int64_t least, most; /* bounds on the number of members */
  int64_t counted;     /* all counts above this one are equivalent */
  int32_t *rests;      /* [count + 2][counted + 1] rules; -1 if not made yet */
} members;

static const cJSON *part(const cJSON *schema, const char *keyword) {
  return cJSON_GetObjectItemCaseSensitive(schema, keyword);
}

/* ---- the schemas of a member ----------------------------------------------------------------- */

typedef struct name_check {
  sli_schema *s;
  const cJSON *name;
  bool good;
} name_check;

static void check_name(void *ctx, const sli_accepted *accepted) {
  name_check *c = ctx;
  c->good |= sli_values_have(c->s, accepted, c->name);
}

/* Returns whether propertyNames accepts the name. */
static bool may_be_named(sli_schema *s, const sli_accepted *accepted, const char *name) {
  cJSON text = {.type = cJSON_String, .valuestring = (char *)name};
  for (const sli_items *x = accepted->names; x; x = x->next) {
    name_check c = {s, &text, false};
    sli_schema_expand(s, 1, &x->item, check_name, &c);
    if (!c.good) return false;
  }
  return true;
}

/* Adds what one schema requires of a member. */
static size_t add_asked(sli_schema *s, const cJSON *map, const char *name, const cJSON **out) {
  size_t n = 0;
  const cJSON *each, *all = part(map, "properties");
  if (!sli_grammar_spend(s->g, sli_json_count(map) + sli_json_count(all))) return 0;
  const cJSON *own = part(all, name);
  if (own) out[n++] = own;
  cJSON_ArrayForEach(each, part(map, "patternProperties")) {
    const sli_chars *chars = sli_schema_pattern(s, each, each->string);
    if (chars && sli_chars_match(chars, name)) out[n++] = each;
  }
  const cJSON *others = part(map, "additionalProperties");
  if (!n && others) out[n++] = others;
  return n;
}

size_t sli_schema_member(sli_schema *s, const sli_accepted *accepted, const char *name,
                         const cJSON ***out) {
  static const cJSON never = {.type = cJSON_False};
  const cJSON **maps;
  size_t nmaps = sli_items_list(s, accepted->maps, &maps), most = 1, n = 0;
  for (size_t i = 0; i < nmaps; i++)
    most += 2 + (size_t)cJSON_GetArraySize(part(maps[i], "patternProperties"));
  *out = sli_grammar_alloc(s->g, most * sizeof **out);
  if (!*out) return 0;
  for (size_t i = 0; i < nmaps; i++) n += add_asked(s, maps[i], name, *out + n);
  if (!may_be_named(s, accepted, name)) (*out)[n++] = &never;
  return n;
}

/* ---- names ----------------------------------------------------------------------------------- */

static void add_name(members *m, const cJSON *at, const char *name) {
  if (!sli_grammar_spend(m->s->g, m->count)) return;
  for (size_t i = 0; i < m->count; i++)
    if (!strcmp(m->names[i], name)) return;
  if (m->count >= SLI_MOST_MEMBERS)
    sli_schema_refuse(m->s, at, "an object has more than %d members", SLI_MOST_MEMBERS);
  if (SLI_GRAMMAR_GROW(m->s->g, m->names, m->count, m->capacity)) m->names[m->count++] = name;
}

static void find_names(members *m) {
  const cJSON *each, **required;
  size_t n = sli_items_list(m->s, m->v->required, &required);
  m->nmaps = sli_items_list(m->s, m->v->maps, &m->maps);
  for (size_t i = 0; i < m->nmaps; i++)
    cJSON_ArrayForEach(each, part(m->maps[i], "properties")) add_name(m, each, each->string);
  for (size_t i = 0; i < n; i++) add_name(m, required[i], required[i]->valuestring);
  m->needed = sli_grammar_alloc(m->s->g, m->count);
  for (size_t i = 0; i < n && m->needed && sli_grammar_spend(m->s->g, m->count); i++)
    for (size_t k = 0; k < m->count; k++)
      m->needed[k] |= !strcmp(m->names[k], required[i]->valuestring);
}

/* A name with its value. */
static sli_term pair_of(members *m, sli_term name, size_t count, const cJSON **of) {
  sli_schema *s = m->s;
  sli_term colon = sli_schema_word(s, ":"), value = sli_schema_value(s, count, of);
  return sli_schema_row(s, (sli_term[]){name, colon, s->gap, value, -1});
}

static void make_pairs(members *m) {
  m->pairs = sli_grammar_alloc(m->s->g, m->count * sizeof *m->pairs);
  for (size_t i = 0; i < m->count && !sli_grammar_failed(m->s->g); i++) {
    const cJSON **of;
    size_t n = sli_schema_member(m->s, m->v, m->names[i], &of);
    m->pairs[i] =
        pair_of(m, sli_schema_string(m->s, sli_chars_of_text(m->s->g, m->names[i])), n, of);
  }
}

/* ---- other members --------------------------------------------------------------------------- */

typedef struct names_union {
  sli_schema *s;
  const sli_chars *without; /* all texts accepted by no alternative */
} names_union;

static void drop_names(void *ctx, const sli_accepted *accepted) {
  names_union *u = ctx;
  sli_schema *s = u->s;
  const cJSON *each;
  if (!(accepted->types & SLI_JSON_STRING)) return;
  if (accepted->fixed) {
    bool several = !strcmp(accepted->fixed->item->string, "enum");
    const cJSON *first = several ? accepted->fixed->item->child : accepted->fixed->item;
    for (each = first; each; each = several ? each->next : NULL)
      if (cJSON_IsString(each) && sli_values_have(s, accepted, each))
        u->without =
            sli_chars_without(s->g, u->without, sli_chars_of_text(s->g, each->valuestring));
    return;
  }
  const sli_chars *chars =
      accepted->chars ? sli_values_chars(s, accepted)
                      : sli_chars_of_length(s->g, accepted->least_chars, accepted->most_chars);
  u->without = sli_chars_without(s->g, u->without, chars);
}

/* Returns the names that other members may have: accepted by propertyNames, but not named
 * explicitly. */
static const sli_chars *other_names(members *m) {
  sli_grammar *g = m->s->g;
  const sli_chars *all = sli_chars_of_length(g, 0, -1),
                  *left = m->count
                              ? sli_chars_without(g, all, sli_chars_of_texts(g, m->names, m->count))
                              : all;
  for (const sli_items *x = m->v->names; x; x = x->next) {
    names_union u = {m->s, all};
    sli_schema_expand(m->s, 1, &x->item, drop_names, &u);
    left = sli_chars_without(g, left, u.without);
  }
  return left;
}

/* Lists the distinct patterns of all schemas. */
static int find_patterns(members *m, const cJSON **out) {
  int n = 0;
  const cJSON *each;
  for (size_t i = 0; i < m->nmaps; i++)
    cJSON_ArrayForEach(each, part(m->maps[i], "patternProperties")) {
      bool known = !sli_grammar_spend(m->s->g, sli_json_count(m->maps[i]));
      for (int k = 0; k < n; k++) known |= !strcmp(out[k]->string, each->string);
      if (known) continue;
      if (n == MOST_PATTERNS) {
        sli_schema_refuse(m->s, each, "an object has more than %d patterns of names",
                          MOST_PATTERNS);
        return n;
      }
      out[n++] = each;
    }
  return n;
}

/* Lists the schemas of other members whose names match exactly these patterns. */
static size_t others_of(const members *m, const cJSON *const *patterns, int npatterns,
                        unsigned matched, const cJSON **out) {
  size_t n = 0;
  for (size_t i = 0; i < m->nmaps && sli_grammar_spend(m->s->g, sli_json_count(m->maps[i])); i++) {
    size_t before = n;
    for (int k = 0; k < npatterns; k++) {
      const cJSON *own = part(part(m->maps[i], "patternProperties"), patterns[k]->string);
      if (own && matched >> k & 1) out[n++] = own;
    }
    const cJSON *rest = part(m->maps[i], "additionalProperties");
    if (n == before && rest) out[n++] = rest;
  }
  return n;
}

static void make_extra(members *m) {
  sli_grammar *g = m->s->g;
  const cJSON *patterns[MOST_PATTERNS], *of[(MOST_PATTERNS + 1) * (m->nmaps + 1)];
  int npatterns = find_patterns(m, patterns), n = 0;
  const sli_chars *all = other_names(m);
  sli_term kinds[1 << MOST_PATTERNS];
  for (unsigned matched = 0; matched < 1u << npatterns && !sli_grammar_failed(g); matched++) {
    const sli_chars *names = all;
    for (int k = 0; k < npatterns && names; k++) {
      const sli_chars *chars = sli_schema_pattern(m->s, patterns[k], patterns[k]->string);
      names =
          matched >> k & 1 ? sli_chars_both(g, names, chars) : sli_chars_without(g, names, chars);
    }
    size_t count = others_of(m, patterns, npatterns, matched, of);
    bool never = false;
    for (size_t i = 0; i < count; i++) never |= cJSON_IsFalse(of[i]);
    if (!never && names && !sli_chars_is_empty(g, names))
      kinds[n++] = pair_of(m, sli_schema_string(m->s, names), count, of);
  }
  m->has_extra = n;
  int32_t rule = sli_grammar_rule(g);
  if (sli_grammar_failed(g)) return;
  g->rules[rule].term = n ? sli_grammar_either(g, n, kinds) : 0;
  m->extra = sli_grammar_call(g, rule);
}

/* ---- rows of members ------------------------------------------------------------------------- */

static sli_term close_map(members *m) {
  sli_term end = sli_schema_word(m->s, "}");
  return sli_schema_row(m->s, (sli_term[]){m->s->space, end, -1});
}

static bool has_room(const members *m, int64_t count) { return m->most < 0 || count < m->most; }

/* Returns the rest of an object after `count` members, ending with the brace. Name i or a later one
 * may come next. With i above the number of names, another member came already. */
static sli_term rest(members *m, size_t i, int64_t count);

static sli_term next_member(members *m, sli_term pair, size_t i, int64_t count) {
  sli_term comma = sli_schema_word(m->s, ","), behind = rest(m, i, count + 1);
  return sli_schema_row(m->s, (sli_term[]){comma, m->s->space, pair, behind, -1});
}

static sli_term make_rest(members *m, size_t i, int64_t count) {
  sli_term ways[2];
  int n = 0;
  if (i < m->count) {
    if (has_room(m, count)) ways[n++] = next_member(m, m->pairs[i], i + 1, count);
    if (!m->needed[i]) ways[n++] = rest(m, i + 1, count);
  } else {
    if (count >= m->least) ways[n++] = close_map(m);
    if (m->has_extra && has_room(m, count))
      ways[n++] = next_member(m, m->extra, m->count + 1, count);
  }
  return n ? sli_grammar_either(m->s->g, n, ways) : 0;
}

static sli_term rest(members *m, size_t i, int64_t count) {
  sli_grammar *g = m->s->g;
  count = SLI_MIN(count, m->counted);
  if (sli_grammar_failed(g)) return 0;
  int32_t *rule = &m->rests[(int64_t)i * (m->counted + 1) + count];
  if (*rule < 0) {
    *rule = sli_grammar_rule(g);
    sli_term term = make_rest(m, i, count);
    if (!sli_grammar_failed(g)) g->rules[*rule].term = term;
  }
  return sli_grammar_call(g, *rule);
}

/* Returns the object after its opening brace. Its first member is any one up to the first required
 * one. */
static sli_term first(members *m) {
  sli_grammar *g = m->s->g;
  sli_term *ways = sli_grammar_alloc(g, (m->count + 2) * sizeof *ways);
  int n = 0;
  size_t i = 0;
  for (bool needed = false; ways && i < m->count && !needed && has_room(m, 0); i++) {
    needed = m->needed[i];
    sli_term behind = rest(m, i + 1, 1);
    ways[n++] = sli_schema_row(m->s, (sli_term[]){m->s->space, m->pairs[i], behind, -1});
    if (needed) return sli_grammar_either(g, n, ways);
  }
  for (size_t k = 0; k < m->count; k++)
    if (m->needed[k]) return n && ways ? sli_grammar_either(g, n, ways) : 0;
  if (!ways) return 0;
  if (m->least <= 0) ways[n++] = close_map(m);
  if (m->has_extra && has_room(m, 0)) {
    sli_term behind = rest(m, m->count + 1, 1);
    ways[n++] = sli_schema_row(m->s, (sli_term[]){m->s->space, m->extra, behind, -1});
  }
  return n ? sli_grammar_either(g, n, ways) : 0;
}

static void settle_counts(members *m) {
  int64_t needed = 0;
  for (size_t i = 0; i < m->count && m->needed; i++) needed += m->needed[i];
  m->least = m->v->least_members <= needed ? 0 : m->v->least_members;
  m->most = m->v->most_members;
  m->counted = m->most < 0 ? m->least : SLI_MAX(m->most, m->least);
  if (m->least > 1 && m->has_extra)
    sli_schema_refuse(m->s, m->nmaps ? m->maps[0] : m->s->doc.root,
                      "minProperties above 1 needs additionalProperties false");
  if ((m->counted + 1) * (int64_t)(m->count + 2) > MOST_RESTS)
    sli_schema_refuse(m->s, m->nmaps ? m->maps[0] : m->s->doc.root,
                      "minProperties or maxProperties is too large");
}

sli_term sli_schema_map(sli_schema *s, const sli_accepted *accepted) {
  members m = {.s = s, .v = accepted};
  find_names(&m);
  make_pairs(&m);
  make_extra(&m);
  settle_counts(&m);
  size_t rests = (m.count + 2) * (size_t)(m.counted + 1);
  m.rests = sli_grammar_alloc(s->g, rests * sizeof *m.rests);
  if (!m.rests) return 0;
  memset(m.rests, 0xff, rests * sizeof *m.rests);
  sli_term begin = sli_schema_word(s, "{"), rest_of_it = first(&m);
  return sli_schema_row(s, (sli_term[]){begin, rest_of_it, -1});
}
