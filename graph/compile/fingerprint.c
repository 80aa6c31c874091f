/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/compile/fingerprint.h"

#include "base/base.h"

const char *sli_fingerprint_versions(const sli_lowering *l, int stages, const char *cut,
                                     sli_arena *arena) {
  int first = 0;
  bool alike = true;
  const char *all = "";
  for (int s = 0; s < stages; s++) {
    int slots = sli_lowering_versions(l, s);
    if (!first) first = slots;
    alike &= !slots || slots == first;
    all = sli_arena_format(arena, "%s%s%d", all, *all ? "," : "", SLI_MAX(slots, 1));
  }
  return alike ? sli_arena_format(arena, "%d", SLI_MAX(first, 1))
               : sli_arena_format(arena, "%s of %s", all, cut);
}

static const char *init_text(const sl_init *init, sli_arena *arena) {
  if (init->kind == SL_INIT_GIVEN)
    return sli_arena_format(arena, "given %016llx", (unsigned long long)init->given->hash);
  static const char *const names[] = {
      [SL_INIT_NORMAL] = "normal", [SL_INIT_CONSTANT] = "constant", [SL_INIT_UNIFORM] = "uniform"};
  bool known = (size_t)init->kind < SLI_COUNT(names);
  return sli_arena_format(arena, "%s %.9g", known ? names[init->kind] : "of another kind",
                          (double)init->scale);
}

int sli_fingerprint_make(const sli_fingerprint_of *of, sli_arena *arena, sl_fingerprint_item **out,
                         int *nresults) {
  sl_fingerprint_item *t = *out = sli_arena_alloc(arena, (size_t)(of->nparams + 3) * sizeof *t);
  int n = 0;
  t[n++] = (sl_fingerprint_item){"--quota param", of->versions};
  if (of->paths) t[n++] = (sl_fingerprint_item){"the stages of --paths", of->cut};
  if (of->library) t[n++] = (sl_fingerprint_item){"the library of products", of->library};
  *nresults = n;
  for (int i = 0; i < of->nparams; i++)
    t[n++] = (sl_fingerprint_item){
        sli_arena_format(arena, "the initial values of %s", of->params[i].name),
        init_text(&of->params[i].init, arena)};
  return n;
}
