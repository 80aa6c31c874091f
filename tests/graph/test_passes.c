/* SPDX-License-Identifier: Apache-2.0 */
/* Checks that docs/passes.md matches the table of passes from which it is generated. The argument
 * `write` writes the page.
 * labels: unthreaded smoke */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "graph/compile/compile.h"
#include "tests/support/test.h"

static const char head[] =
    "# Passes\n"
    "\n"
    "<!-- Made from the table of passes: tests/graph/test_passes.c, which writes it anew when run with\n"
    "`write`. -->\n"
    "\n"
    "`sl_lower` runs these passes over a model's graph, in this order, before it makes a plan of it.\n"
    "The table is in `graph/compile/passes.c`. `actorrun --print-after NAME` prints the graph after a\n"
    "pass, without a run: a line for each node, with its class, block, device, op, inputs and outputs.\n"
    "\n"
    "| pass | runs on | change |\n"
    "| --- | --- | --- |\n";

static char *made(void) {
  char *text;
  size_t bytes;
  FILE *out = open_memstream(&text, &bytes);
  const sli_pass_info *p;
  fputs(head, out);
  for (int i = 0; (p = sli_pass_at(i)); i++)
    fprintf(out, "| `%s` | %s | %s |\n", p->name, p->when, p->summary);
  fclose(out);
  return text;
}

static void check_names(void) {
  const sli_pass_info *p, *q;
  for (int i = 0; (p = sli_pass_at(i)); i++)
    for (int k = i + 1; (q = sli_pass_at(k)); k++)
      CHECK(strcmp(p->name, q->name), "two passes are called %s", p->name);
}

int main(int argc, char **argv) {
  char path[4096], *text = made();
  const char *source = getenv("SLUICE_SOURCE");
  snprintf(path, sizeof path, "%s/docs/passes.md", source ? source : ".");
  bool writes = argc > 1 && !strcmp(argv[1], "write");
  FILE *f = fopen(path, writes ? "w" : "r");
  CHECK(f, "%s cannot be opened", path);
  RUN(check_names);
  if (writes) fputs(text, f);
  else {
    char *is = calloc(1, 1 << 16);
    size_t n = fread(is, 1, (1 << 16) - 1, f);
    CHECK(n == strlen(text) && !memcmp(is, text, n),
          "docs/passes.md is not what the table says; test_graph_passes write makes it anew");
    free(is);
  }
  fclose(f);
  free(text);
}
