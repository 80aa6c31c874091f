/* SPDX-License-Identifier: Apache-2.0 */
/* Attributes as tables: each field of each kind and group changes the hash, shows in the text of a
 * call's attributes and makes two calls unequal; an op refuses the fields of other kinds by name;
 * and ops that replace an op, or compute its gradient, take its kinds.
 * labels: unthreaded smoke */
#include <string.h>

#include <sluice/ops.h>

#include "ops/ops.h"
#include "tests/support/test.h"

enum { MOST = 512 };

/* Sets every byte of element i of a field that makes it 1. */
static void set(sl_attrs *attrs, const sl_attrs_field *f, int i) {
  char *at = (char *)attrs + f->offset;
  switch (f->type) {
  case SL_ATTRS_bool: ((bool *)at)[i] = true; break;
  case SL_ATTRS_int: ((int *)at)[i] = 1; break;
  case SL_ATTRS_int32_t: ((int32_t *)at)[i] = 1; break;
  case SL_ATTRS_uint32_t: ((uint32_t *)at)[i] = 1; break;
  case SL_ATTRS_int64_t: ((int64_t *)at)[i] = 1; break;
  case SL_ATTRS_uint64_t: ((uint64_t *)at)[i] = 1; break;
  case SL_ATTRS_float: ((float *)at)[i] = 1; break;
  }
}

/* ---- one field at a time -------------------------------------------------------------------- */

static uint64_t seen[MOST];
static int nseen;

static void check_field(const sl_attrs_kind *kind, const sl_attrs_field *f, bool is_group) {
  const sl_op takes = {.name = "takes", .attrs = {is_group ? NULL : kind}},
              other = {.name = "other",
                       .attrs = {kind == &sl_attrs_norm ? &sl_attrs_fill : &sl_attrs_norm}};
  char text[256], name[80];
  for (int i = 0; i < f->length; i++) {
    sl_attrs attrs = {0}, none = {0};
    set(&attrs, f, i);
    uint64_t hash = sli_hash_attrs(SLI_HASH_SEED, &takes, &attrs, 1);
    for (int s = 0; s < nseen; s++)
      CHECK(seen[s] != hash, "%s.%s[%d] has a hash of its own", kind->name, f->name, i);
    CHECK(nseen < MOST, "more than %d fields", MOST);
    seen[nseen++] = hash;
    CHECK(sli_attrs_equal(&takes, &attrs, &none) == (kind == &sl_attrs_random),
          "%s.%s[%d] makes calls unequal, unless it is random", kind->name, f->name, i);
    snprintf(name, sizeof name, " %s=", f->name);
    CHECK(strstr(sl_attrs_format(text, sizeof text, &takes, &attrs), name), "%s.%s is in '%s'",
          kind->name, f->name, text);
    CHECK(!sli_attrs_check(&takes, &attrs), "%s", sl_detail());
    if (is_group) continue;
    CHECK(sli_attrs_check(&other, &attrs) == SL_E_SHAPE, "%s.%s is refused", kind->name, f->name);
    snprintf(name, sizeof name, "attrs.%s.%s", kind->name, f->name);
    CHECK(strstr(sl_detail(), name), "'%s' names %s", sl_detail(), name);
  }
}

static void every_field_counts(void) {
  seen[nseen++] = sli_hash_attrs(SLI_HASH_SEED, &(const sl_op){.name = "takes"}, &(sl_attrs){0}, 1);
  for (int k = 0; sl_attrs_kinds[k]; k++)
    for (const sl_attrs_field *f = sl_attrs_kinds[k]->fields; f->name; f++)
      check_field(sl_attrs_kinds[k], f, false);
  for (int k = 0; sl_attrs_groups[k]; k++)
    for (const sl_attrs_field *f = sl_attrs_groups[k]->fields; f->name; f++)
      check_field(sl_attrs_groups[k], f, true);
}

static void texts_are_cut(void) {
  const sl_op op = {.name = "op", .attrs = {&sl_attrs_attention}};
  sl_attrs attrs = {.attention.heads = 4, .attention.window = 64, .numbers.part = {0, 2}};
  char text[64], few[8];
  CHECK(!strcmp(sl_attrs_format(text, sizeof text, &op, &attrs), " heads=4 window=64 part=0,2,0"),
        "got '%s'", text);
  CHECK(!strcmp(sl_attrs_format(few, sizeof few, &op, &attrs), " heads="), "got '%s'", few);
}

/* ---- related ops ---------------------------------------------------------------------------- */

static void check_takes(const sl_op *op, const sl_op *related, const char *how) {
  for (int k = 0; related && k < SL_OP_KINDS && op->attrs[k]; k++) {
    bool takes = false;
    for (int r = 0; r < SL_OP_KINDS; r++) takes |= related->attrs[r] == op->attrs[k];
    CHECK(takes, "%s, %s of %s, does not take attrs.%s", related->name, how, op->name,
          op->attrs[k]->name);
  }
}

static void related_ops_take_the_kinds(void) {
  for (int i = 0; sl_ops[i]; i++) {
    const sl_op *op = sl_ops[i];
    for (int r = 0; r < SL_GRAD_RULES && op->grad[r].nwrt; r++)
      check_takes(op, op->grad[r].op, "the gradient");
    check_takes(op, op->rematerialized, "what recomputes an output");
    if (op->serve) check_takes(op, op->serve->op, "the served form");
    if (!op->cut) continue;
    check_takes(op, op->cut->pieced, "the form for pieces");
    check_takes(op, op->cut->parts, "the parts");
    check_takes(op, op->cut->swept, "the sweep");
  }
}

int main(void) {
  RUN(every_field_counts);
  RUN(texts_are_cut);
  RUN(related_ops_take_the_kinds);
  return 0;
}
