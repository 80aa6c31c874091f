/* SPDX-License-Identifier: Apache-2.0 */
/* Definitions shared by the files of grammar/. */
#ifndef SLUICE_TEXT_GRAMMAR_GRAMMAR_INNER_H
#define SLUICE_TEXT_GRAMMAR_GRAMMAR_INNER_H

#include <pthread.h>

#include "text/grammar/grammar.h"

enum {
  SLI_LAST_CHARACTER = 0x10ffff,
  SLI_FIRST_SURROGATE = 0xd800,
  SLI_LAST_SURROGATE = 0xdfff,
  SLI_DEAD = -1,              /* not a state of an automaton */
  SLI_MOST_STATES = 1 << 14,  /* in an automaton over characters */
  SLI_MOST_NODES = 1 << 19,   /* in a grammar */
  SLI_MOST_EDGES = 1 << 20,   /* in a grammar */
  SLI_RUN_BYTES = 4 << 20,    /* for states and masks of a sealed grammar */
  SLI_MOST_CONFIGS = 1 << 12, /* in a state */
  SLI_MOST_WORK = 1 << 25,    /* steps to find the tokens that may come next */
  SLI_MOST_STEPS = 1 << 24,   /* steps to make a grammar: a fraction of a second */
  SLI_MOST_REPEATS = 1 << 14
};

/* ---- memory, errors (parts.c)
 * --------------------------------------------------------------------------------- */

/* Allocates zeroed memory of the grammar. Returns NULL if there is none; the grammar has then
 * failed. */
void *sli_grammar_alloc(sli_grammar *g, size_t bytes);
/* Grows an array so that index `count` may be written. Returns false if there is no memory. */
bool sli_grammar_grow(sli_grammar *g, void *array, size_t count, size_t *capacity, size_t size);
#define SLI_GRAMMAR_GROW(g, array, count, capacity) \
  sli_grammar_grow((g), &(array), (count), &(capacity), sizeof *(array))
/* Records the first error. Returns 0, the term without texts. */
sli_term sli_grammar_fail(sli_grammar *g, sl_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
bool sli_grammar_failed(const sli_grammar *g);
/* Counts steps of the work on a grammar; fails after SLI_MOST_STEPS. Every loop whose length
 * depends on the request counts its steps, so no text of a stranger keeps a thread busy. Returns
 * false once the grammar has failed. */
bool sli_grammar_spend(sli_grammar *g, size_t steps);

/* ---- automata over characters (chars.c) ------------------------------------------------------ */

typedef struct sli_chars_edge {
  int32_t low, high, to;
} sli_chars_edge;

/* A deterministic automaton over characters. It begins in state 0. The edges of a state are sorted
 * and do not overlap. */
typedef struct sli_chars {
  size_t count, capacity;
  struct sli_chars_state {
    bool accepts;
    size_t count, capacity;
    sli_chars_edge *edges;
  } * states;
} sli_chars;

sli_chars *sli_chars_create(sli_grammar *g);
int32_t sli_chars_state(sli_grammar *g, sli_chars *chars, bool accepts);
/* Adds an edge after the others of its state, merged with the last one if possible. */
void sli_chars_edge_add(sli_grammar *g, sli_chars *chars, int32_t from, int32_t low, int32_t high,
                        int32_t to);
bool sli_chars_match(const sli_chars *chars, const char *text);
bool sli_chars_is_empty(sli_grammar *g, const sli_chars *chars);
/* Return the texts that both accept, and those that only the first accepts. NULL: failed. */
sli_chars *sli_chars_both(sli_grammar *g, const sli_chars *chars, const sli_chars *b);
sli_chars *sli_chars_without(sli_grammar *g, const sli_chars *chars, const sli_chars *b);
/* Returns all texts of `least` to `most` characters (below 0: any number). */
sli_chars *sli_chars_of_length(sli_grammar *g, int64_t least, int64_t most);
/* Return one text, and each of several texts. */
sli_chars *sli_chars_of_text(sli_grammar *g, const char *text);
sli_chars *sli_chars_of_texts(sli_grammar *g, const char *const *texts, size_t count);
/* Returns the texts that a regular expression (regex.c) matches: as a whole, or with `within`,
 * anywhere in them. NULL: failed; `where` names it in the message. */
sli_chars *sli_chars_of_regex(sli_grammar *g, const char *where, const char *pattern, bool within);

/* ---- terms (terms.c) ------------------------------------------------------------------------- */

typedef enum sli_term_kind {
  SLI_TERM_NOTHING, /* no text */
  SLI_TERM_TEXT,
  SLI_TERM_SEQUENCE, /* a sequence of other terms */
  SLI_TERM_EITHER,
  SLI_TERM_REPEAT,
  SLI_TERM_CHARS, /* texts of an automaton, plain or as JSON writes them in a string */
  SLI_TERM_RULE   /* texts of a rule, all non-empty */
} sli_term_kind;

typedef struct sli_term_of {
  sli_term_kind kind;
  int count;
  sli_term *terms;
  const char *text;
  int64_t least, most; /* for REPEAT */
  const sli_chars *chars;
  bool quoted;
  int32_t rule;
} sli_term_of;

sli_term sli_grammar_chars(sli_grammar *g, const sli_chars *chars, bool quoted);
/* Return a rule without a term yet, and a term for its texts. */
int32_t sli_grammar_rule(sli_grammar *g);
sli_term sli_grammar_call(sli_grammar *g, int32_t rule);

/* ---- nodes (parts.c) ------------------------------------------------------------------------- */

/* An edge: by a byte of a range, without a byte, or by a text of a rule. */
typedef struct sli_edge {
  enum { SLI_EDGE_BYTES, SLI_EDGE_FREE, SLI_EDGE_RULE } kind;
  uint8_t low, high;
  int32_t to, rule, next; /* next: edge of the same node; -1 if last */
} sli_edge;

typedef struct sli_rule {
  sli_term term;
  int32_t begin, end; /* nodes */
  int32_t order;      /* smaller than that of all rules that its texts may begin with */
} sli_rule;

typedef struct sli_node_of {
  int32_t edges; /* the first edge; -1 if none */
  int32_t rule;  /* the rule that ends here; -1 if none */
} sli_node_of;

int32_t sli_grammar_node(sli_grammar *g);
void sli_grammar_edge(sli_grammar *g, int32_t from, sli_edge edge);
/* Adds an automaton between two nodes (encode.c). */
void sli_grammar_encode(sli_grammar *g, const sli_chars *chars, bool quoted, int32_t from,
                        int32_t to);

/* ---- states (states.c) ----------------------------------------------------------------------- */

/* Continuations of the texts of rules after their end. */
typedef struct sli_grammar_frame {
  struct sli_grammar_frame *moved; /* used while memory is collected */
  uint64_t hash;
  int32_t count, number;
  struct sli_return {
    int64_t node; /* wide, because returns are compared bytewise */
    struct sli_grammar_frame *frame;
  } of[];
} sli_grammar_frame;

typedef struct sli_config {
  int64_t node;
  sli_grammar_frame *frame;
} sli_config;

typedef struct sli_state {
  struct sli_state *moved;
  uint64_t hash;
  bool accepts;
  int32_t count;
  uint32_t *mask;          /* tokens that may come next; NULL if not known */
  struct sli_state **next; /* by class of bytes; NULL if not known */
  sli_config configs[];
} sli_state;

/* A state whose address may change when memory is collected. */
typedef struct sli_root {
  sli_state *state;
  struct sli_root *next, **link;
} sli_root;

/* States of a sealed grammar. */
typedef struct sli_states {
  sli_bounded memory;
  sli_allowance allowance;
  size_t taken; /* part of SLI_RUN_BYTES in use */
  sli_root *roots;
  sli_state *dead; /* no text continues from here */
  sli_state **table;
  sli_grammar_frame **frames; /* table of frames */
  size_t nstates, states_room, nframes, frames_room;
  sli_grammar_frame **all; /* [nframes] in the order of their numbers */
  size_t all_room;
  struct sli_pending {
    int32_t rule;
    struct sli_return to;
  } * pending;
  size_t npending, pending_room;
  sli_config *configs; /* configurations of the state being made */
  size_t nconfigs;
  uint64_t *seen;    /* hash set of these */
  uint32_t *seen_at; /* their indices in it */
  size_t work;
  bool over; /* a limit was exceeded */
} sli_states;

sl_status sli_states_begin(sli_grammar *g);
void sli_states_end(sli_grammar *g);
void sli_root_add(sli_grammar *g, sli_root *root, sli_state *state);
void sli_root_remove(sli_root *root);
/* Begins an operation with a fresh limit on steps and memory. */
void sli_states_allow_work(sli_grammar *g);
sli_state *sli_states_first(sli_grammar *g);
/* Returns the state after a byte, or NULL if a limit was exceeded. States that are not roots may be
 * gone afterwards. */
sli_state *sli_states_next(sli_grammar *g, const sli_root *from, uint8_t byte);
void *sli_states_alloc(sli_grammar *g, size_t bytes);

/* ---- the grammar ----------------------------------------------------------------------------- */

struct sli_grammar {
  sli_bounded memory;
  const sli_allowance *allowance;
  sl_status status;
  char failure[512];
  sli_term_of *terms;
  sli_rule *rules;
  sli_node_of *nodes;
  sli_edge *edges;
  size_t nterms, terms_room, nrules, rules_room, nnodes, nodes_room, nedges, edges_room;
  size_t steps;
  const atomic_bool *stop; /* NULL: cannot be stopped */
  bool has_text;           /* sealed, and more than the empty text matches */
  int32_t depth;           /* nesting of terms */
  int32_t class_of[256];   /* bytes of one class lead to the same states */
  uint8_t example[256];    /* a byte of each class */
  int nclasses;
  const sli_token_trie *tokens;
  size_t reserved; /* bytes reserved of the allowance for states */
  sli_states states;
  pthread_mutex_t lock; /* guards the states */
};

/* The tokens as a tree in preorder: node i adds one byte to an earlier node. */
struct sli_token_trie {
  int64_t words; /* words in a set of tokens */
  int32_t nnodes, depth;
  uint8_t *byte, single[256]; /* single: a token consists of this byte */
  int32_t *level, *behind;    /* depth of node i; the first later node that is not below it */
  int32_t *first;             /* [nnodes + 1] tokens of node i: tokens[first[i]] ... */
  int32_t *tokens;
  int64_t count;     /* size of the vocabulary */
  uint32_t *offsets; /* [count + 1] bytes of each token, by number */
  char *text;
};

#endif
