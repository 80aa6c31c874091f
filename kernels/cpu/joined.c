/* SPDX-License-Identifier: Apache-2.0 */
/* Search for calls that a team can run as one. */
#include "kernels/cpu/joined.h"

#include "base/base.h"
#include "kernels/bind.h"
#include "kernels/cpu/served.h"

/* Ops with a kernel for joined calls. */
static const struct {
  const sl_op *op;
  void (*run)(const sl_call *calls, int n);
} joining[] = {{&sl_op_linear_served, sli_linear_served_joined}};

static int find_joining(const sl_op *op) {
  int i = 0;
  while (i < (int)SLI_COUNT(joining) && joining[i].op != op) i++;
  return i;
}

void sli_joined_run(const sl_call *calls, int n) { joining[find_joining(calls->op)].run(calls, n); }

/* ---- which calls are joined ------------------------------------------------------------------ */

static bool overlap(sl_place a, const sl_type *as, sl_place b, const sl_type *bs) {
  return a.base == b.base && a.offset < b.offset + sl_type_bytes(bs) &&
         b.offset < a.offset + sl_type_bytes(as);
}

/* Returns true if `other` reads or writes the output of `c`. */
static bool touches(const sl_program_call *other, const sl_program_call *c) {
  bool any = overlap(*other->out, other->out_type, *c->out, c->out_type);
  for (int i = 0; i < other->nin; i++)
    any |=
        other->in[i].base >= 0 && overlap(other->in[i], &other->in_type[i], *c->out, c->out_type);
  return any;
}

/* Returns true if the call writes only to the workspace, which aliases nothing else. */
static bool can_join(const sl_program *program, const sl_program_call *c) {
  return find_joining(c->op) < (int)SLI_COUNT(joining) && c->nin <= SLI_JOINED_INPUTS &&
         c->nout == 1 && c->out->base == program->nbases - 1;
}

static bool joins(const sl_program *program, const sl_program_call *first, int n) {
  const sl_program_call *c = first + n;
  if (c->op != first->op || !can_join(program, c)) return false;
  for (int i = 0; i < n; i++)
    if (touches(&first[i], c) || touches(c, &first[i])) return false;
  return true;
}

int32_t *sli_joined_find(const sl_program *program) {
  int all = sli_program_call_count(program);
  int32_t *found = sli_calloc((size_t)all + 1, sizeof *found);
  for (int i = 0, n; i < all; i += n) {
    int end = SLI_MIN((i / program->ncalls + 1) * program->ncalls, i + SLI_JOINED);
    for (n = 1; can_join(program, &program->calls[i]) && i + n < end &&
                joins(program, &program->calls[i], n);)
      n++;
    for (int k = 0; k < n; k++) found[i + k] = n - k;
  }
  return found;
}
