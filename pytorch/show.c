/* SPDX-License-Identifier: Apache-2.0 */
/* --show-import: what became of the calls of a program. */
#include <stdio.h>
#include <string.h>

#include "pytorch/import.h"

/* A kind of call and the number of such calls. */
typedef struct tally {
  const char *what, *becomes;
  int count;
} tally;

typedef struct tallies {
  int count;
  tally *of;
} tallies;

static void add(tallies *t, const char *what, const char *becomes) {
  int k = 0;
  while (k < t->count && (strcmp(t->of[k].what, what) || strcmp(t->of[k].becomes, becomes))) k++;
  if (k == t->count) t->of[t->count++] = (tally){what, becomes, 0};
  t->of[k].count++;
}

static void print(const char *title, const tallies *t, FILE *out) {
  if (t->count) fprintf(out, "%s\n", title);
  for (int k = 0; k < t->count; k++)
    fprintf(out, "  %5d  %-44s %s\n", t->of[k].count, t->of[k].what, t->of[k].becomes);
}

static bool is_computed(const sli_import *m, const sli_pt_node *n) {
  for (int i = 0; i < n->nouts; i++)
    if (n->outs[i] && !sli_constant(m, n->outs[i])) return false;
  return n->nouts > 0;
}

/* Returns whether the result is the first argument's tensor. */
static bool is_same(const sli_import *m, const sli_pt_node *n) {
  const sli_pt_value *in = n->nargs && n->args[0].kind == SLI_PT_VALUE ? n->args[0].value : NULL;
  return in && n->nouts == 1 && n->outs[0] && sli_made_of(m, in)->tensor &&
         sli_made_of(m, in)->tensor == sli_made_of(m, n->outs[0])->tensor;
}

void sli_pt_show(const sli_import *m, FILE *out) {
  size_t room = (size_t)m->p->nnodes + 1;
  tallies groups = {0, sli_arena_alloc(&m->g->arena, room * sizeof *groups.of)};
  tallies calls = {0, sli_arena_alloc(&m->g->arena, room * sizeof *calls.of)};
  int computed = 0, none = 0, rest = 0;
  for (int i = 0; i < m->p->nnodes; i++) {
    const sli_pt_node *n = m->p->nodes[i];
    const sli_pt_call *row = sli_pt_call_find(n->target);
    if (is_computed(m, n)) computed++;
    else if (!m->emitted[i]) rest++;
    else if (m->pattern[i])
      add(&groups, m->pattern[i]->name, m->note[i] ? m->note[i] : m->pattern[i]->becomes);
    else if (m->note[i]) add(&groups, n->target, m->note[i]);
    else if (row->becomes && strcmp(row->becomes, "nothing") && !is_same(m, n))
      add(&calls, n->target, row->becomes);
    else none++;
  }
  fprintf(out, "%s: %d calls\n", sli_archive_path(m->p->archive), m->p->nnodes);
  print("groups and layers", &groups, out);
  print("single calls", &calls, out);
  fprintf(out,
          "%7d  computed ahead: constants\n%7d  change nothing\n"
          "%7d  within groups, or not needed for the loss\n",
          computed, none, rest);
}
