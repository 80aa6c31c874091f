/* SPDX-License-Identifier: Apache-2.0 */
/* Sealing: terms become nodes and edges, of which only those that lead to an end are kept. */
#include <stdlib.h>
#include <string.h>

#include "text/grammar/grammar_inner.h"

enum { MOST_DEPTH = 2000 }; /* nesting of terms */

/* ---- terms to nodes -------------------------------------------------------------------------- */

static void emit(sli_grammar *g, sli_term term, int32_t from, int32_t to);

static void emit_free(sli_grammar *g, int32_t from, int32_t to) {
  sli_grammar_edge(g, from, (sli_edge){.kind = SLI_EDGE_FREE, .to = to});
}

static void emit_text(sli_grammar *g, const sli_term_of *t, int32_t from, int32_t to) {
  for (int i = 0; i < t->count && !g->status; i++) {
    int32_t next = i + 1 < t->count ? sli_grammar_node(g) : to;
    uint8_t byte = (uint8_t)t->text[i];
    sli_grammar_edge(g, from, (sli_edge){SLI_EDGE_BYTES, byte, byte, next, 0, 0});
    from = next;
  }
  if (!t->count) emit_free(g, from, to);
}

static void emit_sequence(sli_grammar *g, const sli_term_of *t, int32_t from, int32_t to) {
  for (int i = 0; i < t->count && !g->status; i++) {
    int32_t next = i + 1 < t->count ? sli_grammar_node(g) : to;
    emit(g, t->terms[i], from, next);
    from = next;
  }
  if (!t->count) emit_free(g, from, to);
}

static void emit_repeat(sli_grammar *g, const sli_term_of *t, int32_t from, int32_t to) {
  for (int64_t i = 0; i < t->least && !g->status; i++) {
    int32_t next = sli_grammar_node(g);
    emit(g, t->terms[0], from, next);
    from = next;
  }
  for (int64_t i = t->least; i < t->most && !g->status; i++) {
    int32_t next = sli_grammar_node(g);
    emit_free(g, from, to);
    emit(g, t->terms[0], from, next);
    from = next;
  }
  if (t->most < 0) {
    int32_t loop = sli_grammar_node(g);
    emit_free(g, from, loop);
    emit(g, t->terms[0], loop, loop);
    from = loop;
  }
  emit_free(g, from, to);
}

static void emit_kind(sli_grammar *g, const sli_term_of *t, int32_t from, int32_t to) {
  switch (t->kind) {
  case SLI_TERM_TEXT: emit_text(g, t, from, to); break;
  case SLI_TERM_SEQUENCE: emit_sequence(g, t, from, to); break;
  case SLI_TERM_EITHER:
    for (int i = 0; i < t->count; i++) emit(g, t->terms[i], from, to);
    break;
  case SLI_TERM_REPEAT: emit_repeat(g, t, from, to); break;
  case SLI_TERM_CHARS: sli_grammar_encode(g, t->chars, t->quoted, from, to); break;
  case SLI_TERM_RULE:
    sli_grammar_edge(g, from, (sli_edge){SLI_EDGE_RULE, 0, 0, to, t->rule, 0});
    break;
  default: break;
  }
}

/* Adds a term's texts between two nodes. */
static void emit(sli_grammar *g, sli_term term, int32_t from, int32_t to) {
  sli_term_of t = g->terms[term];
  if (!sli_grammar_spend(g, 1)) return;
  if (++g->depth > MOST_DEPTH) sli_grammar_fail(g, SL_E_USAGE, "a grammar is nested too deeply");
  emit_kind(g, &t, from, to);
  g->depth--;
}

static void emit_rules(sli_grammar *g) {
  for (size_t i = 0; i < g->nrules && !g->status; i++) {
    int32_t begin = sli_grammar_node(g), end = sli_grammar_node(g);
    if (g->status) return;
    g->rules[i].begin = begin;
    g->rules[i].end = end;
    g->nodes[end].rule = (int32_t)i;
    emit(g, g->rules[i].term, begin, end);
  }
}

/* ---- bytes covered by tokens ----------------------------------------------------------------- */

/* Restricts edges to bytes that are tokens by themselves, so that every text can be spelled. */
static void cut_bytes(sli_grammar *g) {
  const uint8_t *single = g->tokens->single;
  for (size_t i = 0, n = g->nedges; i < n && sli_grammar_spend(g, 1); i++) {
    sli_edge e = g->edges[i];
    if (e.kind != SLI_EDGE_BYTES) continue;
    int low = e.low, high = e.high, from = low;
    while (low <= high && !single[low]) low++;
    for (from = low; low <= high && single[low];) low++;
    g->edges[i].low = (uint8_t)SLI_MIN(from, 255);
    g->edges[i].high = (uint8_t)(low - 1);
    if (from > high) g->edges[i].rule = -1; /* no byte is left */
    if (low <= high && from <= high) {
      e.low = (uint8_t)low; /* the rest is restricted later */
      e.next = g->edges[i].next;
      if (!SLI_GRAMMAR_GROW(g, g->edges, g->nedges, g->edges_room)) return;
      g->edges[g->nedges] = e;
      g->edges[i].next = (int32_t)g->nedges++;
      n++;
    }
  }
}

/* ---- nodes that lead to an end --------------------------------------------------------------- */

static bool leads_on(const sli_grammar *g, const sli_edge *e, const bool *good) {
  if (!good[e->to] || e->rule < 0) return false;
  return e->kind != SLI_EDGE_RULE || good[g->rules[e->rule].begin];
}

/* Edges by the nodes that they wait for: the one that they lead to, and for an edge of a rule the
 * rule's first. */
typedef struct waiting {
  sli_grammar *g;
  bool *good;
  int32_t *from;             /* [nedges] the node of each edge */
  int32_t *to, *next_to;     /* [nnodes] first edge to each node; [nedges] next one */
  int32_t *rule, *next_rule; /* [nrules] first edge of each rule; [nedges] next one */
  int32_t *begins;           /* [nnodes] the rule that begins at each node; -1 if none */
  int32_t *todo, ntodo;      /* nodes that are good, but not followed back yet */
} waiting;

static int32_t *numbers(sli_grammar *g, size_t count) {
  int32_t *out = sli_grammar_alloc(g, count * sizeof *out);
  if (out) memset(out, 0xff, count * sizeof *out);
  return out;
}

static bool make_waiting(waiting *w) {
  sli_grammar *g = w->g;
  w->good = sli_grammar_alloc(g, g->nnodes);
  w->from = numbers(g, g->nedges);
  w->to = numbers(g, g->nnodes);
  w->next_to = numbers(g, g->nedges);
  w->rule = numbers(g, g->nrules);
  w->next_rule = numbers(g, g->nedges);
  w->begins = numbers(g, g->nnodes);
  w->todo = numbers(g, g->nnodes);
  if (!sli_grammar_spend(g, g->nnodes + g->nedges + g->nrules)) return false;
  for (size_t k = 0; k < g->nnodes; k++)
    for (int32_t i = g->nodes[k].edges; i >= 0; i = g->edges[i].next) {
      const sli_edge *e = &g->edges[i];
      w->from[i] = (int32_t)k;
      w->next_to[i] = w->to[e->to];
      w->to[e->to] = i;
      if (e->kind != SLI_EDGE_RULE || e->rule < 0) continue;
      w->next_rule[i] = w->rule[e->rule];
      w->rule[e->rule] = i;
    }
  for (size_t i = 0; i < g->nrules; i++) w->begins[g->rules[i].begin] = (int32_t)i;
  return true;
}

static void mark(waiting *w, int32_t node) {
  if (w->good[node]) return;
  w->good[node] = true;
  w->todo[w->ntodo++] = node;
}

static void mark_from(waiting *w, int32_t edge) {
  if (leads_on(w->g, &w->g->edges[edge], w->good)) mark(w, w->from[edge]);
}

/* Marks nodes from which the end of their rule can be reached. Looks at each edge at most twice. */
static bool *find_good(sli_grammar *g) {
  waiting w = {.g = g};
  if (!make_waiting(&w)) return NULL;
  for (size_t i = 0; i < g->nrules; i++) mark(&w, g->rules[i].end);
  while (w.ntodo) {
    int32_t node = w.todo[--w.ntodo], rule = w.begins[node];
    for (int32_t i = w.to[node]; i >= 0; i = w.next_to[i]) mark_from(&w, i);
    for (int32_t i = rule < 0 ? -1 : w.rule[rule]; i >= 0; i = w.next_rule[i]) mark_from(&w, i);
  }
  return w.good;
}

static void drop_others(sli_grammar *g, const bool *good) {
  for (size_t k = 0; k < g->nnodes; k++)
    for (int32_t *at = &g->nodes[k].edges; *at >= 0;) {
      const sli_edge *e = &g->edges[*at];
      if (leads_on(g, e, good)) at = &g->edges[*at].next;
      else *at = e->next;
    }
}

/* Returns whether more than the empty text is left: a byte or a rule, whose texts are not empty,
 * can be reached from a node. */
static bool has_text(sli_grammar *g, int32_t node) {
  uint8_t *seen = sli_grammar_alloc(g, g->nnodes);
  int32_t *todo = sli_grammar_alloc(g, g->nnodes * sizeof *todo), n = 0;
  if (!todo) return false;
  todo[n++] = node;
  while (n) {
    int32_t from = todo[--n];
    for (int32_t i = g->nodes[from].edges; i >= 0; i = g->edges[i].next) {
      const sli_edge *e = &g->edges[i];
      if (e->kind != SLI_EDGE_FREE) return true;
      if (!seen[e->to]) todo[n++] = e->to;
      seen[e->to] = 1;
    }
  }
  return false;
}

/* ---- the order of rules ---------------------------------------------------------------------- */

typedef struct ordering {
  sli_grammar *g;
  uint8_t *nodes, *rules; /* 1: visited; 2, for rules: done */
  int32_t *todo, ntodo;   /* nodes to visit */
  int32_t next;
} ordering;

static void order_rule(ordering *o, int32_t rule);

static void add_node(ordering *o, int32_t node) {
  if (o->nodes[node]) return;
  o->nodes[node] = 1;
  o->todo[o->ntodo++] = node;
}

/* Visits the nodes that a node leads to without a byte; a stack, because chains of them are long.
 */
static void order_nodes(ordering *o, int32_t begin) {
  int32_t others = o->ntodo;
  add_node(o, begin);
  while (o->ntodo > others && !o->g->status) {
    int32_t node = o->todo[--o->ntodo];
    for (int32_t i = o->g->nodes[node].edges; i >= 0; i = o->g->edges[i].next) {
      const sli_edge *e = &o->g->edges[i];
      if (e->kind == SLI_EDGE_FREE) add_node(o, e->to);
      if (e->kind == SLI_EDGE_RULE) order_rule(o, e->rule);
    }
  }
}

/* Assigns numbers in descending order: a rule gets one after the rules that it may begin with. */
static void order_rule(ordering *o, int32_t rule) {
  if (o->rules[rule] == 2) return;
  if (o->rules[rule] == 1) {
    sli_grammar_fail(o->g, SL_E_USAGE, "a rule of the grammar is left-recursive");
    return;
  }
  o->rules[rule] = 1;
  order_nodes(o, o->g->rules[rule].begin);
  o->rules[rule] = 2;
  o->g->rules[rule].order = --o->next;
}

static void order_rules(sli_grammar *g) {
  ordering o = {.g = g, .next = (int32_t)g->nrules};
  o.nodes = sli_grammar_alloc(g, g->nnodes);
  o.rules = sli_grammar_alloc(g, g->nrules);
  o.todo = sli_grammar_alloc(g, g->nnodes * sizeof *o.todo);
  for (size_t i = 0; i < g->nrules && !g->status; i++) order_rule(&o, (int32_t)i);
}

/* ---- classes of bytes ------------------------------------------------------------------------ */

static void find_classes(sli_grammar *g) {
  bool cut[257] = {true};
  for (size_t k = 0; k < g->nnodes; k++)
    for (int32_t i = g->nodes[k].edges; i >= 0; i = g->edges[i].next)
      if (g->edges[i].kind == SLI_EDGE_BYTES)
        cut[g->edges[i].low] = cut[g->edges[i].high + 1] = true;
  for (int b = 0; b < 256; b++) {
    if (cut[b]) g->example[g->nclasses++] = (uint8_t)b;
    g->class_of[b] = g->nclasses - 1;
  }
}

/* ---- sealing --------------------------------------------------------------------------------- */

static void seal(sli_grammar *g, sli_term root) {
  int32_t rule = sli_grammar_rule(g); /* the last rule */
  if (g->status) return;
  g->rules[rule].term = root;
  emit_rules(g);
  if (!g->status) cut_bytes(g);
  const bool *good = g->status ? NULL : find_good(g);
  if (!good) return;
  if (!good[g->rules[rule].begin]) {
    sli_grammar_fail(g, SL_E_USAGE, "no text matches the grammar");
    return;
  }
  drop_others(g, good);
  g->has_text = has_text(g, g->rules[rule].begin);
  order_rules(g);
  find_classes(g);
}

/* Reserves the memory of states now: nothing could handle a refusal later. */
static void reserve(sli_grammar *g) {
  if (g->status) return;
  if (!sli_take(g->allowance, SLI_RUN_BYTES))
    sli_grammar_fail(g, SL_E_MEMORY, "there is no memory for a grammar");
  else g->reserved = SLI_RUN_BYTES;
}

bool sli_grammar_has_text(const sli_grammar *g) { return g->has_text; }

sl_status sli_grammar_seal(sli_grammar *g, sli_term root, const sli_token_trie *tokens) {
  g->tokens = tokens;
  seal(g, root);
  g->stop = NULL; /* a sealed grammar may outlive it */
  reserve(g);
  if (!g->status) g->status = sli_states_begin(g);
  return g->status ? sl_fail(g->status, "%s", g->failure) : SL_OK;
}
