/* SPDX-License-Identifier: Apache-2.0 */
/* A program whose locale writes numbers with a comma is refused, because it would misread them. */
#include <locale.h>
#include <string.h>

#include <sluice/sluice.h>

#include "tests/support/test.h"

static char point[] = ".";

/* Takes the place of the C library's function, since a machine may have no such locale. */
struct lconv *localeconv(void) {
  static struct lconv conventions;
  conventions.decimal_point = point;
  return &conventions;
}

static void a_comma_is_refused(void) {
  sl_graph *g = sl_graph_create(NULL);
  CHECK(!sl_graph_status(g), "%s", sl_detail());
  sl_graph_destroy(g);
  *point = ',';
  g = sl_graph_create(NULL);
  CHECK(sl_graph_status(g) == SL_E_USAGE && strstr(sl_detail(), "LC_NUMERIC"), "%s", sl_detail());
  sl_graph_destroy(g);
}

int main(void) {
  RUN(a_comma_is_refused);
  return 0;
}
