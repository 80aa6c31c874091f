/* SPDX-License-Identifier: Apache-2.0 */
/* Exact sums of gradients. A leaf is a row of the data: one position of dim 0 of the inputs that
 * attrs.numbers.leaves names. Or it is some positions of a row, along dim 1 of the inputs that
 * attrs.numbers.positions names. Each leaf is a call of the op's kernel, whose f32 sum is then the
 * same in any batch and any piece. Outputs in f64 are such sums; other outputs are cut like the
 * inputs. */
#include "kernels/cpu/leaves.h"

#include <stdlib.h>

#include "base/base.h"
#include "kernels/cpu/chunk.h"
#include "kernels/cpu/kernels.h"
#include "ops/leaves.h"

enum { ALIGNED = 64 };

typedef struct leaves {
  const sl_kernel *kernel;
  int64_t rows, runs; /* positions of dim 0, and runs of positions in each */
  sl_type *in, *out;  /* types of one leaf */
  void *state;        /* state of the kernel, for a leaf */
} leaves;

static size_t aligned(size_t bytes) { return (bytes + ALIGNED - 1) / ALIGNED * ALIGNED; }

static bool is_cut(const sl_call *call, int i) { return call->attrs->numbers.leaves >> i & 1; }
static bool is_sum(const sl_call *call, int o) { return call->out_type[o].dtype == SL_F64; }

static bool has_runs(const sl_call *call, int i) { return call->attrs->numbers.positions >> i & 1; }

static void count_leaves(const sl_call *call, leaves *l) {
  l->rows = l->runs = 1;
  for (int i = 0; i < call->nin; i++) {
    if (is_cut(call, i)) l->rows = call->in_type[i].dim[0];
    if (has_runs(call, i)) l->runs = call->in_type[i].dim[1] / call->attrs->numbers.leaf;
  }
}

static void cut_types(const sl_call *call, leaves *l) {
  int types = SLI_MAX(call->nin, call->op->max_in);
  for (int i = 0; i < types; i++) {
    l->in[i] = call->in_type[i];
    if (i < call->nin && is_cut(call, i)) l->in[i].dim[0] /= l->rows;
    if (i < call->nin && has_runs(call, i)) l->in[i].dim[1] /= l->runs;
  }
  for (int o = 0; o < call->nout; o++) {
    sl_type *out = &l->out[o];
    *out = call->out_type[o];
    if (is_sum(call, o)) out->dtype = SL_F32;
    else if (out->ndim) out->dim[0] /= l->rows;
    if (!is_sum(call, o) && out->ndim > 1) out->dim[1] /= l->runs;
  }
}

static sl_call leaf_of(const sl_call *call, const leaves *l) {
  sl_call leaf = *call;
  leaf.in_type = l->in;
  leaf.out_type = l->out;
  leaf.state = l->state;
  return leaf;
}

static void leaves_release(void *state) {
  leaves *l = state;
  if (!l) return;
  if (l->state && l->kernel->release) l->kernel->release(l->state);
  free(l->in);
  free(l->out);
  free(l);
}

static sl_status leaves_prepare(const sl_call *call, void **state) {
  leaves *l = sli_calloc(1, sizeof *l);
  l->kernel = sli_cpu_kernel(call->op);
  l->in = sli_calloc((size_t)SLI_MAX(call->nin, call->op->max_in) + 1, sizeof *l->in);
  l->out = sli_calloc((size_t)call->nout + 1, sizeof *l->out);
  count_leaves(call, l);
  cut_types(call, l);
  sl_call leaf = leaf_of(call, l);
  sl_status status = l->kernel->prepare ? l->kernel->prepare(&leaf, &l->state) : SL_OK;
  if (status) leaves_release(l);
  else *state = l;
  return status;
}

static size_t sums_bytes(const sl_call *call, const leaves *l) {
  size_t bytes = 0;
  for (int o = 0; o < call->nout; o++)
    if (is_sum(call, o)) bytes += aligned(sl_type_bytes(&l->out[o]));
  return bytes;
}

static size_t leaves_scratch(const sl_call *call, int threads) {
  const leaves *l = call->state;
  sl_call leaf = leaf_of(call, l);
  size_t own = l->kernel->scratch ? l->kernel->scratch(&leaf, threads) : 0;
  return sums_bytes(call, l) + aligned(own);
}

typedef struct adding {
  const sl_type *type;
  const float *from;
  double *to;
  bool add;
} adding;

static void add_chunk(void *arg, int i) {
  const adding *a = arg;
  sli_range r = sli_elements(a->type, i);
  for (int64_t e = r.begin; e < r.end; e++)
    a->to[e] = (a->add ? a->to[e] : 0) + sli_leaf_round(a->from[e]);
}

/* Adds a leaf's sums to the outputs. */
static void add_sums(const sl_call *call, const sl_call *leaf, bool first) {
  for (int o = 0; o < call->nout; o++) {
    if (!is_sum(call, o) || !call->out[o]) continue;
    adding a = {&leaf->out_type[o], leaf->out[o], call->out[o], !first || sli_accumulates(call, o)};
    sl_team_for(call->team, sli_element_chunks(a.type), add_chunk, &a);
  }
}

/* Sets the arguments of leaf number `at`, counted by rows and then runs; its sums are in the
 * scratch. */
static void place(const sl_call *call, const leaves *l, int64_t at, const void **in, void **out) {
  char *sums = call->scratch;
  for (int i = 0; i < call->nin; i++) {
    int64_t leaf = has_runs(call, i) ? at : is_cut(call, i) ? at / l->runs : 0;
    int64_t offset = leaf * (int64_t)sl_type_bytes(&l->in[i]);
    in[i] = call->in[i] ? (const char *)call->in[i] + offset : NULL;
  }
  for (int o = 0; o < call->nout; o++) {
    size_t bytes = sl_type_bytes(&l->out[o]);
    if (is_sum(call, o)) out[o] = call->out[o] ? sums : NULL, sums += aligned(bytes);
    else out[o] = call->out[o] ? (char *)call->out[o] + at * (int64_t)bytes : NULL;
  }
}

static void leaves_run(const sl_call *call) {
  const leaves *l = call->state;
  const void *in[call->nin + 1];
  void *out[call->nout + 1];
  sl_call leaf = leaf_of(call, l);
  leaf.in = in;
  leaf.out = out;
  leaf.accumulate = 0;
  leaf.scratch = (char *)call->scratch + sums_bytes(call, l);
  for (int64_t at = 0; at < l->rows * l->runs; at++) {
    place(call, l, at, in, out);
    leaf.tick.row = call->tick.row + at % l->runs * call->attrs->numbers.leaf;
    l->kernel->run(&leaf);
    add_sums(call, &leaf, !at);
  }
}

const sl_kernel sli_cpu_leaves = {
    .backend = "cpu",
    .run = leaves_run,
    .scratch = leaves_scratch,
    .prepare = leaves_prepare,
    .release = leaves_release,
};
