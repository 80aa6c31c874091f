/* SPDX-License-Identifier: Apache-2.0 */
/* Terms: the parts that a grammar is made of. */
#include <stdlib.h>
#include <string.h>

#include "text/grammar/grammar_inner.h"

static sli_term add_term(sli_grammar *g, sli_term_of term) {
  if (!SLI_GRAMMAR_GROW(g, g->terms, g->nterms, g->terms_room)) return 0;
  g->terms[g->nterms] = term;
  return (sli_term)g->nterms++;
}

sli_grammar *sli_grammar_create(const sli_allowance *allowance) {
  sli_grammar *g = sli_calloc(1, sizeof *g);
  g->allowance = g->memory.allowance = allowance;
  pthread_mutex_init(&g->lock, NULL);
  add_term(g, (sli_term_of){.kind = SLI_TERM_NOTHING});
  return g;
}

void sli_grammar_stop_at(sli_grammar *g, const atomic_bool *stop) { g->stop = stop; }

void sli_grammar_destroy(sli_grammar *g) {
  if (!g) return;
  sli_states_end(g);
  sli_give(g->allowance, g->reserved);
  sli_bounded_fini(&g->memory);
  pthread_mutex_destroy(&g->lock);
  free(g);
}

sli_term sli_grammar_text(sli_grammar *g, const char *text, size_t bytes) {
  char *copy = sli_grammar_alloc(g, bytes + 1);
  if (!copy) return 0;
  memcpy(copy, text, bytes);
  return add_term(g, (sli_term_of){.kind = SLI_TERM_TEXT, .text = copy, .count = (int)bytes});
}

static sli_term add_several(sli_grammar *g, sli_term_kind kind, int count, const sli_term *terms) {
  sli_term *copy = sli_grammar_alloc(g, (size_t)count * sizeof *copy);
  if (!copy) return 0;
  if (count) memcpy(copy, terms, (size_t)count * sizeof *copy);
  return add_term(g, (sli_term_of){.kind = kind, .count = count, .terms = copy});
}

sli_term sli_grammar_sequence(sli_grammar *g, int count, const sli_term *terms) {
  return count == 1 ? terms[0] : add_several(g, SLI_TERM_SEQUENCE, count, terms);
}

sli_term sli_grammar_either(sli_grammar *g, int count, const sli_term *terms) {
  return count == 1 ? terms[0] : add_several(g, SLI_TERM_EITHER, count, terms);
}

sli_term sli_grammar_repeat(sli_grammar *g, sli_term term, int64_t least, int64_t most) {
  if (least > SLI_MOST_REPEATS || most > SLI_MOST_REPEATS)
    return sli_grammar_fail(g, SL_E_USAGE, "%lld repetitions are more than a grammar can count, %d",
                            (long long)SLI_MAX(least, most), SLI_MOST_REPEATS);
  sli_term *copy = sli_grammar_alloc(g, sizeof *copy);
  if (!copy) return 0;
  *copy = term;
  return add_term(
      g, (sli_term_of){
             .kind = SLI_TERM_REPEAT, .count = 1, .terms = copy, .least = least, .most = most});
}

sli_term sli_grammar_chars(sli_grammar *g, const sli_chars *chars, bool quoted) {
  if (!chars) return 0;
  return add_term(g, (sli_term_of){.kind = SLI_TERM_CHARS, .chars = chars, .quoted = quoted});
}

sli_term sli_grammar_regex(sli_grammar *g, const char *pattern) {
  return sli_grammar_chars(g, sli_chars_of_regex(g, NULL, pattern, false), false);
}

int32_t sli_grammar_rule(sli_grammar *g) {
  if (!SLI_GRAMMAR_GROW(g, g->rules, g->nrules, g->rules_room)) return 0;
  g->rules[g->nrules] = (sli_rule){.begin = -1, .end = -1};
  return (int32_t)g->nrules++;
}

sli_term sli_grammar_call(sli_grammar *g, int32_t rule) {
  return add_term(g, (sli_term_of){.kind = SLI_TERM_RULE, .rule = rule});
}
