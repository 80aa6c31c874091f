/* SPDX-License-Identifier: Apache-2.0 */
/* Every op that <sluice/ops.h> declares for models, or ops/ops.h for passes, has a line in
 * ops/ops.def. Every line makes a row that can be found by name and has all required fields.
 * labels: unthreaded smoke */
#include <ctype.h>
#include <string.h>

#include <sluice/ops.h>

#include "base/base.h"
#include "kernels/cpu/kernels.h"
#include "ops/facets.h"
#include "tests/support/test.h"

static const char *const names[] = {
#define OP(name, ...) #name,
#include "ops/ops.def"
#undef OP
};

static bool has_line(const char *name) {
  for (size_t i = 0; i < SLI_COUNT(names); i++)
    if (!strcmp(names[i], name)) return true;
  return false;
}

static void check_rows(void) {
  for (size_t i = 0; i < SLI_COUNT(names); i++) {
    const sl_op *op = sl_op_find(names[i]);
    const sl_kernel *kernel = op ? sli_cpu_kernel(op) : NULL;
    CHECK(op && op == sl_ops[i], "%s is not found, or elsewhere", names[i]);
    CHECK(op->infer && kernel && kernel->run, "%s has no shape rule or no kernel", op->name);
    CHECK(!kernel->release || kernel->prepare, "%s releases what nothing prepares", op->name);
    CHECK(!kernel->prepare == !sli_op_rows(op)->fixed,
          "%s is prepared for its types, or not, and says otherwise", op->name);
    CHECK(!sli_op_memory(op)->keeps || kernel->prepare, "%s keeps what nothing prepares", op->name);
    CHECK(!op->rematerialized || sli_op_memory(op)->updates,
          "%s updates nothing, and is another row when made again", op->name);
  }
  CHECK(!sl_ops[SLI_COUNT(names)], "there are more rows than lines");
}

/* Checks the names that follow "extern const sl_op " up to each semicolon; returns their number. */
static int check_declarations(const char *source, const char *header) {
  char line[512], word[128];
  snprintf(line, sizeof line, "%s/%s", source, header);
  FILE *f = fopen(line, "r");
  CHECK(f, "%s cannot be read", line);
  int count = 0;
  bool inside = false;
  while (fgets(line, sizeof line, f)) {
    inside |= !strncmp(line, "extern const sl_op sl_op_", 25);
    for (const char *at = line; inside && (at = strstr(at, "sl_op_")); count++) {
      size_t n = 0;
      for (at += 6; isalnum((unsigned char)*at) || *at == '_'; at++) word[n++] = *at;
      word[n] = 0;
      CHECK(has_line(word), "%s is declared, and has no line in ops/ops.def", word);
    }
    inside &= !strchr(line, ';');
  }
  fclose(f);
  return count;
}

int main(void) {
  RUN(check_rows);
  const char *source = getenv("SLUICE_SOURCE");
  if (!source) {
    printf("skipped: SLUICE_SOURCE does not say where the headers are\n");
    return 77;
  }
  int count = check_declarations(source, "include/sluice/ops.h");
  count += check_declarations(source, "include/sluice/attention.h");
  count += check_declarations(source, "include/sluice/experts.h");
  count += check_declarations(source, "include/sluice/frames.h");
  count += check_declarations(source, "include/sluice/functions.h");
  count += check_declarations(source, "ops/ops.h");
  count += check_declarations(source, "ops/splice.h");
  CHECK(count == (int)SLI_COUNT(names), "%d ops are declared, %d have a line", count,
        (int)SLI_COUNT(names));
  return 0;
}
