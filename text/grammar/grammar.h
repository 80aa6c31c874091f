/* SPDX-License-Identifier: Apache-2.0 */
/* Grammars of answers: which tokens may come next, so that a text follows a regular expression or a
 * JSON schema.
 *
 *     sli_grammar *g = sli_grammar_create(NULL);
 *     sli_term call[] = {sli_grammar_text(g, "<call>", 6), sli_grammar_schema(g, schema, "schema"),
 *                        sli_grammar_text(g, "</call>", 7)};
 *     status = sli_grammar_seal(g, sli_grammar_sequence(g, 3, call), tokens);
 *     sli_guide *guide = sli_guide_create(g, ends, nends);
 *     ... sli_guide_allow(guide, bits) before each token, sli_guide_take(guide, token) after it
 *
 * A grammar is an automaton over bytes with a stack. It is determinised while it is used, and what
 * was found is kept for all guides of the grammar. From each state that it reaches, the end can be
 * reached by tokens, so no answer gets stuck.
 *
 * Threads: a grammar is made and sealed by one thread. Afterwards any number of them may use and
 * destroy its guides. */
#ifndef SLUICE_TEXT_GRAMMAR_GRAMMAR_H
#define SLUICE_TEXT_GRAMMAR_GRAMMAR_H

#include <stdatomic.h>
#include <cjson/cJSON.h>

#include "base/allowance.h"

/* ---- bytes of tokens ------------------------------------------------------------------------ */

/* The tokens of a vocabulary, sorted by their bytes. */
typedef struct sli_token_trie sli_token_trie;
/* First byte of a special token in place of a text, before the token's name. No text contains
 * it. */
enum { SLI_TOKEN_MARK = 0xff };
/* bytes_of() returns the bytes that a token adds to a text, valid until the next call. It returns
 * none for tokens that no grammar may choose. */
sli_token_trie *sli_token_trie_create(
    int64_t count, const char *(*bytes_of)(void *ctx, int32_t token, size_t *bytes), void *ctx);
void sli_token_trie_destroy(sli_token_trie *t);
/* Returns whether there is a special token of this name. */
bool sli_token_trie_has_mark(const sli_token_trie *t, const char *name, size_t bytes);

/* ---- grammars ------------------------------------------------------------------------------- */

typedef struct sli_grammar sli_grammar;
/* A part of a grammar: a set of texts. It may be part of several other terms. */
typedef int32_t sli_term;

/* Creates a grammar. Its memory is charged to the allowance, which must outlive it; NULL:
 * unlimited. sli_grammar_seal() reports errors. */
sli_grammar *sli_grammar_create(const sli_allowance *allowance);
void sli_grammar_destroy(sli_grammar *g);
/* Ends the making of the grammar with SL_E_STOPPED soon after *stop becomes true. */
void sli_grammar_stop_at(sli_grammar *g, const atomic_bool *stop);

/* Returns a single text. */
sli_term sli_grammar_text(sli_grammar *g, const char *text, size_t bytes);
/* Returns the texts that a regular expression in ECMAScript's syntax matches as a whole. Back
 * references, lookarounds and word boundaries are not supported. */
sli_term sli_grammar_regex(sli_grammar *g, const char *pattern);
/* Returns the JSON values that a schema accepts. `where` names the schema in messages. The schema
 * may be deleted afterwards. */
sli_term sli_grammar_schema(sli_grammar *g, const cJSON *schema, const char *where);
/* Returns the strings that a schema accepts, without quotes and escapes, in which `without` does
 * not occur. */
sli_term sli_grammar_string(sli_grammar *g, const cJSON *schema, const char *where,
                            const char *without);
/* Returns the texts of a grammar in llama.cpp's notation, from the rule "root". */
sli_term sli_grammar_gbnf(sli_grammar *g, const char *text);
/* Return the texts that end with the first occurrence of `text`, and the texts in which it does not
 * occur. `text` is ASCII and not empty. */
sli_term sli_grammar_until(sli_grammar *g, const char *text);
sli_term sli_grammar_without(sli_grammar *g, const char *text);
/* Returns a text as a model writes it: words like <name> and [NAME] in it are special tokens if the
 * vocabulary has them. */
sli_term sli_grammar_spelled(sli_grammar *g, const sli_token_trie *tokens, const char *text);
/* Return one text of each term, in order; a text of any of them; and `least` to `most` texts of a
 * term, one after another (`most` below 0: any number). */
sli_term sli_grammar_sequence(sli_grammar *g, int count, const sli_term *terms);
sli_term sli_grammar_either(sli_grammar *g, int count, const sli_term *terms);
sli_term sli_grammar_repeat(sli_grammar *g, sli_term term, int64_t least, int64_t most);

/* Completes the grammar: its texts are those of `root`. The tokens must outlive it. SL_E_USAGE: the
 * first error of a term, or no text is possible. SL_E_MEMORY: the allowance does not suffice. */
sl_status sli_grammar_seal(sli_grammar *g, sli_term root, const sli_token_trie *tokens);
/* Returns whether a sealed grammar matches more than the empty text. */
bool sli_grammar_has_text(const sli_grammar *g);

/* ---- guides --------------------------------------------------------------------------------- */

/* The position of one text in a sealed grammar. */
typedef struct sli_guide sli_guide;
/* `ends`: tokens that end a text, allowed where the grammar may end. They are copied. */
sli_guide *sli_guide_create(sli_grammar *g, const int32_t *ends, int nends);
void sli_guide_destroy(sli_guide *guide);
/* Sets the bits of the tokens allowed after the text and `n` further tokens, which the guide does
 * not take. Returns false if none is allowed, because the further tokens violate the grammar, or
 * memory or time ran out. */
bool sli_guide_allow_behind(sli_guide *guide, int n, const int32_t *further, uint32_t *allowed);
static inline bool sli_guide_allow(sli_guide *guide, uint32_t *allowed) {
  return sli_guide_allow_behind(guide, 0, NULL, allowed);
}
/* Takes a token. Returns true if the text is complete, and only its end can follow. */
bool sli_guide_take(sli_guide *guide, int32_t token);
/* Returns whether no token was allowed at the last request. */
bool sli_guide_is_stuck(const sli_guide *guide);

#endif
