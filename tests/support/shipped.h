/* SPDX-License-Identifier: Apache-2.0 */
/* The graph of a shipped model, as the sharding passes receive it. */
#ifndef SLUICE_TESTS_SUPPORT_SHIPPED_H
#define SLUICE_TESTS_SUPPORT_SHIPPED_H

#include <string.h>

#include <sluice/sluice.h>

#include "base/base.h"
#include "graph/passes/passes.h"
#include "models/models.h"
#include "tests/support/test.h"

static inline void shipped_feed(void *ctx, const sl_tick *tick, int32_t *tokens, int64_t count) {
  (void)ctx, (void)tick;
  memset(tokens, 0, (size_t)count * sizeof *tokens);
}

/* Returns the path of a small text in the reference folder; the caller frees it. */
static inline char *shipped_text(void) {
  const char *source = getenv("SLUICE_SOURCE");
  return sli_format("%s/tests/reference/text.txt", source ? source : ".");
}

/* Makes the graph; `words` are options as on a command line, without "--data". */
static inline sl_graph *shipped_graph(const char *model, char *const *words, int microbatches,
                                      int pieces) {
  const sl_model *const *m = sli_models;
  while (*m && strcmp((*m)->name, model)) m++;
  CHECK(*m, "there is a model %s", model);
  sl_args *args;
  int used;
  char *text = shipped_text(), *data[] = {"--data", text};
  CHECK(!sl_args_create((*m)->options, &args), "%s", sl_detail());
  CHECK(!sl_args_take(args, 2, data, &used) && used, "option --data");
  for (; *words; words += used)
    CHECK(!sl_args_take(args, words[1] ? 2 : 1, words, &used) && used, "option %s", *words);
  sl_graph *g =
      sl_graph_create(&(sl_graph_options){.microbatches = microbatches, .pieces = pieces});
  CHECK(!(*m)->build(g, args), "%s", sl_detail());
  CHECK(!sli_pass_cut(g, NULL) && !sli_pass_gradients(g) && !sli_pass_pieces(g), "%s", sl_detail());
  sl_args_destroy(args);
  free(text);
  return g;
}

static inline const sli_node *shipped_node(const sl_graph *g, const char *name) {
  for (int i = 0; i < g->nnodes; i++)
    if (!strcmp(g->nodes[i]->name, name)) return g->nodes[i];
  CHECK(0, "there is no node %s", name);
  return NULL;
}

#endif
