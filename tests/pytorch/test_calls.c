/* SPDX-License-Identifier: Apache-2.0 */
/* Checks that the list of calls in docs/pytorch.md matches the table of calls from which it is
 * generated. The argument `write` writes the list.
 * labels: unthreaded smoke */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "io/file.h"
#include "pytorch/import.h"
#include "tests/support/test.h"

static const char begin[] = "which writes it anew when run with `write` -->\n",
                  end[] = "<!-- end -->";

static char *page_path(void) {
  const char *source = getenv("SLUICE_SOURCE");
  return sli_format("%s/docs/pytorch.md", source ? source : ".");
}

/* Prints a line for each target of calls, with all calls that become it. */
static void list_calls(FILE *out) {
  const sli_pt_call *a, *b;
  fputs("| call (`aten.`) | becomes |\n| --- | --- |\n", out);
  for (int i = 0; (a = sli_pt_call_at(i)); i++) {
    bool first = a->becomes != NULL;
    for (int k = 0; first && k < i; k++) {
      b = sli_pt_call_at(k);
      first = !b->becomes || strcmp(a->becomes, b->becomes) != 0;
    }
    if (!first) continue;
    fputs("| ", out);
    for (int k = i; (b = sli_pt_call_at(k)); k++)
      if (b->becomes && !strcmp(a->becomes, b->becomes))
        fprintf(out, "%s`%s`", k == i ? "" : ", ",
                !strncmp(b->target, "aten.", 5) ? b->target + 5 : b->target);
    fprintf(out, " | %s |\n", a->becomes);
  }
}

static char *made(const char *page) {
  char *text;
  size_t bytes;
  const char *from = strstr(page, begin), *to = from ? strstr(from, end) : NULL;
  CHECK(to, "docs/pytorch.md has no place for the list");
  FILE *out = open_memstream(&text, &bytes);
  fwrite(page, 1, (size_t)(from - page) + sizeof begin - 1, out);
  list_calls(out);
  fputs(to, out);
  fclose(out);
  return text;
}

static void names_are_different(void) {
  const sli_pt_call *a, *b;
  for (int i = 0; (a = sli_pt_call_at(i)); i++)
    for (int k = i + 1; (b = sli_pt_call_at(k)); k++)
      CHECK(strcmp(a->target, b->target), "two rows of the table are for %s", a->target);
}

static void page_is_the_table(bool writes) {
  char *path = page_path(), *is;
  CHECK(!sli_file_read(path, &is), "%s", sl_detail());
  char *text = made(is);
  if (writes) {
    FILE *f = fopen(path, "w");
    CHECK(f && fputs(text, f) >= 0 && !fclose(f), "%s cannot be written", path);
  } else
    CHECK(!strcmp(is, text),
          "docs/pytorch.md is not what the table says; test_pytorch_calls write makes it anew");
  free(is);
  free(text);
  free(path);
}

int main(int argc, char **argv) {
  bool writes = argc > 1 && !strcmp(argv[1], "write");
  RUN(names_are_different);
  RUN(page_is_the_table, writes);
  return 0;
}
