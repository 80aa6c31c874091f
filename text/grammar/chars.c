/* SPDX-License-Identifier: Apache-2.0 */
/* Deterministic automata over characters. */
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "text/grammar/grammar_inner.h"

sli_chars *sli_chars_create(sli_grammar *g) { return sli_grammar_alloc(g, sizeof(sli_chars)); }

int32_t sli_chars_state(sli_grammar *g, sli_chars *chars, bool accepts) {
  if (chars->count >= SLI_MOST_STATES) {
    sli_grammar_fail(g, SL_E_USAGE, "a pattern is too large: it has more than %d states",
                     SLI_MOST_STATES);
    return 0;
  }
  if (!sli_grammar_spend(g, 1) ||
      !SLI_GRAMMAR_GROW(g, chars->states, chars->count, chars->capacity))
    return 0;
  chars->states[chars->count] = (struct sli_chars_state){.accepts = accepts};
  return (int32_t)chars->count++;
}

void sli_chars_edge_add(sli_grammar *g, sli_chars *chars, int32_t from, int32_t low, int32_t high,
                        int32_t to) {
  if (sli_grammar_failed(g)) return;
  struct sli_chars_state *s = &chars->states[from];
  sli_chars_edge *last = s->count ? &s->edges[s->count - 1] : NULL;
  if (last && last->to == to && last->high + 1 == low) {
    last->high = high;
    return;
  }
  if (!SLI_GRAMMAR_GROW(g, s->edges, s->count, s->capacity)) return;
  s->edges[s->count++] = (sli_chars_edge){low, high, to};
}

/* Returns the state after a character, or SLI_DEAD. */
static int32_t next_of(const sli_chars *chars, int32_t state, int32_t character) {
  const struct sli_chars_state *s = &chars->states[state];
  size_t low = 0, high = s->count;
  while (low < high) {
    size_t middle = (low + high) / 2;
    const sli_chars_edge *e = &s->edges[middle];
    if (character < e->low) high = middle;
    else if (character > e->high) low = middle + 1;
    else return e->to;
  }
  return SLI_DEAD;
}

bool sli_chars_match(const sli_chars *chars, const char *text) {
  int32_t state = 0;
  size_t left = strlen(text);
  for (bool good = true; left && state != SLI_DEAD && good;) {
    size_t n = sli_utf8_next(text, left, &good);
    if (good) state = next_of(chars, state, sli_utf8_character(text));
    text += n;
    left -= n;
  }
  return !left && state != SLI_DEAD && chars->states[state].accepts;
}

bool sli_chars_is_empty(sli_grammar *g, const sli_chars *chars) {
  if (sli_grammar_failed(g)) return true;
  bool *seen = sli_grammar_alloc(g, chars->count), found = false;
  int32_t *todo = sli_grammar_alloc(g, chars->count * sizeof *todo), n = 0;
  if (!todo) return true;
  todo[n++] = 0;
  seen[0] = true;
  while (n && !found) {
    const struct sli_chars_state *s = &chars->states[todo[--n]];
    if (!sli_grammar_spend(g, 1 + s->count)) return true;
    found = s->accepts;
    for (size_t i = 0; i < s->count; i++)
      if (!seen[s->edges[i].to]) seen[s->edges[i].to] = true, todo[n++] = s->edges[i].to;
  }
  return !found;
}

/* ---- products of two automata ---------------------------------------------------------------- */

/* A product under construction. The state of the second automaton is SLI_DEAD where it has none. */
typedef struct product {
  sli_grammar *g;
  const sli_chars *a, *b;
  bool without; /* texts that the second automaton does not accept */
  sli_chars *out;
  int32_t (*pairs)[2];
  size_t npairs, pairs_room;
  int32_t *slots; /* hash table of pairs; -1 if free */
  size_t nslots;
} product;

static int32_t *slot_of(const product *p, int32_t a, int32_t b) {
  uint64_t hash = sli_hash_word((uint64_t)(uint32_t)a, (uint64_t)(uint32_t)b);
  for (size_t at = hash & (p->nslots - 1);; at = (at + 1) & (p->nslots - 1)) {
    int32_t *slot = &p->slots[at];
    if (*slot < 0 || (p->pairs[*slot][0] == a && p->pairs[*slot][1] == b)) return slot;
  }
}

static bool accepts(const product *p, int32_t a, int32_t b) {
  bool second = b != SLI_DEAD && p->b->states[b].accepts;
  return p->a->states[a].accepts && second != p->without;
}

/* Keeps half of the table empty. */
static bool grow_table(product *p) {
  if (2 * (p->npairs + 1) < p->nslots) return true;
  p->nslots = SLI_MAX(2 * p->nslots, (size_t)64);
  p->slots = sli_grammar_alloc(p->g, p->nslots * sizeof *p->slots);
  if (!p->slots) return false;
  memset(p->slots, 0xff, p->nslots * sizeof *p->slots);
  for (size_t i = 0; i < p->npairs; i++) *slot_of(p, p->pairs[i][0], p->pairs[i][1]) = (int32_t)i;
  return true;
}

static int32_t pair(product *p, int32_t a, int32_t b) {
  if (!grow_table(p)) return 0;
  int32_t *slot = slot_of(p, a, b);
  if (*slot >= 0) return *slot;
  int32_t number = sli_chars_state(p->g, p->out, accepts(p, a, b));
  if (!SLI_GRAMMAR_GROW(p->g, p->pairs, p->npairs, p->pairs_room)) return 0;
  p->pairs[p->npairs][0] = a;
  p->pairs[p->npairs++][1] = b;
  return *slot = number;
}

/* Adds the edges for one range of the first automaton. */
static void add_range(product *p, int32_t from, const sli_chars_edge *e, int32_t second) {
  const struct sli_chars_state *s = second == SLI_DEAD ? NULL : &p->b->states[second];
  int32_t at = e->low;
  for (size_t i = 0; s && i < s->count && at <= e->high && sli_grammar_spend(p->g, 1); i++) {
    const sli_chars_edge *f = &s->edges[i];
    if (f->high < at || f->low > e->high) continue;
    if (f->low > at && p->without)
      sli_chars_edge_add(p->g, p->out, from, at, f->low - 1, pair(p, e->to, SLI_DEAD));
    int32_t low = SLI_MAX(at, f->low), high = SLI_MIN(e->high, f->high);
    sli_chars_edge_add(p->g, p->out, from, low, high, pair(p, e->to, f->to));
    at = high + 1;
  }
  if (at <= e->high && p->without)
    sli_chars_edge_add(p->g, p->out, from, at, e->high, pair(p, e->to, SLI_DEAD));
}

static void expand(product *p, int32_t number) {
  const struct sli_chars_state *s = &p->a->states[p->pairs[number][0]];
  int32_t second = p->pairs[number][1];
  for (size_t i = 0; i < s->count && sli_grammar_spend(p->g, 1); i++)
    add_range(p, number, &s->edges[i], second);
}

static sli_chars *multiply(sli_grammar *g, const sli_chars *chars, const sli_chars *b,
                           bool without) {
  if (!chars || !b || sli_grammar_failed(g)) return NULL;
  product p = {.g = g, .a = chars, .b = b, .without = without, .out = sli_chars_create(g)};
  pair(&p, 0, 0);
  for (size_t i = 0; i < p.npairs && !sli_grammar_failed(g); i++) expand(&p, (int32_t)i);
  return sli_grammar_failed(g) ? NULL : p.out;
}

sli_chars *sli_chars_both(sli_grammar *g, const sli_chars *chars, const sli_chars *b) {
  return multiply(g, chars, b, false);
}

sli_chars *sli_chars_without(sli_grammar *g, const sli_chars *chars, const sli_chars *b) {
  return multiply(g, chars, b, true);
}

/* ---- basic automata -------------------------------------------------------------------------- */

static void add_any(sli_grammar *g, sli_chars *chars, int32_t from, int32_t to) {
  sli_chars_edge_add(g, chars, from, 0, SLI_FIRST_SURROGATE - 1, to);
  sli_chars_edge_add(g, chars, from, SLI_LAST_SURROGATE + 1, SLI_LAST_CHARACTER, to);
}

sli_chars *sli_chars_of_length(sli_grammar *g, int64_t least, int64_t most) {
  sli_chars *a = sli_chars_create(g);
  int64_t last = most < 0 ? least : most;
  if (last >= SLI_MOST_REPEATS)
    sli_grammar_fail(g, SL_E_USAGE, "%lld characters are more than a grammar can count, %d",
                     (long long)last, SLI_MOST_REPEATS - 1);
  for (int64_t i = 0; i <= last && !sli_grammar_failed(g); i++) {
    int32_t state = sli_chars_state(g, a, i >= least);
    if (state) add_any(g, a, state - 1, state);
    if (i == last && most < 0) add_any(g, a, state, state);
  }
  return sli_grammar_failed(g) ? NULL : a;
}

/* Adds a state for sorted texts with a common prefix, and all states after it. */
static int32_t add_texts(sli_grammar *g, sli_chars *chars, const char **texts, size_t count,
                         int depth) {
  enum { MOST_DEPTH = 1024 };
  int32_t state = sli_chars_state(g, chars, !*texts[0]);
  if (depth > MOST_DEPTH)
    sli_grammar_fail(g, SL_E_USAGE, "a name has more than %d characters", MOST_DEPTH);
  for (size_t i = !*texts[0]; i < count && !sli_grammar_failed(g);) {
    int32_t character = sli_utf8_character(texts[i]);
    size_t end = i;
    bool good;
    for (; end < count && sli_utf8_character(texts[end]) == character; end++)
      texts[end] += sli_utf8_next(texts[end], strlen(texts[end]), &good);
    int32_t to = add_texts(g, chars, texts + i, end - i, depth + 1);
    sli_chars_edge_add(g, chars, state, character, character, to);
    i = end;
  }
  return state;
}

static int by_text(const void *a, const void *b) {
  return strcmp(*(const char *const *)a, *(const char *const *)b);
}

sli_chars *sli_chars_of_texts(sli_grammar *g, const char *const *texts, size_t count) {
  sli_chars *a = sli_chars_create(g);
  const char **sorted = sli_grammar_alloc(g, count * sizeof *sorted);
  if (!a || !sorted) return NULL;
  if (!sli_grammar_spend(g, count)) return NULL;
  memcpy(sorted, texts, count * sizeof *sorted);
  qsort(sorted, count, sizeof *sorted, by_text);
  add_texts(g, a, sorted, count, 0);
  return sli_grammar_failed(g) ? NULL : a;
}

sli_chars *sli_chars_of_text(sli_grammar *g, const char *text) {
  return sli_chars_of_texts(g, &text, 1);
}
